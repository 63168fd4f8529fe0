// Command sbom writes the software bill of materials of a release as CycloneDX
// JSON: the programs given and every Go module that each is built from, as the
// programs themselves tell. It is the same for the same programs, whenever and
// wherever it is made.
//
//	sbom -name cubby -version 0.3.0 PROGRAM…
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	name := flag.String("name", "cubby", "name of what the programs are part of")
	version := flag.String("version", "", "its version, without v")
	flag.Parse()
	if *version == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	bom, err := describe(*name, *version, flag.Args())
	if err == nil {
		err = cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// describe is the bill of the programs in files.
func describe(name, version string, files []string) (*cdx.BOM, error) {
	bom := cdx.NewBOM()
	root := name + "@" + version
	license := cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: root, Type: cdx.ComponentTypeApplication, Name: name, Version: version, Licenses: &license,
	}}
	components := map[string]cdx.Component{}
	var dependencies []cdx.Dependency
	var programs []string
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum, err := digest(file)
		if err != nil {
			return nil, err
		}
		program := filepath.Base(file)
		ref := program + "@" + version
		programs = append(programs, ref)
		components[ref] = cdx.Component{
			BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: program, Version: version, Licenses: &license,
			Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
			Properties: settings(info),
		}
		var needs []string
		for _, module := range modules(info, version) {
			components[module.BOMRef] = module
			needs = append(needs, module.BOMRef)
		}
		slices.Sort(needs)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &needs})
	}
	dependencies = append([]cdx.Dependency{{Ref: root, Dependencies: &programs}}, dependencies...)
	var list []cdx.Component
	for _, c := range components {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	bom.Components, bom.Dependencies = &list, &dependencies
	return bom, nil
}

// modules are those that a program is built from, Go's standard library among them.
// Modules of this repository, which go.work takes from its folders, have the
// release's version.
func modules(info *debug.BuildInfo, version string) []cdx.Component {
	all := []cdx.Component{component("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		sum := m.Sum
		if r := m.Replace; r != nil && r.Sum != "" {
			m, sum = r, r.Sum
		}
		v := m.Version
		if strings.HasPrefix(m.Path, "github.com/cubby-sandbox/cubby") {
			v, sum = "v"+version, ""
		}
		all = append(all, component(m.Path, v, sum))
	}
	return all
}

func component(path, version, sum string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

// settings are those of a build that change what is in a program.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	var list []cdx.Property
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags", "GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision", "vcs.time", "vcs.modified":
			list = append(list, cdx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	return &list
}

func digest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
