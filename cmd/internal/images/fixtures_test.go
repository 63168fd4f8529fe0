//go:build linux

package images

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// contents are the files of an image, by name.
type contents map[string][]byte

// some are contents with all sizes that chunks make different, the same for a seed.
func some(seed byte) contents {
	r := rand.NewChaCha8([32]byte{seed})
	c := contents{}
	for _, f := range []file{
		{"empty", 0}, {"one", 1}, {"state.img", chunkSize - 1}, {"pages.img", 3*chunkSize + 17},
		{"files/etc/exact", 2 * chunkSize}, {"files/b", 100}, {"files/c", 100},
	} {
		c[f.Name] = make([]byte, f.Size)
		r.Read(c[f.Name])
	}
	return c
}

func (c contents) write(dir string) error {
	for name, b := range c {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// check compares a folder with contents.
func (c contents) check(dir string) error {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		names = append(names, name)
		b, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(b, c[name]) {
			err = fmt.Errorf("%s is another", name)
		}
		return err
	})
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(c)); err == nil && !slices.Equal(names, want) {
		err = fmt.Errorf("%v instead of %v", names, want)
	}
	return err
}

// open opens a store that does not wait for the disk: nothing in these tests outlasts the
// machine.
func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.sync = func(*os.File) error { return nil }
	return s
}

func create(t testing.TB, s *Store, id string, c contents) Info {
	t.Helper()
	info, err := s.Create(t.Context(), id, Options{About: id}, c.write)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func use(t testing.TB, s *Store, id string, c contents) {
	t.Helper()
	if err := s.Use(t.Context(), id, c.check); err != nil {
		t.Fatal(err)
	}
}

// names are what is in a folder.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names
}

// tmpfs is a folder on a tmpfs of a size in bytes, which root alone can mount; 0: of
// the machine's own.
func tmpfs(t testing.TB, size int64) string {
	t.Helper()
	if size == 0 {
		dir, err := os.MkdirTemp("/dev/shm", "images")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", size)); err != nil {
		t.Skip("no tmpfs can be mounted: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// kinds are the ways in which a store can keep images.
func kinds(t testing.TB) map[string]Config {
	return map[string]Config{
		"plain":     {Dir: filepath.Join(t.TempDir(), "images"), Key: secret.New()},
		"encrypted": {Dir: filepath.Join(t.TempDir(), "images"), Key: secret.New(), Cipher: secret.New(), Plain: tmpfs(t, 0)},
	}
}
