package cubby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Command is a command that was started or connected to. Its methods are safe
// for concurrent use.
type Command struct {
	s       *Sandbox
	op      string       // of err
	sel     wireSelector // by number as soon as it is known
	pid     atomic.Uint32
	cfg     *commandConfig
	release func() // of the timeout
	st      *stream
	began   time.Time

	stdout, stderr sink
	terminal       bool
	writing        chan struct{} // held while a Write is under way
	broke          atomic.Bool   // the caller's reader or writer has failed

	done   chan struct{} // closed when result and err are set
	result *CommandResult
	err    error
}

// Signal is a signal that a command can be sent: E2B's protocol has these two.
type Signal string

// The signals.
const (
	SignalTerm Signal = "SIGNAL_SIGTERM"
	SignalKill Signal = "SIGNAL_SIGKILL"
)

// maxInput is how much of its input a command is sent at a time, in bytes.
const maxInput = 512 << 10

// errDetached is why a command's end is not known to who let go of it.
var errDetached = fmt.Errorf("let go of the command, which may still run: %w", context.Canceled)

func newCommand(s *Sandbox, op string, cfg *commandConfig, sel wireSelector, release func()) *Command {
	c := &Command{
		s: s, op: op, sel: sel, cfg: cfg, release: release, began: time.Now(), done: make(chan struct{}),
		terminal: cfg.pty != nil, writing: make(chan struct{}, 1),
		stdout: newSink(cfg.maxOutput, cfg.stdoutTo, cfg.stdout), stderr: newSink(cfg.maxOutput, cfg.stderrTo, cfg.execConfig.stderr),
	}
	return c
}

// open makes the call, waits for the command's number, and follows it from then
// on.
func (c *Command) open(ctx context.Context, method string, req any, header ...string) error {
	st, err := rpc{s: c.s, user: c.cfg.user}.open(ctx, service+method, req, CodeRateLimited, header...)
	if err != nil {
		c.release()
		return err
	}
	c.st = st
	for {
		var m wireEvent
		switch err := st.receive(&m); {
		case errors.Is(err, io.EOF):
			err = malformed(errors.New("the call ended before the command began"))
			fallthrough
		case err != nil:
			st.close()
			c.release()
			return err
		}
		if m.Event.Start != nil && m.Event.Start.PID != 0 {
			c.pid.Store(m.Event.Start.PID)
			break
		}
		if m.Event.Data != nil || m.Event.End != nil || m.Event.Start != nil {
			st.close()
			c.release()
			return malformed(errors.New("the command's number is missing"))
		}
	}
	go c.follow()
	if c.cfg.stdin != nil {
		go c.pump()
	}
	return nil
}

// follow reads to the end of the command and is the only one that sets its
// result.
func (c *Command) follow() {
	end, err := c.events()
	c.result = &CommandResult{Duration: time.Since(c.began), ExitCode: -1}
	c.result.Stdout, c.result.Stderr = c.stdout.flush(), c.stderr.flush()
	c.result.Truncated = c.stdout.truncated || c.stderr.truncated
	switch {
	case err == nil:
		c.result.ExitCode, c.result.Status = end.ExitCode, cut(end.Status, 256)
	case c.cfg.timeout > 0 && CodeOf(err) == CodeTimeout && c.st.ctx.Err() == nil:
		// The sandbox's own word: the time of the command is over, not the caller's.
		c.result.TimedOut, c.result.ExitCode, c.result.Status = true, exitTimedOut, "timed out"
	default:
		// With an Op of its own, for Wait may be called by several at once.
		c.err = fail(c.op, CodeUnavailable, err)
		if c.broke.Load() {
			c.abandon()
		}
	}
	close(c.done)
	if c.err == nil {
		c.st.finish()
	} else {
		c.st.close()
	}
	c.release()
}

// exitTimedOut is timeout(1)'s.
const exitTimedOut = 124

// events takes what the command says and returns its end.
func (c *Command) events() (*wireEnd, error) {
	for {
		var m wireEvent
		err := c.st.receive(&m)
		if errors.Is(err, io.EOF) {
			return nil, malformed(errors.New("the call ended before the command did"))
		}
		if err != nil {
			return nil, err
		}
		if d := m.Event.Data; d != nil {
			if err := errors.Join(c.stdout.take(d.Stdout), c.stdout.take(d.PTY), c.stderr.take(d.Stderr)); err != nil {
				c.broke.Store(true)
				return nil, &Error{Code: CodeCanceled, Err: fmt.Errorf("the command's output could not be written: %w", err)}
			}
		}
		if m.Event.End != nil {
			return m.Event.End, nil
		}
	}
}

// pump sends the reader's bytes to the command and then closes its stdin.
func (c *Command) pump() {
	buf := make([]byte, 32<<10)
	for {
		n, err := readSome(c.cfg.stdin, buf)
		if n > 0 && !c.feed(func(ctx context.Context) error { return c.Write(ctx, buf[:n]) }) {
			return
		}
		if n == len(buf) && n < maxInput {
			buf = make([]byte, 2*n) // there is much of it
		}
		switch {
		case errors.Is(err, io.EOF):
			c.feed(c.CloseStdin)
			return
		case err != nil:
			c.giveUp(&Error{Code: CodeInvalidArgument, Err: fmt.Errorf("the command's input could not be read: %w", err)})
			return
		}
	}
}

// feed makes a call about the command's input and says whether there is any point
// in another one.
func (c *Command) feed(call func(context.Context) error) bool {
	err := call(c.st.ctx)
	switch code := CodeOf(err); {
	case err == nil:
		return true
	case code == CodeNotFound, code == CodeInternal, c.st.ctx.Err() != nil:
		// It has ended, or reads no more, or nobody follows it.
	default:
		c.giveUp(err)
	}
	return false
}

// giveUp ends a command that would wait for ever for the rest of its input, or
// take a part of it for the whole.
func (c *Command) giveUp(err error) {
	c.broke.Store(true)
	c.st.cancel(err)
}

// readSome fills buf as far as one wait for r does: what is typed must not wait
// for more.
func readSome(r io.Reader, buf []byte) (n int, err error) {
	for range 100 {
		if n, err = r.Read(buf); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// PID returns the command's process id in the sandbox.
func (c *Command) PID() int { return int(c.pid.Load()) }

// Done returns a channel that is closed when [Command.Wait] would not wait.
func (c *Command) Done() <-chan struct{} { return c.done }

// Wait waits for the command's end. ctx bounds only the waiting. It can be called
// again and by several at once; the answer is the same and shared.
//
// An error means that the end is not known: it is as of [Commands.Run], with
// [CodeCanceled] once the command was let go of.
func (c *Command) Wait(ctx context.Context) (*CommandResult, error) {
	select {
	case <-c.done: // also with a ctx that is over
	default:
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, fail(opWait, CodeCanceled, context.Cause(ctx))
		}
	}
	return c.result, c.err
}

// Detach lets go of the command, which goes on; [Commands.Connect] finds it
// again. What it says in the meantime is lost. Detach waits for nothing and can
// be called again.
func (c *Command) Detach() { c.st.cancel(errDetached) }

// Kill ends the command at once, and on a Cubby server whatever else is in its
// process group; on others, the process alone. A command that has ended is no
// error.
func (c *Command) Kill(ctx context.Context) error {
	return c.s.Commands().kill(ctx, c.selector())
}

// Signal sends the command a signal, in the way of [Command.Kill]. It fails with
// [CodeNotFound] when the command has ended.
func (c *Command) Signal(ctx context.Context, sig Signal) error {
	if err := c.s.Commands().signal(ctx, c.selector(), sig); err != nil {
		return c.s.Commands().fail(ctx, "signal command", err)
	}
	return nil
}

// Write writes b to the command's stdin, or to its terminal, and returns when the
// command has room for all of it. Writes wait for each other. It fails with
// [CodeNotFound] when the command has ended, and with [CodeInternal] when its
// stdin is closed, or was never open ([WithOpenStdin]).
func (c *Command) Write(ctx context.Context, b []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return fail("write to command", CodeCanceled, context.Cause(ctx))
	}
	for len(b) > 0 {
		piece := b[:min(len(b), maxInput)]
		b = b[len(piece):]
		in := wireInput{Stdin: piece}
		if c.terminal {
			in = wireInput{PTY: piece}
		}
		if err := c.s.Commands().call(ctx, "SendInput", wireSelect{Process: c.selector(), Input: &in}, nil); err != nil {
			return c.s.Commands().fail(ctx, "write to command", err)
		}
	}
	return nil
}

// CloseStdin ends the command's stdin. Twice is no error, nor is it for a command
// that has ended. A terminal's input ends with Ctrl+D (0x04) instead.
func (c *Command) CloseStdin(ctx context.Context) error {
	err := c.s.Commands().call(ctx, "CloseStdin", wireSelect{Process: c.selector()}, nil)
	if err != nil && CodeOf(err) != CodeNotFound {
		return c.s.Commands().fail(ctx, "close stdin of command", err)
	}
	return nil
}

// Resize changes the size of the command's terminal.
func (c *Command) Resize(ctx context.Context, cols, rows uint16) error {
	req := wireSelect{Process: c.selector(), PTY: &wirePTY{wireSize{cols, rows}}}
	if err := c.s.Commands().call(ctx, "Update", req, nil); err != nil {
		return c.s.Commands().fail(ctx, "resize terminal", err)
	}
	return nil
}

func (c *Command) selector() wireSelector {
	if pid := c.pid.Load(); pid != 0 {
		return wireSelector{PID: pid}
	}
	return c.sel
}

// abandon ends a command of which nobody will hear any more, as well as can be:
// one that was about to start when the call broke off may need a moment to be
// there.
func (c *Command) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
		time.Sleep(pause)
		err := c.s.Commands().signal(ctx, c.selector(), SignalKill)
		if CodeOf(err) != CodeNotFound || c.pid.Load() != 0 {
			return // done, or nothing that a repetition would change
		}
	}
}

// sink is where one of a command's outputs goes.
type sink struct {
	out       output
	to        io.Writer
	call      func(string)
	cut       string // the beginning of a character, for call
	truncated bool
}

func newSink(limit int64, to io.Writer, call func(string)) sink {
	return sink{out: output{left: limit}, to: to, call: call}
}

func (k *sink) take(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	text := ""
	if k.to != nil {
		if n, err := k.to.Write(b); err != nil {
			return err
		} else if n < len(b) {
			return io.ErrShortWrite
		}
		text = string(b)
	} else {
		var all bool
		if text, all = k.out.keep(string(b)); !all {
			k.truncated = true
		}
	}
	if k.call == nil || text == "" {
		return nil
	}
	whole := k.cut + text
	n := len(whole) - clip.Incomplete(whole)
	k.cut = strings.Clone(whole[n:]) // not all of whole
	if n > 0 {
		k.call(whole[:n])
	}
	return nil
}

// flush hands on a character that never became whole, unless it was the bound
// that cut it, and returns what was kept.
func (k *sink) flush() string {
	text := k.out.text.String()
	if k.truncated {
		return text[:len(text)-clip.Incomplete(text)]
	}
	if len(k.cut) > 0 {
		k.call(k.cut)
	}
	return text
}
