package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signalError is why a context ended that a signal ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return e.signal.String() }

// onSignal calls cancel at the first signal that asks for an end; the next one has
// its usual effect. A SIGHUP that is ignored (nohup) stays so. stop ends it.
func onSignal(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 1)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if s != syscall.SIGHUP || !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	done := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case s := <-signals:
			signal.Stop(signals)
			cancel(signalError{s.(syscall.Signal)})
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-over
	}
}
