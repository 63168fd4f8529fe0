package cubby

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// DefaultMaxOutput bounds stdout and stderr of one execution or command each, in
// bytes, unless [WithMaxOutput] says otherwise.
const DefaultMaxOutput = 10 << 20

const (
	// timeoutGrace is how long after the execution's own time the client still
	// waits for the sandbox to say so. The guest itself needs two seconds to kill
	// code that ignores its interrupt.
	timeoutGrace = 10 * time.Second
	// diagnoseTimeout bounds the question why a sandbox has gone.
	diagnoseTimeout = 5 * time.Second
	// noticeTimeout bounds how long a server is asked again about a sandbox that
	// seems to run although a stream from it broke off, with noticeDelay between
	// the first two times.
	noticeTimeout = time.Second
	noticeDelay   = 20 * time.Millisecond
)

// Execution is what became of one piece of code.
type Execution struct {
	// Stdout and Stderr are what the code printed, each cut at [WithMaxOutput].
	Stdout, Stderr string
	// Results are what the code showed, in order. At most 256 MiB are kept.
	Results []Result
	// Error is the code's uncaught error, nil without one.
	Error *ExecutionError
	// ExitCode is 0, the status of a Bash cell, sys.exit or process.exit; 1 after
	// an uncaught error; 124 timed out; 137 out of memory.
	ExitCode int
	// Duration is the wall time inside the sandbox.
	Duration time.Duration
	// TimedOut says that the time of [WithTimeout] was over.
	TimedOut bool
	// OOMKilled says that the sandbox's memory was exhausted.
	OOMKilled bool
	// Truncated says that output or results were dropped.
	Truncated bool
	// Interrupted says that the code was stopped from outside.
	Interrupted bool
	// Limit names the bound that was hit: "time", "memory", "output" or "".
	Limit string
	// StateLost says that the kernel ended with its variables; the next call gets
	// a fresh one.
	StateLost bool
	// FreshKernel says that this call began in a kernel that replaced a dead one.
	FreshKernel bool
	// Count numbers the executions of one kernel, from 1.
	Count int
	// Refused is what the sandbox's network refused while the code ran, where the code or
	// a command of a Python cell (!pip) failed: at most ten, those of whatever else ran
	// there included. Servers other than Cubby's do not tell.
	Refused []Refusal
}

// Text returns the text of the last expression's value, or "".
func (e *Execution) Text() string {
	for _, r := range e.Results {
		if r.IsMain {
			return r.Text
		}
	}
	return ""
}

type callbacks struct {
	stdout, stderr func(text string)
	result         func(Result)
	error          func(ExecutionError)
}

// check refuses what no server could make sense of.
func (c *execConfig) check() error {
	c.timeout = min(c.timeout, maxTimeout)
	switch {
	case c.timeout < 0:
		return errors.New("the timeout is negative")
	case c.maxOutput < 0:
		return errors.New("the output limit is negative")
	}
	return nil
}

// milliseconds is d in whole ones, rounded up: 0 would mean no bound.
func milliseconds(d time.Duration) string {
	n := d.Milliseconds()
	if d%time.Millisecond > 0 {
		n++
	}
	return strconv.FormatInt(n, 10)
}

// RunCode runs code and waits for its end. Variables, imports and the working
// directory last from call to call.
//
// An error means that the code's fate is unknown: ctx was cancelled
// ([CodeCanceled], [CodeTimeout]; the code is interrupted), the sandbox or the
// way to it is gone ([CodeSandboxGone]), or it was paused ([CodePaused]): then the code
// stands still, and goes on when the sandbox is resumed with its memory, but what it
// says from then on reaches nobody. The Execution then holds what arrived before and is
// nil only if nothing could.
func (s *Sandbox) RunCode(ctx context.Context, code string, opts ...RunOption) (*Execution, error) {
	const op = "run code"
	cfg := runConfig{execConfig: execConfig{maxOutput: DefaultMaxOutput}}
	for _, o := range opts {
		o.applyRun(&cfg)
	}
	cfg.request.Code, cfg.request.EnvVars = code, cfg.env
	if err := cfg.check(); err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	if cfg.request.ContextID != "" && cfg.request.Language != "" {
		return nil, fail(op, CodeInvalidArgument, errors.New("a context and a language exclude each other"))
	}
	// The caller's goroutine must not outwait a sandbox that ignores its own
	// timeout; and every return must end the request, which is what interrupts
	// the code.
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.timeout > 0 {
		var stop context.CancelFunc
		runCtx, stop = context.WithTimeoutCause(runCtx, cfg.timeout+timeoutGrace,
			fmt.Errorf("no end of the execution %v after its timeout: %w", timeoutGrace, context.DeadlineExceeded))
		defer stop()
	}
	if cfg.hasStdin || cfg.request.Program != nil {
		if err := s.takesPrograms(runCtx); err != nil {
			return nil, fail(op, CodeUnavailable, err)
		}
	}
	if cfg.hasStdin {
		cfg.request.Stdin = &protocol.Stdin{}
		if cfg.stdin != nil {
			cfg.request.Stdin.ID = rand.Text()
		}
	}
	req, err := s.request(runCtx, http.MethodPost, protocol.CodeInterpreterPort, "/execute", nil, &cfg.request)
	if err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	if cfg.timeout > 0 {
		req.Header.Set(protocol.HeaderTimeoutMS, milliseconds(cfg.timeout))
	}
	req.Header.Set(protocol.HeaderMaxOutput, strconv.FormatInt(cfg.maxOutput, 10))
	if cfg.drain {
		req.Header.Set(protocol.HeaderDrain, "1")
	}
	began := time.Now()
	resp, err := s.client.send(req)
	if err != nil {
		if ctx.Err() == nil {
			err = s.diagnose(ctx, err)
		}
		return nil, fail(op, CodeUnavailable, err)
	}
	defer resp.Body.Close()
	if cfg.request.Stdin != nil && cfg.request.Stdin.ID != "" {
		f := s.feed(runCtx, cancel, cfg.request.Stdin.ID, cfg.stdin)
		defer f.stop()
	}

	rd := newEventReader(resp.Body, cfg.maxOutput, callbacks{cfg.stdout, cfg.stderr, cfg.result, cfg.error}, s.client.log)
	err = rd.run()
	ex := rd.execution()
	if err == nil {
		if ex.Error != nil || ex.ExitCode != 0 || rd.commandFailed {
			ex.Refused = s.refusals(ctx, time.Since(began))
		}
		return ex, nil
	}
	if cause := context.Cause(runCtx); cause != nil {
		return ex, fail(op, CodeCanceled, cause)
	}
	return ex, fail(op, CodeSandboxGone, s.diagnose(ctx, err))
}

// diagnose asks the control plane why a sandbox does not answer, if that is what
// err may mean, and returns an *Error that tells.
func (s *Sandbox) diagnose(ctx context.Context, err error) error {
	e, ok := errors.AsType[*Error](err)
	if ok && e.Code != CodeSandboxGone && e.Code != CodeUnavailable {
		return err
	}
	if ok {
		known := *e
		e = &known
	} else {
		e = &Error{Code: CodeSandboxGone, Err: err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnoseTimeout)
	defer cancel()
	info, why := s.Info(ctx)
	// A stream that broke off may be the first sign of a sandbox's end, which the
	// server is about to notice itself.
	for wait := noticeDelay; !ok && why == nil && info.State == StateRunning && wait < noticeTimeout; wait *= 2 {
		time.Sleep(wait)
		info, why = s.Info(ctx)
	}
	if d, ok := errors.AsType[*Error](why); ok && d.Code == CodeNotFound {
		e.Code = CodeSandboxGone
		e.Err = fmt.Errorf("the sandbox has ended: %w", d.Err)
		e.Hint = cmp.Or(d.Hint, "its variables and files are lost: make another one")
	}
	if d, unreachable := errors.AsType[*Error](why); unreachable && !ok && d.Code == CodeUnavailable {
		// That the server is gone, too, says more than that the stream is.
		e.Code, e.Err, e.Hint = d.Code, fmt.Errorf("the connection broke off (%w), and the server does not answer: %w", err, d.Err), d.Hint
	}
	if why == nil && info.State == StatePaused {
		return errPaused()
	}
	return e
}
