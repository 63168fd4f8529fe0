//go:build linux

package commands

import (
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
)

const (
	pipeChunk = 32 << 10 // most bytes of one event of a pipe, as E2B's
	ptyChunk  = 16 << 10 // and of a terminal

	// linger is how long the end of a command waits for what it left running to
	// close its output, or to say something more.
	linger = 500 * time.Millisecond
	// maxLeft bounds, in bytes, what is read of a stream that stays open after
	// that: more than a pipe holds, so nothing of the command itself is lost.
	maxLeft = 1 << 20

	// waiting is how many events a follower may be behind before it holds the
	// command up.
	waiting = 4
	// defaultPatience is how long a follower may hold up others of the same command.
	defaultPatience = 30 * time.Second
)

// command is a process that a client of envd started. What it says goes to its
// followers as it comes and is kept nowhere: a follower that does not take it holds
// the command up, and without a follower it is dropped. Its end comes when the
// process is dead and its output has ended, or linger after; what it left running
// may go on writing then, to nobody.
type command struct {
	info *envd.ProcessInfo // its pid is set before anybody else sees the command
	cmd  *exec.Cmd
	in   *input // nil if there is nothing to write to
	pty  *os.File
	outs []*output
	stop <-chan struct{} // closed when the guest ends
	// patience is how long a follower may hold up others.
	patience time.Duration

	late    atomic.Bool     // its time was over
	timer   *restored.Timer // nil if it may take for ever
	reading sync.WaitGroup
	ended   chan struct{} // closed when nothing more is said and end is set
	end     *envd.ProcessEvent_EndEvent

	mu        sync.Mutex
	followers []*follower // replaced, never changed in place
}

// run reads and waits for a command that has started, and calls over when its end
// is known. It returns when nothing of the command is open any more.
func (c *command) run(children *reaper.Children, over func()) {
	var all sync.WaitGroup
	for _, o := range c.outs {
		c.reading.Add(1)
		all.Go(func() {
			open := c.read(o)
			c.reading.Done()
			if open && c.pty == nil {
				c.drain(o)
			}
			_ = o.f.Close() // the end of a terminal hangs it up
		})
	}
	_ = children.Wait(c.cmd)
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.in != nil && c.pty == nil {
		_ = c.in.f.Close()
	}
	until := time.Now().Add(linger)
	for _, o := range c.outs {
		_ = o.f.SetReadDeadline(until)
	}
	c.reading.Wait()
	c.end = endOf(c.cmd.ProcessState)
	over()
	close(c.ended)
	all.Wait()
}

// signal sends s to the process and to nothing else. os.ErrProcessDone says that
// it has ended.
func (c *command) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

// kill kills the process and what it started in its own process group.
func (c *command) kill() {
	if c.signal(syscall.SIGKILL) == nil {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// abandon kills the command and gives up on its output.
func (c *command) abandon() {
	c.kill()
	for _, o := range c.outs {
		_ = o.f.Close()
	}
}
