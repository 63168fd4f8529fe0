package cubby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// Dial connects to a TCP port of the sandbox, through a tunnel (HTTP's CONNECT)
// of its server. ctx bounds the connecting only. Closing one direction alone is
// not possible: Close ends both. It fails with [CodeSandboxGone] when nothing
// listens there or the sandbox has ended, and with [CodeUnimplemented] on servers
// without tunnels, such as E2B's, where [Sandbox.Transport] still speaks HTTP.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	const op = "dial port"
	if port < 1 || port > 65535 {
		return nil, fail(op, CodeInvalidArgument, errors.New("a port is a number from 1 to 65535"))
	}
	conn, err := s.tunnel(ctx, port)
	if err != nil && ctx.Err() == nil {
		err = s.diagnose(ctx, err)
	}
	if err != nil {
		return nil, fail(op, CodeUnavailable, err)
	}
	return conn, nil
}

func (s *Sandbox) tunnel(ctx context.Context, port int) (net.Conn, error) {
	// What the transport sends as the request's body, and receives as the
	// answer's, is the other end of a pipe, which knows deadlines.
	mine, theirs := net.Pipe()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	base := s.base(port)
	req := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Scheme: base.Scheme, Host: base.Host},
		Host: net.JoinHostPort(strconv.Itoa(port)+"-"+s.id+".cubby", "80"), Header: http.Header{},
		Body: theirs, ContentLength: -1,
	}).WithContext(life)
	if s.client.sandbox == nil {
		if req.Host = base.Host; base.Port() == "" {
			req.Host = net.JoinHostPort(base.Host, "80")
		}
	}
	s.route(req.Header, port)
	stop := context.AfterFunc(ctx, func() {
		cancel()
		_ = theirs.Close() // the transport waits for the body that it reads
	})
	resp, err := s.client.through().RoundTrip(req)
	if !stop() && err == nil {
		_ = resp.Body.Close()
		err = ctx.Err()
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = s.client.refused(resp)
	}
	if err != nil {
		cancel()
		_ = theirs.Close()
		if ctx.Err() != nil {
			err = fail("", CodeCanceled, context.Cause(ctx))
		}
		return nil, err
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(theirs, resp.Body) // ends with either side
		_ = theirs.Close()
		_ = resp.Body.Close()
	}()
	return &portConn{mine, portAddr(fmt.Sprintf("%s:%d", s.id, port))}, nil
}

// refused is a tunnel that did not come to be.
func (c *Client) refused(resp *http.Response) error {
	defer resp.Body.Close()
	e := decodeError(resp)
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		e.Code, e.Hint = CodeUnimplemented, "this server has no tunnels: Sandbox.Transport speaks HTTP to the port"
	}
	return e
}

// through is what sends a request, without a client's redirects.
func (c *Client) through() http.RoundTripper {
	if c.http.Transport == nil {
		return http.DefaultTransport
	}
	return c.http.Transport
}

type portConn struct {
	net.Conn
	remote portAddr
}

// RemoteAddr returns the sandbox's id and the port.
func (c *portConn) RemoteAddr() net.Addr { return c.remote }

type portAddr string

func (portAddr) Network() string  { return "tcp" }
func (a portAddr) String() string { return string(a) }
