// Package fromenv chooses a code executor by the variable CODE_EXECUTOR_TYPE:
//
//	sandbox       a private sandbox on this machine; also if it is not set
//	container     a Docker container
//	e2b, cube     a server that speaks E2B's protocol
//	unsafe_local  this machine, without any wall
//
// Code may connect to what these say; without them, to nothing:
//
//	CUBBY_NET    closed, or open: everything public
//	CUBBY_ALLOW  hosts, networks and registries, with commas between them, such as
//	             @pypi,api.example.com:443; see [cubby.Network]
//
// They are for sandbox, e2b and cube. A container and this machine cannot be held to
// them, and are refused; a container's network is closed unless its configuration
// names another one.
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

// NetVariable and AllowVariable say where code may connect to.
const (
	NetVariable   = "CUBBY_NET"
	AllowVariable = "CUBBY_ALLOW"
)

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
	// Network says where code may connect to, in place of the two variables; nil leaves
	// it to them. An executor whose own Network is not nil has that. Where it is not nil,
	// Container and UnsafeLocal are refused unless they can be held to it.
	Network *cubby.Network

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
	kind := strings.ToLower(strings.TrimSpace(chosenType))
	network, err := cfg.network(kind)
	if err != nil {
		return nil, &cubby.Error{Op: "choose executor", Code: cubby.CodeOf(err), Err: err}
	}
	cfg.Sandbox.Executor.Network = cmp.Or(cfg.Sandbox.Executor.Network, network)
	cfg.E2B.Network = cmp.Or(cfg.E2B.Network, network)
	switch kind {
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

// network is where code may connect to, nil if nobody says so. It fails where the
// executor cannot be held to it.
func (c Config) network(kind string) (*cubby.Network, error) {
	n, from := c.Network, "Config.Network"
	if n == nil {
		var err error
		if n, from, err = networkFromEnv(); err != nil || n == nil {
			return nil, err
		}
	}
	closed := !n.Open && len(n.Allow) == 0
	refuse := func(why, hint string) error {
		return &cubby.Error{Code: cubby.CodeUnimplemented, Err: fmt.Errorf("the executor %s cannot hold what %s says: %s", kind, from, why), Hint: hint}
	}
	switch {
	case kind == UnsafeLocal:
		return nil, refuse("its code has this machine's whole network",
			"use another executor, such as "+Variable+"="+Sandbox+", or say nothing of the network")
	case kind == Container && closed && (c.Container.Network == "" || c.Container.Network == "none"):
		return nil, nil
	case kind == Container:
		return nil, refuse("Docker's networks have no rules, and lead to this machine and its local network, too",
			"use another executor, such as "+Variable+"="+Sandbox+"; in Go, Container.Network names a network of Docker's without rules")
	}
	return n, nil
}

// networkFromEnv is what the variables say, and which one says it.
func networkFromEnv() (n *cubby.Network, from string, err error) {
	mode, list := strings.ToLower(strings.TrimSpace(os.Getenv(NetVariable))), os.Getenv(AllowVariable)
	n = &cubby.Network{Open: mode == "open"}
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			n.Allow = append(n.Allow, entry)
		}
	}
	invalid := func(err error, hint string) error {
		return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err, Hint: hint}
	}
	switch {
	case mode != "" && mode != "open" && mode != "closed":
		return nil, "", invalid(fmt.Errorf("%s is %.100q", NetVariable, mode), "want closed or open")
	case n.Open && len(n.Allow) > 0:
		return nil, "", invalid(fmt.Errorf("%s is open, and %s allows some hosts", NetVariable, AllowVariable),
			"unset "+NetVariable+" to allow those only, or "+AllowVariable+" to allow all")
	case len(n.Allow) > 0:
		return n, AllowVariable, nil
	case mode != "":
		return n, NetVariable, nil
	}
	return nil, "", nil
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
