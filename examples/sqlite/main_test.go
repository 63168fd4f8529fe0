//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestScripted(t *testing.T) {
	out, dir := exampletest.Scripted(t, "examples/sqlite/script.yaml", run)
	for _, want := range []string{"8.693 million", "January 2008", "February 2010", "May 2014", `saved "sectors.csv"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if got := string(exampletest.Read(t, dir, "sectors.csv")); !strings.Contains(got, "manufacturing,-2272\n") || strings.Count(got, "\n") != 9 {
		t.Errorf("sectors.csv:\n%s", got)
	}
	if made := exampletest.Glob(t, dir, "*"); len(made) != 2 {
		t.Errorf("there are %d files: %v", len(made), filepath.Base(made[0]))
	}
}

func TestReal(t *testing.T) {
	out, _ := exampletest.Real(t, run)
	for _, want := range []string{"2008", "2010", "2014"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
