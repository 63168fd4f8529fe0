// Package server speaks E2B's protocol: it decides which request belongs to
// which sandbox and hands it there. It keeps no state, and knows of sandboxes
// only what [Host] says: package host's are one kind, see [Local].
package server

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/cmd/internal/vault"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Config configures a Server. Only Host is required.
type Config struct {
	Host Host
	// Keys says whose an API key is. Nil is a private Cubby, whose socket is its
	// protection: no key is asked for and every caller is of the team "".
	Keys Keys
	// Secrets are those that teams' rules refer to. Nil has none, and says so.
	Secrets Secrets
	// Domain is echoed to clients; itself, api.DOMAIN and sandbox.DOMAIN are names
	// of this server when it is used as a proxy. Empty echoes nothing. Names of
	// sandboxes are understood in any domain.
	Domain string
	// RequireContextToken has the contexts of every sandbox with an access token
	// ask for it, also of those whose client did not ask for that. E2B's packages
	// do not send it there: their methods for contexts fail then.
	RequireContextToken bool
	Logger              *slog.Logger // nil discards
	// Access gets a line for each request, without bodies and secrets; nil
	// discards.
	Access *slog.Logger
}

// Keys says whose an API key is. Its methods are called concurrently.
type Keys interface {
	// TeamOfKey returns the team of a key. The error wraps host.ErrNotFound if
	// there is no such key; any other means that it could not be looked up.
	TeamOfKey(ctx context.Context, secret string) (teamID string, err error)
}

// Secrets are what teams keep for the headers that rules add to requests. Its methods
// are called concurrently. Errors that host.IsForClient knows are for the team to read;
// no error has a value in it.
type Secrets interface {
	Create(ctx context.Context, teamID, name, value string, metadata map[string]string) (vault.Secret, error)
	// Update replaces a value, and the metadata unless it is nil.
	Update(ctx context.Context, teamID, idOrName, value string, metadata map[string]string) (vault.Secret, error)
	Get(ctx context.Context, teamID, idOrName string) (vault.Secret, error)
	// List returns secrets by name, from the first that comes after the given one.
	List(ctx context.Context, teamID, after string, limit int) ([]vault.Secret, error)
	Remove(ctx context.Context, teamID, idOrName string) error
}

// Server routes requests. It is an http.Handler, safe for concurrent use.
type Server struct {
	cfg           Config
	host          Host
	log           *slog.Logger
	proxyLog      *log.Logger // what net/http has to say
	control       http.Handler
	handler       http.Handler
	liveSandboxes sync.Map  // *liveSandbox by what Done of its ports returns
	waiting       waiters   // requests for sandboxes that are being resumed
	allowance     allowance // only a test changes it
}

// New returns a server.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Access == nil {
		cfg.Access = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, host: cfg.Host, log: cfg.Logger, proxyLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		allowance: defaultAllowance}
	s.control = s.controlPlane()
	s.handler = s.logged(s.dispatch)
	return s
}

// ServeHTTP implements http.Handler. Unlike a ServeMux it takes CONNECT and
// requests in the absolute form, as a proxy is sent them.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	t, refused := s.route(r)
	switch {
	case refused != nil && refused.code == fault.SandboxGone && tunnelsHTTP(r):
		s.refuseInTunnel(w, refused)
	case refused != nil:
		refused.write(w)
	case t != controlPlane && r.Method == http.MethodConnect:
		noteTarget(r.Context(), t)
		s.openTunnel(w, r, t)
	case t != controlPlane:
		noteTarget(r.Context(), t)
		s.proxy(w, r, t)
	case (r.Method == http.MethodConnect || r.URL.IsAbs()) && !s.addressedToServer(r):
		foreign(r).write(w)
	case r.Method == http.MethodConnect:
		s.openTunnel(w, r, controlPlane)
	case asksForRouting(r):
		preflight(w, r)
	default:
		s.control.ServeHTTP(w, r)
	}
}

// asksForRouting reports whether a browser asks before a request that will carry
// the routing headers. The question itself does not, so no sandbox can answer it.
func asksForRouting(r *http.Request) bool {
	return isPreflight(r) &&
		strings.Contains(strings.ToLower(r.Header.Get("Access-Control-Request-Headers")), strings.ToLower(protocol.HeaderSandboxID))
}

// isPreflight reports whether a browser asks if it may send another request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight lets any origin call: what protects a sandbox is its token.
func preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
}
