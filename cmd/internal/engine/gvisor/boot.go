package gvisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/container"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/hostuser"
)

// boot makes a machine and starts it. When ctx ends before that is done, the
// machine's processes are killed, wherever they hang, and with them ends every
// wait for them.
func (e *Engine) boot(ctx context.Context, spec engine.Spec, from source) (_ engine.Machine, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fixed, features := fixedBy(spec.Limits), e.features
	if from.checkpoint != "" {
		i, err := e.readImage(from.checkpoint, from.RestoreOptions)
		if err != nil {
			return nil, fmt.Errorf("gvisor: %s: restore: %w", spec.ID, err)
		}
		if !from.FilesOnly {
			if err := e.unchanged(spec.Root, i.Dependencies); err != nil {
				return nil, fmt.Errorf("gvisor: %s: restore: %w", spec.ID, err)
			}
			fixed, features = i.Fixed, i.Features
		}
	}
	card, err := openCard(spec.Net)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %s: %w", spec.ID, err)
	}
	defer card.Close() // the sentry has its own; of a nil File there is nothing to close
	conf, err := e.config(fixed)
	if err != nil {
		return nil, err
	}
	m := &machine{
		engine: e, conf: conf, id: spec.ID, bundle: filepath.Join(e.cfg.StateDir, "b-"+spec.ID), exit: make(chan engine.Exit, 1),
		root: spec.Root, fixed: fixed, features: features,
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("gvisor: %s: %w", spec.ID, tooLate(ctx, err)), m.Close())
		}
	}()
	if e.root {
		if m.user, err = hostuser.Take(); err != nil {
			return nil, err
		}
	}
	oci := ociSpec(spec, m.fixed, m.user)
	if err := writeBundle(m.bundle, oci); err != nil {
		return nil, err
	}
	guestEnd, err := m.openChannel()
	if err != nil {
		return nil, err
	}
	err = m.create(ctx, oci, from, guestEnd)
	guestEnd.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, m.kill)
	defer stop()
	if err := m.limit(spec); err != nil {
		return nil, err
	}
	if err := m.start(ctx, from, card); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx) // the sentry is being killed
	}
	m.filestore = findFilestore(m.sentry)
	m.watch()
	return m, nil
}

// tooLate says of an error that came when ctx had ended that this is why.
func tooLate(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("the start was given up: %w (%w)", cause, err)
}

// create makes sentry and gofer. gVisor takes the machine's standard streams
// from the globals of this process; they are /dev/null, for a regular file would
// be written from offset 0 and a closed pipe would kill the guest.
func (m *machine) create(ctx context.Context, oci *specs.Spec, from source, guestEnd *os.File) error {
	select {
	case m.engine.making <- struct{}{}:
		defer func() { <-m.engine.making }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	files := "" // of gVisor's, to begin with
	if from.checkpoint != "" && from.FilesOnly {
		files = filepath.Join(m.bundle, "files")
		if err := asGVisors(from.checkpoint, files); err != nil {
			return err
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	in, out, errs := os.Stdin, os.Stdout, os.Stderr
	os.Stdin, os.Stdout, os.Stderr = null, null, null
	defer func() { os.Stdin, os.Stdout, os.Stderr = in, out, errs }()
	// gVisor's client leaves its control sockets, and the memory files that a
	// sentry hands it, open to the processes that this one starts: other
	// machines'. Go's own descriptors are not affected, nor what is handed over.
	// What is opened in between, and a kernel without the call, is package
	// early's.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	done, err := m.engine.nameHelper()
	if err != nil {
		return err
	}
	defer done()
	leave := killUnborn(ctx, m.id)
	m.c, err = container.New(m.conf, container.Args{
		ID:        m.id,
		Spec:      oci,
		BundleDir: m.bundle,
		PassFiles: map[int]*os.File{channelFD: guestEnd},
		Attached:  true, // sentry and gofer die with this process
		// The kernel reads them in its sandbox: they are what code inside wrote.
		FSRestoreImagePath: files,
	})
	leave()
	if err != nil {
		m.c = nil
		return err
	}
	m.sentry, m.gofer = m.c.SandboxPid(), m.c.GoferPid.Load()
	m.socket = m.c.Sandbox.GetControlSocketPath()
	return nil
}

// unbornPoll is how often processes are looked for that are to be killed.
const unbornPoll = 10 * time.Millisecond

// killUnborn kills, from the end of ctx on, the machine's processes that gVisor
// is making and may not know yet itself. Its result ends that, and reaps them.
func killUnborn(ctx context.Context, id string) (leave func()) {
	left := make(chan struct{})
	var killed []int
	var wg sync.WaitGroup
	wg.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer wg.Done()
		for {
			for _, pid := range unborn(id) {
				if unix.Kill(pid, unix.SIGKILL) == nil && !slices.Contains(killed, pid) {
					killed = append(killed, pid)
				}
			}
			select {
			case <-left:
				return
			case <-time.After(unbornPoll):
			}
		}
	})
	return func() {
		if stop() {
			return
		}
		close(left)
		wg.Wait()
		for _, pid := range killed {
			// gVisor has reaped those that it knew.
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}
}

// unborn lists the children of this process that are the machine's sentry or
// gofer, or will be as soon as they execute: until then they look like this
// process. Only one machine is made at a time.
func unborn(id string) []int {
	own, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return nil
	}
	var pids []int
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, s := range strings.Fields(string(b)) {
			cmdline, err := os.ReadFile(filepath.Join("/proc", s, "cmdline"))
			if err != nil {
				continue
			}
			name, _, _ := strings.Cut(string(cmdline), "\x00")
			its := strings.HasPrefix(name, "runsc-") && strings.HasSuffix(string(cmdline), "\x00"+id+"\x00")
			if pid, err := strconv.Atoi(s); err == nil && (its || string(cmdline) == string(own)) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
