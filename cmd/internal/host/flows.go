package host

import (
	"context"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// maxFlows is how many of what was told of a sandbox's flows are kept, the newest.
const maxFlows = 1000

// RecordFlow keeps what was decided of a sandbox's flow, or how it ended. One of a
// sandbox that is gone is forgotten.
func (h *Host) RecordFlow(f egress.Flow) {
	h.mu.Lock()
	s := h.sandboxes[f.Sandbox]
	h.mu.Unlock()
	if s == nil {
		return
	}
	h.log.Debug("network flow", "sandbox_id", f.Sandbox, "proto", f.Proto, "host", f.Host, "addr", f.Addr, "allowed", f.Allowed,
		"rule", f.Rule, "reason", f.Reason, "sent", f.Sent, "received", f.Received, "ended", !f.End.IsZero())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flows.add(f)
}

// flushTimeout bounds the wait for what the gateway has yet to tell.
const flushTimeout = time.Second

// Flows returns what was told of the flows of a team's sandbox that has not ended,
// oldest first: the newest thousand. The error wraps ErrNotFound.
func (h *Host) Flows(ctx context.Context, teamID, id string) ([]egress.Flow, error) {
	s, err := h.Of(ctx, teamID, id)
	if err != nil {
		return nil, err
	}
	if h.cfg.Networks != nil {
		flush, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		if err := h.cfg.Networks.Flush(flush); err != nil {
			h.log.Warn("the newest of a sandbox's flows may be missing", "sandbox_id", id, "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows.list(), nil
}
