package child

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestbin"
)

// guestDir is where guestBinary mounts a file system, in the run folder.
const guestDir = "guest"

// guestBinary returns the guest where every user can execute it. Neither the
// user's cache nor the run folder need be such a place: a file system may be
// mounted noexec, which holds for what is bound from there, too. Then it is
// copied to a small tmpfs of this process.
func guestBinary(runDir string) (string, error) {
	path, err := guestbin.Path(runDir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("guest: %w", err)
	}
	const execute = 0o005 // by others, whose kernel reads it, too
	if info.Mode()&execute == execute && !noExec(path) {
		return path, nil
	}
	copied, err := copyGuest(path, filepath.Join(runDir, guestDir))
	if err != nil {
		return "", fmt.Errorf("guest: %s cannot be executed there, and not be copied: %w", path, err)
	}
	return copied, nil
}

func noExec(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}

func copyGuest(path, dir string) (copied string, err error) {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	if err := unix.Mount("cubby", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=128m,nr_inodes=16,mode=711"); err != nil {
		return "", os.NewSyscallError("mount", err)
	}
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	copied = filepath.Join(dir, "cubby-guest")
	to, err := os.OpenFile(copied, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	} else {
		to.Close()
	}
	return copied, err
}
