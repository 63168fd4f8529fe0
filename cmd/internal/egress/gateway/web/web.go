// Package web is what the gateway reads of TLS and HTTP: the server name of a
// client hello, requests that are passed on to one host only, and the authority
// whose certificates open TLS for the hosts that a rule adds headers for.
//
// Everything that is read comes from code that nobody trusts. It is bounded, and
// what two readers could understand differently is refused.
package web

import (
	"io"
	"net"
)

// Replay returns conn as one that is read from r, which ReadHello has returned.
func Replay(conn net.Conn, r io.Reader) net.Conn { return &replayed{conn, r} }

type replayed struct {
	net.Conn
	r io.Reader
}

func (c *replayed) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *replayed) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite tells the other side that nothing more is sent. A connection that
// cannot do that alone is closed.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// cut closes c without TLS's farewell, for which it would have to wait.
func cut(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		t.NetConn().Close()
		return
	}
	c.Close()
}
