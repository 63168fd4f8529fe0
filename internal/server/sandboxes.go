package server

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

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
	box, err := s.host.Create(r.Context(), host.CreateRequest{NewSandbox: req, Secure: true})
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
