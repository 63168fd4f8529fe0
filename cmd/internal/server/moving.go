package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// allowance is how long a request may wait for a client that sends nothing more of
// its body or reads nothing more of the answer. Each request holds one of the sandbox's
// places: as long as half of them are free, a client may wait as it likes; after that,
// requests that make no progress are ended.
type allowance struct {
	usual time.Duration // for a body to go on; an answer may wait for ever
	short time.Duration // for both, where more than half of the places are taken
}

var defaultAllowance = allowance{usual: 10 * time.Minute, short: 30 * time.Second}

// crowded says that more than half of the sandbox's places are taken.
func (l *liveSandbox) crowded() bool { return l.conns.Load() > maxConns/2 }

// movingBody is a request's body that has to move.
type movingBody struct {
	io.ReadCloser
	rc        *http.ResponseController
	sandbox   *liveSandbox
	allowance allowance

	mu    sync.Mutex
	over  bool      // the connection belongs to the server again
	until time.Time // when the read that is under way, or was the last, is too late; zero for never
}

func (b *movingBody) Read(p []byte) (int, error) {
	wait := b.allowance.usual
	if b.sandbox.crowded() {
		wait = b.allowance.short
	}
	b.deadline(time.Now().Add(wait))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err // the deadline stays, so that nobody waits for the rest
	}
	b.deadline(time.Time{})
	return n, err
}

func (b *movingBody) deadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.until = t
		_ = b.rc.SetReadDeadline(t)
	}
}

// stalled says whether the body has not gone on for too long. Whoever waits for the
// request may learn of it first by its context, which ends with any failed read.
func (b *movingBody) stalled() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero() && !time.Now().Before(b.until)
}

// leave ends what the body does to the connection.
func (b *movingBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// Write and FlushError write to the client, who must take it.
func (a *answer) Write(b []byte) (n int, err error) {
	err = a.moving(func() (err error) { n, err = a.ResponseWriter.Write(b); return err })
	return n, err
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error { return a.moving(a.rc.Flush) }

// moving runs a write, with a deadline where the sandbox's places are scarce.
func (a *answer) moving(write func() error) error {
	if !a.sandbox.crowded() || a.sandbox.ctx.Err() != nil {
		return write()
	}
	_ = a.rc.SetWriteDeadline(time.Now().Add(a.allowance.short))
	err := write()
	_ = a.rc.SetWriteDeadline(time.Time{})
	if a.sandbox.ctx.Err() != nil { // whose end has set one meanwhile
		_ = a.rc.SetWriteDeadline(time.Now().Add(cutAfter))
	}
	return err
}
