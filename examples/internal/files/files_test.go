package files

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

func TestSaveStaysInItsFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "out")
	var out bytes.Buffer
	if err := Save(&out, dir, []codeexec.File{{Name: "a/b.txt", Content: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a", "b.txt")); err != nil || string(b) != "b" {
		t.Errorf("%q, %v", b, err)
	}
	for _, name := range []string{"../up", "a/../../up", filepath.Join(top, "up"), ""} {
		if err := Save(&out, dir, []codeexec.File{{Name: name}}); err == nil {
			t.Errorf("%q was saved", name)
		}
	}
	if made, err := os.ReadDir(top); err != nil || len(made) != 1 {
		t.Errorf("in the folder above: %v, %v", made, err)
	}
}
