package store

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

func TestSandboxes(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	check := func(want Sandbox) {
		t.Helper()
		got, err := s.Sandbox(ctx, want.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
	put := func(b Sandbox) {
		t.Helper()
		if err := s.PutSandbox(ctx, b); err != nil {
			t.Fatal(err)
		}
		check(b)
	}
	want := testSandbox(team, "i1")
	put(want)
	// All of it is replaced.
	want.State, want.EndAt, want.PausedAt = "paused", want.EndAt.Add(-time.Minute), want.StartedAt.Add(time.Second)
	want.Generation, want.PublicID, want.TemplateID, want.TemplateDigest = 2, "p2", "other", "sha256:2"
	want.Engine, want.EngineBuild, want.CPUs, want.MemoryMB, want.DiskMB, want.PIDs = "other", "v2", 2, 64, 65, 66
	want.Memories, want.Files, want.Metadata, want.Settings, want.Sealed = 3, 4, map[string]string{"a": "b"}, []byte(`{"x":1}`), []byte("other")
	put(want)
	if live, err := s.LiveSandboxes(ctx); err != nil || len(live) != 1 || !reflect.DeepEqual(live[0], want) {
		t.Errorf("live: %+v, %v", live, err)
	}
	if err := s.PutSandbox(ctx, testSandbox(otherTeam(t, s), want.ID)); !errors.Is(err, ErrEnded) {
		t.Errorf("another team's of the same ID: %v", err)
	}
	check(want)

	if err := end(ctx, s, want, want.StartedAt.Add(time.Minute), "killed"); err != nil {
		t.Fatal(err)
	}
	ended := want
	ended.State, ended.EndedAt, ended.EndReason, ended.Sealed = StateEnded, want.StartedAt.Add(time.Minute), "killed", nil
	check(ended)
	// The first end wins, and there is no way back.
	if err := end(ctx, s, want, ended.EndedAt.Add(time.Hour), "timed out"); err != nil {
		t.Errorf("the second end: %v", err)
	}
	if err := s.PutSandbox(ctx, want); !errors.Is(err, ErrEnded) {
		t.Errorf("a life after the end: %v", err)
	}
	check(ended)
	if live, err := s.LiveSandboxes(ctx); err != nil || len(live) != 0 {
		t.Errorf("live: %+v, %v", live, err)
	}
}

func otherTeam(t *testing.T, s *Store) string {
	t.Helper()
	team, err := s.CreateTeam(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	return team.ID
}

func TestUnknownSandbox(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	_, err := s.Sandbox(ctx, "i1")
	for what, err := range map[string]error{"read": err, "of no team": s.PutSandbox(ctx, testSandbox("no-such-team", "i1"))} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSandboxBounds(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	b := testSandbox(team, "i1")
	b.Metadata = map[string]string{"k": strings.Repeat("x", maxMetadata)}
	if err := s.PutSandbox(ctx, b); fault.CodeOf(err) != fault.InvalidArgument {
		t.Errorf("much metadata: %v", err)
	}
	b.Metadata, b.Settings = nil, nil
	if err := s.PutSandbox(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := end(ctx, s, b, start2026, strings.Repeat("ü", maxReason)+"\xff"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Sandbox(ctx, "i1")
	if err != nil || len(got.Metadata) != 0 || len(got.EndReason) > maxReason ||
		!utf8.ValidString(got.EndReason) || len(got.EndReason) < maxReason-1 {
		t.Errorf("%d bytes of reason, %v", len(got.EndReason), err)
	}
}

// TestRetention: of ended sandboxes the newest are kept, of live ones all.
func TestRetention(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	now := start2026.Add(365 * 24 * time.Hour)
	s.now = func() time.Time { return now }
	put := func(id string, metadata int, endedAgo time.Duration) {
		t.Helper()
		b := testSandbox(team, id)
		b.Metadata = map[string]string{"k": strings.Repeat("x", metadata)}
		if err := s.PutSandbox(ctx, b); err != nil {
			t.Fatal(err)
		}
		if endedAgo > 0 {
			if err := end(ctx, s, b, now.Add(-endedAgo), "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func(id string) bool {
		t.Helper()
		_, err := s.Sandbox(ctx, id)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	prune := func() {
		t.Helper()
		if err := s.Prune(ctx); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("by age", func(t *testing.T) {
		put("live", 0, 0)
		put("old", 0, keepEnded+time.Hour)
		put("young", 0, keepEnded-time.Hour)
		prune()
		if !kept("live") || kept("old") || !kept("young") {
			t.Errorf("live %v, old %v, young %v", kept("live"), kept("old"), kept("young"))
		}
	})
	t.Run("by number", func(t *testing.T) {
		s.keepEnded = 10
		defer func() { s.keepEnded = keepEndedRecords }()
		for i := range 30 {
			put(fmt.Sprint("n", i), 0, time.Duration(100-i)*time.Second)
		}
		prune()
		if kept("young") || kept("n19") || !kept("n20") || !kept("n29") || !kept("live") {
			t.Error("the wrong ones were kept")
		}
		prune()
		if !kept("n20") {
			t.Error("one too many was removed")
		}
	})
	t.Run("by size", func(t *testing.T) {
		for id, size := range map[string]int{"small": keepEndedMetadata - 100, "large": keepEndedMetadata + 1} {
			put(id, size, time.Second)
			want := 1
			if id == "large" {
				want = 0
			}
			if b, err := s.Sandbox(ctx, id); err != nil || len(b.Metadata) != want {
				t.Errorf("%s: %d, %v", id, len(b.Metadata), err)
			}
		}
	})
	t.Run("while sandboxes end", func(t *testing.T) {
		put("old again", 0, keepEnded+time.Hour)
		for i := range pruneEvery {
			put(fmt.Sprint("s", i), 0, time.Minute)
		}
		if kept("old again") {
			t.Error("an old record is still there")
		}
	})
}

// TestConcurrentUse: many goroutines, one store; no error and nothing lost. With
// each sandbox two ends race.
func TestConcurrentUse(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	_, secret, err := s.CreateKey(ctx, team, "")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 25 {
				id := fmt.Sprintf("i%d-%d", g, i)
				b := testSandbox(team, id)
				if err := s.PutSandbox(ctx, b); err != nil {
					t.Error(err)
				}
				if got, err := s.TeamOfKey(ctx, secret); err != nil || got != team {
					t.Errorf("%q, %v", got, err)
				}
				var ends sync.WaitGroup
				for _, reason := range []string{"a", "b"} {
					ends.Go(func() {
						if err := end(ctx, s, b, start2026, reason); err != nil {
							t.Error(err)
						}
					})
				}
				if _, err := s.LiveSandboxes(ctx); err != nil {
					t.Error(err)
				}
				ends.Wait()
				first, err := s.Sandbox(ctx, id)
				if err != nil {
					t.Error(err)
				}
				if err := end(ctx, s, b, start2026, "c"); err != nil {
					t.Error(err)
				}
				if last, err := s.Sandbox(ctx, id); err != nil || first.EndReason == "c" || last.EndReason != first.EndReason {
					t.Errorf("%+v, then %+v, %v", first, last, err)
				}
			}
		})
	}
	group.Wait()
	var n int
	if err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM sandboxes WHERE ended_at IS NOT NULL`).Scan(&n); err != nil || n != 200 {
		t.Errorf("%d, %v", n, err)
	}
}
