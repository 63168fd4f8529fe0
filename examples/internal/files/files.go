// Package files writes down what an answer brings back.
package files

import (
	"fmt"
	"io"
	"os"
	"path"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Save writes files into a folder, which it makes if need be, and names them on
// out. Their names are the sandbox's: os.Root keeps them below the folder.
func Save(out io.Writer, dir string, files []codeexec.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files {
		if f.Truncated {
			fmt.Fprintf(out, "%q is too large to be brought back whole\n", f.Name)
			continue
		}
		if err := root.MkdirAll(path.Dir(f.Name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(f.Name, f.Content, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "saved %q in %s\n", f.Name, dir)
	}
	return nil
}
