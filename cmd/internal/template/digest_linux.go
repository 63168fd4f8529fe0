package template

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Digest names what a sandbox of the toolchain is made of: its interpreters, the
// guest, whose content guest stands for, and the guest's environment. It costs some
// ten looks at files and reads none, so it sees that an interpreter was replaced and
// that packages were added to or removed from the system or a prefix, but not that a
// file deeper down was edited in place: a toolchain is the host's own, and promises
// nothing durable.
func Digest(tc Toolchain, guest string, env []string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "guest %q\nenv %q\n", guest, env)
	paths := []string{"/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib"}
	for _, in := range []Interpreter{tc.Python, tc.Node, tc.Bash} {
		fmt.Fprintf(sum, "interpreter %q %q\n", in.Path, in.Prefixes)
		paths = append(paths, in.Path)
		for _, prefix := range in.Prefixes {
			paths = append(paths, prefix, filepath.Join(prefix, "bin"), filepath.Join(prefix, "lib"))
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue // it was named above
		}
		info, err := os.Stat(real)
		if err != nil {
			continue
		}
		fmt.Fprintf(sum, "%q %q %v %d %d\n", path, real, info.IsDir(), info.Size(), info.ModTime().UnixNano())
	}
	return "toolchain:" + hex.EncodeToString(sum.Sum(nil)[:16])
}
