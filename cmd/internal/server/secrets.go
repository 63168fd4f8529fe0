package server

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/vault"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// withSecrets answers where this server keeps no secrets.
func (s *Server) withSecrets(h teamHandler) teamHandler {
	if s.cfg.Secrets != nil {
		return h
	}
	return func(w http.ResponseWriter, _ *http.Request, _ string) {
		writeError(w, fault.Unimplemented, "secrets are kept by `cubby serve` only: write the value into the header of the rule", "")
	}
}

func (s *Server) createSecret(w http.ResponseWriter, r *http.Request, team string) {
	var body protocol.NewSecret
	if !s.decode(w, r, &body, false) {
		return
	}
	made, err := s.cfg.Secrets.Create(r.Context(), team, body.Name, body.Value, body.Metadata)
	if err != nil {
		s.fail(w, r, "the secret could not be created", err)
		return
	}
	writeJSON(w, http.StatusCreated, toldSecret(made))
}

func (s *Server) updateSecret(w http.ResponseWriter, r *http.Request, team string) {
	var body protocol.NewSecret
	if !s.decode(w, r, &body, false) {
		return
	}
	changed, err := s.cfg.Secrets.Update(r.Context(), team, r.PathValue("id"), body.Value, body.Metadata)
	if err != nil {
		s.fail(w, r, "the secret could not be changed", err)
		return
	}
	writeJSON(w, http.StatusOK, toldSecret(changed))
}

func (s *Server) getSecret(w http.ResponseWriter, r *http.Request, team string) {
	found, err := s.cfg.Secrets.Get(r.Context(), team, r.PathValue("id"))
	if err != nil {
		s.fail(w, r, "the secret could not be read", err)
		return
	}
	writeJSON(w, http.StatusOK, toldSecret(found))
}

func (s *Server) removeSecret(w http.ResponseWriter, r *http.Request, team string) {
	if err := s.cfg.Secrets.Remove(r.Context(), team, r.PathValue("id")); err != nil {
		s.fail(w, r, "the secret could not be removed", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// listSecrets lists by name. A cursor is the last name of the page before, as base64url.
func (s *Server) listSecrets(w http.ResponseWriter, r *http.Request, team string) {
	q := r.URL.Query()
	limit, err := number(q, "limit", maxPage)
	if err != nil || limit == 0 {
		writeError(w, fault.InvalidArgument, "limit must be a number from 1 on", "")
		return
	}
	token := q.Get("nextToken")
	after, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil || len(token) > maxCursor {
		writeError(w, fault.InvalidArgument, errCursor.Error(), "")
		return
	}
	n := int(min(limit, maxPage))
	page, err := s.cfg.Secrets.List(r.Context(), team, string(after), n)
	var next []vault.Secret
	if err == nil && len(page) == n {
		next, err = s.cfg.Secrets.List(r.Context(), team, page[n-1].Name, 1)
	}
	if err != nil {
		s.fail(w, r, "the secrets could not be listed", err)
		return
	}
	if len(next) > 0 {
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(page[n-1].Name)))
	}
	list := make([]protocol.Secret, 0, len(page))
	for _, one := range page {
		list = append(list, toldSecret(one))
	}
	writeJSON(w, http.StatusOK, list)
}

func toldSecret(s vault.Secret) protocol.Secret {
	return protocol.Secret{
		SecretID: s.ID, Name: s.Name, CurrentVersion: s.Version, Metadata: s.Metadata, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}
