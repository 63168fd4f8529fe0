package gvisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

func TestImage(t *testing.T) {
	dir := t.TempDir()
	want := engine.Fixed{Disk: 1 << 40, CPUs: 3, Memory: 300 << 20}
	if err := writeImage(dir, want); err != nil {
		t.Fatal(err)
	}
	if got, err := readImage(dir); got != want || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, imageFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"another engine": strings.Replace(string(whole), Name, "other", 1),
		"another build":  strings.Replace(string(whole), commit, "v0.0.0-20990101000000-000000000000", 1),
		"cut off":        string(whole[:len(whole)/2]),
		"empty":          "",
	} {
		if err := os.WriteFile(filepath.Join(dir, imageFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readImage(dir); !errors.Is(err, engine.ErrForeign) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
