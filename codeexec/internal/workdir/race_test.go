//go:build unix

package workdir_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// Programs that move, replace and lock the folders that files are unpacked into
// may spoil what comes in, but nothing else is left of it.
func TestUnpackRaced(t *testing.T) {
	for name, race := range map[string]func(dir string){
		"a folder that is moved away and back": func(dir string) {
			os.Rename(filepath.Join(dir, "in"), filepath.Join(dir, "away"))
			os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "in"))
		},
		"a folder that another takes the place of": func(dir string) {
			os.Rename(filepath.Join(dir, "in"), filepath.Join(dir, "away"))
			os.Mkdir(filepath.Join(dir, "in"), 0o755)
			os.RemoveAll(filepath.Join(dir, "away"))
		},
		"a folder that a link takes the place of": func(dir string) {
			os.Rename(filepath.Join(dir, "in"), filepath.Join(dir, "away"))
			os.Symlink("other", filepath.Join(dir, "in"))
			os.Remove(filepath.Join(dir, "in"))
			os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "in"))
		},
		"a folder that is locked": func(dir string) {
			os.Chmod(filepath.Join(dir, "in"), 0o555)
			os.Chmod(filepath.Join(dir, "in"), 0o755)
		},
		"a folder in the place of the file": func(dir string) {
			os.MkdirAll(filepath.Join(dir, "in", "f1", "x"), 0o755)
			os.RemoveAll(filepath.Join(dir, "in", "f1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "other"), 0o755); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						race(dir)
					}
				}
			})
			for range 60 {
				var p workdir.Packer
				for i := range 5 {
					if err := p.AddFile(fmt.Sprintf("in/f%d", i), []byte("content"), 0); err != nil {
						t.Fatal(err)
					}
				}
				r := p.Reader()
				if _, err := workdir.Unpack(r, root, workdir.Limits{}); err != nil {
					t.Fatal(err)
				}
				r.Close()
				p.Close()
			}
			close(stop)
			wg.Wait()
			err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
				if strings.HasPrefix(filepath.Base(path), ".") {
					t.Errorf("left behind: %s", strings.TrimPrefix(path, dir))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
