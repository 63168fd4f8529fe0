//go:build linux

package guest

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// children starts the guest's own processes and, in a process 1, reaps the
// orphans without taking the exit status of an own child from who waits for it.
type children struct {
	mu  sync.Mutex
	own map[int]bool
}

// start starts cmd. Whoever calls it must call wait.
func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.own == nil {
		c.own = map[int]bool{}
	}
	c.own[cmd.Process.Pid] = true
	return nil
}

// wait waits for cmd to end and returns its status.
func (c *children) wait(cmd *exec.Cmd) syscall.WaitStatus {
	_ = cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.own, cmd.Process.Pid)
	if cmd.ProcessState == nil {
		return syscall.WaitStatus(syscall.SIGKILL)
	}
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ws
}

func (c *children) isOwn(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own[pid]
}

// reap takes orphans away until ctx is done. An own child that ended stands in
// the way of those behind it only until its waiter has taken it.
func (c *children) reap(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	for {
		again := c.reapOnce()
		var retry <-chan time.Time
		if again {
			retry = time.After(2 * time.Millisecond)
		}
		select {
		case <-signals:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// reapOnce reaps all orphans that it can see, and says whether an own child hides
// others.
func (c *children) reapOnce() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		// si_pid is the first member of the union, which starts at byte 16.
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16)))
		if err != nil || pid == 0 {
			return false
		}
		if c.own[pid] {
			return true
		}
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
