//go:build linux

package container

import (
	"io"
	"log"
	"os/exec"
	"syscall"
)

var quiet = log.New(io.Discard, "", 0)

func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
