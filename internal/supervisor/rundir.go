//go:build linux

package supervisor

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	sweep()
	path, err := os.MkdirTemp(runBase(), handshake.RunPrefix)
	if err != nil {
		return nil, &Error{Err: err, Hint: "Cubby needs a writable folder for temporary files: set TMPDIR"}
	}
	d := &RunDir{Path: path}
	defer func() {
		if err != nil {
			d.Remove()
		}
	}()
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(path, handshake.SocketDir), 0o700); err != nil {
		return nil, err
	}
	d.lock, err = lockFile(filepath.Join(path, handshake.LockName))
	return d, err
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

// maxRunBase leaves room for the run folder's name and the sockets in it.
const maxRunBase = 48

// runBase is the folder for temporary files, unless its path is too long for
// sockets below it.
func runBase() string {
	if dir := os.TempDir(); len(dir) <= maxRunBase {
		return dir
	}
	return "/tmp"
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

func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(runBase(), handshake.RunPrefix+"*"))
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
