package host

import (
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"time"
)

// tombstones is how many ended sandboxes are remembered. Of older ones, and of
// those of earlier processes, the records know what is left to know.
const tombstones = 1024

// graveLogs is how many of its last log entries an ended sandbox keeps.
const graveLogs = 32

// tombstone is what is remembered of an ended sandbox.
type tombstone struct {
	teamID string
	token  [sha256.Size]byte // hash of the access token; zero if there was none
	at     time.Time
	reason string
	logs   []LogEntry
}

// EndedError says when and why a sandbox ended. It wraps ErrNotFound.
type EndedError struct {
	ID     string
	At     time.Time // UTC
	Reason string
}

func (e *EndedError) Error() string {
	return "sandbox " + e.ID + " ended at " + e.At.Format(time.RFC3339) + ": " + e.Reason
}
func (e *EndedError) Unwrap() error { return ErrNotFound }

// EndOf returns why a sandbox ended to who has its access token, as long as this
// process remembers it.
func (h *Host) EndOf(id, token string) (*EndedError, bool) {
	sum := sha256.Sum256([]byte(token))
	h.mu.Lock()
	grave, ok := h.ended[id]
	h.mu.Unlock()
	if !ok || token == "" || subtle.ConstantTimeCompare(sum[:], grave.token[:]) != 1 {
		return nil, false
	}
	return &EndedError{ID: id, At: grave.at, Reason: grave.reason}, true
}

// bury moves a sandbox to the tombstones; false if it was there already.
func (h *Host) bury(s *Sandbox, at time.Time, reason string) bool {
	logs := s.Logs()
	grave := tombstone{teamID: s.TeamID, at: at, reason: reason, logs: slices.Clone(logs[max(0, len(logs)-graveLogs):])}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[s.ID] != s {
		return false
	}
	delete(h.boxes, s.ID)
	delete(h.public, s.PublicID)
	if s.Token != "" {
		grave.token = sha256.Sum256([]byte(s.Token))
		delete(h.tokens, grave.token)
	}
	h.ended[s.ID] = grave
	h.order = append(h.order, s.ID)
	if len(h.order) > tombstones {
		delete(h.ended, h.order[0])
		h.order = h.order[1:]
	}
	return true
}
