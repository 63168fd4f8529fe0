// Package template makes root filesystems for sandboxes. Its one template so
// far is the host's own toolchain: python3, node and bash as they are installed
// on this machine, under a synthetic /etc and empty homes. Nothing is
// downloaded and nothing is copied but a few small files.
//
// Find says where the toolchain lives and costs well under a millisecond: it
// reads links and small files and, unless it meets a launcher it does not know,
// executes nothing. Compose puts the pieces together by bind mounts inside a
// mount namespace that the caller made.
package template

import "strings"

// Options choose the interpreters.
type Options struct {
	// Python and Node are a path, a name to be searched in PATH, or a directory
	// such as a virtual environment. Empty means: search PATH, and for Node the
	// usual version managers too.
	Python, Node string
}

// Toolchain is what code in a sandbox runs with.
type Toolchain struct {
	Python, Node, Bash Interpreter
}

// Interpreter says where one interpreter lives and what it needs to run. Either
// Path or Missing is set.
type Interpreter struct {
	// Path is the absolute path to run, the same inside the sandbox as outside.
	Path string
	// Prefixes are real directories and single files, beyond /usr, /bin, /sbin
	// and /lib*, that must be visible at the same path.
	Prefixes []string
	// Links are symbolic links on the way to Path or a prefix: path to target.
	Links map[string]string
	// Missing says why there is no such interpreter and what to install.
	Missing string
}

// under reports whether path is dir or lies below it. Both must be clean.
func under(path, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(path, "/")
	}
	return path == dir || strings.HasPrefix(path, dir+"/")
}
