//go:build unix && !linux

package agentcmd

import (
	"os"

	"golang.org/x/sys/unix"
)

// discard forgets what was typed on a terminal and has not been read.
func discard(in *os.File) error {
	const input = 1 // FREAD
	return os.NewSyscallError("flush the terminal", unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCFLUSH, input))
}
