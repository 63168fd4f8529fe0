//go:build linux

// Package pid1 makes a process the first one of a sandbox: its limits, its capabilities,
// the control groups that it alone reaches.
package pid1

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/sudo"
)

// Prepare makes of this process a process 1: it has its limits, owners and
// capabilities, and helpers for the code. It returns the folder of control groups;
// see Config.CgroupDir.
func Prepare(cfg settings.Config) (groups string, err error) {
	// The token is in our memory, and the code may become root.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = syscall.Umask(0o022)
	if err := ownHome(cfg.Home, cfg.UID, cfg.GID); err != nil {
		return "", fmt.Errorf("own the home folder: %w", err)
	}
	limits := map[int]syscall.Rlimit{
		syscall.RLIMIT_NOFILE: {Cur: 4096, Max: 65536},
		syscall.RLIMIT_CORE:   {},
	}
	for which, limit := range limits {
		if err := syscall.Setrlimit(which, &limit); err != nil {
			slog.Warn("guest: set a limit", "resource", which, "err", err)
		}
	}
	if groups, err = mountCgroups(cfg.Cgroup); err != nil {
		return "", err
	}
	if err := sudo.Install("/usr/bin"); err != nil {
		slog.Warn("guest: no sudo", "err", err)
	}
	// E2B's users install there without sudo.
	for _, dir := range []string{"/usr/local", "/usr/local/bin"} {
		if err := os.Chmod(dir, 0o777); err != nil && !errors.Is(err, os.ErrNotExist) {
			slog.Warn("guest: open to everybody", "folder", dir, "err", err)
		}
	}
	return groups, withhold()
}

// ownHome gives a home folder to its user, with all in it, which besides the home is
// the folder of its user's packages. One that is the user's was given at an earlier
// boot, and what is in it may belong to others since.
func ownHome(home string, uid, gid uint32) error {
	var st unix.Stat_t
	if err := unix.Lstat(home, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: home, Err: err}
	}
	if st.Uid == uid {
		return nil
	}
	var paths []string
	err := filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(paths) { // the home itself is last
		if err := os.Lchown(path, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return nil
}
