//go:build linux

package ready

import "syscall"

// rootCache is where root keeps programs: its $HOME may be another user's.
const rootCache = "/var/cache"

// CacheDir is the folder of Cubby in this user's cache; empty if there is none. Neither
// it nor the folder around it need be there, but what is around both must: users such as
// nobody have a home that is not to be made.
func CacheDir(getenv func(string) string) string {
	if isRoot() {
		if isDir(rootCache) {
			return rootCache + "/cubby"
		}
		return ""
	}
	if cache := getenv("XDG_CACHE_HOME"); cache != "" && cache[0] == '/' {
		if isDir(parent(cache)) {
			return clean(cache) + "/cubby"
		}
		return ""
	}
	if home := getenv("HOME"); home != "" && home[0] == '/' && isDir(home) {
		return clean(home) + "/.cache/cubby"
	}
	return ""
}

// isRoot reports whether this user is root of the file system, and not only of a user
// namespace, as in Cubby's own processes without root: there root's folders are somebody
// else's.
func isRoot() bool {
	if syscall.Geteuid() != 0 {
		return false
	}
	var st syscall.Stat_t
	return syscall.Stat("/", &st) == nil && st.Uid == 0
}

// Exists reports whether there is something of that path. It says nothing of whether it
// may be trusted.
func Exists(path string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(path, &st) == nil
}

func isDir(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}

// Program is the real path of the running program; empty if its file has no name, as
// that of a program in memory and of one that was replaced.
func Program() string {
	var buf [4096]byte
	n, err := syscall.Readlink("/proc/self/exe", buf[:])
	if err != nil || n <= 0 || n == len(buf) || buf[0] != '/' {
		return ""
	}
	path := string(buf[:n])
	// The kernel puts " (deleted)" behind the name of one that is gone.
	var own, named syscall.Stat_t
	if syscall.Stat("/proc/self/exe", &own) != nil || syscall.Stat(path, &named) != nil || own.Dev != named.Dev || own.Ino != named.Ino {
		return ""
	}
	return path
}

// Beside are the folders in which a package puts what belongs to a program: its own, and
// lib/cubby beside its folder.
func Beside(program string) []string {
	if program == "" {
		return nil
	}
	dir := parent(program)
	return []string{dir, clean(parent(dir)) + "/lib/cubby"}
}

// clean is the path without slashes at its end; the root folder's is empty.
func clean(path string) string {
	for len(path) > 0 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

// parent is the path without its last part.
func parent(path string) string {
	path = clean(path)
	for len(path) > 0 && path[len(path)-1] != '/' {
		path = path[:len(path)-1]
	}
	if path = clean(path); path == "" {
		return "/"
	}
	return path
}
