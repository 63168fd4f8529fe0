package child

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestbin"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

// guestDir is where guestBinary mounts a file system, in the run folder.
const guestDir = "guest"

// guestBinary returns the guest's path where every user can execute it, which is one of
// this process's descriptors if it can: what was judged is then what runs. The file is to
// be kept open as long as sandboxes start: its lock keeps other versions of Cubby from
// removing it.
//
// Neither the user's cache nor the run folder need be a place where it can be executed: a
// file system may be mounted noexec, which holds for what is bound from there, too. Then
// it is copied to a small tmpfs of this process.
func guestBinary(ctx context.Context, runDir string) (path string, guest *packed.Located, err error) {
	guest, err = guestbin.Open(ctx, runDir)
	if err != nil {
		return "", nil, err
	}
	info, err := guest.File.Stat()
	if err != nil {
		return "", guest, fmt.Errorf("guest: %w", err)
	}
	const execute = 0o005 // by others, whose kernel reads it, too
	// A memory file is in no mount that could be bound.
	if info.Mode()&execute == execute && guest.From != packed.FromMemory && !ready.NoExec(int(guest.File.Fd())) {
		return fmt.Sprintf("/proc/self/fd/%d", guest.File.Fd()), guest, nil
	}
	path, err = copyGuest(guest.File, filepath.Join(runDir, guestDir))
	if err != nil {
		return "", guest, fmt.Errorf("guest: %s cannot be executed there, and not be copied: %w", guest.Path, err)
	}
	return path, guest, nil
}

func copyGuest(from io.ReadSeeker, dir string) (copied string, err error) {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	if err := unix.Mount("cubby", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=128m,nr_inodes=16,mode=711"); err != nil {
		return "", os.NewSyscallError("mount", err)
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
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
