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
//	executor, err := fromenv.New(ctx, fromenv.Config{})
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

// DefaultImage is the container's image when [Config] names none.
const DefaultImage = "python:3-slim"

// Config configures the executors, each for the case that it is chosen. The zero
// value is usable.
type Config struct {
	// Type chooses instead of the variable; empty leaves it to that.
	Type string
	// Logger is that of the executors whose own is nil: it takes a line for each
	// execution, never code, output or variables.
	Logger *slog.Logger

	Sandbox sandbox.Config
	// E2B is the executor of a remote server. What it does not say comes from
	// E2B_API_URL, E2B_API_KEY and CUBE_TEMPLATE_ID.
	E2B e2b.Config
	// Container's image is DefaultImage if it names none and no Dockerfile.
	Container container.Config
	// UnsafeLocal configures the executor without a wall; it does not choose it.
	UnsafeLocal local.Config
}

// New returns the executor that the environment asks for, started. ctx bounds the
// start only. A value that is none of the five is an error of invalid_argument
// that lists them. When the executor cannot run here the error says why: another
// one is never taken in its place.
func New(ctx context.Context, cfg Config) (codeexec.CodeExecutor, error) {
	// Who reads an error knows the variable, but not what a program's own option
	// for the executor is called.
	chosenType, from := cfg.Type, ""
	if strings.TrimSpace(chosenType) == "" {
		chosenType, from = os.Getenv(Variable), Variable
	}
	for _, l := range []**slog.Logger{&cfg.Sandbox.Executor.Logger, &cfg.E2B.Logger, &cfg.Container.Logger, &cfg.UnsafeLocal.Logger} {
		*l = cmp.Or(*l, cfg.Logger)
	}
	switch kind := strings.ToLower(strings.TrimSpace(chosenType)); kind {
	case "", Sandbox:
		e, err := sandbox.New(ctx, cfg.Sandbox)
		if err != nil && kind == "" {
			return nil, noDefault(err)
		}
		return chosen(kind, from, e, err)
	case Container:
		if cfg.Container.Image == "" && cfg.Container.Dockerfile == "" {
			cfg.Container.Image = DefaultImage
		}
		e, err := container.New(ctx, cfg.Container)
		if err != nil {
			return chosen(kind, from, e, err)
		}
		return codeexec.Observe(e, codeexec.ObserveOptions{Logger: cfg.Logger, Backend: Container}), nil
	case E2B, Cube:
		e, err := e2b.Create(ctx, cfg.E2B)
		return chosen(kind, from, e, err)
	case UnsafeLocal:
		e, err := local.NewUnsafe(ctx, cfg.UnsafeLocal)
		return chosen(kind, from, e, err)
	default:
		return nil, &cubby.Error{
			Op: "choose executor", Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%s is %.100q", cmp.Or(from, "the executor"), chosenType),
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
