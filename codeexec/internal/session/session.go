package session

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// ExitTimedOut is the exit code of a program that was ended at its timeout.
const ExitTimedOut = 124

// killTime is how long Kill waits for the end of a program that it has killed.
const killTime = 15 * time.Second

// Process is a running program with all that it has started. Its methods are safe for
// concurrent use.
type Process interface {
	// Write sends it input.
	Write(p []byte) (int, error)
	// Terminate asks it to end.
	Terminate() error
	// Kill ends it.
	Kill() error
	// Wait returns when it has ended and all its output was written: the exit
	// code, -1 after a signal. It is called once.
	Wait() (exitCode int, err error)
}

// Output takes a program's output. It keeps the last lines of both streams together in
// Lines, and the first bytes of each stream by itself.
type Output struct {
	Lines          Lines
	quiet          bool // nothing goes into Lines
	stdout, stderr *Head
}

// NewOutput keeps at most that many bytes of each stream.
func NewOutput(most int) *Output { return &Output{stdout: NewHead(most), stderr: NewHead(most)} }

// NewQuietOutput is NewOutput for a program that nobody polls: it keeps no
// Lines.
func NewQuietOutput(most int) *Output {
	o := NewOutput(most)
	o.quiet = true
	return o
}

// Stdout takes the standard output.
func (o *Output) Stdout() io.Writer { return o.to(o.stdout) }

// Stderr takes the standard error output.
func (o *Output) Stderr() io.Writer { return o.to(o.stderr) }

func (o *Output) to(h *Head) io.Writer {
	if o.quiet {
		return h
	}
	return io.MultiWriter(h, &o.Lines)
}

// Heads returns the beginnings of both streams.
func (o *Output) Heads() [2]string {
	out, _ := o.stdout.Text()
	err, _ := o.stderr.Text()
	return [2]string{out, err}
}

// Session implements [codeexec.ProgramSession].
type Session struct {
	id      string
	process Process
	out     *Output
	began   time.Time
	done    chan struct{} // closed when result and err are set
	result  codeexec.RunResult
	err     error
	stop    context.CancelFunc // stops the timer of the timeout
	onEnd   func()

	mu       sync.Mutex
	timedOut bool
}

var _ codeexec.ProgramSession = (*Session)(nil)

// Start follows a process that was started with out's writers, and ends it after
// timeout, if that is not 0. When it has ended, onEnd (which may be nil) is
// called.
func Start(id string, p Process, out *Output, timeout time.Duration, onEnd func()) *Session {
	s := &Session{id: id, process: p, out: out, began: time.Now(), done: make(chan struct{}), onEnd: onEnd}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if timeout > 0 {
		go func() {
			timer := time.NewTimer(timeout)
			defer timer.Stop()
			select {
			case <-ctx.Done():
			case <-timer.C:
				s.mu.Lock()
				s.timedOut = true
				s.mu.Unlock()
				_ = s.process.Kill() // Wait tells what matters
			}
		}()
	}
	go s.follow()
	return s
}

func (s *Session) follow() {
	code, err := s.process.Wait()
	s.stop()
	s.out.Lines.Close()
	s.mu.Lock()
	timedOut := s.timedOut
	s.mu.Unlock()
	var cut1, cut2 bool
	r := codeexec.RunResult{ExitCode: code, Duration: time.Since(s.began), TimedOut: timedOut}
	r.Stdout, cut1 = s.out.stdout.Text()
	r.Stderr, cut2 = s.out.stderr.Text()
	r.Truncated = cut1 || cut2
	if timedOut {
		r.ExitCode, err = ExitTimedOut, nil
	}
	s.result, s.err = r, err
	close(s.done)
	if s.onEnd != nil {
		s.onEnd()
	}
}

// ID implements [codeexec.ProgramSession].
func (s *Session) ID() string { return s.id }

func (s *Session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Poll implements [codeexec.ProgramSession].
func (s *Session) Poll(limit *int) codeexec.ProgramPoll {
	n := -1
	if limit != nil {
		n = max(*limit, 0)
	}
	ended := s.ended() // before the output is taken: then that is all of it
	text, offset, next := s.out.Lines.Next(n)
	p := codeexec.ProgramPoll{Status: codeexec.StatusRunning, Output: text, Offset: offset, NextOffset: next}
	if ended {
		p.Status = codeexec.StatusExited
		p.ExitCode = new(s.result.ExitCode)
	}
	return p
}

// Log implements [codeexec.ProgramSession].
func (s *Session) Log(offset, limit *int) codeexec.ProgramLog {
	from, n := 0, -1
	if offset != nil {
		from = max(*offset, 0)
	}
	if limit != nil {
		n = max(*limit, 0)
	}
	text, at, next := s.out.Lines.From(from, n)
	return codeexec.ProgramLog{Output: text, Offset: at, NextOffset: next}
}

// Write implements [codeexec.ProgramSession].
func (s *Session) Write(data string, newline bool) error {
	const op = "write to program"
	if s.ended() {
		return &cubby.Error{Op: op, Code: cubby.CodeConflict, Err: errors.New("the program has ended")}
	}
	if newline {
		data += "\n"
	}
	if data == "" {
		return nil
	}
	_, err := s.process.Write([]byte(data))
	if err != nil && s.ended() {
		return &cubby.Error{Op: op, Code: cubby.CodeConflict, Err: errors.New("the program has ended")}
	}
	return execerr.Wrap(op, cubby.CodeUnavailable, err)
}

// Kill implements [codeexec.ProgramSession]. It returns when the program has
// ended.
func (s *Session) Kill(grace time.Duration) error {
	const op = "kill program"
	if s.ended() {
		return nil
	}
	if grace > 0 {
		if err := s.process.Terminate(); err == nil {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-s.done:
				return nil
			case <-timer.C:
			}
		}
	}
	err := s.process.Kill()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-s.done:
		return nil
	case <-timer.C:
		return execerr.Wrap(op, cubby.CodeTimeout, errors.Join(errors.New("the program has been killed and does not end"), err))
	}
}

// Wait implements [codeexec.ProgramSession].
func (s *Session) Wait(ctx context.Context) (codeexec.RunResult, error) {
	select {
	case <-s.done:
		return s.result, execerr.Wrap("wait for program", cubby.CodeUnavailable, s.err)
	case <-ctx.Done():
		return codeexec.RunResult{ExitCode: -1}, execerr.Wrap("wait for program", cubby.CodeCanceled, context.Cause(ctx))
	}
}

// WaitOrKill is Wait, but it ends the program when ctx is done. The error is
// ctx's then, and the result what was known of the program in the end.
func (s *Session) WaitOrKill(ctx context.Context) (codeexec.RunResult, error) {
	res, err := s.Wait(ctx)
	if ctx.Err() != nil && err != nil && s.Kill(0) == nil {
		if ended, gone := s.Wait(context.WithoutCancel(ctx)); gone == nil {
			res = ended
		}
	}
	return res, err
}

// Close implements [codeexec.ProgramSession].
func (s *Session) Close() error { return s.Kill(0) }
