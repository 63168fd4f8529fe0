// Package e2bexec runs code blocks, and makes workspaces, in the sandboxes of a
// server that a *cubby.Client reaches: what the executors sandbox and e2b have in
// common.
//
// Sandboxes, and servers that are not Cubby's own, are not trusted: they may answer
// anything. That must harm nothing but their own results.
package e2bexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Fresh says what is made anew for each execution.
type Fresh int

// What is made anew for each execution.
const (
	Stateful     Fresh = iota // nothing: variables last, for each execution id
	FreshContext              // its kernels
	FreshSandbox              // its sandbox
)

// Defaults of [Config].
const (
	DefaultExecutionTimeout = 60 * time.Second
	DefaultIdleTimeout      = time.Hour
	DefaultMaxContexts      = 16
)

// Config configures an Executor. Client is needed.
type Config struct {
	Client *cubby.Client
	// Backend names the executor in logs, spans and metrics.
	Backend string
	// ID is a sandbox to attach to; empty makes one.
	ID string
	// Create are options of new sandboxes, beside timeout and limits.
	Create []cubby.CreateOption
	// Network is that of new sandboxes, and one to attach to gets it as well; nil
	// leaves that one alone, and new ones have a closed network.
	Network *cubby.Network
	// Packages are installed in each new sandbox.
	Packages cubby.Packages
	// Recreate replaces a sandbox that is gone, before anything runs; OnRecreate
	// is told.
	Recreate   bool
	OnRecreate func(oldID string)
	// Keep has Close leave the sandbox alone.
	Keep bool
	// IdleTimeout is how long a sandbox lives without being used, in whole seconds;
	// 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
	// PauseAfter is how long a sandbox is unused before it is paused, with its memory; its
	// next use resumes it. 0 never pauses.
	PauseAfter time.Duration
	// SandboxTimeout bounds the sandbox's whole life, in whole seconds; 0 does not.
	SandboxTimeout time.Duration
	// ExecutionTimeout is each block's, and that of programs that name none; 0 means
	// DefaultExecutionTimeout.
	ExecutionTimeout time.Duration
	// MaxOutput bounds stdout and stderr of a block and the output of all, in
	// bytes; 0 means cubby.DefaultMaxOutput.
	MaxOutput int
	// Limits must hold for the sandbox.
	Limits codeexec.ResourceLimits
	// Env are variables of everything that runs.
	Env   map[string]string
	Fresh Fresh
	// MaxContexts bounds the kernels of conversations in the sandbox; 0 means
	// DefaultMaxContexts.
	MaxContexts int
	// User runs the workspaces' programs; empty means the sandbox's default.
	User string
	// Root is the workspaces' absolute folder; empty means codeexec.DefaultRoot.
	Root string
	// Persist keeps one workspace for each execution id.
	Persist bool
	// HostBase, if set, is the only folder that host:// inputs may come from.
	HostBase   string
	Delimiters []codeexec.CodeBlockDelimiter
	// Since is set for an executor that takes the place of others that have ended:
	// the largest counts that they gave. Every execution id begins with a loss, and
	// counts on from there.
	Since *codeexec.Instance
	// Languages are those that may run, normalised; nil means the four, and any
	// other that the server has when it is asked.
	Languages []string
	// Describe is what the engine says of itself, but for the limits.
	Describe codeexec.Capabilities
	// Logger takes lines about the sandbox and each execution; nil discards them.
	Logger *slog.Logger
	// OnClose is called when the executor has ended.
	OnClose func() error
}

// check refuses what makes no sense, and fills what was left out. Its errors name
// no options: those are the packages'.
func (c *Config) check() error {
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.ExecutionTimeout = cmp.Or(c.ExecutionTimeout, DefaultExecutionTimeout)
	c.MaxOutput = cmp.Or(c.MaxOutput, cubby.DefaultMaxOutput)
	c.MaxContexts = cmp.Or(c.MaxContexts, DefaultMaxContexts)
	c.Root = path.Clean(cmp.Or(c.Root, codeexec.DefaultRoot))
	c.Env = maps.Clone(c.Env)
	c.Delimiters = slices.Clone(c.Delimiters)
	c.Languages = slices.Clone(c.Languages)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.IdleTimeout < time.Second || c.IdleTimeout%time.Second != 0:
		return fmt.Errorf("the idle timeout is %v: it must be whole seconds, at least one", c.IdleTimeout)
	case c.SandboxTimeout < 0 || c.SandboxTimeout%time.Second != 0:
		return fmt.Errorf("the sandbox's timeout is %v: it must be whole seconds", c.SandboxTimeout)
	case c.PauseAfter < 0 || c.PauseAfter >= c.IdleTimeout:
		return fmt.Errorf("the sandbox is to be paused after %v: it must be less than the idle timeout, %v", c.PauseAfter, c.IdleTimeout)
	case c.ExecutionTimeout < 0:
		return fmt.Errorf("the execution timeout is %v", c.ExecutionTimeout)
	case c.MaxOutput < 0:
		return errors.New("the bound of the output is negative")
	case c.MaxContexts < 4:
		return errors.New("the number of kernels must be at least 4, one for each language")
	case !path.IsAbs(c.Root) || c.Root == "/" || strings.IndexByte(c.Root, 0) >= 0:
		return fmt.Errorf("the folder of the workspaces, %q, is not an absolute one", c.Root)
	case c.Fresh == FreshSandbox && c.ID != "":
		return errors.New("each execution is to have a sandbox of its own, and one to attach to is named")
	case strings.Contains(c.User, ":"):
		return errors.New("a user's name holds no colon")
	}
	for name, value := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.IndexByte(value, 0) >= 0 {
			return fmt.Errorf("%.100q is no name of a variable, or its value holds a NUL", name)
		}
	}
	if c.Languages != nil && len(c.Languages) == 0 {
		return errors.New("there is no language to run")
	}
	for _, l := range c.Languages {
		if !languageName.MatchString(l) || codeexec.IsDataLanguage(l) {
			return fmt.Errorf("%.100q is no language to run", l)
		}
	}
	return validLimits(c.Limits)
}

// RunsLanguages are those that are known to run.
func (c *Config) RunsLanguages() []string {
	if c.Languages != nil {
		return slices.Clone(c.Languages)
	}
	return slices.Clone(languages)
}

// asks reports whether a server is asked for a language that is none of the
// four.
func (c *Config) asks(language string) bool {
	return (c.Languages == nil || slices.Contains(c.Languages, language)) &&
		!codeexec.IsDataLanguage(language) && languageName.MatchString(language)
}

// runs reports whether a language is one of the four, and may run.
func (c *Config) runs(language string) bool {
	return known(language) && (c.Languages == nil || slices.Contains(c.Languages, language))
}

// Executor implements [codeexec.CodeExecutor] and [codeexec.EngineProvider], and
// tells of what it does by [codeexec.Observe].
type Executor struct {
	core     *core
	observed codeexec.CodeExecutor
	engine   codeexec.Engine
}

// core is the executor itself, without the logs, spans and metrics that Executor adds.
type core struct {
	h             *holder
	conversations *conversations
	workspaces    *workspaces
}

// Open returns an executor with its sandbox, which it makes, or finds by Config.ID. ctx
// bounds that, and not the executor's life.
func Open(ctx context.Context, cfg Config) (*Executor, error) {
	if err := cfg.check(); err != nil {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	h := newHolder(&cfg)
	x := &core{h: h, conversations: newConversations(&cfg), workspaces: &workspaces{h: h, home: map[string]*sandbox{}}}
	if err := h.open(ctx); err != nil {
		h.stop(closedError())
		return nil, err
	}
	observed := codeexec.Observe(x, codeexec.ObserveOptions{Logger: cfg.Logger, Backend: cfg.Backend})
	engine, err := codeexec.EngineOf(observed)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &Executor{core: x, observed: observed, engine: engine}, nil
}

// ExecuteCode implements [codeexec.CodeExecutor].
func (e *Executor) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return backend.RelayOutput(ctx, in, e.observed.ExecuteCode)
}

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *Executor) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return e.core.CodeBlockDelimiters()
}

// Languages implements [codeexec.CodeExecutor].
func (e *Executor) Languages() []string { return e.core.Languages() }

// Engine implements [codeexec.EngineProvider].
func (e *Executor) Engine() codeexec.Engine { return e.engine }

// Close implements [codeexec.CodeExecutor].
func (e *Executor) Close() error { return e.core.Close() }

// Detach lets go of the sandbox, which goes on.
func (e *Executor) Detach() error { return e.core.shut(func(*sandbox) bool { return false }) }

// Destroy ends the sandbox, whoever made it, also after Detach.
func (e *Executor) Destroy(ctx context.Context) error {
	last := e.core.h.current()
	err := e.core.shut(func(*sandbox) bool { return false })
	if last != nil {
		err = errors.Join(err, last.sbx.Kill(ctx))
	}
	return execerr.Wrap("destroy sandbox", cubby.CodeUnavailable, err)
}

// SandboxID returns the id of the sandbox, or of the last one if there is none now.
func (e *Executor) SandboxID() string {
	if b := e.core.h.current(); b != nil {
		return b.sbx.ID()
	}
	return ""
}

// Latest returns the largest counts that the results of this executor have had so far.
func (e *Executor) Latest() codeexec.Instance {
	h := e.core.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return codeexec.Instance{Memory: e.core.conversations.mostLosses(), Files: h.sandboxCount}
}

// Busy reports whether code or a program runs.
func (e *Executor) Busy() bool { return e.core.h.busy() }

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (x *core) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return slices.Clone(x.h.cfg.Delimiters)
}

// Languages implements [codeexec.CodeExecutor].
func (x *core) Languages() []string { return x.h.cfg.RunsLanguages() }

// Engine implements [codeexec.EngineProvider].
func (x *core) Engine() codeexec.Engine { return x.workspaces }

// Close implements [codeexec.CodeExecutor]. It ends the sandbox if this executor
// made it and is not to keep it.
func (x *core) Close() error {
	return x.shut(func(b *sandbox) bool { return b.owned && !x.h.cfg.Keep && x.h.cfg.ID == "" })
}

func (x *core) shut(ends func(*sandbox) bool) error {
	b, first := x.h.close()
	if !first {
		return nil
	}
	var errs []error
	if b != nil && ends(b) {
		errs = append(errs, b.sbx.Close())
	}
	if x.h.cfg.OnClose != nil {
		errs = append(errs, x.h.cfg.OnClose())
	}
	return execerr.Wrap("close executor", cubby.CodeUnavailable, errors.Join(errs...))
}
