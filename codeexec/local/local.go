// Package local runs code on this machine, as the user that the program runs as.
// There is no wall: code can read, change and send away whatever that user can.
// It is for code that you would start yourself, and for development. For the
// code of a model see codeexec/sandbox, which needs nothing to be installed.
//
//	ex, err := local.NewUnsafe(ctx, local.Config{})
//	if err != nil { … }
//	defer ex.Close()
//	r, err := ex.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "print(6*7)"})
//
// What it does promise: each block is a process of its own that has a time, is
// ended with what it started, writes a bounded output, and does not inherit the
// program's variables (see [Config]). Files that come from and go to its
// workspaces stay below them, whatever links say.
//
// Each program leads a session and a process group. When it ends, or its time
// does, the group is killed, and on Linux also what left it: its descendants, and
// every process that carries the program's own RUN_DIR variable. A process that
// forks twice, leaves its session and drops its variables gets away, and so may
// one that does all but the last faster than it can be found. The package
// does not make the caller's process the reaper of orphans (PR_SET_CHILD_SUBREAPER),
// which would find those, too: that is a property of a whole process, and whose
// it is decides its main function.
//
// Of a program on a terminal, Linux may drop what it writes just before its end:
// the end of a session's leader hangs the terminal up and empties its buffers.
//
// It works on Linux and macOS.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
	"github.com/cubby-sandbox/cubby/codeexec/internal/loss"
	"github.com/cubby-sandbox/cubby/codeexec/internal/registry"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Defaults of [Config].
const (
	DefaultTimeout        = 10 * time.Second
	DefaultSessionTimeout = time.Hour
	defaultMaxPrograms    = 64
)

// Config says how code runs. The zero value is usable.
type Config struct {
	// WorkDir is where blocks run; it is made if it is not there, and its files
	// last from call to call, one call at a time. Empty means a temporary folder for
	// each call.
	WorkDir string
	// KeepFiles leaves temporary folders and the files that hold the code.
	KeepFiles bool
	// Timeout is that of each block, and of programs in workspaces that name none;
	// 0 means 10 s.
	Timeout time.Duration
	// Delimiters are what the executor tells as its own; nil means those of
	// tRPC-Agent's local executor: the fences python and tool_code. Empty and not nil
	// means every fence in a language that it has.
	Delimiters []codeexec.CodeBlockDelimiter

	// Code gets these variables: PATH and the locale of this process, HOME (the
	// folder that it runs in), TMPDIR, OUTPUT_DIR, RUN_DIR; then those of this
	// process that Inherit names, or all with InheritAll, which hands over every
	// secret among them; then Env.
	Inherit    []string
	InheritAll bool
	Env        map[string]string

	// MaxOutput bounds the output of an execution, and each of stdout and stderr of
	// a program in a workspace, in bytes; 0 means cubby.DefaultMaxOutput. What is
	// more is dropped.
	MaxOutput int
	// Limits bound each process of a block. MemoryBytes is its address space, of
	// which node reserves some GiB at its start; on macOS it is refused.
	// FileSizeBytes is each file that it writes. Others are refused, and as root
	// all, unless setpriv is installed: root could lift them.
	Limits codeexec.ResourceLimits
	// MaxOpenFiles bounds the open files of each process; 0 leaves it as it is for
	// this process.
	MaxOpenFiles int

	// Python, Bash and Node are the interpreters; empty means python3 (else
	// python), bash and node of PATH. A language whose interpreter is not found is
	// not among Languages.
	Python, Bash, Node string

	// WorkspaceRoot is the folder of the workspaces; empty means
	// codeexec.DefaultRoot. It must be this user's own.
	WorkspaceRoot string
	// SessionTimeout is that of programs of StartProgram that name none; 0 means an
	// hour.
	SessionTimeout time.Duration
	// MaxPrograms bounds how many blocks and programs run at a time; 0 means 64.
	MaxPrograms int
	// HostInputs, if set, is the only folder that host:// inputs may come from.
	HostInputs string

	// Logger takes a line for each execution and program, never code, output or
	// variables; nil drops them. Spans and metrics are as [codeexec.Observe] has
	// them.
	Logger *slog.Logger
}

// UnsafeExecutor implements [codeexec.CodeExecutor] and
// [codeexec.EngineProvider], and tells of what it does by [codeexec.Observe]. It
// is safe for concurrent use.
type UnsafeExecutor struct {
	core     *core
	observed codeexec.CodeExecutor
	engine   codeexec.Engine
}

// core is an executor that nobody observes.
type core struct {
	cfg          Config
	languages    []string
	interpreters map[string]*interpreter
	engine       *engine

	base   context.Context // ends with Close
	closed context.CancelCauseFunc
	calls  sync.WaitGroup
	mu     sync.Mutex    // of closed against calls
	turn   chan struct{} // of WorkDir; nil if each call has its own folder

	// Of who has the turn.
	workDir os.FileInfo // the folder of the last call
	files   loss.Files
}

var (
	_ codeexec.CodeExecutor   = (*UnsafeExecutor)(nil)
	_ codeexec.EngineProvider = (*UnsafeExecutor)(nil)
)

// NewUnsafe returns an executor without any isolation. It starts nothing; ctx
// bounds the call only.
func NewUnsafe(ctx context.Context, cfg Config) (*UnsafeExecutor, error) {
	const op = "new local executor"
	if err := context.Cause(ctx); err != nil {
		return nil, execerr.Wrap(op, cubby.CodeCanceled, err)
	}
	if !supported {
		return nil, &cubby.Error{
			Op: op, Code: cubby.CodeUnimplemented, Err: errors.New("code cannot be run without a sandbox on this system, only on Linux and macOS"),
			Hint: "use codeexec/container or codeexec/e2b",
		}
	}
	invalid := func(err error) error { return execerr.Wrap(op, cubby.CodeInvalidArgument, err) }
	if cfg.Timeout < 0 || cfg.SessionTimeout < 0 || cfg.MaxOutput < 0 || cfg.MaxPrograms < 0 || cfg.MaxOpenFiles < 0 {
		return nil, invalid(errors.New("a bound is negative"))
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, DefaultSessionTimeout)
	cfg.MaxOutput = cmp.Or(cfg.MaxOutput, cubby.DefaultMaxOutput)
	cfg.MaxPrograms = cmp.Or(cfg.MaxPrograms, defaultMaxPrograms)
	if cfg.Delimiters == nil {
		cfg.Delimiters = backend.Fences("python", "tool_code")
	}
	en, err := newEngine(cfg)
	if err != nil {
		return nil, invalid(err)
	}
	if err := en.limits.check(cfg.Limits); err != nil {
		return nil, invalid(err)
	}
	e := &core{cfg: en.cfg, engine: en, interpreters: map[string]*interpreter{}}
	if err := e.findInterpreters(); err != nil {
		return nil, execerr.Wrap(op, cubby.CodeUnavailable, err)
	}
	if cfg.WorkDir != "" {
		if e.cfg.WorkDir, err = filepath.Abs(cfg.WorkDir); err != nil {
			return nil, invalid(err)
		}
		if err := os.MkdirAll(e.cfg.WorkDir, 0o755); err != nil {
			return nil, invalid(err)
		}
		e.turn = make(chan struct{}, 1)
	}
	e.base, e.closed = context.WithCancelCause(context.Background())
	observed := codeexec.Observe(e, codeexec.ObserveOptions{Logger: cfg.Logger, Backend: "unsafe_local"})
	own, err := codeexec.EngineOf(observed)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	return &UnsafeExecutor{core: e, observed: observed, engine: own}, nil
}

// ExecuteCode implements [codeexec.CodeExecutor]. Each block is a process of its
// own: files last from block to block, variables do not. Files that code leaves
// in the folder out (the variable OUTPUT_DIR) come back as OutputFiles, up to
// 100 of them and 64 MiB; with a WorkDir those that are new or changed. All
// execution ids share a WorkDir; without one each call has its own folder, and
// the results' Instance is the zero value.
func (e *UnsafeExecutor) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return backend.RelayOutput(ctx, in, e.observed.ExecuteCode)
}

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *UnsafeExecutor) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return e.core.CodeBlockDelimiters()
}

// Languages implements [codeexec.CodeExecutor].
func (e *UnsafeExecutor) Languages() []string { return e.core.Languages() }

// Engine implements [codeexec.EngineProvider].
func (e *UnsafeExecutor) Engine() codeexec.Engine { return e.engine }

// Close ends what runs. Workspaces stay until they are cleaned up.
func (e *UnsafeExecutor) Close() error { return e.core.Close() }

// CodeBlockDelimiters implements [codeexec.CodeExecutor].
func (e *core) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter {
	return slices.Clone(e.cfg.Delimiters)
}

// Languages implements [codeexec.CodeExecutor].
func (e *core) Languages() []string { return slices.Clone(e.languages) }

// Engine implements [codeexec.EngineProvider].
func (e *core) Engine() codeexec.Engine { return e.engine }

// Close implements [codeexec.CodeExecutor].
func (e *core) Close() error {
	e.mu.Lock()
	e.closed(registry.ErrClosed)
	e.mu.Unlock()
	e.calls.Wait()
	return e.engine.known.Close()
}

// interpreter is a program that runs a language's files.
type interpreter struct {
	path string
	ask  []string // arguments that make it print where it is in truth, if it can
	once sync.Once
	args []string // before the file
}

func (e *core) findInterpreters() error {
	for _, l := range []struct {
		language, given string
		names           []string
		interpreter     *interpreter
	}{
		// Unbuffered, because what was printed before a timeout is to be read.
		{codeexec.Python, e.cfg.Python, []string{"python3", "python"}, &interpreter{args: []string{"-u"}, ask: []string{"-c", "import sys; print(sys.executable)"}}},
		{codeexec.Bash, e.cfg.Bash, []string{"bash"}, &interpreter{}},
		{codeexec.JavaScript, e.cfg.Node, []string{"node"}, &interpreter{}},
	} {
		names := l.names
		if l.given != "" {
			names = []string{l.given}
		}
		for _, name := range names {
			found, err := exec.LookPath(name)
			if err != nil && l.given != "" {
				return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("the interpreter of %s: %w", l.language, err)}
			}
			if err != nil {
				continue
			}
			if l.interpreter.path, err = filepath.Abs(found); err != nil {
				return err
			}
			e.interpreters[l.language] = l.interpreter
			e.languages = append(e.languages, l.language)
			break
		}
	}
	if len(e.languages) == 0 {
		return &cubby.Error{
			Code: cubby.CodeUnavailable, Err: errors.New("neither python3 nor bash nor node is on PATH"),
			Hint: "install Python 3, or name it in Config.Python",
		}
	}
	return nil
}

// command returns the interpreter and its arguments. The python3 of a version
// manager is a script that costs 100 ms a start and looks at HOME: Python is
// asked once where it is.
func (i *interpreter) command(ctx context.Context, env []string) (string, []string) {
	i.once.Do(func() {
		if i.ask == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, i.path, i.ask...)
		cmd.Env = env
		cmd.WaitDelay = time.Second
		if out, err := cmd.Output(); err == nil {
			if real := strings.TrimSpace(string(out)); filepath.IsAbs(real) {
				if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
					i.path = real
				}
			}
		}
	})
	return i.path, i.args
}
