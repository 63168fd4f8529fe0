//go:build !windows

package fileowner

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// unmapped is the uid that the kernel shows in a user namespace for every user who has
// none there. Elsewhere it is a user, "nobody".
const unmapped = 65534

// Other returns the uid of a file's owner who is neither this process's user nor root,
// and so may change what it says.
//
// In a user namespace an owner who is not mapped is not told from root, and not
// returned. Nothing is lost: over such a file the namespace's root has no privilege, so
// that one of mode 0600 cannot be opened.
func Other(info fs.FileInfo) (uid int, other bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), isOther(int(stat.Uid), os.Geteuid(), mapsAll)
}

func isOther(uid, self int, mapsAll func() bool) bool {
	return uid != 0 && uid != self && (uid != unmapped || mapsAll())
}

// mapsAll reports whether this process is in a user namespace where each user is who he
// is, as in the first one.
func mapsAll() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
}

// Perm returns the bits that say who may use a file.
func Perm(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() }
