//go:build linux

// Package reaper starts a guest's own processes, and reaps the orphans of a sandbox.
package reaper

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Children starts the guest's own processes and, in a process 1, reaps the
// orphans without taking the exit status of an own child from who waits for it.
type Children struct {
	mu      sync.Mutex
	reaping bool
	// unwaited has, for each child that has not been waited for, what is closed when
	// that does not take long any more; nil for one that nobody watches.
	unwaited map[int]chan struct{}
	// waited says that an own child was waited for, and hides no others.
	waited chan struct{}
}

// Start starts cmd. Whoever calls it must call wait.
func (c *Children) Start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.unwaited == nil {
		c.unwaited = map[int]chan struct{}{}
	}
	var ended chan struct{}
	if c.reaping {
		ended = make(chan struct{})
	}
	c.unwaited[cmd.Process.Pid] = ended
	return nil
}

// Wait waits for cmd to end and returns its status. While there is a reaper it
// costs no thread.
func (c *Children) Wait(cmd *exec.Cmd) syscall.WaitStatus {
	pid := cmd.Process.Pid
	c.mu.Lock()
	ended := c.unwaited[pid]
	c.mu.Unlock()
	if ended != nil {
		<-ended
	}
	_ = cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unwaited, pid)
	if c.waited != nil {
		select {
		case c.waited <- struct{}{}:
		default:
		}
	}
	if cmd.ProcessState == nil {
		return syscall.WaitStatus(syscall.SIGKILL)
	}
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ws
}

// ended tells who waits for an own child. The caller holds the lock.
func (c *Children) ended(pid int) {
	if ch := c.unwaited[pid]; ch != nil {
		close(ch)
		c.unwaited[pid] = nil
	}
}

// Reap takes orphans away, and tells of own children that have ended, until ctx is
// done. An own child that ended stands in the way of those behind it only until
// its waiter has taken it.
func (c *Children) Reap(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	c.mu.Lock()
	c.reaping, c.waited = true, make(chan struct{}, 1)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reaping = false
		for pid := range c.unwaited {
			c.ended(pid) // from now on they wait for themselves
		}
	}()
	for {
		c.reapOnce()
		select {
		case <-signals:
		case <-c.waited:
		case <-ctx.Done():
			return
		}
	}
}

// reapOnce reaps the orphans up to the first own child that has ended, which it
// tells.
func (c *Children) reapOnce() {
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
			return
		}
		if _, ours := c.unwaited[pid]; ours {
			c.ended(pid)
			return
		}
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
