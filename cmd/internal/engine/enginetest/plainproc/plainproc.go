//go:build linux

// Package plainproc is an engine for tests that builds no walls: the first process of
// a machine is an ordinary child of this process, of the same user and on the same
// files. It can do what every engine must, and nothing that only some can: with it the
// suite, and what is above engines, is tested without gVisor. Never run in it what
// must not run on the host.
package plainproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/channel"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/hostproc"
)

// Engine is an engine.Engine. It holds nothing between machines.
type Engine struct{ stateDir string }

var _ engine.Engine = (*Engine)(nil)

// New returns an engine whose machines have their working folders in an existing one.
func New(stateDir string) *Engine { return &Engine{stateDir} }

// Name implements engine.Engine.
func (*Engine) Name() string { return "plainproc" }

// Commit implements engine.Engine. There are no checkpoints to tell apart.
func (*Engine) Commit() string { return "1" }

// Probe implements engine.Engine.
func (*Engine) Probe(context.Context) error { return nil }

// Start implements engine.Engine. It takes no notice of Root, Hostname and Limits. The
// first process finds an empty folder of its own as its working directory, which is
// removed with the machine.
func (e *Engine) Start(ctx context.Context, spec engine.Spec) (_ engine.Machine, err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if spec.Net != nil {
		return nil, fmt.Errorf("plainproc: %s: a network card: %w", spec.ID, engine.ErrNotSupported)
	}
	m := &machine{spec: spec, dir: filepath.Join(e.stateDir, spec.ID), ended: make(chan struct{}), exit: make(chan engine.Exit, 1)}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("plainproc: %w", err)
	}
	hostEnd, guestEnd, err := channel.Pair()
	if err == nil {
		defer guestEnd.Close()
		m.host, err = channel.NewHost(hostEnd)
	}
	if err == nil {
		err = m.start(guestEnd)
	}
	if err != nil {
		if m.host != nil {
			err = errors.Join(err, m.host.Close())
		}
		return nil, errors.Join(fmt.Errorf("plainproc: %s: %w", spec.ID, err), os.RemoveAll(m.dir))
	}
	return m, nil
}

// machine is one process, and what it starts.
type machine struct {
	spec engine.Spec
	dir  string
	host *channel.Host
	cmd  *exec.Cmd

	state  sync.Mutex // held while something looks at the processes, or ends them
	closed bool

	ended   chan struct{} // closed when the first process has
	exit    chan engine.Exit
	closing sync.Once
	err     error
}

var _ engine.Machine = (*machine)(nil)

// start starts the first process, which dies with this one.
func (m *machine) start(guestEnd *os.File) error {
	m.cmd = exec.Command(m.spec.Args[0], m.spec.Args[1:]...)
	m.cmd.Dir, m.cmd.Env = m.dir, m.spec.Env
	m.cmd.ExtraFiles = []*os.File{guestEnd} // descriptor 3
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.wait()
		}
	}()
	return <-started
}

// wait reports the end of the first process, and reaps it when nothing looks at it.
func (m *machine) wait() {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, m.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	m.state.Lock()
	asked := m.closed
	m.closed = true
	err := m.cmd.Wait()
	m.state.Unlock()
	close(m.ended)
	switch {
	case asked:
		err = nil
	case err == nil:
		err = errors.New("exit status 0")
	}
	if err != nil {
		err = fmt.Errorf("the machine's first process ended: %w", err)
	}
	m.exit <- engine.Exit{Err: err}
	close(m.exit)
}

// look calls f with the machine's processes, of which the first is at least.
func (m *machine) look(f func(hostproc.Process)) error {
	m.state.Lock()
	defer m.state.Unlock()
	if m.closed {
		return engine.ErrEnded
	}
	for _, pid := range append(hostproc.Descendants(m.cmd.Process.Pid), m.cmd.Process.Pid) {
		if p, err := hostproc.Read(pid); err == nil { // else it ended just now
			f(p)
		}
	}
	return nil
}

// Dial implements engine.Machine.
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := m.host.Dial(ctx, port)
	if err == nil {
		return conn, nil
	}
	m.state.Lock()
	defer m.state.Unlock()
	switch {
	case errors.Is(err, channel.ErrRefused):
		err = engine.ErrPortClosed
	case m.closed:
		err = engine.ErrEnded
	}
	return nil, fmt.Errorf("plainproc: port %d: %w", port, err)
}

// Usage implements engine.Machine.
func (m *machine) Usage(context.Context) (u engine.Usage, err error) {
	err = m.look(func(p hostproc.Process) { u.Memory += p.Anonymous })
	return u, err
}

// CPUTime implements engine.Machine.
func (m *machine) CPUTime(context.Context) (total time.Duration, err error) {
	err = m.look(func(p hostproc.Process) { total += p.CPU })
	return total, err
}

// Fixed implements engine.Machine: everything is the host's.
func (m *machine) Fixed() engine.Fixed { return engine.Fixed{} }

// Unenforced implements engine.Machine: it is every limit there is.
func (m *machine) Unenforced() []string {
	var all []string
	for _, limit := range []struct {
		name string
		set  bool
	}{
		{"cpu", m.spec.Limits.CPUs > 0}, {"disk", m.spec.Limits.Disk > 0},
		{"memory", m.spec.Limits.Memory > 0}, {"pids", m.spec.Limits.PIDs > 0},
	} {
		if limit.set {
			all = append(all, limit.name)
		}
	}
	return all
}

// Wait implements engine.Machine.
func (m *machine) Wait() <-chan engine.Exit { return m.exit }

// Close implements engine.Machine.
func (m *machine) Close() error {
	m.closing.Do(func() {
		m.end()
		<-m.ended
		m.err = errors.Join(m.host.Close(), os.RemoveAll(m.dir))
	})
	return m.err
}

// end kills what the first process has started, again and again, for processes may be
// starting all the while, and then itself. Package plainproc's guest is the parent of
// what its children leave, so nothing gets away from it.
func (m *machine) end() {
	m.state.Lock()
	defer m.state.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	_ = m.cmd.Process.Signal(syscall.SIGSTOP) // it starts nothing more
	for alive := true; alive; {
		alive = false
		for _, pid := range hostproc.Descendants(m.cmd.Process.Pid) {
			if p, err := hostproc.Read(pid); err == nil && !p.Ended {
				_ = unix.Kill(pid, unix.SIGKILL)
				alive = true
			}
		}
	}
	_ = m.cmd.Process.Kill()
}
