package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// tunnelIdle is how long a tunnel may be without a request; a stream is one.
const tunnelIdle = 10 * time.Minute

// tunnelHeader bounds the time that the header of a request in a tunnel takes,
// and its size in bytes.
const (
	tunnelHeader    = 30 * time.Second
	tunnelHeaderMax = 64 << 10
)

// openTunnel answers CONNECT: t is the sandbox's port, or the control plane. Requests in
// a tunnel to one of the ports that are the guest's own, or to a port that wants a token
// with each, are served as if they came without a tunnel; any other port gets the bytes
// as they are.
func (s *Server) openTunnel(w http.ResponseWriter, r *http.Request, t *target) {
	if strings.HasSuffix(r.Host, ":443") {
		// What follows would be TLS for a name without a certificate.
		e := &refusal{code: fault.Unimplemented, message: "this server has no TLS: use http:// instead of https:// for its sandboxes",
			hint: "E2B's SDKs: set E2B_SANDBOX_URL; trpc-agent-go: set E2B_DEBUG=true"}
		e.write(w)
		return
	}
	switch {
	case t == controlPlane:
		s.serveTunnel(w, s.inTunnel(func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r) }))
	case t.port == protocol.EnvdPort || t.port == protocol.CodeInterpreterPort || t.admitTraffic(r) != nil:
		id, port := t.name, t.port
		s.serveTunnel(w, s.inTunnel(func(w http.ResponseWriter, r *http.Request) {
			t, refused := s.live(r, id, port)
			if refused != nil {
				refused.write(w)
				return
			}
			s.proxy(w, r, t)
		}))
	default:
		if refused := s.wake(r, t); refused != nil {
			refused.write(w)
			return
		}
		s.pipe(w, r, t)
	}
}

// tunnelsHTTP reports whether r opens a tunnel to one of the ports that are the
// guest's own: requests in the clear will follow, and nothing else.
func tunnelsHTTP(r *http.Request) bool {
	if r.Method != http.MethodConnect || strings.HasSuffix(r.Host, ":443") {
		return false
	}
	_, port, _ := parseHost(r.Host)
	return port == protocol.EnvdPort || port == protocol.CodeInterpreterPort
}

// refuseInTunnel opens a tunnel to a sandbox that is not there and answers in it.
// E2B's SDKs know what that answer means when it comes from a sandbox; of a proxy
// that refuses the tunnel they know only that it failed.
func (s *Server) refuseInTunnel(w http.ResponseWriter, e *refusal) {
	s.serveTunnel(w, s.inTunnel(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		s.ended(r, e.id).write(w) // the request in the tunnel has the token, the CONNECT has not
	}))
}

// inTunnel logs the requests of a tunnel, which may hold no other.
func (s *Server) inTunnel(h http.HandlerFunc) http.Handler {
	return s.logged(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			foreign(r).write(w)
			return
		}
		h(w, r)
	})
}

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// hijack takes a client's connection over and says that the tunnel is there.
func hijack(w http.ResponseWriter) (net.Conn, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, established); err != nil {
		c.Close()
		return nil, err
	}
	if rw.Reader.Buffered() == 0 {
		return c, nil
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	return &earlyConn{Conn: c, r: io.MultiReader(strings.NewReader(string(early)), c)}, nil
}

// earlyConn is a connection of which something was already read.
type earlyConn struct {
	net.Conn
	r io.Reader
}

func (c *earlyConn) Read(b []byte) (int, error) { return c.r.Read(b) }

func (c *earlyConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// serveTunnel serves HTTP in a tunnel until its connection ends.
func (s *Server) serveTunnel(w http.ResponseWriter, h http.Handler) {
	c, err := hijack(w)
	if err != nil {
		s.log.Debug("tunnel", "err", err)
		return
	}
	l := &oneConn{conn: c, done: make(chan struct{})}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: tunnelHeader, IdleTimeout: tunnelIdle, MaxHeaderBytes: tunnelHeaderMax, ErrorLog: s.proxyLog,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				_ = l.Close()
			}
		},
	}
	_ = srv.Serve(l) // ends with the connection
}

// oneConn is a listener that has one connection.
type oneConn struct {
	mu   sync.Mutex
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// pipe connects a client with a port, until both have ended what they send, one
// of them fails, or the sandbox ends.
func (s *Server) pipe(w http.ResponseWriter, r *http.Request, t *target) {
	l, leave, refused := s.enter(t)
	if refused != nil {
		refused.write(w)
		return
	}
	defer leave()
	box, err := t.ports.Dial(r.Context(), t.port)
	if err != nil {
		s.log.Debug("tunnel", "sandbox_id", t.info.ID, "port", t.port, "err", err)
		s.explain(r, t, err).write(w)
		return
	}
	defer box.Close()
	client, err := hijack(w)
	if err != nil {
		s.log.Debug("tunnel", "err", err)
		return
	}
	defer client.Close()
	// Nothing waits for a client that does not read once there is nothing left.
	defer context.AfterFunc(l.ctx, func() { _ = client.SetDeadline(time.Now().Add(cutAfter)) })()
	up := make(chan struct{})
	go func() {
		defer close(up)
		if relay(box, client) != nil {
			client.Close()
			box.Close()
		}
	}()
	if relay(client, box) != nil {
		abort(client)
		box.Close()
	}
	<-up
}

// relay copies until src ends and then ends dst's side.
func relay(dst, src net.Conn) error {
	buf := buffers.Get()
	defer buffers.Put(buf)
	// Plain reads and writes: a splice would hold a pipe for each direction.
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, buf); err != nil {
		return err
	}
	return closeWrite(dst)
}

// abort closes a connection so that its peer sees that it broke.
func abort(c net.Conn) {
	if e, ok := c.(*earlyConn); ok {
		c = e.Conn
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}
