package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
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

// history is what a Recorder was told of one sandbox.
type history struct {
	record Record   // the last that was written
	states []State  // that were written, one after the other
	ended  []string // reasons; also of an end that was not written
}

// notes is a Recorder that checks what it is told, as Recorder promises it, and
// fails if it is told to.
type notes struct {
	t  testing.TB
	mu sync.Mutex
	of map[string]*history

	// fail, if it is not nil, is asked before each Put.
	fail             func(Record) error
	failGet, failAll error
}

func newNotes(t testing.TB) *notes { return &notes{t: t, of: map[string]*history{}} }

// failing has every Put of a state fail.
func failing(err error, states ...State) func(Record) error {
	return func(r Record) error {
		if slices.Contains(states, r.State) {
			return err
		}
		return nil
	}
}

func (n *notes) Put(ctx context.Context, r Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		n.t.Errorf("%s: a record is given up with its client: %v", r.ID, err)
	}
	h := n.of[r.ID]
	if h == nil {
		h = &history{}
		n.of[r.ID] = h
	}
	switch from := h.record.State; {
	case len(h.ended) > 0:
		n.t.Errorf("%s: %s after its end: %+v", r.ID, r.State, h)
	case (r.State == StateEnded) != (r.Reason != "" && !r.EndedAt.IsZero() && r.Env == nil) && r.State == StateEnded:
		n.t.Errorf("%s: an end without reason or time, or with secrets: %+v", r.ID, r)
	case r.State != StateBooting && r.State != StateEnded && from == "" && n.fail == nil:
		n.t.Errorf("%s: begins as %s", r.ID, r.State)
	}
	if r.State == StateEnded {
		h.ended = append(h.ended, r.Reason)
	}
	if n.fail != nil {
		if err := n.fail(r); err != nil {
			return err
		}
	}
	h.record, h.states = r, append(h.states, r.State)
	return nil
}

func (n *notes) Get(_ context.Context, id string) (Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of[id]
	switch {
	case n.failGet != nil:
		return Record{}, n.failGet
	case h == nil || h.record.State == "":
		return Record{}, ErrNotFound
	}
	return h.record, nil
}

func (n *notes) Live(context.Context) ([]Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failAll != nil {
		return nil, n.failAll
	}
	var live []Record
	for _, h := range n.of {
		if s := h.record.State; s != "" && s != StateEnded {
			live = append(live, h.record)
		}
	}
	return live, nil
}

// history returns a copy of what was told of a sandbox.
func (n *notes) history(id string) history {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.of[id]; h != nil {
		return history{h.record, slices.Clone(h.states), slices.Clone(h.ended)}
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

// is reports whether err has the code want, or wraps the error want; for a want of nil
// whether there is no error.
func is(err error, want any) bool {
	switch want := want.(type) {
	case fault.Code:
		return fault.CodeOf(err) == want
	case error:
		return errors.Is(err, want)
	}
	return err == nil
}

// reason is why the sandbox of which err says that it does not live has ended; empty
// where err does not say that.
func reason(err error) string {
	if fault.CodeOf(err) != fault.NotFound || errors.Is(err, ErrNotFound) {
		return ""
	}
	at, why, _ := strings.Cut(err.Error(), ": ")
	_, text, _ := strings.Cut(at, " ended at ")
	if when, err := time.Parse(time.RFC3339, text); err != nil || time.Since(when) > time.Hour {
		return ""
	}
	return why
}
