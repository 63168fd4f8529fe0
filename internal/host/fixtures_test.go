package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/host/hosttest"
)

// newHost returns a host over eng, which is closed with the test.
func newHost(t testing.TB, eng *hosttest.Engine, set func(*Config)) *Host {
	t.Helper()
	cfg := Config{Engine: eng, MaxSandboxes: 1000, Boots: 8}
	if set != nil {
		set(&cfg)
	}
	h := New(cfg)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close the host: %v", err)
		}
	})
	return h
}

// mustCreate makes a sandbox that lives for seconds.
func mustCreate(t testing.TB, h *Host, seconds int) *Sandbox {
	t.Helper()
	req := CreateRequest{Secure: true}
	req.Timeout = &seconds
	s, err := h.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// record is what a Recorder was told of one sandbox.
type history struct {
	record   Record
	extended []time.Time
	ended    []string // reasons
	endedAt  time.Time
}

// notes is a Recorder that checks the order of its calls, as Recorder promises
// it, and fails if it is told to.
type notes struct {
	t  testing.TB
	mu sync.Mutex
	of map[string]*history

	failCreated, failExtended, failEnded, failEnding error
}

func newNotes(t testing.TB) *notes { return &notes{t: t, of: map[string]*history{}} }

func (n *notes) Created(_ context.Context, r Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of[r.ID] != nil {
		n.t.Errorf("%s: created twice", r.ID)
	}
	n.of[r.ID] = &history{record: r}
	return n.failCreated
}

func (n *notes) Extended(_ context.Context, id string, endAt time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of[id]
	if h == nil || len(h.ended) > 0 {
		n.t.Errorf("%s: extended before it was created or after it ended: %+v", id, h)
		return fmt.Errorf("no live record of %s", id)
	}
	if n.failExtended == nil {
		h.extended = append(h.extended, endAt)
	}
	return n.failExtended
}

func (n *notes) Ended(_ context.Context, id string, at time.Time, reason string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of[id]
	if h == nil || len(h.ended) > 0 {
		n.t.Errorf("%s: ended before it was created or twice: %+v", id, h)
		return fmt.Errorf("no live record of %s", id)
	}
	h.ended, h.endedAt = append(h.ended, reason), at
	return n.failEnded
}

func (n *notes) Ending(_ context.Context, id string) (Ending, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of[id]
	switch {
	case n.failEnding != nil:
		return Ending{}, n.failEnding
	case h == nil || len(h.ended) == 0:
		return Ending{}, ErrNotFound
	}
	r := h.record
	return Ending{TeamID: r.TeamID, TemplateID: r.TemplateID, StartedAt: r.StartedAt, EndedAt: h.endedAt, Reason: h.ended[0]}, nil
}

// history returns a copy of what was told of a sandbox.
func (n *notes) history(id string) history {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.of[id]; h != nil {
		return history{h.record, slices.Clone(h.extended), slices.Clone(h.ended), h.endedAt}
	}
	return history{}
}

// all returns the ids of all records.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := make([]string, 0, len(n.of))
	for id := range n.of {
		ids = append(ids, id)
	}
	return ids
}
