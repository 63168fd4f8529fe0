package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestDependencies: a machine whose program was replaced on the host, edited in place or
// removed after the checkpoint is not restored with its memory, and what it does not have
// open may change.
func TestDependencies(t *testing.T) {
	f := newFixture(t, "")
	prefix := filepath.Join(t.TempDir(), "tools")
	program, other := filepath.Join(prefix, "bin", "wait"), filepath.Join(prefix, "bin", "other")
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	install := func(path string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", sleep, 0o755), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	install(program)
	install(other)
	dir := filepath.Join(f.dir, "root2")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	root, err := template.Compose(t.Context(), dir,
		template.Toolchain{Python: template.Interpreter{Path: program, Prefixes: []string{prefix}}},
		template.Additions{Programs: template.Programs{Guest: testenv.Guest(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	spec := engine.Spec{ID: "depends", Root: root.Dir, Args: []string{program, "1000"}}
	m, err := f.engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	checkpoint := func() (image string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			image = t.TempDir()
			if err := m.(engine.Checkpointer).Checkpoint(t.Context(), image, engine.CheckpointOptions{}); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(image, "machine.json"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), program) && strings.Contains(string(b), "libc.so") {
				return image
			}
			if time.Now().After(deadline) {
				t.Fatalf("the program and its library are no dependencies: %s", b)
			}
		}
	}
	image := checkpoint()
	restore := func(id string, opts engine.RestoreOptions) error {
		t.Helper()
		spec.ID = id
		r, err := f.engine.Restore(t.Context(), spec, image, opts)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	if err := restore("same", engine.RestoreOptions{}); err != nil {
		t.Error(err)
	}
	install(other)
	if err := restore("others", engine.RestoreOptions{}); err != nil {
		t.Errorf("after a change of what it has not open: %v", err)
	}
	for name, change := range map[string]func(){
		"replaced": func() { install(program) },
		"edited": func() {
			file, err := os.OpenFile(program, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = file.WriteAt(sleep[:1], 0); err != nil || file.Close() != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(program, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func() {
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			change()
			if err := restore(name, engine.RestoreOptions{}); !errors.Is(err, engine.ErrChanged) || !strings.Contains(err.Error(), program) {
				t.Errorf("%v", err)
			}
			install(program)
			if err := restore(name+"files", engine.RestoreOptions{FilesOnly: true}); err != nil {
				t.Errorf("with files only: %v", err)
			}
		})
	}
}
