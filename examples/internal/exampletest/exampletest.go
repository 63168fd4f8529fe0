//go:build linux

// Package exampletest runs examples for their tests.
package exampletest

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	_ "image/png" // charts
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/examples/internal/model"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

const python = "/usr/bin/python3"

// Run is an example's function.
type Run func(ctx context.Context, out io.Writer, m agent.Model, dir string) error

// Main is a TestMain. Examples are run at the root of the repository.
func Main(m *testing.M) {
	err := testenv.SetBinary()
	if err == nil {
		err = os.Chdir("../..")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("CUBBY_PYTHON", python)
	os.Exit(m.Run())
}

// Scripted runs an example with a script, which fails where the sandbox computes
// anything but what the script says. It returns what was printed, and the folder.
func Scripted(t *testing.T, script string, run Run) (out, dir string) {
	t.Helper()
	return start(t, run, func(w io.Writer) (*model.Model, error) { return model.Scripted(w, script) })
}

// Real runs an example with the model whose key is set, and skips the test if
// none is.
func Real(t *testing.T, run Run) (out, dir string) {
	t.Helper()
	if !model.Real() {
		t.Skip("neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set")
	}
	return start(t, run, func(w io.Writer) (*model.Model, error) { return model.Open(w, "") })
}

func start(t *testing.T, run Run, open func(io.Writer) (*model.Model, error)) (out, dir string) {
	t.Helper()
	var b bytes.Buffer
	m, err := open(&b)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dir = filepath.Join(t.TempDir(), "out")
	if err := run(t.Context(), &b, m, dir); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	return b.String(), dir
}

// NeedModule skips a test where Python does not have a module.
func NeedModule(t *testing.T, name string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), python, "-c", "import "+name).Run(); err != nil {
		t.Skipf("the Python package %s is not installed", name)
	}
}

// Read returns a file that an example saved.
func Read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Glob returns the files in dir whose names match, of which there must be one.
func Glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s was saved: %v", pattern, err)
	}
	return paths
}

// Picture fails if data is not a PNG on which something can be seen.
func Picture(t *testing.T, data []byte) {
	t.Helper()
	m, format, err := image.Decode(bytes.NewReader(data))
	if err != nil || format != "png" {
		t.Fatalf("no PNG: %q, %v", format, err)
	}
	size := m.Bounds()
	colors := map[color.Color]int{}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			colors[m.At(x, y)]++
		}
	}
	most := 0
	for _, n := range colors {
		most = max(most, n)
	}
	if area := size.Dx() * size.Dy(); area < 50_000 || len(colors) < 10 || most > area*99/100 {
		t.Errorf("a picture of %v with %d colors, one of which has %d points of %d", size, len(colors), most, area)
	}
}
