// Package server speaks E2B's protocol: it decides which request belongs to
// which sandbox and hands it there. It keeps no state; that is package host's.
package server

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Config configures a Server. Only Host is required.
type Config struct {
	Host *host.Host
	// Keys says whose an API key is. Nil is a private Cubby, whose socket is its
	// protection: no key is asked for and every caller is of the team "".
	Keys Keys
	// Domain is echoed to clients and used for routing by host name. Empty echoes
	// nothing and takes any domain.
	Domain string
	Logger *slog.Logger // nil discards
	// Access gets a line for each request, without bodies and secrets; nil
	// discards.
	Access *slog.Logger
}

// Keys says whose an API key is. Its methods are called concurrently.
type Keys interface {
	// TeamOfKey returns the team of a key. The error wraps host.ErrNotFound if
	// there is no such key; any other means that it cannot be told.
	TeamOfKey(ctx context.Context, secret string) (teamID string, err error)
}

// Server routes requests. It is an http.Handler, safe for concurrent use.
type Server struct {
	cfg     Config
	host    *host.Host
	log     *slog.Logger
	control http.Handler
}

// New returns a server.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Access == nil {
		cfg.Access = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, host: cfg.Host, log: cfg.Logger}
	s.control = s.controlPlane()
	return s
}

// ServeHTTP implements http.Handler. The routing headers win over every path,
// since GET /health exists on both sides.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get(protocol.HeaderSandboxID); id != "" {
		s.proxy(w, r, id)
		return
	}
	s.control.ServeHTTP(w, r)
}
