package offline

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFiles: who asks for a registry that is reached is told nothing and may ask again.
func TestFiles(t *testing.T) {
	const npmrc = "fund=false\nupdate-notifier=false\n"
	for _, test := range []struct {
		offline           []string
		network, pip, npm string
	}{
		{[]string{}, "", "", npmrc},
		{[]string{"debian"}, "debian\n" + someClosed + "\n", "", npmrc},
		{[]string{"npm", "debian"}, "npm debian\n" + someClosed + "\n", "", npmrc + "fetch-retries=0\naudit=false\n"},
		{Registries, "pypi npm debian\n" + allClosed + "\n", "[global]\nretries = 0\n", npmrc + "fetch-retries=0\naudit=false\n"},
	} {
		got := Files(test.offline)
		if got[NetworkFile] != test.network || got[PipFile] != test.pip || got[NpmFile] != test.npm {
			t.Errorf("%q: %q", test.offline, got)
		}
		for path, text := range got {
			if text == "" || !slices.Contains(Paths, path) {
				t.Errorf("%q: %s has %q", test.offline, path, text)
			}
		}
	}
}

// TestRemove: what code has put in the place of a file of ours is its own.
func TestRemove(t *testing.T) {
	const ours = "[global]\nretries = 0\n"
	for name, test := range map[string]struct {
		make func(path string) error
		goes bool
	}{
		"ours":        {func(path string) error { return os.WriteFile(path, []byte(ours), 0o600) }, true},
		"missing":     {func(string) error { return nil }, true},
		"of its size": {func(path string) error { return os.WriteFile(path, []byte(ours[:len(ours)-2]+"9\n"), 0o600) }, false},
		"longer":      {func(path string) error { return os.WriteFile(path, []byte(ours+"timeout = 9\n"), 0o600) }, false},
		"a link to it": {func(path string) error {
			return errors.Join(os.WriteFile(path+"2", []byte(ours), 0o600), os.Symlink(path+"2", path))
		}, false},
		"a folder": {func(path string) error { return os.Mkdir(path, 0o700) }, false},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := errors.Join(test.make(path), remove(path, ours)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) != test.goes {
			t.Errorf("%s: afterwards %v", name, err)
		}
	}
}
