package host

import (
	"context"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// maxTombstones is how many ended sandboxes are remembered. Of older ones, and of
// those of earlier processes, the records know what is left to know.
const maxTombstones = 1024

// tombstoneLogs is how many of its last log entries an ended sandbox keeps.
const tombstoneLogs = 32

// tombstone is what is remembered of an ended sandbox.
type tombstone struct {
	teamID     string
	secure     bool
	generation uint32
	at         time.Time
	reason     string
	logs       []LogEntry
}

// EndOf returns why a sandbox, of this process or of one before it, ended, as long as
// that is known. Only a caller with its access token learns it. The token is checked first and without
// any record, so that nobody else learns whether there was such a sandbox, also not
// by the time that it takes.
func (h *Host) EndOf(ctx context.Context, id, token string) (End, bool) {
	generation, ok := h.cfg.Key.Check(secret.Access, id, token)
	if !ok {
		return End{}, false
	}
	h.mu.Lock()
	t, known := h.ended[id]
	h.mu.Unlock()
	if !known {
		r, ended := h.recordOfEnded(ctx, id)
		if !ended {
			return End{}, false
		}
		t = tombstone{secure: r.Secure, generation: r.Generation, at: r.EndedAt, reason: r.Reason}
	}
	// The token of a sandbox that was not secure was never given to anybody.
	if !t.secure || t.generation != generation {
		return End{}, false
	}
	return End{ID: id, At: t.at, Reason: t.reason}, true
}

// remove takes a sandbox that ends out of reach; a tombstone takes its place.
func (h *Host) remove(s *Sandbox, at time.Time, reason string) {
	logs := s.Logs()
	t := tombstone{teamID: s.TeamID, secure: s.Secure, generation: s.Generation, at: at, reason: reason,
		logs: slices.Clone(logs[max(0, len(logs)-tombstoneLogs):])}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sandboxes[s.ID] != s {
		return // it was never there
	}
	h.forget(s)
	h.ended[s.ID] = t
	h.order = append(h.order, s.ID)
	if len(h.order) > maxTombstones {
		delete(h.ended, h.order[0])
		h.order = h.order[1:]
	}
}
