//go:build linux

package usercache

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDir(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct{ home, xdg, want string }{
		{home, "", filepath.Join(home, ".cache", "cubby")},
		{home, filepath.Join(home, "own"), filepath.Join(home, "own", "cubby")},
		{filepath.Join(home, "none"), "", ""},
		{home, filepath.Join(home, "none", "own"), ""},
		{"", "", ""},
	} {
		t.Setenv("HOME", c.home)
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		if os.Geteuid() == 0 {
			c.want = "/var/cache/cubby" // whatever it has in its environment
		}
		if got, err := Dir(); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	left, err := os.ReadDir(home)
	if err != nil || len(left) > 0 {
		t.Errorf("made: %v, %v", left, err)
	}
}
