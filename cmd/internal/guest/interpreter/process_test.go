//go:build linux

package interpreter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// deafClient is an answer that can be sent to nobody.
type deafClient struct {
	*httptest.ResponseRecorder
	flushed chan struct{}
}

func (d deafClient) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func (d deafClient) FlushError() error {
	select {
	case d.flushed <- struct{}{}:
	default:
	}
	return syscall.EPIPE
}

// leavingClient leaves when it gets a line.
type leavingClient struct {
	*httptest.ResponseRecorder
	leave func()
	over  atomic.Bool // the handler has returned
	late  atomic.Int32
}

func (l *leavingClient) Write(b []byte) (int, error) {
	l.leave()
	return len(b), nil
}

func (l *leavingClient) FlushError() error {
	if l.over.Load() {
		l.late.Add(1)
	}
	return nil
}

// TestNothingIsFlushedLate has clients leave the queue at a sign of life: what was
// to be flushed then is not, once the response belongs to the server again.
func TestNothingIsFlushedLate(t *testing.T) {
	defer func(d time.Duration) { keepaliveTime = d }(keepaliveTime)
	keepaliveTime = time.Millisecond
	b := newBox(t)
	c := b.g.byDefault(settings.Python)
	c.turn <- struct{}{}
	defer c.give()
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		client := &leavingClient{ResponseRecorder: httptest.NewRecorder(), leave: leave}
		b.g.Handler().ServeHTTP(client, httptest.NewRequestWithContext(ctx, http.MethodPost, "/execute", strings.NewReader(`{"code": "1"}`)))
		client.over.Store(true)
		time.Sleep(3 * flushDelay) // nothing tells that nothing happens
		if client.late.Load() > 0 {
			t.Fatal("flushed after the handler's return")
		}
	}
}

// TestClientThatLeavesTheQueue has a client leave while its call waits for a
// context whose turn comes before the server knows.
func TestClientThatLeavesTheQueue(t *testing.T) {
	b := newBox(t, func(c *settings.Config) { delete(c.Interpreters, settings.Python) })
	c := b.g.byDefault(settings.Python)
	c.turn <- struct{}{}
	client := deafClient{httptest.NewRecorder(), make(chan struct{}, 1)}
	over := make(chan any)
	go func() {
		defer func() { over <- recover() }()
		b.g.Handler().ServeHTTP(client, httptest.NewRequest(http.MethodPost, "/execute", strings.NewReader(`{"code": "1"}`)))
	}()
	<-client.flushed // it is in the queue
	c.give()
	select {
	case trouble := <-over:
		if trouble != nil {
			t.Fatal(trouble)
		}
	case <-time.After(time.Minute):
		t.Fatal("the call does not end")
	}
}
