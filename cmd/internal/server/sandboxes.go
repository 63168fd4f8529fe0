package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// E2B's timeouts where the client names none. A private Cubby has the host's:
// its sandboxes end with the program that made them.
const (
	defaultTimeoutV2 = 300 * time.Second
	defaultTimeoutV1 = 15 * time.Second
	defaultConnect   = 300 * time.Second
)

// Bounds of a refresh, in seconds.
const (
	minRefresh = 15
	maxRefresh = 3600
)

// maxID bounds a sandbox's id; ours have 21 characters.
const maxID = 64

// boxHandler serves a request about a live sandbox of the caller's team.
type boxHandler func(w http.ResponseWriter, r *http.Request, box Sandbox)

// ofBox finds the sandbox that the path names, or answers.
func (s *Server) ofBox(h boxHandler) teamHandler {
	return func(w http.ResponseWriter, r *http.Request, team string) {
		id, ok := sandboxID(r.PathValue("id"))
		if !ok {
			writeError(w, fault.InvalidArgument, "Invalid sandbox ID", "")
			return
		}
		box, err := s.host.Of(r.Context(), team, id)
		if err != nil {
			writeGone(w, id, err)
			return
		}
		h(w, r, box)
	}
}

// sandboxID returns the id of "<id>" and of "<id>-<clientID>", as older clients
// have it.
func sandboxID(text string) (id string, ok bool) {
	id, client, dashed := strings.Cut(text, "-")
	if !isID(id) || dashed && !isID(client) {
		return "", false
	}
	return id, true
}

func isID(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return text != "" && len(text) <= maxID
}

func (s *Server) createV2(w http.ResponseWriter, r *http.Request, team string) {
	s.create(w, r, team, true)
}

func (s *Server) createV1(w http.ResponseWriter, r *http.Request, team string) {
	s.create(w, r, team, false)
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, team string, v2 bool) {
	var body protocol.NewSandbox
	if !s.decode(w, r, &body, false) {
		return
	}
	if missing := notThereYet(&body); missing != "" {
		writeNotYet(w, missing)
		return
	}
	switch got := r.Header.Get(protocol.HeaderContextToken); got {
	case "", protocol.ContextTokenRequired:
		body.ContextToken = got != ""
	default:
		writeError(w, fault.InvalidArgument, "header '"+protocol.HeaderContextToken+"' must be '"+protocol.ContextTokenRequired+"'", "")
		return
	}
	body.TemplateID = ownRef(team, body.TemplateID)
	req := host.CreateRequest{NewSandbox: body, TeamID: team, Secure: v2 || body.Secure != nil && *body.Secure}
	if s.cfg.Keys != nil {
		req.DefaultTimeout = defaultTimeoutV1
		if v2 {
			req.DefaultTimeout = defaultTimeoutV2
		}
	}
	box, err := s.host.Create(r.Context(), req)
	if err != nil {
		s.fail(w, r, "sandbox could not be created", err)
		return
	}
	writeJSON(w, http.StatusCreated, s.sandbox(box.Info()))
}

// notThereYet names what a create asks for that no sandbox of this server has.
func notThereYet(req *protocol.NewSandbox) string {
	isSet := func(raw []byte) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }
	switch {
	case isSet(req.MCP):
		return "mcp"
	case req.IAM != nil && len(req.IAM.Tokens) > 0:
		return "iam"
	case len(req.VolumeMounts) > 0:
		return "volumeMounts"
	}
	return ""
}

// sandbox is the answer to a create and to a connect.
func (s *Server) sandbox(box host.Info) protocol.Sandbox {
	answer := protocol.Sandbox{
		TemplateID: box.TemplateID, SandboxID: box.ID, ClientID: clientID, EnvdVersion: protocol.EnvdVersion,
		Alias: box.TemplateID, EnvdAccessToken: box.Token, Domain: s.domain(), LimitsNotEnforced: box.LimitsNotEnforced,
		Limits: &box.Limits, PublicID: box.PublicID,
	}
	if box.TrafficToken != "" {
		answer.TrafficAccessToken = &box.TrafficToken
	}
	return answer
}

// domain is null where none is configured: E2B's clients then keep their own.
func (s *Server) domain() *string {
	if s.cfg.Domain == "" {
		return nil
	}
	return &s.cfg.Domain
}

func listed(box host.Info) protocol.ListedSandbox {
	return protocol.ListedSandbox{
		TemplateID: box.TemplateID, SandboxID: box.ID, ClientID: clientID, Alias: box.TemplateID,
		StartedAt: box.StartedAt, EndAt: box.EndAt, EnvdVersion: protocol.EnvdVersion,
		CPUCount: host.CPUCount(box.Limits), MemoryMB: box.Limits.MemoryMB, DiskSizeMB: box.Limits.DiskMB,
		State: stateOf(box.State), Metadata: box.Metadata, VolumeMounts: []json.RawMessage{},
	}
}

func (s *Server) get(w http.ResponseWriter, _ *http.Request, box Sandbox) {
	info := box.Info()
	writeJSON(w, http.StatusOK, protocol.SandboxDetail{
		ListedSandbox: listed(info), EnvdAccessToken: info.Token, Domain: s.domain(),
		AllowInternetAccess: info.AllowInternetAccess, Network: shown(info.Network),
		Lifecycle: lifecycle(info.Lifecycle), ExpiresAt: info.ExpiresAt, LimitsNotEnforced: info.LimitsNotEnforced,
		Limits: &info.Limits, PublicID: info.PublicID, Instance: &protocol.Instance{Memory: info.Instance.Memory, Files: info.Instance.Files},
	})
}

// lifecycle is what becomes of a sandbox with time, in E2B's words.
func lifecycle(l host.Lifecycle) protocol.Lifecycle {
	answer := protocol.Lifecycle{AutoResume: l.AutoResume, OnTimeout: "kill", FilesOnly: l.FilesOnly, IdleTimeout: int(l.Idle / time.Second)}
	if l.Pause {
		answer.OnTimeout = "pause"
	}
	return answer
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request, box Sandbox) {
	if err := box.Kill(); err != nil {
		s.fail(w, r, "the sandbox has ended, but not all of it could be put away", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) refresh(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.SandboxRefresh
	if !s.decode(w, r, &body, true) {
		return
	}
	seconds := minRefresh
	if body.Duration != nil {
		seconds = *body.Duration
	}
	if seconds < 0 || seconds > maxRefresh {
		writeError(w, fault.InvalidArgument, "duration must be between 0 and 3600", "")
		return
	}
	if s.extend(w, r, box, max(seconds, minRefresh)) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// extend moves the deadline to later, or answers.
func (s *Server) extend(w http.ResponseWriter, r *http.Request, box Sandbox, seconds int) bool {
	d, err := host.Seconds(seconds)
	if err == nil {
		err = box.Extend(r.Context(), d)
	}
	return s.changed(w, r, box, timeoutNotSet, err)
}

func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.SandboxTimeout
	if !s.decode(w, r, &body, false) {
		return
	}
	if body.Timeout == nil {
		writeError(w, fault.InvalidArgument, "Error when parsing request: timeout is missing", "")
		return
	}
	d, err := host.Seconds(*body.Timeout)
	if err == nil {
		err = box.SetTimeout(r.Context(), d)
	}
	if s.changed(w, r, box, timeoutNotSet, err) {
		w.WriteHeader(http.StatusNoContent)
	}
}

const timeoutNotSet = "the sandbox's timeout could not be set"

// changed answers, with did, if a sandbox that has to run could not be changed. One that
// is paused is not there, as E2B's clients see it.
func (s *Server) changed(w http.ResponseWriter, r *http.Request, box Sandbox, did string, err error) bool {
	state, wrong := wrongState(err)
	switch {
	case err == nil:
		return true
	case wrong && state == host.StatePaused:
		writeError(w, fault.NotFound, notThere(box.Info().ID), "it is paused: connect to it, which resumes it")
	case errors.Is(err, host.ErrNotFound):
		s.writeEnded(w, r, box, err)
	default:
		s.fail(w, r, did, err)
	}
	return false
}

// writeEnded answers of a sandbox that ended while it was changed.
func (s *Server) writeEnded(w http.ResponseWriter, r *http.Request, box Sandbox, err error) {
	info := box.Info()
	if _, why := s.host.Of(r.Context(), info.TeamID, info.ID); why != nil {
		err = why
	}
	writeGone(w, info.ID, err)
}

// writeGone answers as E2B does, or with the reason where it is the caller's to
// know: in the message, for E2B's clients show nothing else.
func writeGone(w http.ResponseWriter, id string, err error) {
	message := notThere(id)
	if why := reasonOf(err); why != "" {
		message = why
	}
	writeError(w, fault.NotFound, message, "")
}

// notThere is E2B's message.
func notThere(id string) string {
	return "Sandbox \"" + id + "\" doesn't exist or you don't have access to it"
}
