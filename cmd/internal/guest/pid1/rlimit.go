//go:build linux

package pid1

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
)

// maxPasses bounds how often boundProcesses looks for processes with the old
// limit: those that come into being during a pass are children of some.
const maxPasses = 100

// BoundProcesses sets how many processes each user but root may have
// (RLIMIT_NPROC), here, for whatever is started from now on, and for all that runs.
// A process that has less by its own wish keeps that, and where the kernel is
// gVisor a process that runs is never given more: see reboundProcess. The limit is
// not held against process 1, who has the capabilities that withhold takes from
// everybody else. With an error the old one holds for what is started from now on.
func BoundProcesses(n int) error {
	var old unix.Rlimit
	limit := unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
	if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &limit, &old); err != nil {
		return err
	}
	if old == limit {
		return nil
	}
	if err := reboundAll(old, limit); err != nil {
		return errors.Join(err, unix.Prlimit(0, unix.RLIMIT_NPROC, &old, nil))
	}
	return nil
}

// reboundAll changes the limit of all processes but this one, which has it already.
func reboundAll(old, limit unix.Rlimit) error {
	for range maxPasses {
		changed := false
		for _, p := range procfs.Processes() {
			if p.PID == os.Getpid() {
				continue
			}
			did, err := reboundProcess(p.PID, old, limit)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			changed = changed || did
		}
		if !changed {
			return nil
		}
	}
	return errors.New("processes come into being faster than they can be bounded")
}

// reboundProcess changes the limit of a process and says whether it did. To give a
// process more, gVisor wants a capability of that process instead of the caller's:
// it keeps what it has.
func reboundProcess(pid int, old, limit unix.Rlimit) (changed bool, err error) {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &now); err != nil {
		return false, err
	}
	next := rebounded(now, old, limit)
	if next == now {
		return false, nil
	}
	err = unix.Prlimit(pid, unix.RLIMIT_NPROC, &next, nil)
	if errors.Is(err, unix.EPERM) && next.Max > now.Max {
		return false, nil
	}
	return err == nil, err
}

// rebounded is the limit of a process that has now, where old is replaced by limit.
func rebounded(now, old, limit unix.Rlimit) unix.Rlimit {
	move := func(value, from, to uint64) uint64 {
		if value == from {
			return to
		}
		return min(value, to)
	}
	hard := move(now.Max, old.Max, limit.Max)
	return unix.Rlimit{Cur: min(move(now.Cur, old.Cur, limit.Cur), hard), Max: hard}
}
