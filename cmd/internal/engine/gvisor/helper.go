package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"
)

// helperRoom is how far above every open descriptor the helper's is while sentry
// and gofer are made: package os puts what they are handed at the lowest numbers,
// and on the way there right above the highest that it hands over, before it
// executes what the name leads to.
const helperRoom = 256

// nameHelper gives gVisor's global the name of the helper until its result is
// called.
func (e *Engine) nameHelper() (done func(), err error) {
	if e.helper == nil {
		specutils.ExePath = runningProgram
		return func() {}, nil
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	highest := 0
	for _, fd := range fds {
		if n, err := strconv.Atoi(fd.Name()); err == nil {
			highest = max(highest, n)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, err
	}
	least := highest + helperRoom
	if limit.Cur <= uint64(least) {
		least = int(limit.Cur) - 1
	}
	fd, err := unix.FcntlInt(e.helper.Fd(), unix.F_DUPFD_CLOEXEC, least)
	if err != nil {
		return nil, fmt.Errorf("a descriptor for the helper: %w", err)
	}
	specutils.ExePath = fmt.Sprintf("/proc/self/fd/%d", fd)
	return func() { unix.Close(fd) }, nil
}

// runningProgram is how a process executes its own binary, wherever that is.
const runningProgram = "/proc/self/exe"

// openHelper returns a descriptor by which every user can execute path. Sentries and
// gofers are other users than this process: they can neither search a folder
// that is closed to them, such as root's home, nor execute a file that only its
// owner may. A descriptor leads to the file itself; only what nobody else may
// execute is copied, into memory. The file is nil for the running program, which
// has a name of its own.
func openHelper(path string) (_ *os.File, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("gvisor: helper: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		file.Close()
		return nil, fmt.Errorf("gvisor: helper: %w", err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		file.Close()
		return nil, fmt.Errorf("gvisor: helper: %s is not a file", path)
	case stat.Mode&0o001 == 0:
		file.Close()
		if file, err = copyToMemory(path); err != nil {
			return nil, fmt.Errorf("gvisor: %s can be executed by its owner only, and could not be copied: %w", path, err)
		}
	case path == runningProgram:
		return nil, file.Close()
	}
	return file, nil
}

func copyToMemory(path string) (_ *os.File, err error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	fd, err := unix.MemfdCreate("cubby", unix.MFD_CLOEXEC|unix.MFD_EXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, where all can be executed
		fd, err = unix.MemfdCreate("cubby", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	to := os.NewFile(uintptr(fd), "/memfd:cubby")
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return nil, err
	}
	if err := to.Chmod(0o755); err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(to.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	// What is open for writing cannot be executed.
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}
