package fileowner

import "io/fs"

// Other finds nobody: who may use a file on Windows is in its access control list,
// which a new file in the user's profile inherits.
func Other(fs.FileInfo) (uid int, other bool) { return 0, false }

// Perm returns the bits of a file that only its owner may use: a mode on Windows does
// not tell who may.
func Perm(fs.FileInfo) fs.FileMode { return 0o600 }
