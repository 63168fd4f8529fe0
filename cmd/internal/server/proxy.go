package server

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// cutAfter is how long a client that does not read may hold a stream up whose
// sandbox has ended.
const cutAfter = 2 * time.Second

// proxy hands a request to a port of a sandbox.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, t *target) {
	if refused := s.admit(r, t); refused != nil {
		refused.write(w)
		return
	}
	if isPreflight(r) && isGuests(t.port) && stateOf(t.info.State) == statePaused && t.info.Lifecycle.AutoResume {
		preflight(w, r) // as the guest answers it: the request that follows may wake the sandbox
		return
	}
	if refused := s.wake(r, t); refused != nil {
		refused.write(w)
		return
	}
	l, leave, refused := s.enter(t)
	if refused != nil {
		refused.write(w)
		return
	}
	defer leave()
	if t.port == protocol.CodeInterpreterPort && r.Method == http.MethodPost && r.URL.Path == "/execute" {
		end := t.ports.BeginRun(runTimeout(r))
		defer end()
	}
	rc := http.NewResponseController(w)
	// What comes out of an ended sandbox ends by itself; a write to a client that
	// does not read would not.
	defer atEnd(l.ctx, func() { _ = rc.SetWriteDeadline(time.Now().Add(cutAfter)) })()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	var body *movingBody
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		body = &movingBody{ReadCloser: r.Body, rc: rc, sandbox: l, allowance: s.allowance}
		defer body.leave()
		r.Body = body
	}
	s.reverseProxy(r, t, rc).ServeHTTP(&answer{ResponseWriter: w, rc: rc, body: body, sandbox: l, allowance: s.allowance, cancel: cancel}, r)
}

// atEnd runs f when ctx ends, but not once over has been called: then f is
// through or will never run.
func atEnd(ctx context.Context, f func()) (over func()) {
	var mu sync.Mutex
	isOver := false
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !isOver {
			f()
		}
	})
	return func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		isOver = true
	}
}

// admit says why r must not reach the port, if it must not.
func (s *Server) admit(r *http.Request, t *target) *refusal {
	if t.port == protocol.EnvdPort {
		if hostOnly(r.URL.Path) {
			return &refusal{code: fault.NotFound, message: "404 page not found"}
		}
	} else if refused := t.admitTraffic(r); refused != nil {
		return refused
	}
	if t.port == protocol.CodeInterpreterPort {
		if refused := s.admitContexts(r, t); refused != nil {
			return refused
		}
	}
	if r.URL.Opaque != "" {
		// It would travel as it is, whatever the path that was looked at.
		return &refusal{code: fault.InvalidArgument, message: "malformed request target"}
	}
	return nil
}

// admitContexts checks the access token at the code interpreter's port. Executions
// ask for it themselves, in the guest, and whether the port answers is no secret;
// contexts ask only where every client can send it, for E2B's packages do not.
// A token that is sent must fit in any case.
func (s *Server) admitContexts(r *http.Request, t *target) *refusal {
	if t.info.Token == "" || r.URL.Path == "/execute" || r.URL.Path == "/health" || r.Method == http.MethodOptions {
		return nil
	}
	got := r.Header.Get(protocol.HeaderAccessToken)
	switch {
	case got == "" && !t.info.ContextToken && !s.cfg.RequireContextToken:
		return nil
	case got == "":
		return &refusal{code: fault.Unauthenticated, message: "The contexts of this sandbox ask for its access token: header '" + protocol.HeaderAccessToken + "' is missing",
			hint: "E2B's packages send it with executions only: use cubby.WithOpenContexts when the sandbox is created, or leave `cubby serve --require-context-token` out"}
	case subtle.ConstantTimeCompare([]byte(got), []byte(t.info.Token)) != 1:
		return &refusal{code: fault.Unauthenticated, message: "The access token in header '" + protocol.HeaderAccessToken + "' is not this sandbox's"}
	}
	return nil
}

// admitTraffic checks the token of a sandbox that is closed to the public.
func (t *target) admitTraffic(r *http.Request) *refusal {
	const prefix, header = "Sandbox is secured with traffic access token. ", "'e2b-traffic-access-token'"
	if t.info.TrafficToken == "" {
		return nil
	}
	got := r.Header.Get(protocol.HeaderTrafficToken)
	switch {
	case got == "":
		return &refusal{code: fault.PermissionDenied, id: t.name, message: prefix + "Token header " + header + " is missing"}
	case subtle.ConstantTimeCompare([]byte(got), []byte(t.info.TrafficToken)) != 1:
		return &refusal{code: fault.PermissionDenied, id: t.name, message: prefix + "Provided token in header " + header + " is invalid"}
	}
	return nil
}

// hostOnly reports whether a path of envd is for the host alone. The guest
// cannot tell: every caller reaches it over the same channel.
func hostOnly(p string) bool {
	p = path.Clean("/" + strings.ToLower(p))
	return p == "/init" || p == "/cubby" || strings.HasPrefix(p, "/cubby/")
}

// runTimeout is the time that the client gives an execution; zero means none.
func runTimeout(r *http.Request) time.Duration {
	ms, err := strconv.ParseInt(r.Header.Get(protocol.HeaderTimeoutMS), 10, 64)
	if err != nil || ms <= 0 || ms > host.MaxTimeout.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// maxConns is how many requests and connections of clients a sandbox may have
// at a time: fewer than its channel carries, and what a hostile guest could make
// each of them cost stays bounded.
const maxConns = 2048

// liveSandbox is what the server knows of a sandbox's ports beside its host.
type liveSandbox struct {
	// ctx ends with them. All requests share it, for a context costs an idle stream
	// less than a goroutine.
	ctx   context.Context
	conns atomic.Int32
}

// enter counts a request to a sandbox, which ends with leave, or refuses it.
func (s *Server) enter(t *target) (l *liveSandbox, leave func(), refused *refusal) {
	l = s.liveSandbox(t.ports)
	if l.conns.Add(1) > maxConns {
		l.conns.Add(-1)
		return nil, nil, tooMany(t)
	}
	return l, func() { l.conns.Add(-1) }, nil
}

func tooMany(t *target) *refusal {
	return &refusal{code: fault.RateLimited, id: t.name, message: "Too many connections to the sandbox",
		hint: "it may have " + strconv.Itoa(maxConns) + " at a time: close what is not used"}
}

func (s *Server) liveSandbox(ports Ports) *liveSandbox {
	done := ports.Done()
	if l, ok := s.liveSandboxes.Load(done); ok {
		return l.(*liveSandbox)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &liveSandbox{ctx: ctx}
	if other, loaded := s.liveSandboxes.LoadOrStore(done, l); loaded {
		cancel()
		return other.(*liveSandbox)
	}
	go func() {
		<-done
		s.liveSandboxes.Delete(done)
		cancel()
	}()
	return l
}

// reverseProxy hands r, as the client sent it, to the port.
func (s *Server) reverseProxy(r *http.Request, t *target, rc *http.ResponseController) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       t.rewrite,
		Transport:     t.ports.Transport(t.port),
		FlushInterval: -1, // everything is a stream
		BufferPool:    &buffers,
		ModifyResponse: func(resp *http.Response) error {
			// Without it Go's server closes the request's body once the answer has
			// begun, and one to ten in a hundred streamed commands break under load.
			// Not before: with it, a body that nobody has read at the end of the
			// request breaks the connection, so that the client may miss why it was refused.
			if err := rc.EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
				s.log.Error("no full duplex", "err", err)
			}
			return checkStatus(resp)
		},
		ErrorLog: s.proxyLog,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			a, ok := w.(*answer)
			if ok && a.body.stalled() {
				w.Header().Set("Connection", "close") // what comes late is no other request
				(&refusal{code: fault.Timeout, message: "the request's body did not go on for too long"}).write(w)
				return
			}
			if ok && !a.flooded.Load() && errors.Is(err, context.Canceled) {
				return // the client went away; nobody reads an answer
			}
			s.log.Debug("data plane", "sandbox_id", t.info.ID, "port", t.port, "err", err)
			s.explain(r, t, err).write(w)
		},
	}
}

// explain says what an error on the way to the sandbox means.
func (s *Server) explain(r *http.Request, t *target, err error) *refusal {
	if _, ended := s.host.Get(t.info.ID); ended != nil || errors.Is(err, engine.ErrEnded) {
		return s.ended(r, t.name)
	}
	if state, ok := errors.AsType[*host.StateError](err); ok {
		e := gone(t.name) // as E2B's clients expect it of one that is paused
		e.message += ": it is " + stateOf(state.State)
		return e
	}
	// A closed port is refused at once and for good: unlike E2B's there is no
	// forwarder between that may not have seen the port yet, so no second try.
	e := &refusal{code: fault.SandboxGone, id: t.name, port: t.port, message: "The sandbox is running but port is not open"}
	if !errors.Is(err, engine.ErrPortClosed) {
		e.message = "The sandbox is running but the connection to its port failed"
	}
	return e
}

// private are the headers that are between a client and this server.
var private = []string{protocol.HeaderSandboxID, protocol.HeaderSandboxPort, protocol.HeaderTrafficToken,
	protocol.HeaderAPIKey, protocol.HeaderHostToken}

// rewrite makes the request that the sandbox gets.
func (t *target) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.URL.Scheme, out.URL.User = "http", nil
	out.URL.Host = net.JoinHostPort("localhost", strconv.Itoa(t.port))
	out.URL.RawQuery = p.In.URL.RawQuery // as it is: whoever reads it judges it
	out.Host = p.In.Host
	for _, name := range private {
		out.Header.Del(name)
	}
	if strings.HasPrefix(out.Header.Get("Authorization"), "Bearer e2b_") {
		out.Header.Del("Authorization") // an API key in its other form
	}
	if t.port == protocol.EnvdPort {
		return
	}
	if t.port != protocol.CodeInterpreterPort {
		out.Header.Del(protocol.HeaderAccessToken) // it opens envd, and is no other program's
	}
	out.Header.Set("X-Forwarded-Host", p.In.Host)
	if mask := t.info.MaskRequestHost; mask != "" {
		out.Host = strings.ReplaceAll(mask, "${PORT}", strconv.Itoa(t.port))
	}
}

// checkStatus refuses what Go's client lets through and its server does not.
func checkStatus(r *http.Response) error {
	if r.StatusCode < 200 && r.StatusCode != http.StatusSwitchingProtocols {
		return errors.New("bad status in the sandbox's answer")
	}
	return nil
}

// bufferSize is how much of an answer is copied at once. With half of it a Node
// client that unpacks gzip, as fetch does, reads 1 MB a second over loopback: its
// window closes while it unpacks, and opens by less than a packet holds, for which
// the kernel waits. Larger writes keep it open.
const bufferSize = 64 << 10

// buffers lends the buffers of answers that are being copied.
var buffers bufferPool

type bufferPool struct{ p sync.Pool }

func (b *bufferPool) Get() []byte {
	if buf, ok := b.p.Get().(*[bufferSize]byte); ok {
		return buf[:]
	}
	return make([]byte, bufferSize)
}

func (b *bufferPool) Put(buf []byte) { b.p.Put((*[bufferSize]byte)(buf)) }

// maxInformational bounds the 1xx answers that precede one from a sandbox.
const maxInformational = 64

// answer keeps a sandbox from sending informational answers for ever: each
// would be let through, and none of them ends the request. And it keeps clients
// that take nothing from holding all of a sandbox's places.
type answer struct {
	http.ResponseWriter
	rc        *http.ResponseController // of ResponseWriter
	sandbox   *liveSandbox
	allowance allowance
	body      *movingBody // of the request; nil without one
	cancel    context.CancelFunc
	seen      int // one goroutine's at a time
	flooded   atomic.Bool
}

func (a *answer) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		if a.seen++; a.seen > maxInformational {
			a.flooded.Store(true)
			a.cancel()
			return
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
