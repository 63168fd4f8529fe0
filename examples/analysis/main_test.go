//go:build linux

package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestScripted(t *testing.T) {
	out, dir := exampletest.Scripted(t, "demo", run)
	for _, want := range []string{
		"scripted model: demo", `failed: "KeyError: 'rain'"`, "2012: 1226.0 mm", "2013: 828.0 mm", "2014: 1232.8 mm", "2015: 1139.2 mm",
		"2014 was the wettest year", `saved "rain-by-year.`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, `saved "rain-by-year.png"`) {
		exampletest.Picture(t, exampletest.Read(t, dir, "rain-by-year.png"))
		return
	}
	// Without matplotlib.
	svg := xml.NewDecoder(bytes.NewReader(exampletest.Read(t, dir, "rain-by-year.svg")))
	bars := 0
	for {
		token, err := svg.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 5 {
		t.Errorf("%d rectangles: want the background and four bars", bars)
	}
}

func TestReal(t *testing.T) {
	out, dir := exampletest.Real(t, run)
	if !strings.Contains(out, "2014") || !strings.Contains(out, "2013") {
		t.Errorf("the years are missing:\n%s", out)
	}
	exampletest.Glob(t, dir, "*.[ps][nv]g")
}
