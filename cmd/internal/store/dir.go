package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/fileowner"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Exists reports whether dir has a database, of whatever kind. An error means
// that it is unknown.
func Exists(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, databaseName))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, unreadable(err)
}

// prepareDir makes dir with mode 0700 if nothing is there. One that others may
// write is refused: whoever can put a file into it can replace the database, and
// with it every key. Others may read it; the database itself is 0600.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			return refuse(err, "the data folder must be a folder: name another one with --data-dir")
		}
		return unreadable(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return unreadable(err)
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return refuse(fmt.Errorf("%s: other users may write this folder (mode %04o), and so could replace the keys in it", dir, perm),
			fmt.Sprintf("chmod 700 %s, or name another folder with --data-dir", dir))
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return unreadable(&fs.PathError{Op: "open", Path: dir, Err: err})
	}
	return nil
}

// ownedByOther refuses a file whose owner can replace what is in it.
func ownedByOther(path string, info fs.FileInfo) error {
	if uid, other := fileowner.Other(info); other {
		return refuse(fmt.Errorf("%s belongs to another user (uid %d), who may change what is in it", path, uid),
			fmt.Sprintf("run as that user; or, if the file is yours, chown %d %s", os.Geteuid(), path))
	}
	return nil
}

// lockDir takes the lock under which databases are made and migrated: a flock
// of the folder itself, so that no file is left.
func lockDir(ctx context.Context, dir string) (release func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, unreadable(err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(unreadable(&fs.PathError{Op: "lock", Path: dir, Err: err}), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(&fault.Error{Op: opOpen, Code: fault.Unavailable,
				Err: fmt.Errorf("%s: another process is making the database: %w", dir, ctx.Err())}, f.Close())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lockWait is how long a process waits for the data folder: a server whose supervisor
// was killed holds it while it ends its sandboxes.
const lockWait = 5 * time.Second

// LockServer makes this process the only server of the data folder, until release or
// its end, however that comes. It waits five seconds for another to end. The error
// names the other's process.
func (s *Store) LockServer(ctx context.Context) (release func() error, err error) {
	return lockServer(ctx, s.dir)
}

func lockServer(ctx context.Context, dir string) (release func() error, err error) {
	deadline := time.Now().Add(lockWait)
	for {
		if release, err = tryLockServer(dir); fault.CodeOf(err) != fault.Conflict || time.Now().After(deadline) {
			return release, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func tryLockServer(dir string) (release func() error, err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unreadable(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, unreadable(&fs.PathError{Op: "lock", Path: path, Err: err})
		}
		other := "another cubby serve"
		text := make([]byte, 32)
		n, _ := f.ReadAt(text, 0) // only for the message
		if pid := strings.TrimSpace(string(text[:n])); pid != "" {
			other += " (process " + pid + ")"
		}
		return nil, &fault.Error{Op: opOpen, Code: fault.Conflict, Err: fmt.Errorf("%s: %s uses this data folder", dir, other),
			Hint: "end that one first, or name another folder with --data-dir"}
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		return nil, errors.Join(unreadable(err), f.Close())
	}
	// The file stays: removing a lock file removes the lock of the next holder.
	return func() error { return errors.Join(f.Truncate(0), f.Close()) }, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

const opOpen = "open the data folder"

func refuse(err error, hint string) error {
	return &fault.Error{Op: opOpen, Code: fault.Unavailable, Err: err, Hint: hint}
}

// unreadable is an error of the filesystem.
func unreadable(err error) error {
	hint := "look at the folder, or name another one with --data-dir"
	switch {
	case errors.Is(err, fs.ErrPermission):
		hint = "run as the user that owns it, or name another folder with --data-dir"
	case errors.Is(err, unix.EROFS):
		hint = "its filesystem is mounted read-only: name another folder with --data-dir"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "its filesystem is full: make room, or name another folder with --data-dir"
	}
	return refuse(err, hint)
}
