//go:build linux

package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What links are called and where they lead is up to programs.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"a:b\nb:d/f\x00a", "a:..\x00a/x", "a:b\nb:a\x00a", "a:/etc/passwd\x00a", "a:d/../d/./f\x00a", "a:@/d\x00a/f", "a:@\x00a/a/a/d", "a:@/../x\x00a", "d/a:../..\x00d/a", "a:d\x00a/../d/f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		spec, name, ok := strings.Cut(in, "\x00")
		if !ok || len(in) > 500 {
			return
		}
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(base, "tree")
		if err := os.MkdirAll(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "d", "f"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		for line := range strings.SplitSeq(spec, "\n") {
			link, to, _ := strings.Cut(line, ":")
			// It may be no name, or there already.
			_ = root.Symlink(strings.ReplaceAll(to, "@", dir), link)
		}
		real, err := tree{root, dir}.resolve(name)
		if err != nil {
			return
		}
		if !filepath.IsLocal(real) {
			t.Fatalf("%q leads to %q", name, real)
		}
		want, err := filepath.EvalSymlinks(dir + "/" + strings.TrimLeft(name, "/"))
		if err != nil || want != filepath.Join(dir, real) {
			// A folder's parent by way of a file is where kernels stop, and this does not.
			if _, statErr := root.Lstat(real); statErr != nil {
				t.Fatalf("%q is %q, and is not there: %v", name, real, statErr)
			}
			if err == nil {
				t.Fatalf("%q is %q, not %q", name, want, real)
			}
		}
	})
}

// A process's name is its own choice.
func FuzzParseStatus(f *testing.F) {
	f.Add("sh")
	f.Add(") Z 1 1 1")
	f.Add("a) R 7 7 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 (b")
	f.Fuzz(func(t *testing.T, name string) {
		line := "42 (" + name + ") S 10 11 12 13 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2\n"
		s, ok := parseStatus([]byte(line))
		if !ok || s != (status{parent: 10, group: 11, session: 12, began: "98765"}) {
			t.Errorf("%q: %+v", line, s)
		}
		parseStatus([]byte(name))
	})
}
