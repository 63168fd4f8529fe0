package container

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/loss"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Executor runs code in containers, one for each execution id. It is safe for
// concurrent use.
type Executor struct {
	cfg       Config
	d         *docker
	image     string
	languages []string
	shell     bool // the image has no Python for the agent
	root      bool // what runs is root
	can       codeexec.Capabilities

	ctx    context.Context // done when it is closed
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	spare  *box              // was started and is nobody's yet
	places map[string]*place // by execution id
	ended  loss.Names        // ids whose place had to go with something in it
	most   int               // the largest count of the files of such a place
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
	e := &Executor{cfg: cfg, d: d, places: map[string]*place{}}
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
	if e.spare, err = e.d.newBox(ctx, e.cfg, e.image); err != nil {
		return err
	}
	e.languages, e.shell, e.root = e.spare.languages(), e.spare.shell, e.spare.link.hello.UID == 0
	p, err := e.newPlace("")
	if err != nil {
		_ = e.spare.remove() // the error that matters is the one above
		return err
	}
	e.can = p.spaces.Describe()
	return nil
}

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *Executor) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return slices.Clone(e.cfg.Delimiters)
}

// Languages implements [codeexec.CodeExecutor]: what the image has of Python,
// Bash (its sh if it has no bash) and JavaScript.
func (e *Executor) Languages() []string { return slices.Clone(e.languages) }

// Engine implements [codeexec.EngineProvider]. The workspaces of an execution id
// are in its container, and go with it: see [codeexec.ErrWorkspaceStale].
func (e *Executor) Engine() codeexec.Engine {
	return e2bexec.Route(e.spaces, e.cfg.WorkspaceRoot, e.can)
}

// spaces returns the engine of an execution id's workspaces.
func (e *Executor) spaces(ctx context.Context, id string, create bool) (codeexec.Engine, func(), error) {
	if err := workdir.CheckID(id); err != nil {
		return nil, nil, execerr.Wrap("find container", cubby.CodeInvalidArgument, err)
	}
	p, leave, err := e.enter(ctx, id, create)
	if err != nil {
		return nil, nil, err
	}
	return p.spaces, leave, nil
}

// ContainerID returns the id of an execution id's container, "" if it has none. It
// changes when the container had to be replaced.
func (e *Executor) ContainerID(executionID string) string {
	e.mu.Lock()
	p := e.places[executionID]
	e.mu.Unlock()
	if p == nil {
		return ""
	}
	if b := p.current(); b != nil {
		return b.id
	}
	return ""
}

// Reset gives an execution id's container up, with all files and programs in it;
// the next call gets a new one.
func (e *Executor) Reset(executionID string) error {
	e.mu.Lock()
	p := e.places[executionID]
	e.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.clear()
}

// Close implements [codeexec.CodeExecutor]: it ends what runs and removes every
// container of this executor.
func (e *Executor) Close() error {
	e.cancel()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	spare, places := e.spare, slices.Collect(maps.Values(e.places))
	e.mu.Unlock()
	errs := make([]error, len(places))
	var wg sync.WaitGroup
	for i, p := range places {
		wg.Go(func() { errs[i] = errors.Join(p.clear(), p.spaces.Close()) })
	}
	if spare != nil {
		errs = append(errs, spare.remove())
	}
	wg.Wait()
	e.work.Wait()
	return errors.Join(append(errs, e.d.api.Close())...)
}

func errClosed(op string) error {
	return &cubby.Error{Op: op, Code: cubby.CodeConflict, Err: errors.New("the executor is closed")}
}

// newBox returns a container that is nobody's: the one that New started, else a
// new one.
func (e *Executor) newBox(ctx context.Context) (*box, error) {
	e.mu.Lock()
	b, closed := e.spare, e.closed
	e.spare = nil
	e.mu.Unlock()
	if b != nil && (closed || b.link.cause() != nil) {
		_ = b.remove() // it ended by itself, or with the executor
		b = nil
	}
	if closed {
		return nil, errClosed("start container")
	}
	if b != nil {
		return b, nil
	}
	return e.d.newBox(ctx, e.cfg, e.image)
}

// join returns a context that ends with ctx and with the executor.
func (e *Executor) join(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(errClosed("")) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// begin notes that work is done, which Close waits for. The context ends with
// the executor.
func (e *Executor) begin(ctx context.Context, op string) (context.Context, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ctx, nil, errClosed(op)
	}
	e.work.Add(1)
	ctx, end := e.join(ctx)
	return ctx, func() {
		end()
		e.work.Done()
	}, nil
}
