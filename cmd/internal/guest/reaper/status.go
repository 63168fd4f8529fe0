//go:build linux

package reaper

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Describe says how a process ended: "exit status 3", "killed by SIGKILL".
func Describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + signalName(ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
