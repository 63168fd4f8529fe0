package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// runningProgram is how a process executes its own binary, wherever that is.
const runningProgram = "/proc/self/exe"

// openHelper returns a name by which every user can execute path. Sentries and
// gofers are other users than this process: they can neither search a folder
// that is closed to them, such as root's home, nor execute a file that only its
// owner may. A descriptor leads to the file itself; only what nobody else may
// execute is copied, into memory. The file is nil if the name needs none, else
// it must stay open for as long as the name is used.
func openHelper(path string) (name string, _ *os.File, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("gvisor: helper: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		file.Close()
		return "", nil, fmt.Errorf("gvisor: helper: %w", err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		file.Close()
		return "", nil, fmt.Errorf("gvisor: helper: %s is not a file", path)
	case stat.Mode&0o001 == 0:
		file.Close()
		if file, err = copyToMemory(path); err != nil {
			return "", nil, fmt.Errorf("gvisor: %s can be executed by its owner only, and could not be copied: %w", path, err)
		}
	case path == runningProgram:
		return path, nil, file.Close()
	}
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd()), file, nil
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
