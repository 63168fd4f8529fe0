package host

import "time"

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

func (s *Sandbox) addLog(level, message string, fields map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLogLocked(level, message, fields)
}

// addLogLocked is addLog for who holds s.mu.
func (s *Sandbox) addLogLocked(level, message string, fields map[string]string) {
	s.logs.add(LogEntry{time.Now().UTC(), level, message, fields})
}

// Logs returns what the sandbox's log holds, oldest first.
func (s *Sandbox) Logs() []LogEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs.list()
}

// Logs returns the log of a team's sandbox, oldest first, for some time also
// after its end. The error wraps ErrNotFound.
func (h *Host) Logs(teamID, id string) ([]LogEntry, error) {
	h.mu.Lock()
	s, grave := h.boxes[id], h.ended[id]
	h.mu.Unlock()
	switch {
	case s != nil && s.TeamID == teamID:
		return s.Logs(), nil
	case grave.reason != "" && grave.teamID == teamID:
		return grave.logs, nil
	}
	return nil, ErrNotFound
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
