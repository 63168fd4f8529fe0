package main

import (
	"os"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestDescribe: of a program, here that of this test, every module is listed once
// with its version, and the program with its sum.
func TestDescribe(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bom, err := describe("cubby", "0.3.0", []string{self})
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) cdx.Component {
		i := slices.IndexFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("%s is not listed: %+v", name, *bom.Components)
		}
		return (*bom.Components)[i]
	}
	if c := find("github.com/CycloneDX/cyclonedx-go"); c.Version == "" || c.Properties == nil {
		t.Errorf("a library without version or sum: %+v", c)
	}
	if c := find("github.com/cubby-sandbox/cubby/packaging"); c.Version != "v0.3.0" {
		t.Errorf("our own module has version %q", c.Version)
	}
	find("stdlib")
	refs := map[string]bool{bom.Metadata.Component.BOMRef: true}
	for _, c := range *bom.Components {
		if refs[c.BOMRef] {
			t.Errorf("%s is there twice", c.BOMRef)
		}
		refs[c.BOMRef] = true
		if c.Type == cdx.ComponentTypeApplication && (c.Hashes == nil || len((*c.Hashes)[0].Value) != 64) {
			t.Errorf("%s has no sum", c.BOMRef)
		}
	}
	for _, d := range *bom.Dependencies {
		for _, ref := range append(*d.Dependencies, d.Ref) {
			if !refs[ref] {
				t.Errorf("%s is referred to and not listed", ref)
			}
		}
	}
}
