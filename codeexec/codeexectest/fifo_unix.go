//go:build unix

package codeexectest

import "syscall"

func mkfifo(name string) error { return syscall.Mkfifo(name, 0o600) }
