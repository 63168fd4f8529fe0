//go:build linux

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// withheld are the capabilities that process 1 has and nothing that it starts can
// get, root or not:
//   - with CAP_SYS_PTRACE root could read the token out of process 1,
//   - with CAP_SYS_RESOURCE or CAP_SYS_ADMIN no RLIMIT_NPROC holds for it,
//   - with CAP_SYS_ADMIN it could mount the cgroups and leave that of its cell.
var withheld = []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN}

// withhold takes the capabilities out of what an exec can give, for every thread.
// Process 1 keeps them: it never executes another program in its own place.
func withhold() error {
	for _, capability := range withheld {
		if _, _, err := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0); err != 0 {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return nil
}

// mountCgroups mounts the pids controller where only the caller reaches it, and
// returns its path: through a descriptor of this process, which nobody else can
// open.
func mountCgroups() (string, error) {
	dir, err := os.MkdirTemp("/run", "cgroup")
	if err != nil {
		return "", err
	}
	defer os.Remove(dir)
	if err := unix.Mount("cgroup", dir, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "pids"); err != nil {
		return "", fmt.Errorf("mount the pids controller: %w", err)
	}
	// It stays open for as long as the process lives.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return filepath.Join("/proc/self/fd", fmt.Sprint(fd)), errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
}
