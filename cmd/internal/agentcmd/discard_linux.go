package agentcmd

import (
	"os"

	"golang.org/x/sys/unix"
)

// discard forgets what was typed on a terminal and has not been read.
func discard(in *os.File) error {
	return os.NewSyscallError("flush the terminal", unix.IoctlSetInt(int(in.Fd()), unix.TCFLSH, unix.TCIFLUSH))
}
