//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent/toolbox"
	"github.com/cubby-sandbox/cubby/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestScripted(t *testing.T) {
	out, dir := exampletest.Scripted(t, "examples/keeptool/script.yaml", run)
	for _, want := range []string{
		"The French number FR14 2004 1010 0505 0001 3M02 606 is valid.",
		`check_iban("DE89 3704 0044 0532 0130 00"): {"valid": true, "country": "DE"}`,
		`check_iban("DE89 3704 0044 0532 0130 01"): {"valid": false, "reason": "the check digits do not fit"}`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	box, err := toolbox.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := box.List(t.Context())
	if err != nil || len(kept) != 1 || kept[0].Name != "check_iban" {
		t.Errorf("kept: %+v, %v", kept, err)
	}
}

func TestReal(t *testing.T) {
	out, _ := exampletest.Real(t, run)
	called := out[strings.Index(out, "this program calls"):]
	if !strings.Contains(out, "FR14") || strings.Count(strings.ReplaceAll(called, " ", ""), `"valid":true`) != 1 ||
		strings.Count(strings.ReplaceAll(called, " ", ""), `"valid":false`) != 1 {
		t.Errorf("the tool's results:\n%s", out)
	}
}
