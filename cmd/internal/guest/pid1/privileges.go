//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// withhold keeps from everything that this process starts, root or not, what the
// engine gave process 1 alone, as inheritable capabilities: it empties that set,
// for every thread. Process 1 itself keeps them, for it never executes another
// program in its own place. Otherwise
//   - with CAP_SYS_PTRACE root could read the token out of process 1,
//   - with CAP_SYS_RESOURCE or CAP_SYS_ADMIN no RLIMIT_NPROC would hold for it,
//   - with CAP_SYS_ADMIN it could mount the cgroups and leave that of its cell
//     (in a user namespace of its own root still can: see SECURITY.md).
func withhold() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read our capabilities: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	// One call for all threads: each stops all of them.
	if _, _, err := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); err != 0 {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	return nil
}

// mountCgroups mounts control groups of the kind that the engine offers where only the
// caller reaches them, and returns their path: through a descriptor of this process,
// which nobody else can open. It is empty where none are offered.
func mountCgroups(kind string) (string, error) {
	if kind != protocol.CgroupV1PIDs {
		return "", nil
	}
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
