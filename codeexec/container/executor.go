package container

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/loss"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
)

// Executor runs code in a container. It is safe for concurrent use.
type Executor struct {
	cfg       Config
	d         *docker
	image     string
	languages []string
	spaces    *posixws.Engine

	ctx    context.Context // done when it is closed
	cancel context.CancelFunc
	work   sync.WaitGroup
	turn   chan struct{} // held while code runs, unless each has its own container
	lock   chan struct{} // guards what follows, so that waiting for it can be given up
	box    *box
	closed bool

	files loss.Files // which execution id saw those of which container
}

var (
	_ codeexec.CodeExecutor   = (*Executor)(nil)
	_ codeexec.EngineProvider = (*Executor)(nil)
)

// New connects to the daemon, gets the image (pull or build may take long: ctx
// bounds them), removes what executors that were killed have left, and starts
// the container. Errors say what is missing: see [ErrNoDaemon] and those beside
// it. The executor must be closed.
func New(ctx context.Context, cfg Config) (*Executor, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	if _, _, err := settings(cfg, ""); err != nil { // before anything is pulled
		return nil, err
	}
	d, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	e := &Executor{cfg: cfg, d: d, turn: make(chan struct{}, 1), lock: make(chan struct{}, 1)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.open(ctx); err != nil {
		e.cancel()
		d.api.Close()
		return nil, err
	}
	return e, nil
}

func (e *Executor) open(ctx context.Context) (err error) {
	if n := e.d.sweep(ctx); n > 0 {
		e.cfg.Logger.InfoContext(ctx, "removed containers of programs that are gone", "count", n)
	}
	if e.image, err = e.d.image(ctx, e.cfg); err != nil {
		return err
	}
	if e.box, err = e.d.newBox(ctx, e.cfg, e.image); err != nil {
		return err
	}
	e.languages = e.box.languages()
	e.spaces, err = posixws.New(machine{e}, posixws.Config{
		Root: e.cfg.WorkspaceRoot, Timeout: e.cfg.Timeout, MaxOutput: int(e.cfg.MaxOutput), HostBase: e.cfg.HostInputs,
		Have:     codeexec.ResourceLimits{CPUs: e.cfg.CPUs, MemoryBytes: e.cfg.MemoryBytes, MaxPIDs: e.cfg.MaxPIDs, DiskBytes: e.cfg.DiskBytes},
		FileSize: !e.box.shell && e.box.link.hello.UID != 0, ShareGroups: !e.box.shell,
		Describe: codeexec.Capabilities{Isolation: "container", NetworkAllowed: e.cfg.Network != "none"},
	})
	if err != nil {
		_ = e.box.remove() // the error that matters is the one above
	}
	return err
}

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *Executor) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return slices.Clone(e.cfg.Delimiters)
}

// Languages implements [codeexec.CodeExecutor]: what the image has of Python,
// Bash (its sh if it has no bash) and JavaScript.
func (e *Executor) Languages() []string { return slices.Clone(e.languages) }

// Engine implements [codeexec.EngineProvider]. Its workspaces live in the
// container that stays, and go with it.
func (e *Executor) Engine() codeexec.Engine {
	return codeexec.NewEngineWithCapabilities(manager{e.spaces.Manager(), e}, e.spaces.FS(), e.spaces.Runner(), e.spaces.Describe())
}

// manager tells in which container its workspaces are.
type manager struct {
	codeexec.WorkspaceManager
	e *Executor
}

// InstanceID implements [codeexec.WorkspaceInstanceProvider].
func (m manager) InstanceID(ctx context.Context) (string, error) {
	b, err := m.e.resident(ctx)
	if err != nil {
		return "", err
	}
	return b.id, nil
}

// ContainerID returns the id of the container that stays; it changes when that
// had to be replaced.
func (e *Executor) ContainerID() string {
	e.lock <- struct{}{}
	defer func() { <-e.lock }()
	if e.box == nil {
		return ""
	}
	return e.box.id
}

// Reset gives the container up, with all files and programs in it; the next call
// gets a new one.
func (e *Executor) Reset() error {
	e.lock <- struct{}{}
	defer func() { <-e.lock }()
	if e.box == nil {
		return nil
	}
	err := e.box.remove()
	e.files.Lose()
	e.box = nil
	return err
}

// Close implements [codeexec.CodeExecutor]: it ends what runs and removes every
// container of this executor.
func (e *Executor) Close() error {
	e.cancel()
	e.lock <- struct{}{}
	if e.closed {
		<-e.lock
		return nil
	}
	e.closed = true
	b := e.box
	e.box = nil
	<-e.lock
	var err error
	if b != nil {
		err = b.remove()
	}
	err = errors.Join(err, e.spaces.Close())
	e.work.Wait()
	return errors.Join(err, e.d.api.Close())
}

func errClosed(op string) error {
	return &cubby.Error{Op: op, Code: cubby.CodeConflict, Err: errors.New("the executor is closed")}
}

// resident returns the container that stays, a new one if it is gone.
func (e *Executor) resident(ctx context.Context) (*box, error) {
	const op = "start container"
	ctx, release, err := e.hold(ctx, op)
	if err != nil {
		return nil, err
	}
	defer release()
	if e.box != nil && e.box.link.cause() != nil {
		e.cfg.Logger.WarnContext(ctx, "the container is gone", "container", e.box.name, "error", e.box.link.cause())
		_ = e.box.remove() // it may be gone; if not, its end is what the daemon does with it
		e.files.Lose()
		e.box = nil
	}
	if e.box == nil {
		if e.box, err = e.d.newBox(ctx, e.cfg, e.image); err != nil {
			e.box = nil
			return nil, err
		}
	}
	return e.box, nil
}

// hold takes the lock, if the executor is not closed. The context that it returns
// ends with the executor; release ends both.
func (e *Executor) hold(ctx context.Context, op string) (_ context.Context, release func(), err error) {
	select {
	case e.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, codeexec.Fail(op, cubby.CodeCanceled, context.Cause(ctx))
	}
	if e.closed {
		<-e.lock
		return nil, nil, errClosed(op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(errClosed("")) })
	return ctx, func() {
		stop()
		cancel(nil)
		<-e.lock
	}, nil
}

// begin notes that work is done, which Close waits for. The context ends with
// the executor.
func (e *Executor) begin(ctx context.Context, op string) (context.Context, func(), error) {
	_, release, err := e.hold(ctx, op)
	if err != nil {
		return ctx, nil, err
	}
	defer release()
	e.work.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(errClosed("")) })
	return ctx, func() {
		stop()
		cancel(nil)
		e.work.Done()
	}, nil
}
