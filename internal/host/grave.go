package host

import (
	"crypto/sha256"
	"slices"
)

// tombstones is how many ended sandboxes are remembered.
const tombstones = 1024

// graveLogs is how many of its last log entries an ended sandbox keeps.
const graveLogs = 32

// tombstone is what is remembered of an ended sandbox.
type tombstone struct {
	teamID string
	reason string
	logs   []LogEntry
}

// EndedError says why a sandbox is gone. It wraps ErrNotFound.
type EndedError struct{ ID, Reason string }

func (e *EndedError) Error() string { return "sandbox " + e.ID + " ended: " + e.Reason }
func (e *EndedError) Unwrap() error { return ErrNotFound }

// bury moves a sandbox to the tombstones; false if it was there already.
func (h *Host) bury(s *Sandbox, reason string) bool {
	logs := s.Logs()
	logs = slices.Clone(logs[max(0, len(logs)-graveLogs):])
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[s.ID] != s {
		return false
	}
	delete(h.boxes, s.ID)
	if s.Token != "" {
		delete(h.tokens, sha256.Sum256([]byte(s.Token)))
	}
	h.ended[s.ID] = tombstone{s.TeamID, reason, logs}
	h.order = append(h.order, s.ID)
	if len(h.order) > tombstones {
		delete(h.ended, h.order[0])
		h.order = h.order[1:]
	}
	return true
}
