package template

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDigest: what changes in what programs are made of changes the digest, one after the
// other, and nothing else does.
func TestDigest(t *testing.T) {
	prefix := t.TempDir()
	python, packages := filepath.Join(prefix, "python3"), filepath.Join(prefix, "lib/python3.11/site-packages")
	if err := os.WriteFile(python, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	tools := Toolchain{Python: Interpreter{Path: python, Prefixes: []string{prefix}}, Node: Interpreter{Missing: "none"}}
	was := Digest(tools)
	if again := Digest(tools); again != was {
		t.Errorf("%s, then %s", was, again)
	}
	other := tools
	other.Node = Interpreter{Path: "/usr/bin/env"}
	if Digest(other) == was {
		t.Error("another interpreter does not change it")
	}
	seen := map[string]string{was: "nothing"}
	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"a replaced interpreter", func() error { return os.WriteFile(python, []byte("newer"), 0o755) }},
		{"one that pretends to be old", func() error { return os.Chtimes(python, time.Unix(1, 0), time.Unix(1, 0)) }},
		{"a folder of packages", func() error { return os.MkdirAll(packages, 0o755) }},
		{"a package", func() error { return os.Mkdir(filepath.Join(packages, "numpy"), 0o755) }},
		{"another", func() error { return os.Rename(filepath.Join(packages, "numpy"), filepath.Join(packages, "pandas")) }},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		got := Digest(tools)
		if before, ok := seen[got]; ok {
			t.Errorf("%s: the digest is as after %s", step.name, before)
		}
		seen[got] = step.name
	}
}
