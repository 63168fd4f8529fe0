//go:build linux

package settings

import (
	"path/filepath"
	"strings"
	"testing"
)

func FuzzPaths(f *testing.F) {
	a := Account{Home: "/home/user"}
	for _, s := range []string{"", "~", "~/x", "a/../../b", "/../..", "//a", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := a.Path(s)
		if err == nil && (p != filepath.Clean(p) || !strings.HasPrefix(p, "/") || strings.Contains(p, "\x00")) {
			t.Fatalf("%q became %q", s, p)
		}
	})
}
