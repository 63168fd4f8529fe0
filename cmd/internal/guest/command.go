//go:build linux

package guest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
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

	late    atomic.Bool // its time was over
	timer   *time.Timer // nil if it may take for ever
	reading sync.WaitGroup
	ended   chan struct{} // closed when nothing more is said and end is set
	end     *envd.ProcessEvent_EndEvent

	mu        sync.Mutex
	followers []*follower // replaced, never changed in place
}

// follower is one stream of a command's events.
type follower struct {
	events chan *envd.ProcessEvent
	gone   chan struct{} // closed by who reads events, when it does no more
	slow   chan struct{} // closed when it held up others for too long
}

// follow adds a follower, which must leave.
func (c *command) follow() *follower {
	f := &follower{events: make(chan *envd.ProcessEvent, waiting), gone: make(chan struct{}), slow: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followers = append(slices.Clone(c.followers), f)
	return f
}

func (c *command) leave(f *follower) {
	close(f.gone)
	c.drop(f)
}

func (c *command) drop(f *follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followers = slices.DeleteFunc(slices.Clone(c.followers), func(x *follower) bool { return x == f })
}

func (c *command) following() []*follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.followers
}

// tell gives e to all followers, and waits until each of them has room for it.
func (c *command) tell(e *envd.ProcessEvent) {
	for _, f := range c.following() {
		select {
		case f.events <- e:
			continue
		case <-f.gone:
			continue
		default:
		}
		c.insist(f, e)
	}
}

// insist waits until f takes e, or is gone, or others have waited for too long.
func (c *command) insist(f *follower, e *envd.ProcessEvent) {
	t := time.NewTicker(c.patience)
	defer t.Stop()
	for {
		select {
		case f.events <- e:
			return
		case <-f.gone:
			return
		case <-c.stop:
			return
		case <-t.C:
			if c.leaveBehind(f) {
				return
			}
		}
	}
}

// leaveBehind drops f if there are others, and says whether it did: who is alone
// holds up nobody but the command.
func (c *command) leaveBehind(f *follower) bool {
	if len(c.following()) < 2 {
		return false
	}
	c.drop(f)
	close(f.slow)
	return true
}

// output is one stream of what a command says.
type output struct {
	f     *os.File
	chunk int
	event func([]byte) *envd.ProcessEvent
}

var chunks = sync.Pool{New: func() any { return new([pipeChunk]byte) }}

// next returns what the stream has next; it holds no buffer while it waits. With
// keep false it returns nothing, only whether the stream goes on.
func (o *output) next(keep bool) ([]byte, error) {
	raw, err := o.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var b []byte
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		b, failed = o.take(int(fd), keep)
		return failed != unix.EAGAIN
	})
	return b, errors.Join(err, failed)
}

// left returns what the stream has at once; at its end, or if it has nothing, an
// error.
func (o *output) left() ([]byte, error) {
	raw, err := o.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var b []byte
	var failed error
	err = raw.Control(func(fd uintptr) { b, failed = o.take(int(fd), true) })
	return b, errors.Join(err, failed)
}

var errEnd = errors.New("the output has ended")

func (o *output) take(fd int, keep bool) ([]byte, error) {
	buf := chunks.Get().(*[pipeChunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := unix.Read(fd, buf[:o.chunk])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err // a terminal that everybody has closed says EIO
		case n == 0:
			return nil, errEnd
		case keep:
			return bytes.Clone(buf[:n]), nil
		default:
			return nil, nil
		}
	}
}

// read hands on what o has until it ends, or until the command has ended and
// lingered, and says whether o is still open.
func (c *command) read(o *output) bool {
	for {
		b, err := o.next(true)
		if err == nil {
			c.tell(o.event(b))
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		for total := 0; total < maxLeft; total += len(b) {
			if b, err = o.left(); err != nil {
				return errors.Is(err, unix.EAGAIN)
			}
			c.tell(o.event(b))
		}
		return true
	}
}

// drain throws away what o says, so that who holds it open is neither held up nor
// killed by it.
func (c *command) drain(o *output) {
	_ = o.f.SetReadDeadline(time.Time{})
	for {
		if _, err := o.next(false); err != nil {
			return
		}
	}
}

// run reads and waits for a command that has started, and calls over when its end
// is known. It returns when nothing of the command is open any more.
func (c *command) run(children *children, over func()) {
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
	_ = children.wait(c.cmd)
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

// endOf describes how a process ended, as E2B does.
func endOf(st *os.ProcessState) *envd.ProcessEvent_EndEvent {
	if st == nil { // nobody knows: somebody else has waited for it
		status := "signal: " + syscall.SIGKILL.String()
		return &envd.ProcessEvent_EndEvent{ExitCode: -1, Status: status, Error: &status}
	}
	e := &envd.ProcessEvent_EndEvent{ExitCode: int32(st.ExitCode()), Exited: st.Exited(), Status: st.String()}
	if !st.Success() {
		e.Error = &e.Status
	}
	return e
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

func dataEvent(d *envd.ProcessEvent_DataEvent) *envd.ProcessEvent {
	return &envd.ProcessEvent{Event: &envd.ProcessEvent_Data{Data: d}}
}

func stdoutEvent(b []byte) *envd.ProcessEvent {
	return dataEvent(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stdout{Stdout: b}})
}

func stderrEvent(b []byte) *envd.ProcessEvent {
	return dataEvent(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stderr{Stderr: b}})
}

func ptyEvent(b []byte) *envd.ProcessEvent {
	return dataEvent(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Pty{Pty: b}})
}
