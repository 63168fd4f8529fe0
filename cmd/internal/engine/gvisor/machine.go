package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"github.com/cubby-sandbox/cubby/cmd/internal/channel"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/hostproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/hostuser"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
)

// machine is one sentry with its gofer.
type machine struct {
	engine *Engine
	conf   *config.Config
	id     string
	bundle string
	root   string // the folder that is "/" inside
	user   *hostuser.User
	host   *channel.Host
	group  *cgroup.Group // nil without cgroups
	memory *memory       // nil before the start

	fixed    engine.Fixed
	features []string // of the processor that code inside is shown

	told       sync.Mutex // guards unenforced
	unenforced []string

	// Of the two processes, which are reaped by Close alone: until then no other
	// process has their ids. Zero before they are made.
	sentry, gofer int
	socket        string // of the sentry's control server
	filestore     string // what was written below "/"; empty if it cannot be told

	// lifecycle orders the calls that change the machine: gVisor's Container is
	// not safe for concurrent use. Such a call can take seconds; what only looks
	// at the machine does not wait for it.
	lifecycle sync.Mutex
	c         *container.Container
	paused    bool // by Pause
	pinned    int  // how many processors its processes may use; 0 is all

	ending atomic.Bool  // Close has begun
	state  sync.RWMutex // held while something looks at the processes
	closed bool         // they are being reaped, or have been

	closing  sync.Once
	closeErr error

	exit    chan engine.Exit
	watcher sync.WaitGroup
}

var (
	_ engine.Machine      = (*machine)(nil)
	_ engine.Checkpointer = (*machine)(nil)
	_ engine.Pauser       = (*machine)(nil)
	_ engine.Limiter      = (*machine)(nil)
	_ engine.Slower       = (*machine)(nil)
)

// openChannel makes the socket pair and returns the guest's end of it, which
// the caller closes once it was handed over.
func (m *machine) openChannel() (*os.File, error) {
	hostEnd, guestEnd, err := channel.Pair()
	if err != nil {
		return nil, err
	}
	if m.host, err = channel.NewHost(hostEnd); err != nil {
		guestEnd.Close()
		return nil, err
	}
	return guestEnd, nil
}

// source is what a machine is made from.
type source struct {
	checkpoint string // empty for none
	engine.RestoreOptions
}

// start boots the machine's first process, or what a checkpoint holds. It makes
// gVisor's own two calls itself: container.Start would look for a network
// namespace of the host, while a machine has its own loopback and its card.
func (m *machine) start(ctx context.Context, from source, card *os.File) error {
	network, err := links(card)
	if err != nil {
		return err
	}
	if from.checkpoint != "" && !from.FilesOnly {
		network.IsRestore = true
		// Pages are read on while code inside runs, which waits for those that it needs.
		// The kernel holds the file open: it may lose its name meanwhile.
		if err := m.c.Restore(m.conf, from.checkpoint, readDirectly(from.checkpoint), true, network); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		return m.openMemory(ctx) // the one that was restored
	}

	// Before the start: a first process may end at once.
	if err := m.openMemory(ctx); err != nil {
		return err
	}
	if err := call(ctx, m.socket, boot.ContMgrSetNetworkArgs, network, nil); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	if err := call(ctx, m.socket, boot.ContMgrRootContainerStart, &m.c.ID, nil); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	m.c.Status = container.Running
	if from.checkpoint != "" {
		// The first process runs already; what it reads of the files is waited for.
		if err := call(ctx, m.socket, boot.ContMgrWaitFSRestore, &boot.WaitFSRestoreArgs{CID: m.c.ID}, nil); err != nil {
			// A first process that has ended already is for Wait to report.
			if _, alive := processEndWithin(m.sentry, goferGrace); alive != nil {
				return fmt.Errorf("restore files: %w", err)
			}
		}
	}
	return nil
}

func (m *machine) openMemory(ctx context.Context) (err error) {
	if m.memory, err = openMemory(ctx, m.socket); err != nil {
		return fmt.Errorf("memory file: %w", err)
	}
	return nil
}

// look runs f while the machine's process ids are its own. An ended machine is
// ErrEnded.
func (m *machine) look(f func() error) error {
	m.state.RLock()
	defer m.state.RUnlock()
	if m.closed {
		return engine.ErrEnded
	}
	return f()
}

// kill ends the sentry, and with it every call into it. The gofer ends by itself
// when it has seen that; if it goes first, the end of the sentry takes longer.
func (m *machine) kill() {
	_ = m.look(func() error { return unix.Kill(m.sentry, unix.SIGKILL) })
}

// Dial implements engine.Machine.
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := m.host.Dial(ctx, port)
	switch {
	case errors.Is(err, channel.ErrRefused):
		return nil, fmt.Errorf("gvisor: port %d: %w", port, engine.ErrPortClosed)
	case err != nil && m.ending.Load():
		return nil, fmt.Errorf("gvisor: port %d: %w", port, engine.ErrEnded)
	case err != nil:
		return nil, fmt.Errorf("gvisor: port %d: %w", port, err)
	}
	return conn, nil
}

// Pause implements engine.Pauser.
func (m *machine) Pause(ctx context.Context) error {
	return m.change(ctx, "pause", func() error {
		if err := m.c.Pause(); err != nil {
			return err
		}
		m.paused = true
		return nil
	})
}

// Resume implements engine.Pauser.
func (m *machine) Resume(ctx context.Context) error {
	return m.change(ctx, "resume", func() error {
		if err := m.c.Resume(); err != nil {
			return err
		}
		m.paused = false
		return nil
	})
}

// change makes one of the calls that change the machine, one after the other.
// gVisor cannot be asked to give one up: ctx is looked at before. Close ends one
// that is under way.
func (m *machine) change(ctx context.Context, what string, f func() error) error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.ending.Load() {
		return engine.ErrEnded
	}
	if ctx.Err() != nil {
		return fmt.Errorf("gvisor: %s: %w", what, context.Cause(ctx))
	}
	if err := f(); err != nil {
		if m.ending.Load() {
			return engine.ErrEnded
		}
		return fmt.Errorf("gvisor: %s: %w", what, err)
	}
	return nil
}

// findFilestore returns a path to the file that a sentry keeps the overlay in.
// gVisor has removed the file's name, so it is reached through the descriptor.
func findFilestore(sentry int) string {
	dir := filepath.Join("/proc", strconv.Itoa(sentry), "fd")
	fds, _ := os.ReadDir(dir) // none: then there is no telling
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		if name, err := os.Readlink(path); err == nil && strings.HasPrefix(filepath.Base(name), "runsc-filestore-") {
			return path
		}
	}
	return ""
}

// Usage implements engine.Machine. It reads a counter that the sentry shares, the
// size of its memory file and that of its overlay: no call into the machine.
func (m *machine) Usage(context.Context) (u engine.Usage, err error) {
	err = m.look(func() error {
		used, mapped, err := m.memory.read()
		if err != nil {
			return fmt.Errorf("gvisor: memory usage: %w", err)
		}
		p, err := hostproc.Read(m.sentry)
		if err != nil {
			return fmt.Errorf("gvisor: %w", err)
		}
		u = engine.Usage{Memory: used, Overhead: p.Anonymous, MaxOverhead: maxOverhead, Cache: mapped}
		var file unix.Stat_t
		if m.filestore != "" && unix.Stat(m.filestore, &file) == nil {
			u.Disk = file.Blocks * 512 // stat's unit, whatever the block size
		}
		return nil
	})
	return u, err
}

// CPUTime implements engine.Machine. Code inside runs in processes of its own,
// below the sentry; the time of those that ended is the sentry's.
func (m *machine) CPUTime(context.Context) (total time.Duration, err error) {
	err = m.look(func() error {
		sentry, err := hostproc.Read(m.sentry)
		if err != nil {
			return fmt.Errorf("gvisor: %w", err)
		}
		total = sentry.CPU
		for _, pid := range hostproc.Descendants(m.sentry) {
			if stub, err := hostproc.Read(pid); err == nil { // else it ended just now
				total += stub.CPU
			}
		}
		return nil
	})
	return total, err
}

// Fixed implements engine.Machine.
func (m *machine) Fixed() engine.Fixed { return m.fixed }

// Wait implements engine.Machine.
func (m *machine) Wait() <-chan engine.Exit { return m.exit }

// Close implements engine.Machine.
func (m *machine) Close() error {
	m.closing.Do(func() { m.closeErr = m.close() })
	return m.closeErr
}

func (m *machine) close() error {
	m.ending.Store(true)
	// A call that is under way would be waited for below.
	if m.sentry > 0 {
		m.kill()
	}
	m.state.Lock()
	m.closed = true
	m.state.Unlock()
	defer m.engine.collect()
	var errs []error
	m.lifecycle.Lock()
	if m.c != nil {
		errs = append(errs, m.c.Destroy())
	}
	m.lifecycle.Unlock()
	m.watcher.Wait()
	errs = append(errs, m.memory.close())
	if m.host != nil {
		errs = append(errs, m.host.Close())
	}
	if m.group != nil {
		errs = append(errs, m.group.Close())
	}
	// Last: until nothing of it runs, nobody else may be that user.
	return errors.Join(append(errs, os.RemoveAll(m.bundle), m.user.Release())...)
}
