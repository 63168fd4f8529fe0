package embedded

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/internal/supervisor"
)

// transport speaks HTTP to the child. When the child has ended it says so, and
// how, instead of what was seen of that on a connection.
type transport struct {
	http.Transport
	process *supervisor.Child
	socket  string
}

func newTransport(process *supervisor.Child, socket string) *transport {
	t := &transport{process: process, socket: socket}
	t.Transport = http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
	}
	return t
}

func (t *transport) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", t.socket)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(req)
	if err != nil {
		return nil, t.explain(req.Context(), err)
	}
	b := &body{resp.Body, t, req.Context()}
	if w, ok := resp.Body.(io.Writer); ok { // of an upgraded connection
		resp.Body = writableBody{b, w}
	} else {
		resp.Body = b
	}
	return resp, nil
}

const (
	// closeTime is how long a process that ends may take from the first of its
	// sockets to the last.
	closeTime = 50 * time.Millisecond
	// endTimeout bounds how long the child's end is waited for once nobody listens
	// on its socket any more: the system reports that a little later.
	endTimeout = 2 * time.Second
)

// explain returns how the child ended if that is what err comes from, else err.
func (t *transport) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if t.ended(ctx, closeTime) || !t.listens(ctx) && t.ended(ctx, endTimeout) {
		return t.process.Err()
	}
	return err
}

func (t *transport) listens(ctx context.Context) bool {
	conn, err := t.dial(ctx)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// ended waits for the child's end, at most for d.
func (t *transport) ended(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.process.Exited():
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// body is an answer that breaks off when the child ends.
type body struct {
	io.ReadCloser
	transport *transport
	ctx       context.Context // of the request, whose body this is
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.transport.explain(b.ctx, err)
	}
	return n, err
}

type writableBody struct {
	*body
	io.Writer
}
