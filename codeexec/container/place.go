package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// place is where an execution id's code and workspaces are: a container that no
// other id shares, made when it is needed and replaced when it cannot go on.
type place struct {
	e      *Executor
	id     string
	spaces *posixws.Engine
	turn   chan struct{} // held while code runs
	lock   chan struct{} // held by who makes, replaces or removes the container

	mu    sync.Mutex
	box   *box
	files int  // of codeexec.Instance: grows with each container that is gone
	lost  bool // something ran in one that is gone, and was not told

	// Under Executor.mu.
	users  int
	last   time.Time // when it was used
	ending bool
}

func (e *Executor) newPlace(id string) (*place, error) {
	p := &place{e: e, id: id, turn: make(chan struct{}, 1), lock: make(chan struct{}, 1)}
	var err error
	p.spaces, err = posixws.New(machine{p}, posixws.Config{
		Root: e.cfg.WorkspaceRoot, Timeout: e.cfg.Timeout, MaxOutput: int(e.cfg.MaxOutput), HostBase: e.cfg.HostInputs,
		Have:     codeexec.ResourceLimits{CPUs: e.cfg.CPUs, MemoryBytes: e.cfg.MemoryBytes, MaxPIDs: e.cfg.MaxPIDs, DiskBytes: e.cfg.DiskBytes},
		FileSize: !e.shell && !e.root, ShareGroups: !e.shell,
		Describe: codeexec.Capabilities{Isolation: "container", NetworkAllowed: e.cfg.Network != "none"},
		Instance: func() string {
			if b := p.current(); b != nil {
				return b.id
			}
			return ""
		},
	})
	return p, err
}

// current returns the container that there is.
func (p *place) current() *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.box
}

// set makes b the container, nil for none.
func (p *place) set(b *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.box != nil && p.box != b {
		p.lost = p.lost || p.box.used.Load()
		p.files++
	}
	p.box = b
}

// tell returns the count of codeexec.Instance and reports, once, whether what was
// there before is lost.
func (p *place) tell() (files int, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = p.lost
	p.lost = false
	return p.files, lost
}

// resident returns the container, a new one if there is none or it is gone or
// cannot go on.
func (p *place) resident(ctx context.Context) (*box, error) {
	const op = "start container"
	select {
	case p.lock <- struct{}{}:
		defer func() { <-p.lock }()
	case <-ctx.Done():
		return nil, execerr.Wrap(op, cubby.CodeCanceled, context.Cause(ctx))
	}
	ctx, cancel := p.e.join(ctx)
	defer cancel()
	b := p.current()
	if b != nil && b.suspect.Load() && b.link.cause() == nil {
		b.check(ctx)
	}
	if b != nil && b.link.cause() != nil {
		p.e.cfg.Logger.WarnContext(ctx, "the container is gone", "container", b.name, "error", b.link.cause())
		_ = b.remove() // it may be gone; if not, its end is what the daemon does with it
		p.set(nil)
		b = nil
	}
	if ctx.Err() != nil {
		return nil, execerr.Wrap(op, cubby.CodeCanceled, context.Cause(ctx))
	}
	if b == nil {
		var err error
		if b, err = p.e.newBox(ctx); err != nil {
			return nil, err
		}
		p.set(b)
	}
	return b, nil
}

// clear removes the container.
func (p *place) clear() error {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	b := p.current()
	if b == nil {
		return nil
	}
	p.set(nil)
	return b.remove()
}

// idle reports whether nothing goes on in a place that nobody uses.
func (p *place) idle() bool {
	b := p.current()
	return b == nil || !b.busy()
}

// enter finds the place of an execution id; if create is set it makes one, for
// which the place that was not used for longest has to go when there are too
// many. If something goes on in all of them, it waits. The place stays until leave
// is called.
func (e *Executor) enter(ctx context.Context, id string, create bool) (p *place, leave func(), err error) {
	const op = "find container"
	for {
		p, old, err := e.admit(id, create)
		if err != nil {
			return nil, nil, err
		}
		if p != nil {
			return p, sync.OnceFunc(func() { e.leave(p) }), nil
		}
		if old != nil {
			e.end(old)
			continue
		}
		select {
		case <-time.After(waitTime):
		case <-ctx.Done():
			return nil, nil, execerr.Wrap(op, cubby.CodeCanceled, context.Cause(ctx))
		}
	}
}

// waitTime is after how long who waits for room looks again.
const waitTime = 20 * time.Millisecond

// admit returns the place of an id, or one that has to be ended for it, or
// neither: then there is no room yet.
func (e *Executor) admit(id string, create bool) (p, old *place, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, errClosed("find container")
	}
	if p := e.places[id]; p != nil {
		if p.ending {
			return nil, nil, nil
		}
		p.users++
		return p, nil, nil
	}
	if !create {
		return nil, nil, fmt.Errorf("%w: there is no container for its execution id", codeexec.ErrWorkspaceStale)
	}
	if len(e.places) < e.cfg.MaxContainers {
		p, err := e.newPlace(id)
		if err != nil {
			return nil, nil, err
		}
		p.users, p.files = 1, 1
		if e.ended.Has(id) {
			p.files, p.lost = e.most, true
		}
		e.places[id] = p
		return p, nil, nil
	}
	for _, x := range e.places {
		if !x.ending && x.users == 0 && x.idle() && (old == nil || x.last.Before(old.last)) {
			old = x
		}
	}
	if old != nil {
		old.ending = true
	}
	return nil, old, nil
}

func (e *Executor) leave(p *place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.users--
	p.last = time.Now()
}

// end ends a place that was marked as ending.
func (e *Executor) end(p *place) {
	if err := errors.Join(p.spaces.Close(), p.clear()); err != nil {
		e.cfg.Logger.Warn("a container that has to make room was not removed", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	files, lost := p.tell()
	e.most = max(e.most, files)
	if lost {
		e.ended.Add(p.id)
	}
	delete(e.places, p.id)
}
