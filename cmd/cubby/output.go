package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cubby-sandbox/cubby/internal/terminal"
)

// output is one of the standard streams. It remembers that something could not be
// written, so that every command tells it, whoever wrote: what is lost in silence
// looks like a success.
type output struct {
	name string // for messages
	w    io.Writer
	told io.Writer // where to say so; nil where nothing can be said

	mu   sync.Mutex // guards the rest
	err  error
	lost func(error) // called when the first write fails; may be nil
}

// outputError is what the writes of an output fail with, from the first failure
// on. It has been told by then.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

// onLoss has f called when the first write fails. f must not write to o.
func (o *output) onLoss(f func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost = f
}

// failure is what the first write that failed did, nil without one.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if err != nil {
		// The path of the error only says /dev/stdout.
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		o.err = outputError{fmt.Errorf("%s: %w", o.name, err)}
		if o.told != nil && !errors.Is(err, syscall.EPIPE) {
			fmt.Fprintf(o.told, "cubby: %v: the rest of it is lost\n", o.err)
		}
		if o.lost != nil {
			o.lost(o.err)
		}
		return n, o.err
	}
	return n, nil
}

// Fd makes an output a terminal where what it wraps is one.
func (o *output) Fd() uintptr {
	if f, ok := o.w.(terminal.File); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// brokenPipe reports an output whose reader has gone, which is no failure to tell
// but an end: the reader has what it wants.
func brokenPipe(err error) bool {
	_, ok := errors.AsType[outputError](err)
	return ok && errors.Is(err, syscall.EPIPE)
}

// catchPipe makes writes to a pipe without a reader fail instead of ending the
// process at once, until release is called: what it has started must end first.
func catchPipe() (release func()) {
	// Caught, not ignored: what is ignored stays so in the processes it starts.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	return func() { signal.Stop(signals) }
}

// dieOfPipe ends the process as cat ends whose reader has gone. It returns where
// that cannot be.
func dieOfPipe() {
	signal.Reset(syscall.SIGPIPE)
	// Go's own writer to 1 and 2 raises the signal.
	_, _ = os.Stdout.Write([]byte{0})
	_, _ = os.Stderr.Write([]byte{0})
}
