//go:build linux

package supervisor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
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
		return nil, &fault.Error{Code: fault.Unavailable, Err: err, Hint: "Cubby needs a writable folder for temporary files: set TMPDIR"}
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

// maxRunBase leaves room for the run folder's name and the sockets in it.
const maxRunBase = 48

// TempDir is the folder for temporary files that a run folder is made in. It is
// os.TempDir, unless that path is too long for sockets below it, or closed to the
// users that a root server's sandboxes run as, as one for each user is.
func TempDir() string {
	dir := os.TempDir()
	for _, dir := range []string{dir, "/tmp", "/var/tmp"} {
		if len(dir) <= maxRunBase && (os.Geteuid() != 0 || openToAll(dir)) {
			return dir
		}
	}
	return dir
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
