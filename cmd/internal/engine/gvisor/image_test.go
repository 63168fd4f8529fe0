package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// TestImage restores what this build wrote, and of what another wrote the files.
func TestImage(t *testing.T) {
	e := &Engine{cfg: engine.Config{OverlayDir: "/var/tmp"}, features: []string{"avx", "fpu", "sse"}}
	memory := image{
		Kind: kindMemory, Fixed: engine.Fixed{Disk: 1 << 40, CPUs: 3, Memory: 300 << 20}, Features: []string{"fpu", "sse"},
		Sizes: map[string]int64{stateFile: 1, pagesMetaFile: 2, pagesFile: 3, filesManifest: 4, filesTree: 5, filesMetaFile: 6},
	}
	files := image{
		Kind: kindFiles, Fixed: memory.Fixed,
		Sizes: map[string]int64{pagesFile: 3, filesManifest: 4, filesTree: 5, filesMetaFile: 6},
	}
	// write makes a checkpoint; its description is changed by change.
	write := func(t *testing.T, i image, change func(string) string) string {
		t.Helper()
		dir := t.TempDir()
		for name, size := range i.Sizes {
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeImage(dir, i); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, imageFile)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			if err := os.WriteFile(path, []byte(change(string(b))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for _, i := range []image{memory, files} {
		got, err := e.readImage(write(t, i, nil), engine.RestoreOptions{FilesOnly: i.Kind == kindFiles})
		i.Engine, i.Commit = Name, commit
		if !reflect.DeepEqual(got, i) || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	}

	const newer = "v0.0.0-20990101000000-000000000000"
	replace := func(old, by string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, old) {
				t.Errorf("%s has no %s", s, old)
			}
			return strings.Replace(s, old, by, 1)
		}
	}
	needing := memory
	needing.Features = []string{"amx_tile", "avx512f", "fpu"}
	for _, test := range []struct {
		name          string
		of            image
		change        func(string) string
		memory, files error  // nil if it can be restored
		says          string // what is wrong with the memory
	}{
		{"another engine", memory, replace(Name, "other"), engine.ErrForeign, engine.ErrForeign, "other"},
		{"another kind", memory, replace(kindMemory, "more"), engine.ErrForeign, engine.ErrForeign, "more"},
		{"another build", memory, replace(commit, newer), engine.ErrForeign, nil, newer},
		{"files of another build", files, replace(commit, newer), engine.ErrFilesOnly, nil, ""},
		{"another processor", needing, nil, engine.ErrForeign, nil, "amx_tile avx512f: "},
		{"cut off", memory, func(s string) string { return s[:len(s)/2] }, engine.ErrForeign, engine.ErrForeign, imageFile},
		{"empty", memory, func(string) string { return "" }, engine.ErrForeign, engine.ErrForeign, imageFile},
		{"files elsewhere", memory, replace(stateFile, "../../etc/passwd"), engine.ErrDamaged, engine.ErrDamaged, "passwd"},
		{"without a size", memory, replace(`"`+stateFile+`":1,`, ""), engine.ErrDamaged, engine.ErrDamaged, stateFile},
		{"memory without files", image{Kind: kindMemory, Sizes: map[string]int64{stateFile: 1, pagesMetaFile: 2, pagesFile: 3}},
			nil, nil, engine.ErrNotSupported, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := write(t, test.of, test.change)
			err := e.Check(dir, engine.RestoreOptions{})
			if !errors.Is(err, test.memory) || test.says != "" && !strings.Contains(err.Error(), test.says) {
				t.Errorf("with memory: %v", err)
			}
			if err := e.Check(dir, engine.RestoreOptions{FilesOnly: true}); !errors.Is(err, test.files) {
				t.Errorf("files only: %v", err)
			}
		})
	}

	for name := range memory.Sizes {
		for what, damage := range map[string]func(string) error{
			"short": func(path string) error { return os.Truncate(path, memory.Sizes[name]-1) },
			"long":  func(path string) error { return os.Truncate(path, 100) },
			"gone":  os.Remove,
			"link": func(path string) error {
				return errors.Join(os.Rename(path, path+".away"), os.Symlink(path+".away", path))
			},
		} {
			dir := write(t, memory, nil)
			if err := damage(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			for _, filesOnly := range []bool{false, true} {
				err := e.Check(dir, engine.RestoreOptions{FilesOnly: filesOnly})
				if !errors.Is(err, engine.ErrDamaged) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s is %s: %v", name, what, err)
				}
			}
		}
	}

	inMemory := &Engine{features: e.features}
	if err := inMemory.Check(write(t, files, nil), engine.RestoreOptions{FilesOnly: true}); !errors.Is(err, engine.ErrNotSupported) {
		t.Errorf("an engine that keeps what is written in memory: %v", err)
	}
}

// TestHostFeatures: those that gVisor shows in /proc/cpuinfo are what is compared.
func TestHostFeatures(t *testing.T) {
	if f := hostFeatures(); len(f) < 5 || !slices.IsSorted(f) {
		t.Errorf("this processor has %q", f)
	}
}
