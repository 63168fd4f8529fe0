package template

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// packageDatabases are where the package managers of distributions note what they do.
var packageDatabases = []string{"/var/lib/dpkg/status", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/lib/apk/db/installed", "/var/lib/pacman/local"}

// moduleDirs are where Python's and Node's packages are, below a prefix.
var moduleDirs = []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages", "lib/node_modules"}

// Digest names what programs in a sandbox of the toolchain are made of: its interpreters,
// the packages of the system, and those that were added to a prefix. It costs some ten
// looks at files and reads none: it goes by the package database, and by the times at
// which folders and interpreters changed, which nobody can set. A file deeper down that
// was edited in place it does not see; of those that an image has open the engine knows.
func Digest(tc Toolchain) string {
	sum := sha256.New()
	paths := append([]string{"/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib"}, packageDatabases...)
	prefixes := []string{"/usr", "/usr/local"}
	for _, in := range []Interpreter{tc.Python, tc.Node, tc.Bash} {
		fmt.Fprintf(sum, "interpreter %q %q\n", in.Path, in.Prefixes)
		paths = append(paths, in.Path)
		prefixes = append(prefixes, in.Prefixes...)
	}
	for _, prefix := range prefixes {
		paths = append(paths, prefix, filepath.Join(prefix, "bin"), filepath.Join(prefix, "lib"))
		for _, pattern := range moduleDirs {
			found, _ := filepath.Glob(filepath.Join(prefix, pattern)) // the pattern is well formed
			paths = append(paths, found...)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		var st unix.Stat_t
		if real, err := filepath.EvalSymlinks(path); err == nil && unix.Stat(real, &st) == nil {
			fmt.Fprintf(sum, "%q %q %o %d %d %d\n", path, real, st.Mode, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
		}
	}
	return "toolchain:" + hex.EncodeToString(sum.Sum(nil)[:16])
}
