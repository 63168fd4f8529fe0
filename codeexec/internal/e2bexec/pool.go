package e2bexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
	"github.com/cubby-sandbox/cubby/codeexec/internal/loss"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Defaults of a pool.
const (
	DefaultPoolSize = 16
	DefaultPoolIdle = 10 * time.Minute
)

// PoolConfig configures a Pool.
type PoolConfig[E codeexec.CodeExecutor] struct {
	// Open makes the executor of a session. since is set when the session had an
	// executor before, which has ended: see [Config.Since]. Busy reports whether code or a
	// program runs in one, and Latest returns the largest counts that its results had.
	Open   func(ctx context.Context, session string, since *codeexec.Instance) (E, error)
	Busy   func(E) bool
	Latest func(E) codeexec.Instance
	// Size bounds how many executors there are at a time; 0 means DefaultPoolSize.
	Size int
	// Idle is how long an executor may be unused before it is ended; 0 means
	// DefaultPoolIdle.
	Idle time.Duration
	// OnError gets the errors of ending executors that the pool ends by itself; nil
	// drops them.
	OnError func(session string, err error)
	// OnClose is called by Close when all executors have ended.
	OnClose func() error
}

// Pool keeps an executor for each session. It is safe for concurrent use.
type Pool[E codeexec.CodeExecutor] struct {
	cfg  PoolConfig[E]
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	entries map[string]*pooled[E] // those being made and ended included
	ended   loss.Names            // sessions whose executor has ended
	latest  codeexec.Instance     // the largest counts of those
}

type pooled[E codeexec.CodeExecutor] struct {
	session string
	ready   chan struct{} // closed when the next two are set
	e       E
	err     error
	gone    chan struct{} // closed when it has ended

	// Under Pool.mu.
	users  int
	last   time.Time
	ending bool
}

// NewPool returns a pool without executors.
func NewPool[E codeexec.CodeExecutor](cfg PoolConfig[E]) (*Pool[E], error) {
	cfg.Size = cmp.Or(cfg.Size, DefaultPoolSize)
	cfg.Idle = cmp.Or(cfg.Idle, DefaultPoolIdle)
	if cfg.Size < 0 || cfg.Idle < 0 {
		return nil, &cubby.Error{Op: "new pool", Code: cubby.CodeInvalidArgument, Err: errors.New("size and idle time must be positive")}
	}
	p := &Pool[E]{cfg: cfg, entries: map[string]*pooled[E]{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.wg.Go(p.sweep)
	return p, nil
}

// Get returns the session's executor, which it makes if there is none. When the
// pool is full, the one that was not used for longest is ended for it; if all are
// in use, Get fails with rate limited. The executor is the session's until
// Release, or until it was idle for too long.
func (p *Pool[E]) Get(ctx context.Context, session string) (E, error) {
	x, done, err := p.use(ctx, session)
	if err != nil {
		var none E
		return none, execerr.Wrap("get session", cubby.CodeUnavailable, err)
	}
	done()
	return x.e, nil
}

// ExecuteCode runs code in the sandbox of the session that ExecutionID names.
func (p *Pool[E]) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return backend.RelayOutput(ctx, in, p.execute)
}

func (p *Pool[E]) execute(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	x, done, err := p.use(ctx, in.ExecutionID)
	if err != nil {
		return codeexec.CodeExecutionResult{Outcome: codeexec.OutcomeFailed}, execerr.Wrap("execute code", cubby.CodeUnavailable, err)
	}
	defer done()
	in.ExecutionID = "" // the sandbox is all its own
	return x.e.ExecuteCode(ctx, in)
}

// Release ends the session's executor. It is no error if there is none.
func (p *Pool[E]) Release(session string) error {
	p.mu.Lock()
	x := p.entries[session]
	if x != nil && !x.ending {
		x.ending = true
		p.mu.Unlock()
		return p.end(x)
	}
	p.mu.Unlock()
	if x != nil {
		<-x.gone
	}
	return nil
}

// Sessions names the sessions that have an executor, the one last used first.
func (p *Pool[E]) Sessions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*pooled[E]
	for _, x := range p.entries {
		if !x.ending {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(a, b *pooled[E]) int { return b.last.Compare(a.last) })
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = x.session
	}
	return names
}

// Close ends every executor. It is idempotent.
func (p *Pool[E]) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.closed = true
	var mine, others []*pooled[E]
	for _, x := range p.entries {
		if x.ending {
			others = append(others, x)
		} else {
			x.ending = true
			mine = append(mine, x)
		}
	}
	p.mu.Unlock()
	p.stop()
	errs := make([]error, len(mine), len(mine)+1)
	var wg sync.WaitGroup
	for i, x := range mine {
		wg.Go(func() { errs[i] = p.end(x) })
	}
	wg.Wait()
	for _, x := range others {
		<-x.gone
	}
	p.wg.Wait()
	if p.cfg.OnClose != nil {
		errs = append(errs, p.cfg.OnClose())
	}
	return execerr.Wrap("close pool", cubby.CodeUnavailable, errors.Join(errs...))
}

// use finds or makes a session's executor, which does not end before done is
// called.
func (p *Pool[E]) use(ctx context.Context, session string) (x *pooled[E], done func(), err error) {
	for {
		x, wait, err := p.enter(session)
		switch {
		case err != nil:
			return nil, nil, err
		case wait != nil:
			select { // one is ending: its session's, or for want of room
			case <-wait:
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
			continue
		}
		select {
		case <-x.ready:
		case <-ctx.Done():
			p.leave(x)
			return nil, nil, context.Cause(ctx)
		}
		if x.err != nil {
			p.leave(x)
			return nil, nil, x.err
		}
		return x, sync.OnceFunc(func() { p.leave(x) }), nil
	}
}

// enter returns the session's entry, which it makes if there is room, or else what has to
// end first.
func (p *Pool[E]) enter(session string) (x *pooled[E], wait <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, closedError()
	}
	if x := p.entries[session]; x != nil {
		if x.ending {
			return nil, x.gone, nil
		}
		x.users++
		return x, nil, nil
	}
	if len(p.entries) >= p.cfg.Size {
		var old *pooled[E]
		for _, x := range p.entries {
			switch {
			case x.ending:
				return nil, x.gone, nil
			case p.idle(x) && (old == nil || x.last.Before(old.last)):
				old = x
			}
		}
		if old == nil {
			return nil, nil, &cubby.Error{
				Code: cubby.CodeRateLimited, Err: fmt.Errorf("all %d sandboxes of the pool are in use", p.cfg.Size),
				Hint: "release a session, or make the pool larger",
			}
		}
		p.evict(old)
		return nil, old.gone, nil
	}
	x = &pooled[E]{session: session, ready: make(chan struct{}), gone: make(chan struct{}), users: 1, last: time.Now()}
	p.entries[session] = x
	p.wg.Go(func() { p.open(x) })
	return x, nil, nil
}

// idle reports whether an executor may be ended; the pool is locked.
func (p *Pool[E]) idle(x *pooled[E]) bool {
	select {
	case <-x.ready:
		return x.users == 0 && !x.ending && (x.err != nil || !p.cfg.Busy(x.e))
	default:
		return false
	}
}

// evict ends an executor for the pool's own reasons; the pool is locked.
func (p *Pool[E]) evict(x *pooled[E]) {
	x.ending = true
	p.wg.Go(func() {
		if err := p.end(x); err != nil && p.cfg.OnError != nil {
			p.cfg.OnError(x.session, err)
		}
	})
}

// open makes an executor, for all who wait for it: none of them ends the attempt
// by giving up.
func (p *Pool[E]) open(x *pooled[E]) {
	ctx, cancel := context.WithTimeout(p.ctx, openTime)
	defer cancel()
	x.e, x.err = p.cfg.Open(ctx, x.session, p.since(x.session))
	close(x.ready)
	if x.err == nil {
		return
	}
	p.mu.Lock()
	mine := !x.ending
	x.ending = true
	p.mu.Unlock()
	if mine {
		p.forget(x) // the next Get tries again
	}
}

// since returns the counts that a session begins with that had an executor before; nil for
// a new one.
func (p *Pool[E]) since(session string) *codeexec.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended.Has(session) {
		return nil
	}
	latest := p.latest
	return &latest
}

// openTime bounds the making of an executor.
const openTime = 2 * time.Minute

// end ends an executor that was marked as ending by the caller.
func (p *Pool[E]) end(x *pooled[E]) error {
	<-x.ready
	defer p.forget(x)
	if x.err != nil {
		return nil
	}
	err := x.e.Close()
	last := p.cfg.Latest(x.e)
	p.mu.Lock()
	p.ended.Add(x.session)
	p.latest = codeexec.Instance{Memory: max(p.latest.Memory, last.Memory), Files: max(p.latest.Files, last.Files)}
	p.mu.Unlock()
	return err
}

func (p *Pool[E]) forget(x *pooled[E]) {
	p.mu.Lock()
	if p.entries[x.session] == x {
		delete(p.entries, x.session)
	}
	p.mu.Unlock()
	close(x.gone)
}

func (p *Pool[E]) leave(x *pooled[E]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.users--
	x.last = time.Now()
}

// sweep ends executors that were not used for too long.
func (p *Pool[E]) sweep() {
	tick := time.NewTicker(max(p.cfg.Idle/4, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for _, x := range p.entries {
			if !p.idle(x) {
				continue
			}
			if x.err == nil && time.Since(x.last) < p.cfg.Idle {
				continue
			}
			if !p.closed {
				p.evict(x)
			}
		}
		p.mu.Unlock()
	}
}
