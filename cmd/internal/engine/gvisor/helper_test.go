package gvisor_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestHelperAnywhere boots machines from a binary that their users cannot reach by
// its path, such as one below root's home, or may not execute.
func TestHelperAnywhere(t *testing.T) {
	f := newFixture(t, "")
	for _, test := range []struct {
		name   string
		folder os.FileMode
		file   os.FileMode
	}{
		{"closed folder", 0o700, 0o755},
		{"for its owner only", 0o755, 0o700},
		{"both", 0o700, 0o700},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(f.dir, test.name)
			if err := os.Mkdir(dir, test.folder); err != nil {
				t.Fatal(err)
			}
			helper := filepath.Join(dir, "cubby")
			copyFile(t, testenv.Engine(t), helper, test.file)
			eng, err := gvisor.New(engine.Config{StateDir: filepath.Join(f.dir, "gv"), OverlayDir: f.dir, Helper: helper})
			if err != nil {
				t.Fatal(err)
			}
			if err := eng.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			m, err := eng.Start(t.Context(), engine.Spec{ID: "anywhere", Root: f.root.Dir, Args: []string{f.root.GuestPath}})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, helper := range []string{filepath.Join(f.dir, "none"), f.dir} {
		if _, err := gvisor.New(engine.Config{StateDir: filepath.Join(f.dir, "gv"), Helper: helper}); err == nil {
			t.Errorf("%s is no helper, and was taken for one", helper)
		}
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
