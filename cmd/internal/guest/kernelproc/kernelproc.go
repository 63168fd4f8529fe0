//go:build linux

// Package kernelproc starts language kernels, and passes on what they say.
package kernelproc

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/cellgroup"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

const (
	coalesce     = 20 * time.Millisecond // how long the start of a line waits for the rest
	maxEvent     = 96 << 20              // bytes of one event of a kernel
	readSize     = 64 << 10
	pieceSize    = 64 << 10 // of source that is sent at once
	drainSize    = 1 << 20  // bytes read of one stream before the others get a turn
	startTail    = 4 << 10  // of what a kernel says before it is ready
	deadPoll     = time.Second
	closedStatus = time.Second // between the end of the wire and of the process
)

// Sink takes what a kernel says during a cell, from the kernel's reading
// goroutine. A sink that blocks holds the code up, which is wanted.
type Sink interface {
	Text(stderr bool, text string)
	Event(kernel.Event)
	// Died says that the process ended before it was done.
	Died(syscall.WaitStatus)
}

// Process is a kernel that runs. Its goroutine lives until the process and
// whatever holds its output open are gone, or close is called.
type Process struct {
	cmd     *exec.Cmd
	sock    int           // the end of the wire; the reading goroutine closes it
	Ready   chan struct{} // closed after the ready event
	Drew    chan struct{} // gets a value, if there is room for one, when it has drawn anew
	Ended   chan struct{} // closed when the process is dead and its last words are read
	exited  chan struct{} // closed when the process is dead
	Status  syscall.WaitStatus
	stopped atomic.Bool
	OOM     atomic.Bool // it, or its shell, was killed because memory was over

	mu   sync.Mutex // held while the sink is called
	sink Sink
	out  [2]int // ends of stdout and stderr, -1 once closed; only the reading goroutine changes them
	tail []byte // said before ready

	wmu    sync.Mutex // guards closed and writes to sock
	closed bool

	Group cellgroup.Home // guarded by groups.mu

	Copies   atomic.Int64      // of its machine, for which it has drawn; the caller's
	Identity settings.Identity // that it has been told; guarded by the turn of its context

	streams [2]textStream
	wire    []byte // of an event that is not whole yet
}

// Start starts a kernel in the folder cwd. wg counts its goroutines.
func Start(s *settings.Store, children *reaper.Children, wg *sync.WaitGroup, c kernel.Command, cwd string) (_ *Process, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the kernel: %w", err)
	}
	ours, theirs := []int{pair[0]}, []*os.File{os.NewFile(uintptr(pair[1]), "wire")}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, fd := range ours {
				unix.Close(fd)
			}
		}
	}()
	for _, name := range []string{"stdout", "stderr"} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("start the kernel: %w", err)
		}
		ours, theirs = append(ours, pipe[0]), append(theirs, os.NewFile(uintptr(pipe[1]), name))
	}
	for _, fd := range ours {
		_ = unix.SetNonblock(fd, true)
	}
	k := &Process{
		sock: ours[0], out: [2]int{ours[1], ours[2]},
		Ready: make(chan struct{}), Drew: make(chan struct{}, 1), Ended: make(chan struct{}), exited: make(chan struct{}),
	}
	k.cmd = exec.Command(c.Path, c.Args...)
	if c.Path == "/proc/self/exe" {
		k.cmd.Args[0] = settings.Program // main looks at it
	}
	k.cmd.Stdout, k.cmd.Stderr, k.cmd.ExtraFiles = theirs[1], theirs[2], theirs[:1]
	k.cmd.Dir = cwd
	now := s.Load()
	k.Identity = now.Identity
	k.cmd.Env = append(s.UserEnv(now), "PWD="+cwd)
	k.cmd.Env = append(k.cmd.Env, c.Env...)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.Credential()}
	if err := children.Start(k.cmd); err != nil {
		return nil, fmt.Errorf("start the kernel: %w", err)
	}
	wg.Go(func() {
		k.Status = children.Wait(k.cmd)
		close(k.exited)
		k.wmu.Lock()
		defer k.wmu.Unlock()
		if !k.closed {
			// A child may hold the wire open: what is on it can still be read.
			_ = unix.Shutdown(k.sock, unix.SHUT_RDWR)
		}
	})
	wg.Go(k.read)
	return k, nil
}

// PID is the id of the process.
func (k *Process) PID() int { return k.cmd.Process.Pid }

// Interrupt sends SIGINT to the process.
func (k *Process) Interrupt() { _ = syscall.Kill(k.PID(), syscall.SIGINT) }

// SignalAnew has a Python kernel's generators draw anew.
func (k *Process) SignalAnew() { _ = syscall.Kill(k.PID(), kernel.SignalAnew) }

// Stop kills the process and gives up on output that others hold open.
func (k *Process) Stop() {
	k.stopped.Store(true)
	select {
	case <-k.exited:
	default:
		_ = syscall.Kill(k.PID(), syscall.SIGKILL)
	}
}

// LastWords is the end of what was said while nobody asked, up to startTail bytes.
func (k *Process) LastWords() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return string(k.tail)
}

// Release lets go of the sink: after it returns the sink is not called again.
func (k *Process) Release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sink = nil
}

// DescribeEnd says how the process ended, and more of one that was killed for its
// memory.
func (k *Process) DescribeEnd() string {
	if k.OOM.Load() {
		return "the sandbox was out of memory"
	}
	return reaper.Describe(k.Status)
}
