package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// defaultFork is how long copies of a sandbox live in E2B's where the client names no
// time. In a private Cubby it is as long as the sandbox was created with.
const defaultFork = 15 * time.Second

func (s *Server) pause(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.PauseSandbox
	if !s.decode(w, r, &body, true) {
		return
	}
	err := box.Pause(r.Context(), host.PauseOptions{FilesOnly: isFalse(body.Memory)})
	if state, wrong := wrongState(err); wrong && state == host.StatePaused {
		writeError(w, fault.Conflict, fmt.Sprintf("Error pausing sandbox - sandbox '%s' is already paused", box.Info().ID), "")
		return
	}
	if s.done(w, r, box, "paused", err) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// connect resumes a sandbox that is paused, and extends the timeout of one that runs but
// never shortens it; both versions have the same answer.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.ConnectSandbox
	if !s.decode(w, r, &body, true) {
		return
	}
	opts, ok := s.resumeOptions(w, r, body, defaultConnect)
	if !ok {
		return
	}
	resumed, err := box.Connect(r.Context(), opts)
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	if s.done(w, r, box, "resumed", err) {
		writeJSON(w, status, s.sandbox(box.Info()))
	}
}

// resume is what clients called before there was connect: a conflict is a sandbox that
// runs already.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.ResumeSandbox
	if !s.decode(w, r, &body, true) {
		return
	}
	opts, ok := s.resumeOptions(w, r, body.ConnectSandbox, defaultTimeoutV1)
	if !ok {
		return
	}
	info := box.Info()
	if body.AutoPause != nil && *body.AutoPause != info.Lifecycle.Pause {
		writeError(w, fault.InvalidArgument, "autoPause cannot be changed: it is said when a sandbox is created", "")
		return
	}
	err := box.Resume(r.Context(), opts)
	if state, wrong := wrongState(err); wrong && state == host.StateRunning {
		writeError(w, fault.Conflict, "Sandbox "+info.ID+" is already running", "")
		return
	}
	if s.done(w, r, box, "resumed", err) {
		writeJSON(w, http.StatusCreated, s.sandbox(box.Info()))
	}
}

// resumeOptions reads what a client wants of a resume, or answers.
func (s *Server) resumeOptions(w http.ResponseWriter, r *http.Request, body protocol.ConnectSandbox,
	byDefault time.Duration) (host.ResumeOptions, bool) {
	opts := host.ResumeOptions{Timeout: byDefault, FilesOnly: isFalse(body.Memory)}
	if body.Timeout == nil {
		return opts, true
	}
	var err error
	if opts.Timeout, err = host.Seconds(*body.Timeout); err != nil {
		s.fail(w, r, "the sandbox could not be resumed", err)
		return opts, false
	}
	return opts, true
}

func (s *Server) fork(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.ForkSandbox
	if !s.decode(w, r, &body, true) {
		return
	}
	count := 1
	if body.Count != nil {
		count = *body.Count
	}
	switch {
	case count < 1:
		writeError(w, fault.InvalidArgument, "Count must be at least 1", "")
		return
	case count > host.MaxForks:
		writeError(w, fault.InvalidArgument, fmt.Sprintf("Count cannot be greater than %d", host.MaxForks), "")
		return
	}
	timeout := time.Duration(0)
	if s.cfg.Keys != nil {
		timeout = defaultFork
	}
	if body.Timeout != nil {
		var err error
		if timeout, err = host.Seconds(*body.Timeout); err == nil && timeout == 0 {
			err = &fault.Error{Code: fault.InvalidArgument, Err: errors.New("Timeout must be greater than 0")}
		}
		if err != nil {
			s.fail(w, r, "the sandbox could not be forked", err)
			return
		}
	}
	copies, err := box.Fork(r.Context(), count, timeout)
	if !s.done(w, r, box, "forked", err) {
		return
	}
	answer := make([]protocol.Forked, len(copies))
	for i, c := range copies {
		if c.Err != nil {
			_, e := s.explained(r, "the copy could not be made", c.Err)
			answer[i].Error = &e
			continue
		}
		made := s.sandbox(c.Info)
		answer[i].Sandbox = &made
	}
	writeJSON(w, http.StatusCreated, answer)
}

// rollback puts a sandbox back to a snapshot, with its id and tokens (Cubby).
func (s *Server) rollback(w http.ResponseWriter, r *http.Request, box Sandbox) {
	var body protocol.Rollback
	if !s.decode(w, r, &body, false) {
		return
	}
	if body.SnapshotID == "" {
		writeError(w, fault.InvalidArgument, "Error when parsing request: snapshotID is missing", "")
		return
	}
	if s.done(w, r, box, "rolled back", box.Rollback(r.Context(), ownRef(box.Info().TeamID, body.SnapshotID))) {
		writeJSON(w, http.StatusOK, s.sandbox(box.Info()))
	}
}

// done answers, in E2B's words where there are any, if a sandbox could not be what was
// asked for: "paused" or "forked".
func (s *Server) done(w http.ResponseWriter, r *http.Request, box Sandbox, what string, err error) bool {
	state, wrong := wrongState(err)
	switch {
	case err == nil:
		return true
	case wrong:
		writeError(w, fault.Conflict, fmt.Sprintf("Sandbox '%s' cannot be %s while in '%s' state", box.Info().ID, what, state), "")
	case errors.Is(err, host.ErrNotFound):
		s.writeEnded(w, r, box, err)
	default:
		s.fail(w, r, "the sandbox could not be "+what, err)
	}
	return false
}

// wrongState is the state of a sandbox which does not let it be what was asked for.
func wrongState(err error) (host.State, bool) {
	if e, ok := errors.AsType[*host.StateError](err); ok {
		return e.State, true
	}
	return "", false
}

func isFalse(b *bool) bool { return b != nil && !*b }
