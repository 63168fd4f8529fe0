package template

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDigest: what a sandbox is made of changes its digest, and nothing else does.
func TestDigest(t *testing.T) {
	prefix := t.TempDir()
	python := filepath.Join(prefix, "python3")
	if err := os.WriteFile(python, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	tools := Toolchain{Python: Interpreter{Path: python, Prefixes: []string{prefix}}, Node: Interpreter{Missing: "none"}}
	was := Digest(tools, "guest-1", []string{"PATH=/bin"})
	if again := Digest(tools, "guest-1", []string{"PATH=/bin"}); again != was {
		t.Errorf("%s, then %s", was, again)
	}
	other := tools
	other.Node = Interpreter{Path: "/usr/bin/env"}
	for name, got := range map[string]string{
		"the guest":              Digest(tools, "guest-2", []string{"PATH=/bin"}),
		"the environment":        Digest(tools, "guest-1", []string{"PATH=/usr/bin"}),
		"another interpreter":    Digest(other, "guest-1", []string{"PATH=/bin"}),
		"a replaced interpreter": digestAfter(t, tools, func() error { return os.WriteFile(python, []byte("newer"), 0o755) }),
		"an interpreter of another date": digestAfter(t, tools, func() error {
			return os.Chtimes(python, time.Unix(1, 0), time.Unix(1, 0))
		}),
		"a package more": digestAfter(t, tools, func() error {
			if err := os.Mkdir(filepath.Join(prefix, "lib"), 0o755); err != nil {
				return err
			}
			return os.Chtimes(prefix, time.Unix(2, 0), time.Unix(2, 0))
		}),
	} {
		if got == was {
			t.Errorf("%s does not change it", name)
		}
	}
}

func digestAfter(t *testing.T, tools Toolchain, change func() error) string {
	t.Helper()
	if err := change(); err != nil {
		t.Fatal(err)
	}
	return Digest(tools, "guest-1", []string{"PATH=/bin"})
}
