//go:build unix

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A program that got away may write into a folder while that is removed, for a
// while: then it is removed all the same.
func TestRemoveTreeThatIsWrittenTo(t *testing.T) {
	parent := t.TempDir()
	for range 20 {
		dir := filepath.Join(parent, "work")
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 100 {
					if os.WriteFile(filepath.Join(dir, "sub", fmt.Sprint(w, "-", i)), nil, 0o644) != nil {
						return // the folder is gone
					}
				}
			})
		}
		err := removeTree(parent, "work")
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
			t.Fatalf("left: %v, %v", entries, err)
		}
	}
}
