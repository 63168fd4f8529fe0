package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// machine is one machine of a sandbox, with everything that lasts as long as it:
// connections, what watches over it, executions under way.
type machine struct {
	engine.Machine
	s        *Sandbox
	template Template     // that it was made from
	guestOf  identity     // whose host token its guest asks for
	programs string       // of Template: that of its guest
	booted   time.Time    // when its boot began
	runs     atomic.Int32 // executions under way
	moved    atomic.Int64 // bytes of clients' connections
	frozen   atomic.Bool  // freeze has stopped it

	ctx      context.Context // done when the machine is to be closed
	cancel   context.CancelFunc
	watchers sync.WaitGroup

	mu         sync.Mutex
	shut       bool                    // no request is let in
	wasCut     bool                    // cut is closed
	cut        chan struct{}           // closed when those that were let in are cut
	conns      map[*conn]struct{}      // of requests
	transports map[int]*http.Transport // by port

	closing  sync.Once
	closeErr error
}

func newMachine(s *Sandbox, em engine.Machine, t Template, guest identity, booted time.Time) *machine {
	m := &machine{Machine: em, s: s, template: t, guestOf: guest, booted: booted, cut: make(chan struct{}),
		conns: map[*conn]struct{}{}, transports: map[int]*http.Transport{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// watch starts what watches over the machine until it is closed.
func (m *machine) watch() {
	m.watchers.Go(m.watchExit)
	m.watchers.Go(m.watchDeadline)
	m.watchers.Go(m.watchMemory)
	m.watchers.Go(m.watchUsage)
	m.watchers.Go(m.watchIdle)
}

// watchExit ends the sandbox with its machine.
func (m *machine) watchExit() {
	select {
	case exit := <-m.Wait():
		m.fail(exitReason(exit.Err))
	case <-m.ctx.Done():
	}
}

func exitReason(err error) string {
	if err == nil {
		err = errors.New("its machine was closed")
	}
	return err.Error()
}

// fail ends the sandbox for what its machine did, unless it has another by now or
// none. It does not wait for the end, which waits for who calls it.
func (m *machine) fail(reason string) {
	m.s.mu.Lock()
	current := m.s.machine == m
	m.s.mu.Unlock()
	if current {
		m.s.beginEnd(reason)
	}
}

// close ends the machine, and returns when nothing of it is left.
func (m *machine) close() error {
	m.closing.Do(func() {
		m.cancel()
		m.closeErr = m.Machine.Close()
		m.s.detach()
		m.turnOut()
		m.watchers.Wait()
	})
	return m.closeErr
}

// shutOut lets no further request in.
func (m *machine) shutOut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = true
}

// turnOut lets no request in any more, and cuts those that are there.
func (m *machine) turnOut() {
	m.mu.Lock()
	m.shut = true
	if !m.wasCut {
		m.wasCut = true
		defer close(m.cut)
	}
	conns := make([]*conn, 0, len(m.conns))
	for c := range m.conns {
		conns = append(conns, c)
	}
	transports := make([]*http.Transport, 0, len(m.transports))
	for _, t := range m.transports {
		transports = append(transports, t)
	}
	m.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // of no use to anybody
	}
	for _, t := range transports {
		t.CloseIdleConnections()
	}
}

// letIn ends shutOut, unless the machine is being closed.
func (m *machine) letIn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = m.wasCut
}

// dial opens a stream to a port for somebody's request.
func (m *machine) dial(ctx context.Context, port int) (net.Conn, error) {
	c, err := m.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	known := &conn{Conn: c, m: m}
	m.mu.Lock()
	shut := m.shut
	if !shut {
		m.conns[known] = struct{}{}
	}
	m.mu.Unlock()
	if shut {
		_ = c.Close()
		return nil, m.s.unreachable()
	}
	return known, nil
}

// dialTLS is dial to a port whose program speaks TLS. Its certificate is not verified:
// the stream does not leave the machine, and who else could be at its end?
func (m *machine) dialTLS(ctx context.Context, port int) (net.Conn, error) {
	c, err := m.dial(ctx, port)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(c, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err := secured.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("port %d is one of network.httpsPorts: %w", port, err)
	}
	return secured, nil
}

// conn is a stream that is cut when its machine takes no more requests.
type conn struct {
	net.Conn
	m *machine
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.moved.Add(int64(n))
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.m.moved.Add(int64(n))
	return n, err
}

// CloseWrite ends what this side sends; the other side may go on sending.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func (c *conn) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c)
	c.m.mu.Unlock()
	return c.Conn.Close()
}

// maxTransports is how many ports keep idle connections; a guest that opens
// more is served, without.
const maxTransports = 64

// idleTime is how long a connection to a port is kept for the next request. The
// guest's own servers close none. Others do: gunicorn after 2 seconds, Node.js and
// uvicorn after 5, and a POST that meets the end of a connection cannot be tried
// again, so ours end first.
func idleTime(port int) time.Duration {
	if port == protocol.EnvdPort || port == protocol.CodeInterpreterPort {
		return time.Minute
	}
	return 1500 * time.Millisecond
}

// maxResponseHeader bounds the header of an answer, in bytes.
const maxResponseHeader = 256 << 10

// transport sends requests to a port of the machine.
func (m *machine) transport(port int) http.RoundTripper {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.transports[port]; ok {
		return t
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return m.dial(ctx, port) }
	if slices.Contains(m.s.httpsPorts, port) {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return m.dialTLS(ctx, port) }
	}
	t := &http.Transport{
		DialContext:        dial,
		DisableCompression: true, // bodies pass as they are
		// What a program in the sandbox says is bounded before it is looked at.
		MaxResponseHeaderBytes: maxResponseHeader,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        idleTime(port),
	}
	if len(m.transports) >= maxTransports {
		t.DisableKeepAlives = true
		return t
	}
	m.transports[port] = t
	return t
}

// guest sends the host's own requests to the guest's envd, also while others are
// let in no more.
func (m *machine) guest() http.RoundTripper {
	m.mu.Lock()
	shut := m.shut
	m.mu.Unlock()
	if !shut {
		return m.transport(protocol.EnvdPort)
	}
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return m.Dial(ctx, protocol.EnvdPort) },
		MaxResponseHeaderBytes: maxResponseHeader,
		DisableKeepAlives:      true,
	}
}
