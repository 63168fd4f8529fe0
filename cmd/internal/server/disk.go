package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// disk answers what images take (Cubby). What others have, and how much room there is, is
// the business of the machine's owner, who is the only caller of a server without keys.
func (s *Server) disk(w http.ResponseWriter, r *http.Request, team string) {
	d, err := s.host.Disk(r.Context(), team)
	if err != nil {
		s.fail(w, r, "what is on disk could not be found out", err)
		return
	}
	answer := protocol.Disk{Paused: protocol.Held(d.Paused), Snapshots: protocol.Held(d.Snapshots)}
	if s.cfg.Keys == nil {
		answer.All = &d.All
	}
	writeJSON(w, http.StatusOK, answer)
}

// prune removes what can be made again, and with "all" the team's snapshots without a
// name that are older than "age", in seconds (Cubby).
func (s *Server) prune(w http.ResponseWriter, r *http.Request, team string) {
	q := r.URL.Query()
	all, err := strconv.ParseBool(q.Get("all"))
	if err != nil && q.Has("all") {
		writeError(w, fault.InvalidArgument, "all must be true or false", "")
		return
	}
	age, err := number(q, "age", 0)
	if err != nil || age > int64(maxAge/time.Second) {
		writeError(w, fault.InvalidArgument, "age must be a whole number of seconds, at most ten years", "")
		return
	}
	removed, err := s.host.Prune(r.Context(), team, host.PruneRequest{Snapshots: all, Age: time.Duration(age) * time.Second})
	if err != nil {
		s.fail(w, r, "not everything could be removed", err)
		return
	}
	writeJSON(w, http.StatusOK, protocol.Held(removed))
}

const maxAge = 10 * 365 * 24 * time.Hour
