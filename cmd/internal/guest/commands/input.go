//go:build linux

package commands

import (
	"context"
	"errors"
	"os"
	"time"
)

var errInputClosed = errors.New("the standard input is not enabled, or closed")

// input is where a command is written to: the end of a pipe, or a terminal.
type input struct {
	f   *os.File
	sem chan struct{} // held while somebody writes
}

func newInput(f *os.File) *input { return &input{f: f, sem: make(chan struct{}, 1)} }

// write writes all of b, or as much as the command takes until ctx is done. Calls
// wait for each other.
func (i *input) write(ctx context.Context, b []byte) error {
	if err := i.take(ctx); err != nil {
		return err
	}
	defer i.give()
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(late)
		_ = i.f.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err := i.f.Write(b)
	if !stop() {
		<-late
		_ = i.f.SetWriteDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, os.ErrClosed):
		return errInputClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	}
	return err
}

// close ends the input after what is being written; twice does nothing.
func (i *input) close(ctx context.Context) error {
	if err := i.take(ctx); err != nil {
		return err
	}
	defer i.give()
	if err := i.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (i *input) take(ctx context.Context) error {
	select {
	case i.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *input) give() { <-i.sem }
