package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// lifetime is a sandbox that everything happens to, with the records and the folder that
// outlive its servers.
type lifetime struct {
	t       *testing.T
	eng     *hosttest.Engine
	records *notes
	cfg     Config
	h       *Host

	creating chan struct{} // full while a sandbox is made: there is one at a time

	mu         sync.Mutex
	s          *Sandbox // nil before the first create, and where a crash took it
	storeFails int      // so many of the next records
	starting   bool     // a server starts
	saveFails  bool
	loadFails  bool
	lost       map[string]bool // sandboxes of which a record was not written
}

var errBroken = errors.New("broken")

func newLifetime(t *testing.T) *lifetime {
	l := &lifetime{t: t, eng: &hosttest.Engine{}, records: newNotes(t), creating: make(chan struct{}, 1), lost: map[string]bool{}}
	l.records.fail = func(r Record) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		// A new deadline, and what a start finds, are of a state that is told already.
		if s := l.s; s != nil && s.ID == r.ID && r.State != StateRunning && !l.starting && s.State() == r.State {
			t.Errorf("%s: %s was told before it was written", r.ID, r.State)
		}
		if l.storeFails == 0 {
			return nil
		}
		l.storeFails--
		l.lost[r.ID] = true
		return errBroken
	}
	slow := func(fails *bool) func(context.Context, engine.Spec) error {
		return func(ctx context.Context, _ engine.Spec) error {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if *fails {
				return errBroken
			}
			return nil
		}
	}
	l.eng.Save, l.eng.Load = slow(&l.saveFails), slow(&l.loadFails)
	l.cfg = Config{Engine: l.eng, Recorder: l.records, Key: secret.New(),
		Images: &hosttest.Images{Dir: t.TempDir()}, MaxSandboxes: 4, Boots: 2}
	l.h = New(l.cfg)
	return l
}

func (l *lifetime) sandbox() *Sandbox {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s
}

func (l *lifetime) create(pause bool) error {
	l.creating <- struct{}{}
	defer func() { <-l.creating }()
	if s := l.sandbox(); s != nil && s.State() != StateEnded {
		return nil
	}
	req := CreateRequest{Secure: true}
	req.Timeout, req.AutoPause, req.EnvVars = new(60), &pause, map[string]string{"A": "b"}
	s, err := l.h.Create(l.t.Context(), req)
	if err == nil {
		l.mu.Lock()
		l.s = s
		l.mu.Unlock()
	}
	return err
}

// on is f of the sandbox, if there is one.
func (l *lifetime) on(f func(*Sandbox) error) error {
	if s := l.sandbox(); s != nil {
		return f(s)
	}
	return nil
}

func (l *lifetime) die() {
	machines := l.eng.Machines()
	if len(machines) > 0 {
		machines[len(machines)-1].Die("its kernel panicked")
	}
}

// crash ends the server without a word to the store, and starts the next one.
func (l *lifetime) crash() {
	l.h.cfg.Recorder = gone{} // it is called only by what happens from now on
	_ = l.h.Close()
	l.restart()
}

// stop ends the server as it should, and starts the next one.
func (l *lifetime) stop() {
	if err := l.h.Close(); err != nil && !errors.Is(err, errBroken) {
		l.t.Errorf("close: %v", err)
	}
	l.restart()
}

func (l *lifetime) restart() {
	l.mu.Lock()
	l.storeFails, l.starting = 0, true
	l.mu.Unlock()
	// An end that was not written is not known to the next server.
	l.records.mu.Lock()
	for _, h := range l.records.of {
		if h.record.State != StateEnded {
			h.ended = nil
		}
	}
	l.records.mu.Unlock()
	l.h = New(l.cfg)
	if _, err := l.h.Recover(context.Background()); err != nil {
		l.t.Fatalf("recover: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting = false
	if l.s == nil {
		return
	}
	delete(l.lost, l.s.ID) // what was not written is not known to anybody any more
	if again, err := l.h.Get(l.s.ID); err == nil {
		l.s = again
	} else {
		l.s = nil
	}
}

// gone is the Recorder of a server that is dead: what it does reaches nothing.
type gone struct{}

func (gone) Put(context.Context, Record) error           { return nil }
func (gone) Get(context.Context, string) (Record, error) { return Record{}, ErrNotFound }
func (gone) Live(context.Context) ([]Record, error)      { return nil, nil }

// kept says whether the next start keeps a sandbox of a state.
func kept(s State) bool { return s == StatePaused || s == StateResuming }

// check looks at everything while nothing happens.
func (l *lifetime) check(when string) {
	l.t.Helper()
	machines := running(l.eng)
	s := l.sandbox()
	if s == nil {
		if machines != 0 {
			l.t.Fatalf("%s: %d machines and no sandbox", when, machines)
		}
		return
	}
	told, stored := s.Record(), l.records.history(s.ID).record
	l.mu.Lock()
	lost := l.lost[s.ID]
	l.mu.Unlock()
	switch {
	case !slices.Contains([]State{StateRunning, StatePaused, StateEnded}, told.State):
		l.t.Fatalf("%s: nothing happens, and it is %s", when, told.State)
	case told.State == StateEnded && stored.State != StateEnded && !lost,
		told.State != StateEnded && kept(told.State) != kept(stored.State),
		told.State != stored.State && !lost:
		l.t.Fatalf("%s: it is %s, and the store has %s", when, told.State, stored.State)
	case told.State == StateRunning && stored.State == StateRunning && !told.EndAt.Equal(stored.EndAt):
		l.t.Fatalf("%s: it ends at %v, and the store has %v", when, told.EndAt, stored.EndAt)
	case stored.State != StateEnded && stored.Env["A"] != "b":
		l.t.Fatalf("%s: the store has the environment %v", when, stored.Env)
	}
	ended := isOver(s)
	_, err := l.h.Get(s.ID)
	why, known := l.h.EndOf(l.t.Context(), s.ID, s.Token)
	if ended != (told.State == StateEnded) || ended != (err != nil) || ended != known || ended && why.Reason != told.Reason {
		l.t.Fatalf("%s: it is %s; ended %v, found %v, end %v", when, told.State, ended, err, why)
	}
	want, image := 0, []string{}
	switch told.State {
	case StateRunning:
		want = 1
	case StatePaused:
		image = []string{s.ID}
	}
	l.h.mu.Lock()
	taken := l.h.taken
	l.h.mu.Unlock()
	select {
	case <-s.Ports().Done():
		if want == 1 {
			l.t.Fatalf("%s: its ports are closed", when)
		}
	default:
		if want == 0 {
			l.t.Fatalf("%s: it is %s, and its ports are open", when, told.State)
		}
	}
	if got := imageNames(l.t, l.h); machines != want || taken != want || !slices.Equal(got, image) {
		l.t.Fatalf("%s: it is %s with %d machines, %d places and the images %v", when, told.State, machines, taken, got)
	}
}

// end ends everything, and looks that nothing but what is paused is left.
func (l *lifetime) end() {
	l.t.Helper()
	l.mu.Lock()
	l.storeFails = 0
	l.mu.Unlock()
	l.stop()
	l.check("after a restart")
	if err := l.on((*Sandbox).Kill); err != nil {
		l.t.Errorf("kill: %v", err)
	}
	if err := l.h.Close(); err != nil {
		l.t.Errorf("close: %v", err)
	}
	if running(l.eng) != 0 || len(imageNames(l.t, l.h)) != 0 {
		l.t.Errorf("left: %d machines, images %v", running(l.eng), imageNames(l.t, l.h))
	}
	for i, m := range l.eng.Machines() {
		if m.Closed() != 1 {
			l.t.Errorf("machine %d was closed %d times", i, m.Closed())
		}
	}
	for _, id := range l.records.all() {
		if h := l.records.history(id); h.record.State != StateEnded && h.record.State != "" {
			l.t.Errorf("%s: the store has %s", id, h.record.State)
		}
	}
}

// steps are what can happen. A call returns what it says; what follows from that is
// checked by model.
var steps = []struct {
	name string
	do   func(l *lifetime) error
}{
	{"create", func(l *lifetime) error { return l.create(false) }},
	{"create to be paused", func(l *lifetime) error { return l.create(true) }},
	{"extend", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.Extend(context.Background(), 90*time.Second) })
	}},
	{"set timeout", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.SetTimeout(context.Background(), 10*time.Second) })
	}},
	{"set timeout to zero", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.SetTimeout(context.Background(), 0) })
	}},
	{"pause", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.Pause(context.Background(), PauseOptions{}) })
	}},
	{"resume", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.Resume(context.Background(), ResumeOptions{}) })
	}},
	{"pause", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.Pause(context.Background(), PauseOptions{}) })
	}},
	{"resume", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error { return s.Resume(context.Background(), ResumeOptions{}) })
	}},
	{"kill", func(l *lifetime) error { return l.on((*Sandbox).Kill) }},
	{"machine dies", func(l *lifetime) error { l.die(); return nil }},
	{"a client gives up", func(l *lifetime) error {
		return l.on(func(s *Sandbox) error {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Microsecond)
			defer cancel()
			return errors.Join(s.Pause(ctx, PauseOptions{}), s.Resume(ctx, ResumeOptions{}))
		})
	}},
	{"one record fails", func(l *lifetime) error { l.mu.Lock(); l.storeFails = 1; l.mu.Unlock(); return nil }},
	{"three records fail", func(l *lifetime) error { l.mu.Lock(); l.storeFails = 3; l.mu.Unlock(); return nil }},
	{"saving fails or not", func(l *lifetime) error { l.mu.Lock(); l.saveFails = !l.saveFails; l.mu.Unlock(); return nil }},
	{"loading fails or not", func(l *lifetime) error { l.mu.Lock(); l.loadFails = !l.loadFails; l.mu.Unlock(); return nil }},
}

// model says what a call means for a sandbox when nothing else happens: in which
// state it is afterwards, given the state before and what the call said.
func model(name string, before State, err error) (after State) {
	failed := err != nil
	switch {
	case before == StateEnded || before == "":
		return before
	case name == "kill", name == "set timeout to zero":
		return StateEnded
	case name == "machine dies" && before == StateRunning:
		return StateEnded
	case name == "pause" && before == StateRunning && !failed:
		return StatePaused
	case name == "resume" && before == StatePaused && !failed:
		return StateRunning
	}
	return before
}

// FuzzLife lets anything happen to a sandbox in any order, at once or one after the
// other, on a clock that costs no time. A byte is a step; its high bits say whether
// the next one waits for it.
func FuzzLife(f *testing.F) {
	at := func(names ...string) (all []byte) {
		for _, name := range names {
			for i, s := range steps {
				if s.name == name {
					all = append(all, byte(i))
					break
				}
			}
		}
		return all
	}
	const wait, crash, stop = 0x1f, 0x1e, 0x1d
	const async = 0x80
	f.Add(at("create", "pause", "resume", "pause", "kill"))
	f.Add(append(at("create", "pause"), crash, 6, wait, wait, stop, 0))
	f.Add(append(at("create to be paused"), wait, wait, 6, wait, wait, 9))
	f.Add([]byte{0, 5 | async, 9 | async, 6 | async, wait, 0, 5, 6 | async, 9})
	f.Add([]byte{0, 12, 5, 12, 5, 13, 5, 5, 12, 6, 13, 6, 6, 13, 9})
	f.Add([]byte{0, 14, 5, 14, 5, 15, 6, 15, 6, 10, 0, 5, 11, 6, 11})
	f.Add([]byte{1, 4 | async, 5 | async, wait, 0, 10 | async, 5 | async, 3 | async, wait})
	f.Add([]byte{0, 3 | async, 5 | async, 5 | async, 6 | async, 6 | async, 2 | async, wait, crash, 6, crash})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 60 {
			t.Skip("long")
		}
		synctest.Test(t, func(t *testing.T) { playLife(t, script, wait, crash, stop, async) })
	})
}

func playLife(t *testing.T, script []byte, wait, crash, stop, async byte) {
	l := newLifetime(t)
	defer func() { _ = l.h.Close() }() // where a check has failed
	var calls sync.WaitGroup
	settled := true // nothing is under way
	for i, b := range script {
		code := b & 0x1f
		var name string
		switch before := l.stateNow(); {
		case code == wait:
			name = "wait"
			calls.Wait()
			time.Sleep(35 * time.Second)
		case code == crash, code == stop:
			calls.Wait()
			synctest.Wait()
			if code == crash {
				name = "crash"
				l.crash()
			} else {
				name = "stop"
				l.stop()
			}
		case b&async != 0:
			step := steps[int(code)%len(steps)]
			name, settled = "begin to "+step.name, false
			calls.Go(func() { _ = step.do(l) })
			continue
		default:
			step := steps[int(code)%len(steps)]
			name = step.name
			err := step.do(l)
			synctest.Wait()
			if after := l.stateNow(); settled && before != "" && after != model(name, before, err) && name != "create" && name != "create to be paused" && name != "a client gives up" {
				t.Fatalf("step %d, %s: it was %s, is %s; the call says %v", i, name, before, after, err)
			}
		}
		calls.Wait()
		synctest.Wait()
		settled = true
		l.check(fmt.Sprintf("step %d, %s", i, name))
	}
	calls.Wait()
	synctest.Wait()
	l.end()
}

func (l *lifetime) stateNow() State {
	if s := l.sandbox(); s != nil {
		return s.State()
	}
	return ""
}

// TestLifeAtOnce is FuzzLife in real time, for the race detector: many callers do
// anything to one sandbox, again and again.
func TestLifeAtOnce(t *testing.T) {
	l := newLifetime(t)
	for round := range 30 {
		if err := l.create(round%2 == 0); err != nil && !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range 6 {
			callers.Go(func() {
				for range 8 {
					step := steps[2+rand.IntN(len(steps)-2)]
					_ = step.do(l)
					if s := l.sandbox(); s != nil {
						_, _, _ = s.Info(), s.Samples(), s.Logs()
						_ = health(s)
					}
				}
			})
		}
		callers.Wait()
		// What follows by itself, such as an end, is there soon.
		deadline := time.Now().Add(30 * time.Second)
		for s := l.sandbox(); s != nil && !l.quiet(s) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		l.check(fmt.Sprint("round ", round))
		if round%10 == 9 {
			l.crash()
			l.check("after a crash")
		}
	}
	l.end()
}

// quiet says whether nothing is under way.
func (l *lifetime) quiet(s *Sandbox) bool {
	s.mu.Lock()
	ending, state := s.ending != nil, s.record.State
	s.mu.Unlock()
	return ending && isOver(s) || !ending && (state == StateRunning && running(l.eng) == 1 || state == StatePaused)
}
