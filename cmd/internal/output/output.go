// Package output keeps what a command prints from being lost in silence, which
// would look like a success: full disks, closed streams and readers that have gone
// become messages and exit statuses.
package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// Exit statuses of a command whose output did not arrive.
const (
	// StatusLost is that of a command that did its work, but lost something that it
	// printed or made. The number is Python's.
	StatusLost = 120
	// StatusBrokenPipe is a shell's for a program that SIGPIPE has ended.
	StatusBrokenPipe = 128 + int(syscall.SIGPIPE)
)

// Exit ends a command with an exit status, silently: what there was to say has been
// said.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Stream is a standard stream that remembers that something could not be written,
// whoever wrote it. Its methods may be called at the same time.
type Stream struct {
	name string
	w    io.Writer

	mu   sync.Mutex // guards the rest
	err  error
	lost []func(error)
}

// New returns a stream that writes to w; name is for messages.
func New(name string, w io.Writer) *Stream { return &Stream{name: name, w: w} }

// Error is what the writes of a Stream fail with, from the first failure on.
type Error struct {
	Stream string // its name
	Err    error  // without the path that Go gives to standard streams
}

func (e *Error) Error() string { return e.Stream + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// OnLoss has f called with an *Error when the first write fails, beside what is
// called already. f must not write to s.
func (s *Stream) OnLoss(f func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, f)
}

// Tell returns a func for OnLoss that says on w what was lost. Of a reader that has
// gone it says nothing: that reader has what it wants.
func Tell(w io.Writer, program string) func(error) {
	return func(err error) {
		if !BrokenPipe(err) {
			fmt.Fprintf(w, "%s: %v: the rest of it is lost\n", program, err)
		}
	}
}

// Failure is the *Error of the first write that failed, nil without one.
func (s *Stream) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Write writes p, unless a write has failed before.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	if err == nil {
		return n, nil
	}
	// The path only says /dev/stdout.
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err
	}
	s.err = &Error{s.name, err}
	for _, f := range s.lost {
		f(s.err)
	}
	return n, s.err
}

// Unwrap is the writer below, for who deals with its failures himself.
func (s *Stream) Unwrap() io.Writer { return s.w }

// Fd makes a stream a terminal where what it wraps is one.
func (s *Stream) Fd() uintptr {
	if f, ok := s.w.(terminal.File); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// Status is the exit status of a command that would end with code and has written
// to streams.
func Status(code int, streams ...*Stream) int {
	for _, s := range streams {
		switch err := s.Failure(); {
		case BrokenPipe(err):
			return StatusBrokenPipe
		case err != nil && code == 0:
			code = StatusLost
		}
	}
	return code
}

// BrokenPipe reports the failure of a stream whose reader has gone, which is no
// failure to tell but an end.
func BrokenPipe(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && errors.Is(e.Err, syscall.EPIPE)
}

// CatchPipe makes writes to a pipe without a reader fail instead of ending the
// process at once, until release is called: what it has started must end first.
func CatchPipe() (release func()) {
	// Caught, not ignored: what is ignored stays so in the processes it starts.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
}

// DieOfPipe ends the process as cat ends whose reader has gone. It returns where
// that cannot be.
func DieOfPipe() {
	signal.Reset(syscall.SIGPIPE)
	// Go's own writer to 1 and 2 raises the signal.
	_, _ = os.Stdout.Write([]byte{0})
	_, _ = os.Stderr.Write([]byte{0})
}
