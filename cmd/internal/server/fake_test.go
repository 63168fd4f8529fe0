package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// town is a server over TCP whose sandboxes are ordinary handlers. Its ports
// answer with what they were asked, see echo, unless ports has a handler.
type town struct {
	*httptest.Server
	t      testing.TB
	host   *host.Host
	server *Server
	log    *lockedBuffer // of both loggers
	client *http.Client

	mu    sync.Mutex
	ports map[int]http.Handler
}

// newTown serves with ports that every sandbox has, beside envd's.
func newTown(t testing.TB, cfg Config, ports map[int]http.Handler) *town {
	t.Helper()
	tn := &town{t: t, log: &lockedBuffer{}, ports: map[int]http.Handler{
		protocol.EnvdPort: http.HandlerFunc(envd), protocol.CodeInterpreterPort: http.HandlerFunc(echo),
	}}
	for port, h := range ports {
		tn.ports[port] = h
	}
	tn.host = host.New(host.Config{Engine: tn})
	t.Cleanup(func() {
		if err := tn.host.Close(); err != nil {
			t.Error(err)
		}
	})
	logger := slog.New(slog.NewTextHandler(tn.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Host, cfg.Logger, cfg.Access = Local(tn.host), logger, logger
	tn.server = New(cfg)
	tn.Server = httptest.NewServer(tn.server)
	t.Cleanup(tn.Close)
	tn.client = tn.Client()
	return tn
}

// create returns a new sandbox with an access token.
func (tn *town) create() *host.Sandbox { tn.t.Helper(); return tn.createFor("") }

// createFor returns one of a team.
func (tn *town) createFor(team string) *host.Sandbox {
	tn.t.Helper()
	box, err := tn.host.Create(tn.t.Context(), host.CreateRequest{NewSandbox: protocol.NewSandbox{TemplateID: "base"}, TeamID: team, Secure: true})
	if err != nil {
		tn.t.Fatal(err)
	}
	return box
}

// proxied returns a client that uses the server as HTTP_PROXY would.
func (tn *town) proxied() *http.Client {
	u, _ := url.Parse(tn.URL)
	tr := &http.Transport{Proxy: http.ProxyURL(u)}
	tn.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// dial opens a connection to the server itself.
func (tn *town) dial() net.Conn {
	tn.t.Helper()
	c, err := net.Dial("tcp", tn.Listener.Addr().String())
	if err != nil {
		tn.t.Fatal(err)
	}
	tn.t.Cleanup(func() { c.Close() })
	return c
}

// to is a request for a port of a sandbox, by the routing headers.
func (tn *town) to(box *host.Sandbox, port int, method, path string, body io.Reader) *http.Request {
	tn.t.Helper()
	r, err := http.NewRequestWithContext(tn.t.Context(), method, tn.URL+path, body)
	if err != nil {
		tn.t.Fatal(err)
	}
	r.Header.Set(protocol.HeaderSandboxID, box.ID)
	r.Header.Set(protocol.HeaderSandboxPort, strconv.Itoa(port))
	return r
}

// answered is an answer, read to its end.
type answered struct {
	status int
	header http.Header
	body   []byte
	err    error // of the reading
}

func (tn *town) do(r *http.Request) answered { tn.t.Helper(); return do(tn.t, tn.client, r) }

func do(t testing.TB, c *http.Client, r *http.Request) answered {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, b, err}
}

// echoed is what a sandbox's port was asked.
type echoed struct {
	Machine, Method, URI, Host, Body string
	Port                             int
	Header                           http.Header
}

func (a answered) echo(t *testing.T) echoed {
	t.Helper()
	var e echoed
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != http.StatusOK {
		t.Fatalf("no echo: %d %q", a.status, a.body)
	}
	return e
}

type machineKey struct{}

type machinePort struct {
	id   string
	port int
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	at := r.Context().Value(machineKey{}).(machinePort)
	_ = json.NewEncoder(w).Encode(echoed{at.id, r.Method, r.RequestURI, r.Host, string(b), at.port, r.Header})
}

// envd answers the greeting that a host waits for, and echoes everything else.
func envd(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/init" {
		w.Header().Set(protocol.HeaderVersion, guestversion.Build())
		w.WriteHeader(http.StatusNoContent)
		return
	}
	echo(w, r)
}

// town is its own engine.
var _ engine.Engine = (*town)(nil)

func (tn *town) Name() string                { return "fake" }
func (tn *town) Commit() string              { return "1" }
func (tn *town) Probe(context.Context) error { return nil }

func (tn *town) Start(_ context.Context, spec engine.Spec) (engine.Machine, error) {
	m := &machine{servers: map[int]*httptest.Server{}, exit: make(chan engine.Exit, 1), conns: map[net.Conn]bool{}}
	tn.mu.Lock()
	defer tn.mu.Unlock()
	for port, h := range tn.ports {
		srv := httptest.NewUnstartedServer(h)
		srv.Config.BaseContext = func(net.Listener) context.Context {
			return context.WithValue(context.Background(), machineKey{}, machinePort{spec.ID, port})
		}
		srv.Start()
		m.servers[port] = srv
	}
	return m, nil
}

// machine breaks its connections when it is closed, as a killed one does.
type machine struct {
	servers map[int]*httptest.Server
	exit    chan engine.Exit

	mu     sync.Mutex
	conns  map[net.Conn]bool // of the host's side
	closed bool
}

func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	srv := m.servers[port]
	switch {
	case m.closed:
		return nil, engine.ErrEnded
	case srv == nil:
		return nil, fmt.Errorf("fake: %w", engine.ErrPortClosed)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", srv.Listener.Addr().String())
	if err == nil {
		m.conns[c] = true
	}
	return c, err
}

func (m *machine) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	for c := range m.conns {
		_ = c.SetDeadline(time.Unix(1, 0)) // what reads gets an error, not an end
	}
	m.mu.Unlock()
	for _, srv := range m.servers {
		srv.CloseClientConnections()
		srv.Close()
	}
	for c := range m.conns {
		c.Close()
	}
	m.exit <- engine.Exit{}
	close(m.exit)
	return nil
}

func (m *machine) Wait() <-chan engine.Exit                       { return m.exit }
func (m *machine) Unenforced() []string                           { return nil }
func (m *machine) Usage(context.Context) (engine.Usage, error)    { return engine.Usage{}, nil }
func (m *machine) CPUTime(context.Context) (time.Duration, error) { return 0, nil }
func (m *machine) Fixed() engine.Fixed                            { return engine.Fixed{} }

// lockedBuffer is a bytes.Buffer that goroutines share.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
