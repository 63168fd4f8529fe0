// Package sandbox runs code blocks in a private Cubby: a child process of this
// program in which gVisor sandboxes live. Nothing has to be installed but the
// cubby binary, and no root is needed. Where it cannot run, [New] says why, and
// nothing weaker is chosen.
//
//	ce, err := sandbox.New(ctx, sandbox.Config{})
//	if err != nil { … }
//	defer ce.Close()
//	res, err := ce.ExecuteCode(ctx, codeexec.CodeExecutionInput{CodeBlocks: blocks, ExecutionID: "conversation"})
//
// A private Cubby speaks E2B's protocol, so the executor is that of package e2b.
// Variables and files last from call to call: variables for each execution id,
// which has kernels and a folder of its own. All ids share one sandbox, so they
// are kept apart for order, not for safety; [NewPool] gives each its own sandbox,
// and FreshSandbox each call, which takes some hundred milliseconds. A sandbox
// that ended (for lack of memory, or after an hour without use) is replaced at the
// next call, whose result then says StateLost. With PauseAfter it is paused between
// turns; [e2b.CodeExecutor.Try] runs several answers in copies of it, of which one can
// be kept.
package sandbox

import (
	"cmp"
	"context"
	"errors"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/embedded"
)

// Config configures an executor or a pool. The zero value is usable.
type Config struct {
	// Embedded configures the private Cubby. Its Logger is the executor's if it is
	// nil.
	Embedded embedded.Config
	// Executor configures what runs there; its Network says where code may connect to,
	// and without one that is nowhere. What of this machine and its local network it may
	// open, Embedded's Reach and HostPorts say. It differs from that of package e2b where
	// a field is left out: Languages are python, javascript, typescript and bash,
	// Delimiters every fence in one of them, the WorkspaceRoot
	// [codeexec.DefaultRoot], and Backend and Describe say what this is. What says how
	// to reach a server (APIURL, APIKey, SandboxURL, Domain, HTTPClient) must be left
	// out. With a Client, which is a Cubby that runs already, no private one is
	// started, and Embedded is not used.
	Executor e2b.Config
}

// New starts a private Cubby, or takes the Client of the configuration, and makes
// a sandbox. ctx bounds the start only. It fails when this machine cannot run
// sandboxes or cannot keep the limits that were asked for; the error says why. A
// sandbox that is gone is replaced, as by [e2b.CreateOrRecreate]. Close, Detach
// and Destroy end the private Cubby, and with it the sandbox.
func New(ctx context.Context, cfg Config) (*e2b.CodeExecutor, error) {
	own, abort, err := start(ctx, cfg)
	if err != nil {
		return nil, explain(err)
	}
	e, err := e2b.CreateOrRecreate(ctx, own, nil)
	if err != nil {
		return nil, explain(errors.Join(err, abort()))
	}
	return e, nil
}

// NewPool starts a private Cubby, or takes the Client of the configuration, for a
// pool of executors, empty yet: each session has a sandbox of its own. ctx bounds
// the start only. Closing the pool ends the private Cubby.
func NewPool(ctx context.Context, cfg Config, pool e2b.PoolConfig) (*e2b.Pool, error) {
	own, abort, err := start(ctx, cfg)
	if err != nil {
		return nil, explain(err)
	}
	p, err := e2b.NewPool(ctx, own, pool)
	if err != nil {
		return nil, explain(errors.Join(err, abort()))
	}
	return p, nil
}

// start finds the client, and returns what its executor is to be like. abort ends
// what was started, if there is to be no executor.
func start(ctx context.Context, cfg Config) (own e2b.Config, abort func() error, err error) {
	own = cfg.Executor
	own.Backend = cmp.Or(own.Backend, "sandbox")
	own.WorkspaceRoot = cmp.Or(own.WorkspaceRoot, codeexec.DefaultRoot)
	if own.Delimiters == nil {
		own.Delimiters = []codeexec.CodeBlockDelimiter{}
	}
	if own.Languages == nil {
		own.Languages = []string{codeexec.Python, codeexec.JavaScript, codeexec.TypeScript, codeexec.Bash}
	}
	own.Describe.Isolation = cmp.Or(own.Describe.Isolation, "gvisor")
	if own.Client != nil {
		return own, func() error { return nil }, nil // package e2b refuses a second way to reach it
	}
	if own.APIURL != "" || own.APIKey != "" || own.SandboxURL != "" || own.Domain != "" || own.HTTPClient != nil {
		return own, nil, &cubby.Error{
			Code: cubby.CodeInvalidArgument, Err: errors.New("a private Cubby is reached by nothing but its own client"),
			Hint: "leave APIURL, APIKey, SandboxURL, Domain and HTTPClient out, or use package e2b",
		}
	}
	if cfg.Embedded.Logger == nil {
		cfg.Embedded.Logger = own.Logger
	}
	private, err := embedded.Open(ctx, cfg.Embedded)
	if err != nil {
		return own, nil, err
	}
	own.Client = private.Client
	after := own.OnClose
	own.OnClose = func() error {
		err := private.Close()
		if after != nil {
			err = errors.Join(err, after())
		}
		return err
	}
	return own, private.Close, nil
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
