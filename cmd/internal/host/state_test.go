package host

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
)

var allStates = []State{"", StateBooting, StateRunning, StatePausing, StatePaused, StateResuming, StateEnded}

// TestTransitions tries every pair of states. What is allowed is written down before
// it can be seen, and what is not changes nothing; if it cannot be written, only
// facts happen.
func TestTransitions(t *testing.T) {
	const (
		no   = "no"
		yes  = "yes"
		fact = "fact" // it happens also if it cannot be written
	)
	to := []State{StateBooting, StateRunning, StatePausing, StatePaused, StateResuming, StateEnded}
	table := map[State][]string{
		//               booting running pausing paused resuming ended
		"":            {yes, no, no, no, no, fact},
		StateBooting:  {no, yes, no, no, no, fact},
		StateRunning:  {no, yes, yes, no, yes, fact},
		StatePausing:  {no, fact, no, yes, no, fact},
		StatePaused:   {no, no, no, no, yes, fact},
		StateResuming: {no, yes, no, fact, no, fact},
		StateEnded:    {no, no, no, no, no, no},
	}
	if len(table) != len(allStates) || len(to) != len(allStates)-1 {
		t.Fatal("a state is missing in the table")
	}
	full := errors.New("disk full")
	for from, row := range table {
		for i, want := range row {
			for _, writes := range []bool{true, false} {
				name := string(from) + " to " + string(to[i])
				recorder := newNotes(t)
				h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
				s := h.newSandbox(Record{Identity: Identity{ID: "i1"}, State: from})
				told, before := false, State("none")
				recorder.fail = func(Record) error {
					before = s.State() // while it is written
					if !writes {
						return full
					}
					return nil
				}
				err := s.become(t.Context(), from, to[i], func(r *Record) bool {
					r.EndedAt, r.Reason = time.Now(), "x" // which only an end needs
					return true
				}, func() { told = true })
				happens := want == fact || want == yes && writes
				if s.State() != map[bool]State{true: to[i], false: from}[happens] || told != happens {
					t.Errorf("%s, written %v: it is %s, told %v", name, writes, s.State(), told)
				}
				var wrong *StateError
				switch {
				case want == no && from == StateEnded && !errors.Is(err, ErrNotFound),
					want == no && from != StateEnded && (!errors.As(err, &wrong) || wrong.State != from || wrong.Intended != to[i]),
					want != no && writes && err != nil, want != no && !writes && !errors.Is(err, full):
					t.Errorf("%s, written %v: %v", name, writes, err)
				}
				stored, wantStored := recorder.history("i1").states, []State(nil)
				if want != no && writes {
					wantStored = []State{to[i]}
				}
				if !slices.Equal(stored, wantStored) || want != no && before != from {
					t.Errorf("%s, written %v: stored %v; while it was written it was %s", name, writes, stored, before)
				}
			}
		}
	}
}

// TestFrom: a transition is made from the state that it is meant for, also where
// another way leads to the same: a new deadline does not make a sandbox run.
func TestFrom(t *testing.T) {
	recorder := newNotes(t)
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
	for _, in := range []State{StateBooting, StatePausing, StatePaused, StateResuming} {
		s := h.newSandbox(Record{Identity: Identity{ID: "i1"}, State: in})
		var wrong *StateError
		if err := s.Extend(t.Context(), time.Hour); !errors.As(err, &wrong) || wrong.State != in || s.State() != in {
			t.Errorf("%s: %v, and it is %s", in, err, s.State())
		}
	}
	if ids := recorder.all(); len(ids) != 0 {
		t.Errorf("recorded: %v", ids)
	}
}

// TestNothingFollowsAnEnd: once an end is decided no other transition is made, also
// not one that was being written.
func TestNothingFollowsAnEnd(t *testing.T) {
	recorder := newNotes(t)
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
	s := mustCreate(t, h, 60)
	recorder.fail = func(r Record) error {
		if r.State == StateRunning {
			s.beginEnd("it was killed in the middle")
		}
		return nil
	}
	if err := s.SetTimeout(t.Context(), time.Hour); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deadline that came too late: %v", err)
	}
	<-s.Done()
	if got := recorder.history(s.ID); got.record.State != StateEnded || !slices.Equal(got.ended, []string{"it was killed in the middle"}) {
		t.Errorf("%+v", got)
	}
	if err := s.Kill(); err != nil || s.Record().Reason != "it was killed in the middle" {
		t.Errorf("a second end: %v, %q", err, s.Record().Reason)
	}
}

// TestGivingUpTheWait: who waits for a record that another call writes can give up.
func TestGivingUpTheWait(t *testing.T) {
	recorder := newNotes(t)
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
	s := mustCreate(t, h, 60)
	writing, written := make(chan struct{}), make(chan struct{})
	recorder.fail = func(Record) error {
		close(writing)
		<-written
		recorder.fail = nil
		return nil
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.SetTimeout(context.Background(), time.Hour) }()
	<-writing
	gone, giveUp := context.WithCancelCause(t.Context())
	go func() { second <- s.SetTimeout(gone, 2*time.Hour) }()
	why := errors.New("the client went away")
	giveUp(why)
	select {
	case err := <-second:
		if !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits for the other's record")
	}
	close(written)
	if err := <-first; err != nil || len(recorder.history(s.ID).states) != 3 {
		t.Errorf("%v, %+v", err, recorder.history(s.ID))
	}
}

// TestRecordOutlivesItsClient: a client that goes away while its record is written
// does not leave it open whether it is.
func TestRecordOutlivesItsClient(t *testing.T) {
	recorder := &cutting{notes: newNotes(t)}
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = recorder })
	s := mustCreate(t, h, 60)
	ctx, cancel := context.WithCancel(t.Context())
	recorder.cut = cancel
	if err := s.SetTimeout(ctx, time.Hour); err != nil || recorder.history(s.ID).record.EndAt != s.EndAt() {
		t.Errorf("%v; it ends at %v, recorded %v", err, s.EndAt(), recorder.history(s.ID).record.EndAt)
	}
}

// cutting is a Recorder in the middle of whose writes a client goes away.
type cutting struct {
	*notes
	cut func()
}

func (c *cutting) Put(ctx context.Context, r Record) error {
	if c.cut != nil {
		c.cut()
	}
	return c.notes.Put(ctx, r) // which looks at ctx
}

// TestEndDoesNotWaitForTheDisk: a machine that must go goes, also while its end
// cannot be written yet.
func TestEndDoesNotWaitForTheDisk(t *testing.T) {
	recorder, eng := newNotes(t), &hosttest.Engine{}
	h := newHost(t, eng, func(c *Config) { c.Recorder = recorder })
	s := mustCreate(t, h, 60)
	answer, closed := make(chan struct{}), false
	recorder.fail = func(r Record) error {
		deadline := time.Now().Add(time.Minute)
		for eng.Machines()[0].Closed() == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		closed = eng.Machines()[0].Closed() > 0
		close(answer)
		return nil
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-answer
	if !closed || recorder.history(s.ID).record.State != StateEnded {
		t.Errorf("closed %v, %+v", closed, recorder.history(s.ID))
	}
}
