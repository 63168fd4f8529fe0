// Package sandbox runs code blocks in a private Cubby: a child process of this
// program in which gVisor sandboxes live. Nothing has to be installed but the
// cubby binary, and no root is needed. Where it cannot run, [New] says why, and
// nothing weaker is chosen.
//
//	ce, err := sandbox.New(ctx)
//	if err != nil { … }
//	defer ce.Close()
//	res, err := ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: blocks, ExecutionID: "conversation"})
//
// Variables and files last from call to call: variables for each execution id,
// which has kernels and a folder of its own. All ids share one sandbox, so they
// are kept apart for order, not for safety; [Pool] gives each its own sandbox,
// and [WithFreshSandbox] each call. A sandbox that ended (for lack of memory, or
// after an hour without use) is replaced at the next call, whose result then
// says StateLost.
package sandbox

import (
	"context"
	"errors"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
	"github.com/cubby-sandbox/cubby/embedded"
)

// CodeExecutor runs code in a private sandbox. It implements
// [codeexec.CodeExecutor] and [codeexec.EngineProvider], and is safe for
// concurrent use.
type CodeExecutor struct{ x *e2bexec.Executor }

var (
	_ codeexec.CodeExecutor   = (*CodeExecutor)(nil)
	_ codeexec.EngineProvider = (*CodeExecutor)(nil)
)

// New starts a private Cubby, or takes the client of [WithClient], and makes a
// sandbox. ctx bounds the start only. It fails when this machine cannot run
// sandboxes or cannot keep the limits that were asked for; the error says why.
func New(ctx context.Context, opts ...Option) (*CodeExecutor, error) {
	cfg := configure(opts)
	shut, err := cfg.start(ctx)
	if err != nil {
		return nil, err
	}
	cfg.boxes.OnClose = shut
	x, err := e2bexec.Open(ctx, cfg.boxes)
	if err != nil {
		return nil, explain(errors.Join(err, shut()))
	}
	return &CodeExecutor{x}, nil
}

// start finds the client; shut ends what it started.
func (c *config) start(ctx context.Context) (shut func() error, err error) {
	if c.boxes.Client != nil {
		return func() error { return nil }, nil
	}
	if c.embedded.Logger == nil {
		c.embedded.Logger = c.boxes.Logger
	}
	own, err := embedded.Open(ctx, c.embedded)
	if err != nil {
		return nil, explain(err)
	}
	c.boxes.Client = own.Client
	return own.Close, nil
}

// explain makes an error that says why no code can run here.
func explain(err error) error {
	out := &cubby.Error{Op: "start sandbox executor", Code: cubby.CodeUnavailable, Err: err}
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		out.Code = e.Code
		if error(e) == err {
			out.Err, out.Hint = e.Err, e.Hint
		}
		if e.Hint != "" {
			return out
		}
	}
	switch out.Code {
	case cubby.CodeInvalidArgument, cubby.CodeCanceled, cubby.CodeTimeout:
	default:
		out.Hint = "run `cubby doctor` to see what this machine lacks"
	}
	return out
}

// ExecuteCode implements [codeexec.CodeExecutor]. Calls of one execution id wait
// for each other.
func (e *CodeExecutor) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return e.x.ExecuteCode(ctx, in)
}

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *CodeExecutor) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return e.x.CodeBlockDelimiters()
}

// Languages implements [codeexec.CodeExecutor]: python, javascript, typescript,
// bash.
func (e *CodeExecutor) Languages() []string { return e.x.Languages() }

// Engine returns the workspaces, which are in the sandbox, below /tmp/run.
func (e *CodeExecutor) Engine() codeexec.Engine { return e.x.Engine() }

// SandboxID returns the sandbox's id.
func (e *CodeExecutor) SandboxID() string { return e.x.SandboxID() }

// Close ends the sandbox, and the private Cubby. What is under way fails with
// [cubby.CodeConflict].
func (e *CodeExecutor) Close() error { return e.x.Close() }
