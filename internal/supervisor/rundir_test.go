//go:build linux

package supervisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestTempDir: a folder that will not do for a run folder is passed over.
func TestTempDir(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "t-") // a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	folder := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.WriteFile("file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, tmpdir, want string }{
		{"a folder", folder("good", 0o755), filepath.Join(dir, "good")},
		{"a relative path", "good", filepath.Join(dir, "good")},
		{"no folder", filepath.Join(dir, "none"), "/tmp"},
		{"a file", filepath.Join(dir, "file"), "/tmp"},
		{"a long path", folder(strings.Repeat("x", maxRunBase), 0o755), "/tmp"},
	} {
		t.Setenv("TMPDIR", test.tmpdir)
		if got := TempDir(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	closed := folder("closed", 0o700)
	t.Setenv("TMPDIR", closed)
	if got, want := TempDir(), map[bool]string{true: "/tmp", false: closed}[os.Geteuid() == 0]; got != want {
		t.Errorf("a folder that is closed to others: %s, want %s", got, want)
	}
	if os.Geteuid() != 0 {
		t.Setenv("TMPDIR", folder("read", 0o555))
		if got := TempDir(); got != "/tmp" {
			t.Errorf("a folder of mode 0555: %s", got)
		}
	}
}

// TestCurrentFolderOnPath: a cubby that a search finds in the current folder only is not
// started, and the error says so.
func TestCurrentFolderOnPath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("cubby", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUBBY_BINARY", "")
	t.Setenv("PATH", ".")
	_, err := FindBinary("")
	if e := fault.In(err); !errors.Is(err, exec.ErrDot) || e == nil || !strings.Contains(e.Hint, "CUBBY_BINARY") {
		t.Errorf("got %v", err)
	}
}
