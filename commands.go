package cubby

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Commands runs programs in a sandbox. They are processes of their own, beside
// the kernels of [Sandbox.RunCode]: they share its files, and no variables.
//
// A command line (Run, Start) is given to `bash -l -c`; an argument vector (Exec,
// StartExec) is started as it is, found along PATH. Nothing at all, on a terminal
// ([WithPTY]), is an interactive login shell.
type Commands struct{ s *Sandbox }

// Commands returns the sandbox's commands.
func (s *Sandbox) Commands() Commands { return Commands{s} }

// CommandResult is what became of a command.
type CommandResult struct {
	// Stdout and Stderr are what it wrote, byte by byte, each cut at
	// [WithMaxOutput]. A terminal's output is all in Stdout.
	Stdout, Stderr string
	// ExitCode is the command's status; -1 if a signal ended it; 124 timed out.
	ExitCode int
	// Status is the same in words, such as "exit status 3" or "signal: killed".
	Status string
	// Duration is the wall time as the client saw it.
	Duration time.Duration
	TimedOut bool
	// Truncated says that output was dropped.
	Truncated bool
}

// CommandInfo is a command that runs. What it says comes from the sandbox.
type CommandInfo struct {
	PID  int
	Tag  string
	Argv []string
	Cwd  string
	Env  map[string]string // what was set for it beside the sandbox's own
}

const (
	service = "/process.Process/"

	// maxCommands bounds a listing.
	maxCommands = 10_000
	// killTimeout bounds the attempt to end a command that nobody follows any
	// more, which has no context.
	killTimeout = 5 * time.Second
	// tagPrefix begins the tags of commands that were given none. The tag is how
	// a command is ended whose number never came.
	tagPrefix = "cubby-"
)

// Run runs a command line and waits for its end. A command that fails is no
// error: its status is in the result, as it is with a command that timed out.
//
// An error means that there is no such result: the command could not be started
// ([CodeInvalidArgument], [CodeUnauthenticated] for a user who is not there),
// ctx was cancelled ([CodeCanceled], [CodeTimeout]; the command is killed), or
// the sandbox or the way to it is gone ([CodeSandboxGone], [CodePaused]). The
// result then holds what arrived before, and is nil only if the command did not
// start.
func (c Commands) Run(ctx context.Context, line string, opts ...CommandOption) (*CommandResult, error) {
	return c.run(ctx, shell(line), opts)
}

// Exec is [Commands.Run] for an argument vector.
func (c Commands) Exec(ctx context.Context, argv []string, opts ...CommandOption) (*CommandResult, error) {
	return c.run(ctx, argv, opts)
}

// Start starts a command line and follows it. The end of ctx does not end the
// command, but lets go of it, as [Command.Detach] does; ending it is
// [Command.Kill]'s. A goroutine takes the command's output until one of these,
// or its end. The error is as of [Commands.Run]; no command runs then, as far
// as the sandbox can be told.
func (c Commands) Start(ctx context.Context, line string, opts ...CommandOption) (*Command, error) {
	return c.start(ctx, "start command", shell(line), opts)
}

// StartExec is [Commands.Start] for an argument vector.
func (c Commands) StartExec(ctx context.Context, argv []string, opts ...CommandOption) (*Command, error) {
	return c.start(ctx, "start command", argv, opts)
}

// Connect follows a command that runs already, like [Commands.Start]: what it
// says from now on. It takes the options about output, and [WithPTY], which says
// that the command is on a terminal and resizes that; those of a start are refused
// with [CodeInvalidArgument]. It fails with [CodeNotFound] when there is no such command; a Cubby server knows the status
// of one for half a minute after its end.
func (c Commands) Connect(ctx context.Context, pid int, opts ...CommandOption) (*Command, error) {
	if pid <= 0 || int64(pid) > 1<<32-1 {
		return nil, fail("connect to command", CodeInvalidArgument, errBadPID)
	}
	return c.connect(ctx, wireSelector{PID: uint32(pid)}, opts)
}

// ConnectTag is [Commands.Connect] by the tag of [WithTag].
func (c Commands) ConnectTag(ctx context.Context, tag string, opts ...CommandOption) (*Command, error) {
	if tag == "" {
		return nil, fail("connect to command", CodeInvalidArgument, errors.New("the tag is empty"))
	}
	return c.connect(ctx, wireSelector{Tag: tag}, opts)
}

// List lists the commands that run, those of other clients included.
func (c Commands) List(ctx context.Context) ([]CommandInfo, error) {
	const op = "list commands"
	var answer wireProcesses
	if err := c.call(ctx, "List", struct{}{}, &answer); err != nil {
		return nil, c.fail(ctx, op, err)
	}
	if len(answer.Processes) > maxCommands {
		return nil, fail(op, CodeInternal, fmt.Errorf("there are more than %d commands", maxCommands))
	}
	out := make([]CommandInfo, len(answer.Processes))
	for i, p := range answer.Processes {
		argv := append([]string{p.Config.Cmd}, p.Config.Args...)
		out[i] = CommandInfo{PID: int(p.PID), Tag: p.Tag, Argv: argv, Cwd: p.Config.Cwd, Env: p.Config.Envs}
	}
	return out, nil
}

// Kill ends a command by its process id; see [Command.Kill].
func (c Commands) Kill(ctx context.Context, pid int) error {
	if pid <= 0 || int64(pid) > 1<<32-1 {
		return fail("kill command", CodeInvalidArgument, errBadPID)
	}
	return c.kill(ctx, wireSelector{PID: uint32(pid)})
}

var errBadPID = errors.New("a process id is a number from 1 on")

// shell is how a command line is started.
func shell(line string) []string {
	if line == "" {
		return nil
	}
	return []string{"/bin/bash", "-l", "-c", line}
}

const (
	opRun  = "run command"
	opWait = "wait for command"
)

func (c Commands) run(ctx context.Context, argv []string, opts []CommandOption) (*CommandResult, error) {
	// A Cubby server ends the command when the call breaks off, even if this
	// program dies. Others must be told, if that is still possible.
	cmd, err := c.start(ctx, opRun, argv, opts, protocol.HeaderAttached, "1")
	if err != nil {
		return nil, err
	}
	<-cmd.done
	code := CodeOf(cmd.err)
	if cmd.err != nil && code != CodeSandboxGone && code != CodePaused && !cmd.broke.Load() {
		cmd.abandon()
	}
	return cmd.result, cmd.err
}

func configure(opts []CommandOption) (*commandConfig, error) {
	cfg := &commandConfig{execConfig: execConfig{maxOutput: DefaultMaxOutput}}
	for _, o := range opts {
		o.applyCommand(cfg)
	}
	if strings.Contains(cfg.user, ":") {
		return nil, errors.New("a user's name holds no colon")
	}
	if cfg.stdin != nil && cfg.openStdin {
		return nil, errors.New("WithStdin and WithOpenStdin exclude each other")
	}
	if cfg.stdin != nil && cfg.pty != nil {
		return nil, errors.New("WithStdin and WithPTY exclude each other: a terminal's input has no end")
	}
	return cfg, cfg.check()
}

// checkConnect refuses what only the start of a command can be told.
func (c *commandConfig) checkConnect() error {
	for option, given := range map[string]bool{
		"WithEnv": len(c.env) > 0, "WithTimeout": c.timeout != 0, "WithCwd": c.cwd != "", "WithUser": c.user != "", "WithTag": c.tag != "",
		"WithStdin": c.stdin != nil, "WithOpenStdin": c.openStdin,
	} {
		if given {
			return fmt.Errorf("%s is for a command that is started: this one runs already", option)
		}
	}
	return nil
}

func (c Commands) start(ctx context.Context, op string, argv []string, opts []CommandOption, header ...string) (*Command, error) {
	cfg, err := configure(opts)
	switch {
	case err != nil:
	case len(argv) == 0 && cfg.pty != nil:
		argv = []string{"/bin/bash", "-i", "-l"}
	case len(argv) == 0 || argv[0] == "":
		err = errors.New("the command is empty")
	}
	if err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	tag := cfg.tag
	if tag == "" {
		tag = tagPrefix + rand.Text()
	}
	req := wireStart{
		Process: wireConfig{Cmd: argv[0], Args: argv[1:], Envs: cfg.env, Cwd: cfg.cwd}, Tag: tag,
		Stdin: cfg.stdin != nil || cfg.openStdin,
	}
	if cfg.pty != nil {
		req.PTY = &wirePTY{*cfg.pty}
	}
	// Whoever waits must not outwait a sandbox that ignores the command's timeout.
	callCtx, stop := ctx, context.CancelFunc(func() {})
	if cfg.timeout > 0 {
		header = append(header, "Connect-Timeout-Ms", milliseconds(cfg.timeout))
		callCtx, stop = context.WithTimeoutCause(ctx, cfg.timeout+timeoutGrace,
			fmt.Errorf("no end of the command %v after its timeout: %w", timeoutGrace, context.DeadlineExceeded))
	}
	cmd := newCommand(c.s, opWait, cfg, wireSelector{Tag: tag}, stop)
	if op == opRun {
		cmd.op = op
	}
	if err := cmd.open(callCtx, "Start", req, header...); err != nil {
		if ctx.Err() != nil {
			cmd.abandon() // it may have been started nevertheless
		}
		return nil, c.fail(ctx, op, err)
	}
	return cmd, nil
}

func (c Commands) connect(ctx context.Context, sel wireSelector, opts []CommandOption) (*Command, error) {
	const op = "connect to command"
	cfg, err := configure(opts)
	if err == nil {
		err = cfg.checkConnect()
	}
	if err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	cmd := newCommand(c.s, opWait, cfg, sel, func() {})
	if err := cmd.open(ctx, "Connect", wireSelect{Process: sel}); err != nil {
		return nil, c.fail(ctx, op, err)
	}
	if cfg.pty != nil {
		if err := cmd.Resize(ctx, cfg.pty.Cols, cfg.pty.Rows); err != nil {
			cmd.Detach()
			return nil, err
		}
	}
	return cmd, nil
}

// kill ends a command; one that has ended is no error.
func (c Commands) kill(ctx context.Context, sel wireSelector) error {
	err := c.signal(ctx, sel, SignalKill)
	if err != nil && CodeOf(err) != CodeNotFound {
		return c.fail(ctx, "kill command", err)
	}
	return nil
}

func (c Commands) signal(ctx context.Context, sel wireSelector, sig Signal) error {
	return c.call(ctx, "SendSignal", wireSelect{Process: sel, Signal: string(sig)}, nil, protocol.HeaderSignalGroup, "1")
}

// call is a unary call of the process service.
func (c Commands) call(ctx context.Context, method string, in, out any, header ...string) error {
	err := rpc{s: c.s}.call(ctx, service+method, in, out, header...)
	return recoded(err, CodeNoSpace, CodeRateLimited) // it has run out of something, but not of disk
}

func (c Commands) fail(ctx context.Context, op string, err error) error {
	if code := CodeOf(err); (code == CodeSandboxGone || code == CodeUnavailable) && ctx.Err() == nil {
		err = c.s.diagnose(ctx, err)
	}
	return fail(op, CodeUnavailable, err)
}
