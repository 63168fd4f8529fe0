//go:build amd64 || arm64

package entry

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// closed says which of the descriptors 1 and 2 were closed when the process began.
// The entry writes it, in assembler.
var closed [3]bool

// need is how much of a limit the program needs to come as far as looking at its
// limits itself. The entry reads it, in assembler.
type need struct {
	resource uint64
	least    uint64
	told     string // what is written to standard error if there is less
}

const needCount = 4

// needs are what was measured, rounded up; package rlimit knows what sandboxes
// need. They must be constants: nothing is initialised when they are read.
var needs = [needCount]need{
	// Go's tables and first arenas and the program itself are some 800 MiB.
	{unix.RLIMIT_AS, 1 << 30, "cubby: less than 1024 MiB of address space are allowed here (RLIMIT_AS), too little to start; " +
		"a sandbox needs 6144 MiB\nhint: raise it: `ulimit -v unlimited` " + where + ", LimitAS=68719476736 for a systemd service\n"},
	// Data and heap of a program that does nothing are 78 MiB.
	{unix.RLIMIT_DATA, 128 << 20, "cubby: less than 128 MiB of private memory are allowed here (RLIMIT_DATA), too little to start; " +
		"a sandbox needs 512 MiB\nhint: raise it: `ulimit -d unlimited` " + where + ", LimitDATA=8589934592 for a systemd service, " +
		"--ulimit data=8589934592 for docker run\n"},
	// gVisor's packages and Go's poller open eight while they are initialised, and the
	// process that is to say what a sandbox needs has 14 before it can.
	{unix.RLIMIT_NOFILE, 32, "cubby: fewer than 32 open files are allowed here (RLIMIT_NOFILE), too few to start; " +
		"a sandbox needs 512\nhint: raise it: `ulimit -n 4096` " + where + ", LimitNOFILE=4096 for a systemd service, " +
		"--ulimit nofile=4096 for docker run\n"},
	// The last, since it does not bind root. Go has seven threads before it looks;
	// what else the user runs counts, too, and is not known here.
	{unix.RLIMIT_NPROC, 16, "cubby: fewer than 16 processes and threads of this user are allowed here (RLIMIT_NPROC), too few to start; " +
		"a sandbox needs 64\nhint: raise it: `ulimit -u 4096` " + where + ", LimitNPROC=4096 for a systemd service, " +
		"--ulimit nproc=4096 for docker run\n"},
}

const where = "in the shell that starts it (root may always, and sets it for others in /etc/security/limits.conf)"

// KeepClosed makes writes to standard output and standard error fail with EBADF if
// the process began without them, here and in the processes that inherit them. The
// descriptors stay taken, so that no file that is opened later becomes one of them.
// It is to be called once, before anything is written.
func KeepClosed() error {
	for _, fd := range []int{unix.Stdout, unix.Stderr} {
		if !closed[fd] {
			continue
		}
		// Writing to what was opened for reading is the same error.
		null, err := os.Open(os.DevNull)
		if err != nil {
			return fmt.Errorf("keep descriptor %d closed: %w", fd, err)
		}
		err = unix.Dup3(int(null.Fd()), fd, 0)
		null.Close()
		if err != nil {
			return fmt.Errorf("keep descriptor %d closed: %w", fd, err)
		}
	}
	return nil
}
