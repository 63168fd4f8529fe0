package gvisor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// userRange is host users that machines of root servers run as.
type userRange struct{ first, count uint32 }

// hostUsers lies above every range that useradd or systemd hands out, below 2^31.
var hostUsers = userRange{first: 0x70000000, count: 1 << 24}

// hostUser is a host user that one machine has for itself, among all servers of
// this host that share a network namespace. What says so is a socket of that name
// that nobody can connect to: it leaves nothing in any file system, and is gone
// with this process.
type hostUser struct {
	id   uint32
	name *os.File
}

// maxTakenUsers is how many users that are taken are passed over before there is
// said to be none. One in 4,096 is taken at 4,096 machines.
const maxTakenUsers = 1000

// take finds a user that no machine has, and that no process runs as: those of a
// server that was killed go a moment after it.
func (r userRange) take() (*hostUser, error) {
	for range maxTakenUsers {
		u := &hostUser{id: r.first + rand.Uint32N(r.count)}
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
		u.release()
		if err != unix.EADDRINUSE {
			return nil, fmt.Errorf("a host user for the machine: %w", err)
		}
	}
	return nil, errors.New("no host user is left for the machine: all that were tried are taken")
}

// release lets others have the user, as which nothing must run any more. It is
// idempotent; a nil hostUser has nothing to release.
func (u *hostUser) release() error {
	if u == nil || u.name == nil {
		return nil
	}
	err := u.name.Close()
	u.name = nil
	return err
}
