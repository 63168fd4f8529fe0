package host

import (
	"context"
	"time"
)

// Levels of log entries, E2B's.
const (
	levelInfo = "info"
	levelWarn = "warn"
)

// maxLogs is how many entries a sandbox keeps, the newest; a client can make one
// with each change of its deadline.
const maxLogs = 256

// LogEntry is a line of a sandbox's log: what the host did with it. What runs
// inside writes nowhere near.
type LogEntry struct {
	At      time.Time // UTC
	Level   string    // debug, info, warn or error
	Message string
	Fields  map[string]string // not to be changed; may be nil
}

func (s *Sandbox) addLog(e LogEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs.add(e)
}

// Logs returns what the sandbox's log holds, oldest first.
func (s *Sandbox) Logs() []LogEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.list()
}

// Logs returns the log of a team's sandbox, oldest first, for some time also
// after its end; then what its record knows, its beginning and its end. The error
// wraps ErrNotFound.
func (h *Host) Logs(ctx context.Context, teamID, id string) ([]LogEntry, error) {
	h.mu.Lock()
	s, t := h.sandboxes[id], h.ended[id]
	h.mu.Unlock()
	switch {
	case s != nil && s.TeamID == teamID:
		return s.Logs(), nil
	case t.reason != "" && t.teamID == teamID:
		return t.logs, nil
	}
	r, ok := h.recordOfEnded(ctx, id)
	if !ok || r.TeamID != teamID {
		return nil, ErrNotFound
	}
	return []LogEntry{createdEntry(r.StartedAt, r.TemplateID), endedEntry(r.EndedAt, r.Reason)}, nil
}

// warnOfClosedNetwork says once that a client that asked for internet access has
// none: the network is closed, and a program that waits for it should be told
// apart from one that is broken.
func (s *Sandbox) warnOfClosedNetwork() {
	asked := s.Record().AllowInternetAccess
	if s.host.cfg.Networks != nil || asked == nil || !*asked {
		return
	}
	const message = "Internet access was asked for, but this server has none to give: the sandbox's network is closed"
	s.addLog(LogEntry{s.StartedAt, levelWarn, message, map[string]string{"allow_internet_access": "true"}})
	s.host.log.Warn("internet access was asked for, but sandboxes have a closed network", "sandbox_id", s.ID, "team", s.TeamID)
}

func createdEntry(at time.Time, templateID string) LogEntry {
	return LogEntry{at, levelInfo, "Sandbox created", map[string]string{"template_id": templateID}}
}

func endedEntry(at time.Time, reason string) LogEntry {
	return LogEntry{at, levelInfo, "Sandbox ended: " + reason, nil}
}

// ring keeps the newest max values. The zero value with max set is ready. It is
// not safe for concurrent use.
type ring[T any] struct {
	max    int
	values []T
	next   int // where the next goes, once it is full
}

func (r *ring[T]) add(v T) {
	if len(r.values) < r.max {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % r.max
}

// list returns a copy, oldest first.
func (r *ring[T]) list() []T {
	all := make([]T, 0, len(r.values))
	return append(append(all, r.values[r.next:]...), r.values[:r.next]...)
}
