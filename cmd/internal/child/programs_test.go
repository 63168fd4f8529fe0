package child

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/images"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestKeptPrograms: those of this build are copied for the first image, also after a time
// without room; the next build finds them, and removes them when nothing needs them.
func TestKeptPrograms(t *testing.T) {
	data := t.TempDir()
	var current guestPrograms
	for _, name := range []string{guestName, typeScriptName} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		current.files = append(current.files, &packed.Located{File: file, Path: path, From: packed.FromBeside})
	}
	t.Cleanup(func() { current.Close() })
	open := func() *keptPrograms {
		t.Helper()
		k, err := openKeptPrograms(data, t.TempDir(), current)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.Close() })
		return k
	}
	k := open()
	if len(k.all) != 0 || len(k.ids()) != 1 {
		t.Errorf("at first: %+v, %q", k.all, k.ids())
	}
	// A file is in the way, and then no longer.
	kept := filepath.Join(data, programsDir)
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.keep(); err == nil {
		t.Error("kept where nothing can be")
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.keep(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{guestName, typeScriptName} {
		if b, err := os.ReadFile(filepath.Join(kept, programsID(), name)); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	// As if an earlier build had left them, and one that was killed while it did.
	if err := errors.Join(os.Rename(filepath.Join(kept, programsID()), filepath.Join(kept, "earlier")),
		os.Mkdir(filepath.Join(kept, "half"+newSuffix), 0o700)); err != nil {
		t.Fatal(err)
	}
	k = open()
	if len(k.all) != 1 || k.all[0].ID != "earlier" || len(k.ids()) != 2 {
		t.Fatalf("of an earlier build: %+v", k.all)
	}
	store, err := images.Open(images.Config{Dir: filepath.Join(data, imageDir)})
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir string) error { return os.WriteFile(filepath.Join(dir, "memory"), []byte("x"), 0o600) }
	about := map[string]string{"programs": "earlier"}
	if _, err := store.Create(t.Context(), "i1", images.Options{About: about}, write); err != nil {
		t.Fatal(err)
	}
	remains := func() (names []string) {
		entries, err := os.ReadDir(kept)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if err := k.removeUnused(store); err != nil || len(remains()) != 1 {
		t.Errorf("while an image needs them: %v, %q", err, remains())
	}
	if err := errors.Join(store.Remove("i1"), k.removeUnused(store)); err != nil || len(remains()) != 0 {
		t.Errorf("when none does: %v, %q", err, remains())
	}
	full := imageStore{store, &keptPrograms{keep: func() error { return &os.PathError{Op: "write", Path: "/x", Err: unix.ENOSPC} }}}
	if err := full.Create(t.Context(), "i2", 0, "", nil, write); fault.CodeOf(err) != fault.NoSpace {
		t.Errorf("on a full disk: %v", err)
	}
}
