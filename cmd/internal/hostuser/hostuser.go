//go:build linux

// Package hostuser hands out users of the host that a machine, or another process of a
// server that runs as root, has for itself.
package hostuser

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// users is a range of host users.
type users struct{ first, count uint32 }

// reserved lies above every range that useradd or systemd hands out, below 2^31.
var reserved = users{first: 0x70000000, count: 1 << 24}

// User is a host user that one machine has for itself, among all servers of
// this host that share a network namespace. What says so is a socket of that name
// that nobody can connect to: it leaves nothing in any file system, and is gone
// with this process.
type User struct {
	id   uint32
	name *os.File
}

// maxTakenUsers is how many users that are taken are passed over before there is
// said to be none. One in 4,096 is taken at 4,096 machines.
const maxTakenUsers = 1000

// ID is the user's number, and that of a group which nobody else has either.
func (u *User) ID() uint32 { return u.id }

// Take finds a user that nobody else of this host has, and that no process runs as. The
// caller releases it.
func Take() (*User, error) { return reserved.take() }

// take finds a user that no machine has, and that no process runs as: those of a
// server that was killed go a moment after it.
func (r users) take() (*User, error) {
	for range maxTakenUsers {
		u := &User{id: r.first + rand.Uint32N(r.count)}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("a host user for the machine: %w", err)
		}
		u.name = os.NewFile(uintptr(fd), "host user")
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@cubby-user-%d", u.id)})
		if err == nil {
			// It finds no process of that user: that is wanted.
			if _, err = unix.Getpriority(unix.PRIO_USER, int(u.id)); err == unix.ESRCH {
				return u, nil
			}
			if err == nil {
				err = unix.EADDRINUSE
			}
		}
		u.Release()
		if err != unix.EADDRINUSE {
			return nil, fmt.Errorf("a host user for the machine: %w", err)
		}
	}
	return nil, errors.New("no host user is left for the machine: all that were tried are taken")
}

// Release lets others have the user, as which nothing must run any more. It is
// idempotent; a nil User has nothing to release.
func (u *User) Release() error {
	if u == nil || u.name == nil {
		return nil
	}
	err := u.name.Close()
	u.name = nil
	return err
}

// Initial reports whether uid 0 of this process is the host's: only then are there users
// to hand out.
func Initial() (bool, error) {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, err
	}
	f := strings.Fields(string(b))
	return os.Geteuid() == 0 && len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295", nil
}
