package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
)

// isOver says whether a sandbox has ended.
func isOver(s *Sandbox) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// TestDeadline moves deadlines about on a clock that costs no time. A sandbox is
// made with a minute.
func TestDeadline(t *testing.T) {
	type step struct {
		after  time.Duration // since the step before
		do     func(s *Sandbox) error
		lives  bool
		endsIn time.Duration // from then, if it lives
	}
	set := func(d time.Duration) func(*Sandbox) error {
		return func(s *Sandbox) error { return s.SetTimeout(context.Background(), d) }
	}
	extend := func(d time.Duration) func(*Sandbox) error {
		return func(s *Sandbox) error { return s.Extend(context.Background(), d) }
	}
	nothing := func(*Sandbox) error { return nil }
	for _, test := range []struct {
		name   string
		steps  []step
		reason string
	}{
		{"as created", []step{{59 * time.Second, nothing, true, time.Second}, {2 * time.Second, nothing, false, 0}}, "its timeout was reached"},
		{"set to later", []step{
			{30 * time.Second, set(time.Hour), true, time.Hour},
			{59 * time.Minute, nothing, true, time.Minute},
			{61 * time.Second, nothing, false, 0},
		}, "its timeout was reached"},
		{"set to sooner", []step{{0, set(10 * time.Second), true, 10 * time.Second}, {11 * time.Second, nothing, false, 0}}, "its timeout was reached"},
		{"set to zero", []step{{0, set(0), false, 0}}, "its timeout was set to zero"},
		{"extended", []step{{30 * time.Second, extend(time.Hour), true, time.Hour}, {61 * time.Minute, nothing, false, 0}}, "its timeout was reached"},
		{"extended by less", []step{{0, extend(time.Second), true, time.Minute}, {59 * time.Second, nothing, true, time.Second},
			{2 * time.Second, nothing, false, 0}}, "its timeout was reached"},
		{"moved to and fro", []step{
			{0, set(time.Hour), true, time.Hour},
			{time.Minute, set(30 * time.Second), true, 30 * time.Second},
			{time.Second, extend(2 * time.Minute), true, 2 * time.Minute},
			{119 * time.Second, nothing, true, time.Second},
			{2 * time.Second, nothing, false, 0},
		}, "its timeout was reached"},
		{"killed", []step{{time.Second, (*Sandbox).Kill, false, 0}}, "it was killed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder, eng := newNotes(t), &hosttest.Engine{}
				h := newHost(t, eng, func(c *Config) { c.Recorder = recorder })
				s := mustCreate(t, h, 60)
				for i, step := range test.steps {
					time.Sleep(step.after)
					synctest.Wait()
					if err := step.do(s); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
					if isOver(s) == step.lives {
						t.Fatalf("step %d: lives %v", i, !step.lives)
					}
					if got := time.Until(s.EndAt()).Round(time.Second); step.lives && got != step.endsIn {
						t.Errorf("step %d: ends in %v, want %v", i, got, step.endsIn)
					}
				}
				if got := recorder.history(s.ID); !slices.Equal(got.ended, []string{test.reason}) {
					t.Errorf("record: %+v", got)
				}
				if n := eng.Machines()[0].Closed(); n != 1 {
					t.Errorf("the machine was closed %d times", n)
				}
				for name, err := range map[string]error{"set": set(time.Hour)(s), "extend": extend(time.Hour)(s)} {
					if !errors.Is(err, ErrNotFound) {
						t.Errorf("%s after the end: %v", name, err)
					}
				}
			})
		})
	}
}

// TestDeadlineNotRecorded: a deadline that cannot be recorded is not moved.
func TestDeadlineNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := newNotes(t)
		h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
		s := mustCreate(t, h, 60)
		full := errors.New("disk full")
		recorder.fail = failing(full, StateRunning)
		if err := s.SetTimeout(t.Context(), time.Hour); !errors.Is(err, full) {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if !isOver(s) {
			t.Error("it goes on with a deadline that nobody knows of")
		}
	})
}

// TestEndNotRecorded: a sandbox ends all the same, and whoever ended it is told.
func TestEndNotRecorded(t *testing.T) {
	recorder, eng := newNotes(t), &hosttest.Engine{}
	full := errors.New("disk full")
	recorder.fail = failing(full, StateEnded)
	h := New(Config{Engine: eng, Recorder: recorder, MaxSandboxes: 1})
	s := mustCreate(t, h, 60)
	if err := s.Kill(); !errors.Is(err, full) {
		t.Error(err)
	}
	if !isOver(s) || eng.Machines()[0].Closed() != 1 || len(h.Live()) != 0 {
		t.Error("something of it is left")
	}
	mustCreate(t, h, 60) // in its place
	if err := h.Close(); !errors.Is(err, full) {
		t.Error(err)
	}
}

// TestMachineDies: a sandbox ends with its machine, and its record says of what.
func TestMachineDies(t *testing.T) {
	recorder, eng := newNotes(t), &hosttest.Engine{}
	h := newHost(t, eng, func(c *Config) { c.Recorder = recorder })
	s := mustCreate(t, h, 3600)
	eng.Machines()[0].Die("its kernel panicked")
	<-s.Done()
	if got := recorder.history(s.ID).ended; !slices.Equal(got, []string{"its kernel panicked"}) {
		t.Errorf("%q", got)
	}
	logs, err := h.Logs(t.Context(), "", s.ID)
	if err != nil || len(logs) == 0 || !strings.Contains(logs[len(logs)-1].Message, "its kernel panicked") {
		t.Errorf("log: %+v, %v", logs, err)
	}
}

// TestEndsOnce lets everything that can end a sandbox, and everything that can
// move its deadline, happen at the same time. newNotes fails the test if one ends
// twice or is extended after its end.
func TestEndsOnce(t *testing.T) {
	recorder, eng := newNotes(t), &hosttest.Engine{}
	h := newHost(t, eng, func(c *Config) { c.Recorder = recorder })
	const rounds = 40
	var wg sync.WaitGroup
	for round := range rounds {
		s := mustCreate(t, h, 3600)
		m := eng.Machines()[round]
		begin := make(chan struct{})
		for _, act := range []func(){
			func() { _ = s.SetTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond) },
			func() { _ = s.SetTimeout(t.Context(), time.Duration(rand.IntN(300))*time.Microsecond) },
			func() { _ = s.SetTimeout(t.Context(), time.Hour) },
			func() { _ = s.Extend(t.Context(), 2*time.Hour) },
			func() { _ = s.SetTimeout(t.Context(), 0) },
			func() { _ = s.Kill() },
			func() { _ = s.Kill() },
			func() { m.Die("of something") },
			func() { s.Ports().BeginRun(time.Nanosecond)() },
			func() { _, _ = h.Of(t.Context(), "", s.ID) },
			func() { _ = s.Samples() },
		} {
			wg.Go(func() {
				<-begin
				act()
			})
		}
		close(begin)
	}
	wg.Wait()
	for i, m := range eng.Machines() {
		if n := m.Closed(); n != 1 {
			t.Errorf("machine %d was closed %d times", i, n)
		}
	}
	ids := recorder.all()
	if len(ids) != rounds || len(h.Live()) != 0 {
		t.Errorf("%d records, %d live", len(ids), len(h.Live()))
	}
	for _, id := range ids {
		if got := recorder.history(id).ended; len(got) != 1 {
			t.Errorf("%s ended %q", id, got)
		}
	}
}

// TestExpiresOnce is TestEndsOnce for deadlines alone: moved by many while they
// come.
func TestExpiresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := newNotes(t)
		h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
		s := mustCreate(t, h, 1)
		last := time.Now().Add(time.Second)
		var mu sync.Mutex // guards last
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 50 {
					time.Sleep(time.Duration(37*i+11*j) * time.Millisecond)
					mu.Lock()
					at := time.Now().Add(time.Second)
					if err := s.SetTimeout(context.Background(), time.Second); err == nil {
						last = at
					}
					mu.Unlock()
				}
			})
		}
		<-s.Done()
		mu.Lock()
		late := time.Since(last)
		mu.Unlock()
		if late < 0 || late > time.Millisecond {
			t.Errorf("ended %v after the last deadline", late)
		}
		wg.Wait()
		if got := recorder.history(s.ID).ended; !slices.Equal(got, []string{"its timeout was reached"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestDeadlineOfASetClock: what decides about a sandbox's end is a reading of the monotonic
// clock, which nobody sets: after a create, a change, a resume and a rollback.
func TestDeadlineOfASetClock(t *testing.T) {
	h, _ := newPausing(t, &hosttest.Engine{}, nil)
	s := mustCreate(t, h, 60)
	snapshot, err := s.Snapshot(t.Context(), SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"create", func() error { return nil }},
		{"set timeout", func() error { return s.SetTimeout(t.Context(), time.Hour) }},
		{"extend", func() error { return s.Extend(t.Context(), 2*time.Hour) }},
		{"pause and resume", func() error {
			return errors.Join(s.Pause(t.Context(), PauseOptions{}), s.Resume(t.Context(), ResumeOptions{Timeout: time.Hour}))
		}},
		{"rollback", func() error { return s.Rollback(t.Context(), snapshot.Ref()) }},
	} {
		if err := step.call(); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		deadline := s.deadline
		s.mu.Unlock()
		// Without a monotonic reading String has no "m=", and time.Until goes by the wall clock.
		if !strings.Contains(deadline.String(), " m=+") || deadline.Equal(time.Time{}) {
			t.Errorf("after %s it is %v", step.name, deadline)
		}
	}
}
