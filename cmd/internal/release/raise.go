package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// versionFile is where Cubby's own version is a constant.
const versionFile = "internal/version/version.go"

var versionConst = regexp.MustCompile(`(?m)^const Version = "[^"]*"$`)

// sibling is one of the repository's modules.
type sibling struct {
	dir  string // relative to the repository, with slashes; "." is the root
	path string
	file *modfile.File
}

// raise sets version everywhere in tree and writes the modules to proxy.
func raise(tree, version, proxy string) error {
	if semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version such as v0.3.0", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return fmt.Errorf("%s: the modules' paths would have to end in /%s", version, major)
	}
	tree, err := filepath.Abs(tree)
	if err != nil {
		return err
	}
	if proxy, err = filepath.Abs(proxy); err != nil {
		return err
	}
	siblings, err := workspace(tree, version)
	if err != nil {
		return err
	}
	if err := setConstant(filepath.Join(tree, versionFile), version); err != nil {
		return err
	}
	for _, s := range siblings {
		if err := s.require(tree, siblings, version); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	ordered, err := order(siblings)
	if err != nil {
		return err
	}
	// A module's go.sum is part of its sum: those that it requires come first.
	sums := map[string][]string{}
	for _, s := range ordered {
		if err := s.writeSums(tree, siblings, sums); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		if sums[s.path], err = publish(tree, s.dir, module.Version{Path: s.path, Version: version}, proxy); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}

// workspace reads the modules that go.work names and sets the version that it
// replaces with their folders.
func workspace(tree, version string) ([]*sibling, error) {
	name := filepath.Join(tree, "go.work")
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, content, nil)
	if err != nil {
		return nil, err
	}
	var siblings []*sibling
	for _, use := range work.Use {
		file, err := parse(filepath.Join(tree, use.Path, "go.mod"))
		if err != nil {
			return nil, err
		}
		siblings = append(siblings, &sibling{dir: filepath.ToSlash(filepath.Clean(use.Path)), path: file.Module.Mod.Path, file: file})
	}
	for _, r := range work.Replace {
		if find(siblings, r.Old.Path) == nil || r.Old.Version == "" {
			continue
		}
		// The line is changed, and not made anew: the block's comment stays.
		if i := slices.Index(r.Syntax.Token, r.Old.Version); i >= 0 {
			r.Syntax.Token[i] = version
		}
	}
	return siblings, os.WriteFile(name, modfile.Format(work.Syntax), 0o644)
}

func parse(name string) (*modfile.File, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, content, nil)
	if err == nil && file.Module == nil {
		err = fmt.Errorf("%s names no module", name)
	}
	return file, err
}

func find(siblings []*sibling, path string) *sibling {
	for _, s := range siblings {
		if s.path == path {
			return s
		}
	}
	return nil
}

func setConstant(name, version string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(versionConst.FindAll(content, -1)) != 1 {
		return fmt.Errorf("%s does not hold one line like const Version = \"0.3.0\"", name)
	}
	content = versionConst.ReplaceAll(content, fmt.Appendf(nil, "const Version = %q", strings.TrimPrefix(version, "v")))
	return os.WriteFile(name, content, 0o644)
}

// require sets what s requires of its siblings. A replace or an exclude is an error:
// go install PACKAGE@VERSION refuses a module with one.
func (s *sibling) require(tree string, siblings []*sibling, version string) error {
	if len(s.file.Replace)+len(s.file.Exclude) > 0 {
		return errors.New("go.mod has a replace or an exclude, with which go install refuses it: use go.work")
	}
	for _, r := range s.file.Require {
		if find(siblings, r.Mod.Path) == nil {
			continue
		}
		if err := s.file.AddRequire(r.Mod.Path, version); err != nil {
			return err
		}
	}
	content, err := s.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(tree, s.dir, "go.mod"), content, 0o644)
}

// order returns the siblings so that each comes after those that it requires.
func order(siblings []*sibling) ([]*sibling, error) {
	var ordered []*sibling
	for len(ordered) < len(siblings) {
		before := len(ordered)
		for _, s := range siblings {
			waits := slices.ContainsFunc(s.file.Require, func(r *modfile.Require) bool {
				other := find(siblings, r.Mod.Path)
				return other != nil && !slices.Contains(ordered, other)
			})
			if !waits && !slices.Contains(ordered, s) {
				ordered = append(ordered, s)
			}
		}
		if len(ordered) == before {
			return nil, errors.New("the modules require each other in a circle: none can be published first")
		}
	}
	return ordered, nil
}

// writeSums puts the sums of the siblings that s requires into its go.sum, in place
// of those that are there.
func (s *sibling) writeSums(tree string, siblings []*sibling, sums map[string][]string) error {
	name := filepath.Join(tree, s.dir, "go.sum")
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lines := map[module.Version][]string{}
	add := func(line string) {
		if f := strings.Fields(line); len(f) == 3 {
			m := module.Version{Path: f[0], Version: f[1]}
			lines[m] = append(lines[m], line)
		}
	}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if path, _, _ := strings.Cut(line, " "); find(siblings, path) == nil {
			add(line)
		}
	}
	for _, r := range s.file.Require {
		for _, line := range sums[r.Mod.Path] {
			add(line)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	var keys []module.Version
	for m := range lines {
		keys = append(keys, m)
	}
	module.Sort(keys) // as the go command does
	var b strings.Builder
	for _, m := range keys {
		for _, line := range lines[m] {
			b.WriteString(line + "\n")
		}
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}
