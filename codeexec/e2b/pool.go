package e2b

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Defaults of [PoolConfig].
const (
	DefaultPoolSize        = e2bexec.DefaultPoolSize
	DefaultPoolIdleTimeout = e2bexec.DefaultPoolIdle
)

// PoolConfig configures a pool. The zero value is usable.
type PoolConfig struct {
	// Size bounds how many sandboxes there are at a time; 0 means
	// DefaultPoolSize.
	Size int
	// IdleTimeout is after how long without use a session's sandbox is ended; 0
	// means DefaultPoolIdleTimeout.
	IdleTimeout time.Duration
}

// Pool gives each session (a user, a conversation) a sandbox of its own. As a
// [codeexec.CodeExecutor], it takes the execution id for the session. A session
// that comes back after its sandbox was ended gets another: the first result says
// FilesLost, and its Instance has grown. It is safe for concurrent use.
type Pool struct {
	p   *e2bexec.Pool[*CodeExecutor]
	cfg e2bexec.Config
}

var (
	_ codeexec.CodeExecutor   = (*Pool)(nil)
	_ codeexec.EngineProvider = (*Pool)(nil)
	_ codeexec.Trier          = (*Pool)(nil)
)

// NewPool returns a pool, empty yet, of executors as cfg says, which has no
// SandboxID. A sandbox that is gone is replaced at its session's next use, as by
// [CreateOrRecreate]. ctx bounds the call only.
func NewPool(ctx context.Context, cfg Config, pool PoolConfig) (*Pool, error) {
	const op = "new pool"
	err := context.Cause(ctx)
	if err == nil && cfg.SandboxID != "" {
		err = &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("one sandbox cannot be each session's"), Hint: "leave Config.SandboxID out"}
	}
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	c, release, err := cfg.resolve(true)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	shut := c.OnClose
	c.OnClose = nil // what it ends is the pool's
	c.Recreate = true
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p, err := e2bexec.NewPool(e2bexec.PoolConfig[*CodeExecutor]{
		Open: func(ctx context.Context, _ string, since *codeexec.Instance) (*CodeExecutor, error) {
			own := c
			own.Since = since
			x, err := e2bexec.Open(ctx, own)
			if err != nil {
				return nil, err
			}
			return &CodeExecutor{x}, nil
		},
		Busy:   func(e *CodeExecutor) bool { return e.x.Busy() },
		Latest: func(e *CodeExecutor) codeexec.Instance { return e.x.Latest() },
		Size:   pool.Size, Idle: pool.IdleTimeout, OnClose: shut,
		OnError: func(_ string, err error) { log.Warn("a session's sandbox was not ended", "err", err) },
	})
	if err != nil {
		release()
		return nil, err
	}
	return &Pool{p, c}, nil
}

// Get returns the session's executor, and makes its sandbox if it has none. When
// the pool is full, the sandbox that was not used for longest is ended for it; if
// all are in use, Get fails with [cubby.CodeRateLimited]. The executor is good
// until Release, or until it was idle for too long: then it fails with
// [cubby.CodeConflict], and Get gives another.
func (p *Pool) Get(ctx context.Context, session string) (*CodeExecutor, error) {
	return p.p.Get(ctx, session)
}

// Release ends the session's sandbox. A session without one is no error.
func (p *Pool) Release(session string) error { return p.p.Release(session) }

// Sessions names the sessions that have a sandbox, the one last used first.
func (p *Pool) Sessions() []string { return p.p.Sessions() }

// ExecuteCode implements [codeexec.CodeExecutor] in the sandbox of the session
// that ExecutionID names, which it makes if there is none.
func (p *Pool) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return p.p.ExecuteCode(ctx, in)
}

// Try implements [codeexec.Trier] in the session's sandbox, which is all its own.
func (p *Pool) Try(ctx context.Context, executionID string, ways []codeexec.CodeExecutionInput) (codeexec.Trial, error) {
	e, err := p.p.Get(ctx, executionID)
	if err != nil {
		return nil, err
	}
	return e.Try(ctx, "", ways)
}

// Engine returns the workspaces of all sessions: those of an execution id are in
// its session's sandbox, and are lost when that ends.
func (p *Pool) Engine() codeexec.Engine { return p.p.Engine(p.cfg) }

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (p *Pool) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return slices.Clone(p.cfg.Delimiters)
}

// Languages implements [codeexec.CodeExecutor].
func (p *Pool) Languages() []string { return p.cfg.RunsLanguages() }

// Close ends every sandbox of the pool.
func (p *Pool) Close() error { return p.p.Close() }
