// Package fromenv chooses a code executor by the variable CODE_EXECUTOR_TYPE:
//
//	sandbox       a private sandbox on this machine; also if it is not set
//	container     a Docker container
//	e2b, cube     a server that speaks E2B's protocol
//	unsafe_local  this machine, without any wall
//
// It is a module of its own, since it imports all of them, Docker's client
// included.
//
//	executor, err := fromenv.New(ctx)
//	if err != nil { … }
//	defer executor.Close()
package fromenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/container"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/local"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
)

// Variable is what chooses.
const Variable = "CODE_EXECUTOR_TYPE"

// Values of [Variable]. An empty one means Sandbox.
const (
	Sandbox     = "sandbox"
	Container   = "container"
	E2B         = "e2b"
	Cube        = "cube" // the same as E2B
	UnsafeLocal = "unsafe_local"
)

// DefaultImage is the container's image when [WithContainer] names none.
const DefaultImage = "python:3-slim"

// Option configures one of the executors, for the case that it is chosen.
type Option func(*config)

type config struct {
	kind      string
	given     bool // by WithType
	logger    *slog.Logger
	sandbox   []sandbox.Option
	e2b       []e2b.Option
	container container.Config
	local     local.Config
}

// WithType chooses instead of the variable; an empty kind leaves it to that.
func WithType(kind string) Option {
	return func(c *config) { c.kind, c.given = kind, strings.TrimSpace(kind) != "" }
}

// WithLogger takes a line for each execution; never code, output or variables.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithSandbox configures the sandbox.
func WithSandbox(opts ...sandbox.Option) Option {
	return func(c *config) { c.sandbox = append(c.sandbox, opts...) }
}

// WithE2B configures the executor of a remote server. What it does not say comes
// from E2B_API_URL, E2B_API_KEY and CUBE_TEMPLATE_ID.
func WithE2B(opts ...e2b.Option) Option { return func(c *config) { c.e2b = append(c.e2b, opts...) } }

// WithContainer configures the container.
func WithContainer(cfg container.Config) Option { return func(c *config) { c.container = cfg } }

// WithUnsafeLocal configures the executor without a wall; it does not choose it.
func WithUnsafeLocal(cfg local.Config) Option { return func(c *config) { c.local = cfg } }

// New returns the executor that the environment asks for, started. ctx bounds the
// start only. A value that is none of the five is an error of invalid_argument
// that lists them. When the executor cannot run here the error says why: another
// one is never taken in its place.
func New(ctx context.Context, opts ...Option) (codeexec.CodeExecutor, error) {
	var c config
	for _, o := range opts {
		o(&c)
	}
	// Who reads an error knows the variable, but not what a program's own option
	// for the executor is called.
	from := ""
	if !c.given {
		c.kind, from = os.Getenv(Variable), Variable
	}
	switch kind := strings.ToLower(strings.TrimSpace(c.kind)); kind {
	case "", Sandbox:
		e, err := sandbox.New(ctx, append([]sandbox.Option{sandbox.WithLogger(c.logger)}, c.sandbox...)...)
		if err != nil && kind == "" {
			return nil, noDefault(err)
		}
		return chosen(kind, from, e, err)
	case Container:
		if c.container.Image == "" && c.container.Dockerfile == "" {
			c.container.Image = DefaultImage
		}
		if c.container.Logger == nil {
			c.container.Logger = c.logger
		}
		e, err := container.New(ctx, c.container)
		if err != nil {
			return chosen(kind, from, e, err)
		}
		return codeexec.Observe(e, codeexec.ObserveOptions{Logger: c.logger, Backend: Container}), nil
	case E2B, Cube:
		e, err := e2b.Create(ctx, append([]e2b.Option{e2b.WithLogger(c.logger)}, c.e2b...)...)
		return chosen(kind, from, e, err)
	case UnsafeLocal:
		if c.local.Logger == nil {
			c.local.Logger = c.logger
		}
		e, err := local.NewUnsafe(c.local)
		return chosen(kind, from, e, err)
	default:
		return nil, &cubby.Error{
			Op: "choose executor", Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%s is %.100q", cmp.Or(from, "the executor"), c.kind),
			Hint: "want " + strings.Join([]string{Sandbox, Container, E2B, Cube, UnsafeLocal}, ", "),
		}
	}
}

// chosen keeps a nil executor of a type from becoming one that is not nil, and
// says what chose one that cannot run: a variable, or else the program itself.
func chosen[E codeexec.CodeExecutor](kind, from string, e E, err error) (codeexec.CodeExecutor, error) {
	if err != nil {
		what := "the executor " + kind + " cannot run"
		if from != "" {
			what = fmt.Sprintf("%s chose %s", from, kind)
		}
		return nil, explain(what, err, "")
	}
	return e, nil
}

func noDefault(err error) error {
	return explain(Variable+" is not set, which means a sandbox on this machine, and that cannot run", err,
		"or choose another executor: "+Variable+"=container or e2b")
}

// explain wraps an executor's error and keeps its code and hint.
func explain(what string, err error, hint string) error {
	out := &cubby.Error{Op: "choose executor", Code: cubby.CodeUnavailable, Err: fmt.Errorf("%s: %w", what, err), Hint: hint}
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		out.Code = e.Code // its own hint is part of its text
	}
	return out
}
