//go:build linux

package supervisor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/handshake"
)

// RunDir is the folder that parent and child share. Its path is open to search,
// since gVisor's processes are other users; the socket's folder is not.
type RunDir struct {
	Path string
	lock *os.File // held by whoever lives longer
}

// MakeRunDir makes a folder of its own, and removes those of parents and children
// that were both killed.
func MakeRunDir() (_ *RunDir, err error) {
	base := TempDir()
	sweep(base)
	path, err := os.MkdirTemp(base, handshake.RunPrefix)
	if err != nil {
		return nil, &fault.Error{Code: fault.Unavailable, Err: err, Hint: "let TMPDIR name a folder that this user may write, with room for files, or make /tmp one"}
	}
	d := &RunDir{Path: path}
	defer func() {
		if err != nil {
			d.Remove()
		}
	}()
	// Modes are set and not only asked for: the umask of the program that embeds
	// Cubby is its own.
	socketDir := filepath.Join(path, handshake.SocketDir)
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, err
	}
	if err := os.Mkdir(socketDir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(socketDir, 0o700); err != nil {
		return nil, err
	}
	if d.lock, err = lockFile(filepath.Join(path, handshake.LockName)); err != nil {
		return nil, err
	}
	return d, d.lock.Chmod(0o600)
}

// Socket is the path of the child's socket, if it has one.
func (d *RunDir) Socket() string { return filepath.Join(d.Path, handshake.SocketName) }

// Remove removes the folder; the child has usually done so.
func (d *RunDir) Remove() {
	os.RemoveAll(d.Path)
	if d.lock != nil {
		d.lock.Close()
	}
}

// Listen makes the child's socket; only this user can connect.
func (d *RunDir) Listen() (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.Socket(), Net: "unix"})
	if err != nil {
		hint := ""
		if errors.Is(err, syscall.EINVAL) {
			hint = "the socket's path must be short: set TMPDIR to a shorter one"
		}
		return nil, &fault.Error{Code: fault.Unavailable, Err: err, Hint: hint}
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(d.Socket(), 0o600); err != nil {
		return nil, err
	}
	return l.File()
}

const (
	// maxRunBase leaves room for the run folder's name and the sockets in it.
	maxRunBase = 48
	// leastRoom is what a run folder needs of its file system, in bytes.
	leastRoom = 1 << 20
)

// TempDir is the folder for temporary files that a run folder is made in, as an absolute
// path: the first of os.TempDir, /tmp and /var/tmp that will do, else os.TempDir. One will
// do if this user may write there, its file system is not full, and its path is short
// enough for sockets below it. A root's has to be open to the users that sandboxes run
// as, too, which one for each user is not.
func TempDir() string {
	dirs := []string{"/tmp", "/var/tmp"}
	first, err := filepath.Abs(os.TempDir())
	if err != nil { // there is no current folder any more
		first = os.TempDir()
	} else {
		dirs = slices.Insert(dirs, 0, first)
	}
	for _, dir := range dirs {
		if len(dir) <= maxRunBase && writable(dir) && (os.Geteuid() != 0 || openToAll(dir)) {
			return dir
		}
	}
	return first
}

// writable reports whether this user can make files in dir.
func writable(dir string) bool {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	if unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return false
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return true // whatever it is, it has not said that it is full
	}
	// A file system that does not count has none of anything.
	full := fs.Blocks > 0 && fs.Bavail*uint64(fs.Bsize) < leastRoom || fs.Files > 0 && fs.Ffree == 0
	return !full
}

// openToAll reports whether every user can reach what is in dir.
func openToAll(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return false
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, handshake.RunPrefix+"*"))
	for _, dir := range dirs {
		fi, err := os.Lstat(dir)
		if err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < startTimeout {
			continue // just being made, perhaps without its lock yet
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		if lock, err := lockFile(filepath.Join(dir, handshake.LockName)); err == nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}
