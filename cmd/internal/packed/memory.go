//go:build linux

package packed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
)

const mfdExec = 0x10 // MFD_EXEC, of Linux 6.3

// memory unpacks the program into a memory file that nobody can change any more, not
// even this process. It is there as long as it is open or runs.
func (o *opener) memory(ctx context.Context) (*Located, error) {
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
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	return o.nameless(ctx, os.NewFile(uintptr(fd), o.program.Name), FromMemory, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		return os.NewSyscallError("seal memory file", err)
	})
}

// temporary unpacks the program into a file without a name, which is gone when nobody has
// it open any more, however this process ends.
func (o *opener) temporary(ctx context.Context, dir string) (*Located, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "make a file without a name in", Path: dir, Err: err}
	}
	if ready.NoExec(fd) {
		unix.Close(fd)
		return nil, errors.New("nothing can be run from its file system (noexec)")
	}
	return o.nameless(ctx, os.NewFile(uintptr(fd), dir), FromTemporary, func(int) error { return nil })
}

// nameless unpacks the program into a file that has no name, and takes it over. seal is
// called when it is complete.
func (o *opener) nameless(ctx context.Context, file *os.File, from From, seal func(fd int) error) (*Located, error) {
	defer file.Close()
	if err := o.program.decompress(ctx, file); err != nil {
		return nil, err
	}
	if err := file.Chmod(ready.Mode); err != nil {
		return nil, err
	}
	if err := seal(int(file.Fd())); err != nil {
		return nil, err
	}
	// One that is open for writing cannot be executed, sealed or not.
	read, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open the unpacked file", err)
	}
	f := ready.File{Path: string(from) + " file " + o.program.Name, FD: read}
	if err := syscall.Fstat(read, &f.Stat); err != nil {
		unix.Close(read)
		return nil, os.NewSyscallError("fstat", err)
	}
	// Another process of this user could have changed what was written before it was
	// complete.
	sum, err := hash(ctx, f)
	if err == nil && sum != o.want.SHA256 {
		err = fmt.Errorf("its content was changed: SHA-256 %s, not %s", sum, o.want.SHA256)
	}
	if err != nil {
		unix.Close(read)
		return nil, err
	}
	return &Located{File: os.NewFile(uintptr(read), f.Path), Path: f.Path, From: from, Passed: o.passed}, nil
}
