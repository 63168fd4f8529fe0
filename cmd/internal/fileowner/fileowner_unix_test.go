//go:build !windows

package fileowner

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIsOther(t *testing.T) {
	for _, test := range []struct {
		name      string
		uid, self int
		mapsAll   bool
		want      bool
	}{
		{"ours", 1000, 1000, true, false},
		{"root's", 0, 1000, true, false},
		{"root's own", 0, 0, true, false},
		{"a user's, for root", 1000, 0, true, true},
		{"another user's", 1001, 1000, true, true},
		{"nobody's", unmapped, 0, true, true},
		{"not to be told", unmapped, 0, false, false},
		{"a mapped user's", 1000, 0, false, true},
	} {
		if got := isOther(test.uid, test.self, func() bool { return test.mapsAll }); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestOther looks at a real file.
func TestOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look := func() (int, bool) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return Other(info)
	}
	if uid, other := look(); other || uid != os.Geteuid() {
		t.Errorf("our own: %d, %v", uid, other)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Skip(err) // a container's root may not
	}
	if uid, other := look(); !other || uid != 12345 {
		t.Errorf("another's: %d, %v", uid, other)
	}
}
