// Package e2b runs code blocks in a sandbox of any server that speaks E2B's
// protocol: Cubby's `cubby serve`, E2B itself, Cube.
//
//	ce, err := e2b.New(
//		e2b.WithAPIURL("https://sandboxes.example.com"),
//		e2b.WithAPIKey(key),
//		e2b.WithTemplate("code-interpreter-v1"),
//	)
//	if err != nil { … }
//	defer ce.Close()
//
// What is not given as an option comes from the environment: E2B_API_URL,
// E2B_API_KEY, CUBE_TEMPLATE_ID.
//
// Variables last from call to call, for each execution id, which has kernels and
// a folder of its own. All ids share one sandbox, so they are kept apart for
// order, not for safety; [Pool] gives each its own. The empty id has the
// sandbox's own kernels. Whoever attaches to the sandbox later finds the variables
// of each id, or is told by StateLost that they are gone.
//
// The sandbox lives until the executor ends it, or nothing has used it for the
// idle timeout. One that is gone is an error of [cubby.CodeSandboxGone], one that
// is paused of [cubby.CodePaused]; code is never run again by itself.
package e2b

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
)

// newTimeout bounds New, which has no context.
const newTimeout = 2 * time.Minute

// CodeExecutor runs code in a server's sandbox. It implements
// [codeexec.CodeExecutor] and [codeexec.EngineProvider], and is safe for
// concurrent use.
type CodeExecutor struct{ x *e2bexec.Executor }

var (
	_ codeexec.CodeExecutor   = (*CodeExecutor)(nil)
	_ codeexec.EngineProvider = (*CodeExecutor)(nil)
)

// New is [Create] within two minutes.
func New(opts ...Option) (*CodeExecutor, error) {
	ctx, cancel := context.WithTimeout(context.Background(), newTimeout)
	defer cancel()
	return Create(ctx, opts...)
}

// Create makes a sandbox. Given [WithSandboxID], it attaches to that one instead,
// which must run: else it fails with [cubby.CodeSandboxGone] or
// [cubby.CodePaused]. ctx bounds the call only.
func Create(ctx context.Context, opts ...Option) (*CodeExecutor, error) {
	return open(ctx, "create executor", configure(opts))
}

// Attach attaches to the sandbox of [WithSandboxID], which it needs, and never
// makes one. It fails as Create does when that one does not run.
func Attach(ctx context.Context, opts ...Option) (*CodeExecutor, error) {
	cfg := configure(opts)
	const op = "attach executor"
	if cfg.boxes.ID == "" {
		return nil, &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: errors.New("no sandbox to attach to"), Hint: "give its id with WithSandboxID"}
	}
	return open(ctx, op, cfg)
}

// CreateOrRecreate is like Create, and replaces a sandbox that is gone, now or
// before a later call runs anything: onRecreate (which may be nil) is told the
// old one's id first, to forget it, and must not use the executor. What the old one held is lost; results say
// StateLost and FilesLost, and its workspaces fail with [codeexec.ErrWorkspaceStale]. A sandbox
// that goes while code runs in it is an error, since nobody knows what the code
// had done; the next call gets another. One that is paused is not replaced.
func CreateOrRecreate(ctx context.Context, onRecreate func(oldID string), opts ...Option) (*CodeExecutor, error) {
	cfg := configure(opts)
	cfg.boxes.Recreate, cfg.boxes.OnRecreate = true, onRecreate
	return open(ctx, "create executor", cfg)
}

func open(ctx context.Context, op string, cfg *config) (*CodeExecutor, error) {
	if err := cfg.connect(); err != nil {
		return nil, codeexec.Fail(op, cubby.CodeInvalidArgument, err)
	}
	x, err := e2bexec.Open(ctx, cfg.boxes)
	if err != nil {
		if cfg.boxes.OnClose != nil {
			err = errors.Join(err, cfg.boxes.OnClose())
		}
		return nil, codeexec.Fail(op, cubby.CodeUnavailable, err)
	}
	return &CodeExecutor{x}, nil
}

// connect makes the client.
func (c *config) connect() error {
	url := cmp.Or(c.apiURL, os.Getenv("E2B_API_URL"))
	key := cmp.Or(c.apiKey, os.Getenv("E2B_API_KEY"))
	template := cmp.Or(c.template, os.Getenv("CUBE_TEMPLATE_ID"))
	switch {
	case c.err != nil:
		return c.err
	case url == "":
		return missing("the server's URL", "WithAPIURL", "E2B_API_URL")
	case key == "":
		return missing("an API key", "WithAPIKey", "E2B_API_KEY")
	case template == "" && (c.boxes.ID == "" || c.boxes.Recreate):
		return missing("a template", "WithTemplate", "CUBE_TEMPLATE_ID")
	}
	if template != "" {
		c.boxes.Create = append(c.boxes.Create, cubby.WithTemplate(template))
	}
	if len(c.metadata) > 0 {
		c.boxes.Create = append(c.boxes.Create, cubby.WithMetadata(c.metadata))
	}
	hc := c.http
	if hc == nil {
		own := &http.Client{}
		if t, ok := http.DefaultTransport.(*http.Transport); ok {
			own.Transport = t.Clone()
			c.boxes.OnClose = func() error {
				own.CloseIdleConnections()
				return nil
			}
		}
		hc = own
	}
	client, err := cubby.NewClient(cubby.Config{
		APIURL: url, APIKey: key, SandboxURL: c.sandboxURL, Domain: c.domain, HTTPClient: hc, Logger: c.boxes.Logger,
	})
	c.boxes.Client = client
	return err
}

func missing(what, option, variable string) error {
	return &cubby.Error{
		Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%s is missing", what),
		Hint: fmt.Sprintf("set %s; in Go, %s gives it", variable, option),
	}
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
// bash. Others are asked of the server, which may have them.
func (e *CodeExecutor) Languages() []string { return e.x.Languages() }

// Engine returns the workspaces, which are in the sandbox; see
// [WithRemoteWorkspace].
func (e *CodeExecutor) Engine() codeexec.Engine { return e.x.Engine() }

// SandboxID returns the sandbox's id, to attach to it later. After a
// replacement it is another.
func (e *CodeExecutor) SandboxID() string { return e.x.SandboxID() }

// Close ends the sandbox if this executor made it, unless [WithKeepSandbox] or
// [WithSandboxID] was given; else it is Detach. What is under way fails with
// [cubby.CodeConflict].
func (e *CodeExecutor) Close() error { return e.x.Close() }

// Detach only lets go of the sandbox: it goes on, with the programs in it, until
// its idle timeout is over. The executor is closed.
func (e *CodeExecutor) Detach() error { return e.x.Detach() }

// Destroy ends the sandbox, whoever made it, also after Detach. One that is gone
// is no error. The executor is closed.
func (e *CodeExecutor) Destroy(ctx context.Context) error { return e.x.Destroy(ctx) }
