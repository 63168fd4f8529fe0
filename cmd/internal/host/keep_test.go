package host

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestKeepPaused: what has been paused for longer than the owner keeps it ends, and says
// before when; what runs and what is paused anew stays.
func TestKeepPaused(t *testing.T) {
	const keep = 300 * time.Millisecond
	images := &hosttest.Images{Dir: t.TempDir()}
	h, recorder := newPausing(t, &hosttest.Engine{}, func(c *Config) { c.Images, c.KeepPaused = images, keep })
	old, resumed, running := mustCreate(t, h, 60), mustCreate(t, h, 60), mustCreate(t, h, 60)
	for _, s := range []*Sandbox{old, resumed} {
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := old.Info().ExpiresAt, old.Record().PausedAt.Add(keep); !got.Equal(want) {
		t.Errorf("it expires at %v, want %v", got, want)
	}
	if err := resumed.Resume(t.Context(), ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := resumed.Info().ExpiresAt; !got.IsZero() {
		t.Errorf("what runs expires at %v", got)
	}
	select {
	case <-old.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it is kept")
	}
	if r := recorder.history(old.ID).record; r.State != StateEnded || !strings.Contains(r.Reason, "it was paused for 300ms") {
		t.Errorf("%s: %s", r.State, r.Reason)
	}
	if r := recorder.history(old.ID).record; r.EndedAt.Sub(r.PausedAt) < keep {
		t.Errorf("it was kept for %v", r.EndedAt.Sub(r.PausedAt))
	}
	if names := images.Names(); len(names) != 0 {
		t.Errorf("images: %q", names)
	}
	for _, s := range []*Sandbox{resumed, running} {
		if s.State() != StateRunning {
			t.Errorf("%s is %s", s.ID, s.State())
		}
	}
}

// TestKeepSnapshots: a team has as many snapshots without a name as the owner keeps; those
// with one stay.
func TestKeepSnapshots(t *testing.T) {
	h, _ := newPausing(t, &hosttest.Engine{}, func(c *Config) { c.KeepSnapshots = 2 })
	make := func(team string, names ...string) (refs []string) {
		t.Helper()
		s, err := h.Create(t.Context(), CreateRequest{NewSandbox: protocol.NewSandbox{}, TeamID: team})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			snapshot, err := s.Snapshot(t.Context(), SnapshotRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			refs = append(refs, snapshot.Ref())
		}
		return refs
	}
	red, blue := make("red", "a", "", "", ""), make("blue", "")
	for team, want := range map[string][]string{"red": {red[3], red[2], red[0]}, "blue": blue} {
		all, err := h.ListSnapshots(t.Context(), team)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range all {
			got = append(got, s.Ref())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", team, got, want)
		}
	}
}

// TestPrune: only snapshots without a name go, only where that is asked for, only the
// team's, and only those that are old enough.
func TestPrune(t *testing.T) {
	h, _ := newPausing(t, &hosttest.Engine{}, nil)
	for _, team := range []string{"red", "blue"} {
		s, err := h.Create(t.Context(), CreateRequest{NewSandbox: protocol.NewSandbox{}, TeamID: team})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "kept"} {
			if _, err := s.Snapshot(t.Context(), SnapshotRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		req           PruneRequest
		removed, left int
	}{
		{PruneRequest{}, 0, 2}, {PruneRequest{Snapshots: true, Age: time.Hour}, 0, 2},
		{PruneRequest{Snapshots: true}, 1, 1}, {PruneRequest{Snapshots: true}, 0, 1},
	} {
		removed, err := h.Prune(t.Context(), "red", tt.req)
		if err != nil || removed.Count != tt.removed || removed.Bytes != int64(tt.removed)<<20 {
			t.Errorf("%+v: %+v, %v", tt.req, removed, err)
		}
		red, err := h.Disk(t.Context(), "red")
		if err != nil || red.Snapshots != (Held{tt.left, int64(tt.left) << 20}) || red.Paused != (Held{1, 1 << 20}) {
			t.Errorf("after %+v: %+v, %v", tt.req, red, err)
		}
		if blue, err := h.Disk(t.Context(), "blue"); err != nil || blue.Snapshots.Count != 2 || blue.Paused.Count != 1 {
			t.Errorf("after %+v the others have %+v, %v", tt.req, blue, err)
		}
	}
	if _, err := h.Prune(t.Context(), "red", PruneRequest{Age: -1}); err == nil {
		t.Error("a negative age")
	}
}
