//go:build linux

// Package namespace starts processes with mounts of their own.
package namespace

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attr is for a child that mounts: a mount namespace, and without the privilege
// for it a user namespace whose uid and gid 0 are the caller's.
func Attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if !maySysAdmin() {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// maySysAdmin reports whether this process may mount. A container's root often
// may not.
func maySysAdmin() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return os.Geteuid() == 0 && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// Hint is the remedy for a process that could not be started with Attr; empty
// if the error has another cause.
func Hint(err error) string {
	for _, errno := range []error{syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSPC, syscall.EUSERS} {
		if errors.Is(err, errno) {
			return "this machine forbids user namespaces to this user: allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; for docker run: --security-opt seccomp=unconfined --security-opt apparmor=unconfined), or run as root with CAP_SYS_ADMIN. `cubby doctor` tells which"
		}
	}
	return ""
}
