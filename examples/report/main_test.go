//go:build linux

package main

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

// picture is one that a page holds.
var picture = regexp.MustCompile(`src="data:image/png;base64,([A-Za-z0-9+/=]+)"`)

func TestScripted(t *testing.T) {
	exampletest.NeedModule(t, "matplotlib")
	out, dir := exampletest.Scripted(t, "examples/report/script.yaml", run)
	if !strings.Contains(out, "from 316.0 ppm (1959) to 411.5 ppm (2019)") {
		t.Errorf("the answer:\n%s", out)
	}
	page := string(exampletest.Read(t, dir, "report.html"))
	for _, want := range []string{"<b>316.0 ppm</b>", "<b>411.5 ppm</b>", "2.41 ppm", "Scripps CO2 Program, CC BY 4.0", "</html>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the report", want)
		}
	}
	pictures := picture.FindAllStringSubmatch(page, -1)
	if len(pictures) != 2 {
		t.Errorf("the report holds %d pictures", len(pictures))
	}
	for _, p := range pictures {
		data, err := base64.StdEncoding.DecodeString(p[1])
		if err != nil {
			t.Fatal(err)
		}
		exampletest.Picture(t, data)
	}
	for _, name := range []string{"co2-record.png", "co2-season.png"} {
		exampletest.Picture(t, exampletest.Read(t, dir, name))
	}
}

func TestReal(t *testing.T) {
	_, dir := exampletest.Real(t, run)
	page := string(exampletest.Read(t, dir, "report.html"))
	if !strings.Contains(page, "Scripps") || !strings.Contains(page, "411.") {
		t.Errorf("the source or the number of 2019 is missing:\n%.2000s", page)
	}
	if !strings.Contains(page, "data:image/") && !strings.Contains(page, "<svg") {
		t.Error("the report holds no picture")
	}
}
