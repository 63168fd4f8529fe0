package agentcmd

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The first Ctrl-C ends the answer, the second the program; a signal to end ends
// it at once.
func TestSignals(t *testing.T) {
	ctx, s := watch(t.Context())
	defer s.stop()
	err, interrupted := s.during(ctx, func(inner context.Context) error {
		s.take(os.Interrupt)
		<-inner.Done()
		return inner.Err()
	})
	if !errors.Is(err, context.Canceled) || !interrupted || ctx.Err() != nil {
		t.Errorf("%v, %v, %v", err, interrupted, ctx.Err())
	}
	if err, interrupted := s.during(ctx, func(context.Context) error { return nil }); err != nil || interrupted {
		t.Errorf("%v, %v", err, interrupted)
	}
	_, _ = s.during(ctx, func(inner context.Context) error {
		s.take(os.Interrupt)
		s.take(os.Interrupt)
		return inner.Err()
	})
	if ctx.Err() == nil {
		t.Error("the second Ctrl-C does not leave")
	}
	ctx, s = watch(t.Context())
	defer s.stop()
	_, _ = s.during(ctx, func(context.Context) error { s.take(syscall.SIGTERM); return nil })
	if ctx.Err() == nil {
		t.Error("SIGTERM does not leave")
	}
}

// A line that was not waited for long enough is the next one's.
func TestLines(t *testing.T) {
	r, w := io.Pipe()
	l := readLines(r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() {
		_, _ = io.WriteString(w, "one\ntwo\nlast")
		w.Close()
	}()
	var got []string
	for {
		text, err := l.next(t.Context())
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
		got = append(got, strings.TrimSpace(text))
	}
	if strings.Join(got, " ") != "one two last" {
		t.Errorf("%q", got)
	}
	if _, err := l.next(t.Context()); err != io.EOF {
		t.Error(err)
	}
}
