// Package e2b runs code blocks in a sandbox of any server that speaks E2B's
// protocol: Cubby's `cubby serve`, E2B itself, Cube.
//
//	ce, err := e2b.Create(ctx, e2b.Config{
//		APIURL: "https://sandboxes.example.com", APIKey: key, Template: "code-interpreter-v1",
//	})
//	if err != nil { … }
//	defer ce.Close()
//
// What is not given comes from the environment: E2B_API_URL, E2B_API_KEY,
// CUBE_TEMPLATE_ID. [New] takes tRPC-Agent's options instead of a [Config].
//
// Variables last from call to call, for each execution id, which has kernels and
// a folder of its own. All ids share one sandbox, so they are kept apart for
// order, not for safety; [Pool] gives each its own. The empty id has the
// sandbox's own kernels. Whoever attaches to the sandbox later finds the variables
// of each id, or is told by StateLost that they are gone.
//
// The sandbox lives until the executor ends it, or nothing has used it for the
// idle timeout; with PauseAfter it is paused between turns. One that is gone is an
// error of [cubby.CodeSandboxGone], one that somebody else has paused of
// [cubby.CodePaused], unless PauseAfter resumes it; code is never run again by itself.
package e2b

import (
	"context"
	"errors"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// newTimeout bounds New, which has no context.
const newTimeout = 2 * time.Minute

// CodeExecutor runs code in a server's sandbox. It implements
// [codeexec.CodeExecutor] and [codeexec.EngineProvider], and is safe for
// concurrent use. Packages e2b and sandbox make them.
type CodeExecutor struct{ x *e2bexec.Executor }

var (
	_ codeexec.CodeExecutor   = (*CodeExecutor)(nil)
	_ codeexec.EngineProvider = (*CodeExecutor)(nil)
	_ codeexec.Trier          = (*CodeExecutor)(nil)
)

// New is [Create] within two minutes, with tRPC-Agent's signature.
func New(opts ...Option) (*CodeExecutor, error) {
	var o options
	for _, option := range opts {
		option(&o)
	}
	if o.err != nil {
		return nil, execerr.Wrap(opCreate, cubby.CodeInvalidArgument, o.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), newTimeout)
	defer cancel()
	return Create(ctx, o.Config)
}

const opCreate = "create executor"

// Create makes a sandbox. Given a SandboxID, it attaches to that one instead,
// which must run, or with PauseAfter may be paused: else it fails with
// [cubby.CodeSandboxGone] or [cubby.CodePaused]. ctx bounds the call only.
func Create(ctx context.Context, cfg Config) (*CodeExecutor, error) {
	return open(ctx, opCreate, cfg, nil)
}

// Attach attaches to the sandbox of SandboxID, which it needs, and never makes
// one. It fails as Create does when that one does not run.
func Attach(ctx context.Context, cfg Config) (*CodeExecutor, error) {
	const op = "attach executor"
	if cfg.SandboxID == "" {
		return nil, &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: errors.New("no sandbox to attach to"), Hint: "give its id: Config.SandboxID"}
	}
	return open(ctx, op, cfg, nil)
}

// CreateOrRecreate is like Create, and replaces a sandbox that is gone, now or
// before a later call runs anything: onRecreate (which may be nil) is told the
// old one's id first, to forget it, and must not use the executor. What the old
// one held is lost; results say StateLost and FilesLost, and its workspaces fail
// with [codeexec.ErrWorkspaceStale]. A sandbox that goes while code runs in it is
// an error, since nobody knows what the code had done; the next call gets
// another. One that is paused is not replaced.
func CreateOrRecreate(ctx context.Context, cfg Config, onRecreate func(oldID string)) (*CodeExecutor, error) {
	return open(ctx, opCreate, cfg, func(x *e2bexec.Config) { x.Recreate, x.OnRecreate = true, onRecreate })
}

func open(ctx context.Context, op string, cfg Config, change func(*e2bexec.Config)) (*CodeExecutor, error) {
	c, release, err := cfg.resolve(cfg.SandboxID == "" || change != nil)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	if change != nil {
		change(&c)
	}
	x, err := e2bexec.Open(ctx, c)
	if err != nil {
		release()
		return nil, execerr.Wrap(op, cubby.CodeUnavailable, err)
	}
	return &CodeExecutor{x}, nil
}

// ExecuteCode implements [codeexec.CodeExecutor]. Calls of one execution id wait
// for each other.
func (e *CodeExecutor) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return e.x.ExecuteCode(ctx, in)
}

// Try implements [codeexec.Trier], by forks of the sandbox. Keep needs a Cubby server:
// elsewhere it fails with [cubby.CodeUnimplemented].
func (e *CodeExecutor) Try(ctx context.Context, executionID string, ways []codeexec.CodeExecutionInput) (codeexec.Trial, error) {
	return e.x.Try(ctx, executionID, ways)
}

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *CodeExecutor) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return e.x.CodeBlockDelimiters()
}

// Languages implements [codeexec.CodeExecutor]: those of the [Config], else
// python, javascript, typescript and bash.
func (e *CodeExecutor) Languages() []string { return e.x.Languages() }

// Engine returns the workspaces, which are in the sandbox, below the
// WorkspaceRoot.
func (e *CodeExecutor) Engine() codeexec.Engine { return e.x.Engine() }

// SandboxID returns the sandbox's id, to attach to it later. After a
// replacement it is another.
func (e *CodeExecutor) SandboxID() string { return e.x.SandboxID() }

// Close ends the sandbox if this executor made it, unless KeepSandbox or a
// SandboxID was given; else it is Detach. What is under way fails with
// [cubby.CodeConflict].
func (e *CodeExecutor) Close() error { return e.x.Close() }

// Detach only lets go of the sandbox: it goes on, with the programs in it, until
// its idle timeout is over. The executor is closed.
func (e *CodeExecutor) Detach() error { return e.x.Detach() }

// Destroy ends the sandbox, whoever made it, also after Detach. One that is gone
// is no error. The executor is closed.
func (e *CodeExecutor) Destroy(ctx context.Context) error { return e.x.Destroy(ctx) }
