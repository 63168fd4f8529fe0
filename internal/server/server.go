// Package server speaks E2B's protocol: it decides which request belongs to
// which sandbox and hands it there. It keeps no state; that is package host's.
package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// maxControlBody bounds a control-plane request, in bytes.
const maxControlBody = 1 << 20

// clientID is the constant that E2B's SDKs expect and nobody reads.
const clientID = "6532622b"

// Server routes requests. It is an http.Handler, safe for concurrent use.
type Server struct {
	host    *host.Host
	log     *slog.Logger
	control *http.ServeMux
}

// New returns a server for the sandboxes of h; a nil logger discards.
func New(h *host.Host, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{host: h, log: log, control: http.NewServeMux()}
	s.control.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s.control.HandleFunc("POST /v2/sandboxes", s.create)
	s.control.HandleFunc("GET /sandboxes/{id}", s.get)
	s.control.HandleFunc("DELETE /sandboxes/{id}", s.kill)
	s.control.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotImplemented, r.Method+" "+r.URL.Path+" is not implemented", "")
	})
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

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var req protocol.NewSandbox
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, "Error parsing body: "+err.Error(), "")
		return
	}
	if !knownTemplate(req.TemplateID) {
		writeError(w, http.StatusNotFound, "template '"+req.TemplateID+"' not found", "this server has the template \"base\", made of this machine's own tools")
		return
	}
	box, err := s.host.Create(r.Context(), req)
	switch {
	case errors.Is(err, host.ErrInvalid):
		writeError(w, http.StatusBadRequest, err.Error(), "")
	case errors.Is(err, host.ErrNotEnforceable):
		writeError(w, http.StatusBadRequest, err.Error(), "without a writable cgroup only whole processors can be given: ask for a whole number, or run as root")
	case err != nil:
		s.log.Error("sandbox not created", "err", err)
		writeError(w, http.StatusInternalServerError, "sandbox could not be created: "+err.Error(), "run `cubby doctor` to see what this machine lacks")
	default:
		writeJSON(w, http.StatusCreated, protocol.Sandbox{
			TemplateID: box.TemplateID, SandboxID: box.ID, ClientID: clientID, EnvdVersion: protocol.EnvdVersion,
			EnvdAccessToken: box.Token, LimitsNotEnforced: box.LimitsNotEnforced(),
		})
	}
}

// knownTemplate lists the names that mean the host's own toolchain until there
// are others.
func knownTemplate(id string) bool {
	switch id {
	case "", "base", "code-interpreter-v1":
		return true
	}
	return false
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	box, err := s.host.Get(r.PathValue("id"))
	if err != nil {
		writeGone(w, r.PathValue("id"), err)
		return
	}
	writeJSON(w, http.StatusOK, protocol.SandboxDetail{
		TemplateID: box.TemplateID, SandboxID: box.ID, ClientID: clientID, StartedAt: box.StartedAt, EndAt: box.EndAt(),
		EnvdVersion: protocol.EnvdVersion, EnvdAccessToken: box.Token, State: "running", Metadata: box.Metadata,
		CPUCount: max(1, int(box.Limits.CPUs)), MemoryMB: box.Limits.MemoryMB, DiskSizeMB: box.Limits.DiskMB,
		LimitsNotEnforced: box.LimitsNotEnforced(),
	})
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	err := s.host.Kill(id)
	switch {
	case errors.Is(err, host.ErrNotFound):
		writeGone(w, id, err)
	case err != nil:
		writeError(w, http.StatusInternalServerError, "sandbox was ended, but not all of it could be removed: "+err.Error(), "")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// writeGone answers as E2B does, with the reason where it is known.
func writeGone(w http.ResponseWriter, id string, err error) {
	var ended *host.EndedError
	hint := ""
	if errors.As(err, &ended) {
		hint = ended.Error()
	}
	writeError(w, http.StatusNotFound, "Sandbox \""+id+"\" doesn't exist or you don't have access to it", hint)
}

func writeError(w http.ResponseWriter, code int, message, hint string) {
	writeJSON(w, code, protocol.Error{Code: code, Message: message, Hint: hint})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client may have gone; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(v)
}
