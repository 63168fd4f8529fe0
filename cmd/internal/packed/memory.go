//go:build linux

package packed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

const mfdExec = 0x10 // MFD_EXEC, of Linux 6.3

// memory unpacks the program into a memory file that nobody can change any more, not
// even this process. It is there as long as it is open or runs.
func (o *opener) memory(ctx context.Context) (_ *Located, err error) {
	fd, err := unix.MemfdCreate(o.program.Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdExec)
	if errors.Is(err, unix.EINVAL) { // an older kernel, where every memory file can be executed
		fd, err = unix.MemfdCreate(o.program.Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	switch {
	case errors.Is(err, unix.EACCES):
		return nil, errors.New("memory files cannot be run here (sysctl vm.memfd_noexec is 2)")
	case err != nil:
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), o.program.Name)
	defer file.Close()
	if err := o.program.decompress(ctx, file); err != nil {
		return nil, err
	}
	if err := file.Chmod(ready.Mode); err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("seal memory file", err)
	}
	// One that is open for writing cannot be executed, sealed or not.
	read, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open memory file", err)
	}
	f := ready.File{Path: "memory file " + o.program.Name, FD: read}
	if err := syscall.Fstat(read, &f.Stat); err != nil {
		unix.Close(read)
		return nil, os.NewSyscallError("fstat", err)
	}
	// What was written before it was sealed could have been changed by another process
	// of this user.
	sum, err := hash(ctx, f)
	if err == nil && sum != o.want.SHA256 {
		err = fmt.Errorf("its content was changed: SHA-256 %s, not %s", sum, o.want.SHA256)
	}
	if err != nil {
		unix.Close(read)
		return nil, err
	}
	return &Located{File: os.NewFile(uintptr(read), f.Path), Path: f.Path, From: FromMemory, SHA256: sum, Passed: o.passed}, nil
}
