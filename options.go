package cubby

import (
	"io"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Options are typed by what they modify: a [CreateOption] is for [Client.Create],
// a [ConnectOption] for [Client.Connect], a [RunOption] for [Sandbox.RunCode], a
// [CommandOption] for [Commands], a [ContextOption] for [Sandbox.CreateContext], a
// [PauseOption], [SnapshotOption] and [ForkOption] for what they are named after.
// What makes sense for several of them is of a type that is an option of each.

// RunOption modifies [Sandbox.RunCode].
type RunOption interface{ applyRun(*runConfig) }

// CommandOption modifies the calls of [Commands].
type CommandOption interface{ applyCommand(*commandConfig) }

// ContextOption modifies [Sandbox.CreateContext].
type ContextOption interface {
	applyContext(*protocol.CreateContextRequest)
}

// ExecOption is for code and for commands.
type ExecOption interface {
	RunOption
	CommandOption
}

// TimeoutOption is for whatever has a timeout: sandboxes that are created, connected to
// and copied, code and commands.
type TimeoutOption interface {
	CreateOption
	ConnectOption
	ForkOption
	ExecOption
}

// DirOption is for contexts and for commands.
type DirOption interface {
	ContextOption
	CommandOption
}

type runOption func(*runConfig)

func (f runOption) applyRun(c *runConfig) { f(c) }

type commandOption func(*commandConfig)

func (f commandOption) applyCommand(c *commandConfig) { f(c) }

type contextOption func(*protocol.CreateContextRequest)

func (f contextOption) applyContext(r *protocol.CreateContextRequest) { f(r) }

// execOption sets what code and commands have in common.
type execOption func(*execConfig)

func (f execOption) applyRun(c *runConfig)         { f(&c.execConfig) }
func (f execOption) applyCommand(c *commandConfig) { f(&c.execConfig) }

// timeout is a sandbox's or an execution's.
type timeout time.Duration

func (d timeout) applyCreate(c *createConfig)             { c.Timeout = new(seconds(time.Duration(d))) }
func (d timeout) applyConnect(r *protocol.ConnectSandbox) { r.Timeout = new(seconds(time.Duration(d))) }
func (d timeout) applyFork(r *protocol.ForkSandbox)       { r.Timeout = new(seconds(time.Duration(d))) }
func (d timeout) applyRun(c *runConfig)                   { c.timeout = time.Duration(d) }
func (d timeout) applyCommand(c *commandConfig)           { c.timeout = time.Duration(d) }

// execConfig is what code and commands have in common.
type execConfig struct {
	env            map[string]string
	timeout        time.Duration
	maxOutput      int64
	stdout, stderr func(text string)
	stdin          io.Reader
	hasStdin       bool // also where stdin is nil
}

type runConfig struct {
	execConfig
	request protocol.ExecuteRequest
	drain   bool
	result  func(Result)
	error   func(ExecutionError)
}

type commandConfig struct {
	execConfig
	cwd, user, tag     string
	openStdin          bool
	pty                *wireSize
	stdoutTo, stderrTo io.Writer
}

// WithLanguage chooses the language's default kernel: "python" (without this
// option), "javascript", "typescript" or "bash". It excludes [InContext].
func WithLanguage(language string) RunOption {
	return runOption(func(c *runConfig) { c.request.Language = language })
}

// InContext runs the code in k instead of the language's default kernel.
func InContext(k *Context) RunOption {
	return runOption(func(c *runConfig) { c.request.ContextID = k.ID })
}

// WithDrain waits until the code's pending timers and callbacks are done too,
// as a program of its own would. It matters for JavaScript, and with
// [WithProgram] for Python, too: its threads are waited for and what atexit knows
// is called.
func WithDrain() RunOption { return runOption(func(c *runConfig) { c.drain = true }) }

// WithProgram gives the code a name and arguments, as an interpreter gives them
// to a program: sys.argv, process.argv, $0 and $1. The name is a file's, without
// a folder; the code is found under it in the kernel's folder, unless there is
// such a file already, and Python's __file__ and Node's __filename lead there. ""
// stands for code that is in no file (python3 -c) and "-" for code from standard
// input. Bash's $1 and so on stay in its kernel until they are set again. It
// fails with [CodeUnimplemented] on servers other than Cubby's, before anything
// runs.
func WithProgram(name string, args ...string) RunOption {
	return runOption(func(c *runConfig) { c.request.Program = &protocol.Program{Name: name, Args: args} })
}

// OnResult calls f with each result as it is shown; see [OnStdout].
func OnResult(f func(Result)) RunOption { return runOption(func(c *runConfig) { c.result = f }) }

// OnError calls f with the code's uncaught error; see [OnStdout].
func OnError(f func(ExecutionError)) RunOption { return runOption(func(c *runConfig) { c.error = f }) }

// WithEnv sets environment variables for this call only.
func WithEnv(env map[string]string) ExecOption {
	return execOption(func(c *execConfig) { c.env = env })
}

// WithTimeout bounds the time of what it is given to, as E2B's "timeout" does:
//
//   - [Client.Create] and [Sandbox.Fork]: the sandbox's life. The server ends the
//     sandbox d after its start, or pauses it ([WithAutoPause]), unless
//     [Sandbox.SetTimeout] or [Client.Connect] has moved that. Without it, d is five
//     minutes.
//   - [Client.Connect]: the life that is left, which becomes d where it is less, and
//     for a sandbox that it resumes. Without it, d is five minutes.
//   - [Sandbox.RunCode] and [Commands]: the wall time of the code or the command,
//     which is over then: the Execution or the CommandResult says TimedOut, and
//     there is no error. Code is interrupted first, and its kernel killed two
//     seconds later; a command is killed at once. Without it, or with 0, there is
//     no bound but the context's and the sandbox's.
//
// A sandbox's is rounded up to whole seconds. A negative one, one that is longer
// than the server lets it be, and 0 for a new sandbox fail with
// [CodeInvalidArgument]. An execution's does not keep its sandbox alive.
func WithTimeout(d time.Duration) TimeoutOption { return timeout(d) }

// WithMaxOutput bounds what is kept of stdout and of stderr, in bytes for each;
// without it [DefaultMaxOutput]. What is over is dropped, the answer says
// Truncated, and what runs goes on.
func WithMaxOutput(bytes int64) ExecOption {
	return execOption(func(c *execConfig) { c.maxOutput = bytes })
}

// OnStdout calls f with each piece of text as it is printed, in whole
// characters, and not with what [WithMaxOutput] drops. All callbacks of a call
// run one at a time and in order, and what runs is held up while they do.
// RunCode runs them on the goroutine that called it; those of a command run on
// one of their own, and are over when Run or [Command.Wait] returns.
func OnStdout(f func(text string)) ExecOption {
	return execOption(func(c *execConfig) { c.stdout = f })
}

// OnStderr is like [OnStdout].
func OnStderr(f func(text string)) ExecOption {
	return execOption(func(c *execConfig) { c.stderr = f })
}

// dirOption is a working directory.
type dirOption string

func (d dirOption) applyContext(r *protocol.CreateContextRequest) { r.Cwd = string(d) }
func (d dirOption) applyCommand(c *commandConfig)                 { c.cwd = string(d) }

// WithCwd sets the working directory of a kernel or a command; without it
// [Home].
func WithCwd(dir string) DirOption { return dirOption(dir) }

// WithIPython asks for IPython's own shell in a Python context. It fails when
// IPython is not in the sandbox.
func WithIPython() ContextOption {
	return contextOption(func(r *protocol.CreateContextRequest) { r.Shell = "ipython" })
}

// WithUser runs the command as this user of the sandbox, such as "root"; without
// it as its default user.
func WithUser(name string) CommandOption {
	return commandOption(func(c *commandConfig) { c.user = name })
}

// WithTag names the command in [Commands.List], and for [Commands.ConnectTag].
func WithTag(tag string) CommandOption {
	return commandOption(func(c *commandConfig) { c.tag = tag })
}

// WithStdin sends all of r to the standard input of the command or of the code,
// as fast as it is read there, and closes that at r's end. What was read of r may
// be more than what the code read. A nil r is an input that is empty: code reads
// its end, while without this option it is told that there is none.
//
// The caller keeps r. Nothing is read of it once the call has returned, but a Read
// that is under way then is not waited for: it goes on in a goroutine that ends
// with it, and what it reads is lost. Who needs that goroutine to end closes what r
// reads from. When r fails, the command is killed or the code interrupted, and the
// call returns r's error: nothing must take a part of its input for the whole.
//
// For a command it excludes [WithOpenStdin] and [WithPTY]. Without any of these a
// command reads nothing. For code it fails with [CodeUnimplemented] on servers other than Cubby's, before
// anything runs.
func WithStdin(r io.Reader) ExecOption {
	return execOption(func(c *execConfig) { c.stdin, c.hasStdin = r, true })
}

// WithOpenStdin lets [Command.Write] write to the command's stdin, until
// [Command.CloseStdin]. A terminal's is always open.
func WithOpenStdin() CommandOption {
	return commandOption(func(c *commandConfig) { c.openStdin = true })
}

// WithPTY runs the command on a terminal of that size, with TERM set. There is
// only one output then, which counts as stdout. An empty command means an
// interactive login shell.
func WithPTY(cols, rows uint16) CommandOption {
	return commandOption(func(c *commandConfig) { c.pty = &wireSize{cols, rows} })
}

// StdoutTo writes stdout to w, byte by byte as it is and without a bound,
// instead of keeping it: the result's is empty. When w fails, the command is
// killed and the call returns w's error, so w can set a bound.
func StdoutTo(w io.Writer) CommandOption {
	return commandOption(func(c *commandConfig) { c.stdoutTo = w })
}

// StderrTo is like [StdoutTo].
func StderrTo(w io.Writer) CommandOption {
	return commandOption(func(c *commandConfig) { c.stderrTo = w })
}
