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
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/channel"
	"github.com/cubby-sandbox/cubby/internal/engine"
)

// machine is one sentry with its gofer.
type machine struct {
	engine *Engine
	conf   *config.Config
	bundle string
	host   *channel.Host
	group  *cgroup.Group // nil without cgroups
	usage  *control.MemoryUsageRecord

	unenforced []string

	lifecycle sync.Mutex // gVisor's Container is not safe for concurrent use
	c         *container.Container
	sentry    int
	filestore string // what was written below "/"; empty if it cannot be told
	closed    bool

	exit    chan engine.Exit
	watcher sync.WaitGroup
}

var (
	_ engine.Machine = (*machine)(nil)
	_ engine.Slower  = (*machine)(nil)
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

// start boots the machine's first process, or what a checkpoint holds. It makes
// gVisor's own two calls itself: container.Start would look for a network
// namespace of the host, while a closed machine needs only its own loopback.
func (m *machine) start(checkpoint string) error {
	if checkpoint != "" {
		args := loopbackOnly()
		args.IsRestore = true
		if err := m.c.Restore(m.conf, checkpoint, false, false, args); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		return m.openUsage() // of the memory file that was restored
	}

	// Before the start: a first process may end at once.
	if err := m.openUsage(); err != nil {
		return err
	}
	conn, err := client.ConnectTo(m.c.Sandbox.GetControlSocketPath())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Call(boot.ContMgrSetNetworkArgs, loopbackOnly(), nil); err != nil {
		return fmt.Errorf("set up loopback: %w", err)
	}
	if err := conn.Call(boot.ContMgrRootContainerStart, &m.c.ID, nil); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	m.c.Status = container.Running
	return nil
}

func (m *machine) openUsage() error {
	usage, err := m.c.Sandbox.UsageFD()
	if err != nil {
		return fmt.Errorf("memory file: %w", err)
	}
	m.usage = usage
	return nil
}

func loopbackOnly() *boot.CreateLinksAndRoutesArgs {
	return &boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
}

// watch reports the machine's end.
func (m *machine) watch() {
	m.sentry = m.c.SandboxPid()
	m.filestore = findFilestore(m.sentry)
	// Not the container's own Wait: Close takes the sandbox away from it, perhaps
	// before this goroutine runs, and reaps what Wait would reap.
	box, id := m.c.Sandbox, m.c.ID
	m.watcher.Add(1)
	go func() {
		defer m.watcher.Done()
		status, err := box.Wait(id)
		switch {
		case m.isClosed():
			err = nil
		case err != nil:
			err = fmt.Errorf("the sandbox's kernel ended: %w", err)
		default:
			err = fmt.Errorf("the sandbox's first process ended: %s", describe(status))
		}
		m.exit <- engine.Exit{Err: err}
		close(m.exit)
	}()
}

func describe(s unix.WaitStatus) string {
	if s.Signaled() {
		return "killed by " + unix.SignalName(s.Signal())
	}
	return "exit status " + strconv.Itoa(s.ExitStatus())
}

func (m *machine) isClosed() bool {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	return m.closed
}

// Dial implements engine.Machine.
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := m.host.Dial(ctx, port)
	switch {
	case errors.Is(err, channel.ErrRefused):
		return nil, fmt.Errorf("gvisor: port %d: %w", port, engine.ErrPortClosed)
	case err != nil && m.isClosed():
		return nil, fmt.Errorf("gvisor: port %d: %w", port, engine.ErrEnded)
	case err != nil:
		return nil, fmt.Errorf("gvisor: port %d: %w", port, err)
	}
	return conn, nil
}

// Checkpoint implements engine.Machine. The channel stays open: its messages
// are atomic, and a restored guest is greeted with a new session.
func (m *machine) Checkpoint(_ context.Context, dir string, opts engine.CheckpointOptions) error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.closed {
		return engine.ErrEnded
	}
	err := m.c.Checkpoint(m.conf, dir, sandbox.CheckpointOpts{
		Compression:               statefile.CompressionLevelNone,
		ExcludeCommittedZeroPages: true,
		Resume:                    opts.Resume,
	})
	if err != nil {
		return fmt.Errorf("gvisor: checkpoint: %w", err)
	}
	return nil
}

// Pause implements engine.Machine.
func (m *machine) Pause(context.Context) error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.closed {
		return engine.ErrEnded
	}
	return m.c.Pause()
}

// Resume implements engine.Machine.
func (m *machine) Resume(context.Context) error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.closed {
		return engine.ErrEnded
	}
	return m.c.Resume()
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

// Usage implements engine.Machine. It reads a page that the sentry shares, the
// size of its memory file and that of its overlay: no call into the machine.
func (m *machine) Usage(context.Context) (engine.Usage, error) {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.closed {
		return engine.Usage{}, engine.ErrEnded
	}
	mapped, _, total, err := m.usage.Fetch()
	if err != nil {
		return engine.Usage{}, fmt.Errorf("gvisor: memory usage: %w", err)
	}
	p, err := readProcess(m.sentry)
	if err != nil {
		return engine.Usage{}, fmt.Errorf("gvisor: %w", err)
	}
	// total counts host files that are mapped, too; those are the page cache's.
	u := engine.Usage{Memory: max(0, int64(total)-int64(mapped)), Overhead: p.anonymous, Cache: int64(mapped)}
	var file unix.Stat_t
	if m.filestore != "" && unix.Stat(m.filestore, &file) == nil {
		u.Disk = file.Blocks * 512 // stat's unit, whatever the block size
	}
	return u, nil
}

// CPUTime implements engine.Machine. Code inside runs in processes of its own,
// below the sentry; the time of those that ended is the sentry's.
func (m *machine) CPUTime(context.Context) (time.Duration, error) {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.closed {
		return 0, engine.ErrEnded
	}
	sentry, err := readProcess(m.sentry)
	if err != nil {
		return 0, fmt.Errorf("gvisor: %w", err)
	}
	total := sentry.cpu
	for _, pid := range descendants(m.sentry) {
		if stub, err := readProcess(pid); err == nil { // else it ended just now
			total += stub.cpu
		}
	}
	return total, nil
}

// Unenforced implements engine.Machine.
func (m *machine) Unenforced() []string { return m.unenforced }

// Wait implements engine.Machine.
func (m *machine) Wait() <-chan engine.Exit { return m.exit }

// Close implements engine.Machine.
func (m *machine) Close() error {
	m.lifecycle.Lock()
	if m.closed {
		m.lifecycle.Unlock()
		return nil
	}
	m.closed = true
	var errs []error
	if m.c != nil {
		errs = append(errs, m.c.Destroy())
	}
	m.lifecycle.Unlock()
	m.watcher.Wait()
	if m.host != nil {
		errs = append(errs, m.host.Close())
	}
	if m.group != nil {
		errs = append(errs, m.group.Close())
	}
	errs = append(errs, os.RemoveAll(m.bundle))
	return errors.Join(errs...)
}

// process is what /proc says of one of the host's processes.
type process struct {
	anonymous int64 // resident bytes that are not of a file, and not of the machine's memory file
	cpu       time.Duration
}

// clockTick is USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = time.Second / 100

func readProcess(pid int) (process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, err
	}
	// The second field may hold spaces and parentheses; it ends at the last ')'.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	statm, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return process{}, err
	}
	pages := strings.Fields(string(statm))
	if len(fields) < 15 || len(pages) < 3 {
		return process{}, fmt.Errorf("%s: unexpected form", dir)
	}
	var p process
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		p.cpu += time.Duration(n) * clockTick
	}
	resident, _ := strconv.ParseInt(pages[1], 10, 64)
	shared, _ := strconv.ParseInt(pages[2], 10, 64)
	p.anonymous = (resident - shared) * int64(os.Getpagesize())
	return p, nil
}
