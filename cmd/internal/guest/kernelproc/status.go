//go:build linux

package kernelproc

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

// DescribeEnd is describe, and says more of a kernel that was killed for its
// memory.
func (k *Process) DescribeEnd() string {
	if k.OOM.Load() {
		return "the sandbox was out of memory"
	}
	return Describe(k.Status)
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
