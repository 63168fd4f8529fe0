//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestScripted(t *testing.T) {
	out, dir := exampletest.Scripted(t, "examples/retrieval/script.yaml", run)
	if n := strings.Count(out, "\ncited: "); n != 4 {
		t.Errorf("%d files are cited:\n%s", n, out)
	}
	check(t, out)
	check(t, string(exampletest.Read(t, dir, "answer.md")))
}

func TestReal(t *testing.T) {
	out, _ := exampletest.Real(t, run)
	check(t, out)
}

// check looks for what no model can know, and for where it stands.
func check(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{"B-17", "[texts/anemometer.md]", "red lid", "[texts/stores.md]", "Ines", "[texts/people.md]", "8 m/s", "[texts/mast.md]"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
