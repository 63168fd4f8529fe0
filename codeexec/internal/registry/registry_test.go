package registry_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/registry"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// process runs until it is told to end, or killed.
type process struct {
	once sync.Once
	end  chan struct{}
	deaf bool   // to Kill
	gone func() // called before Wait returns, if it is not nil
}

func newProcess() *process { return &process{end: make(chan struct{})} }

func (p *process) stop()                       { p.once.Do(func() { close(p.end) }) }
func (p *process) Write(b []byte) (int, error) { return len(b), nil }
func (p *process) Terminate() error            { p.stop(); return nil }

func (p *process) Wait() (int, error) {
	<-p.end
	if p.gone != nil {
		p.gone()
	}
	return 0, nil
}

func (p *process) Kill() error {
	if !p.deaf {
		p.stop()
	}
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.end:
		return true
	default:
		return false
	}
}

// workspace returns one of an execution id.
func workspace(id, name string) codeexec.Workspace {
	return codeexec.Workspace{ID: id, Path: "/root/ws_" + name}
}

// follow admits a program and follows it.
func follow(t *testing.T, r *registry.Registry, ws codeexec.Workspace, p *process) *session.Session {
	t.Helper()
	if err := r.Admit(); err != nil {
		t.Fatal(err)
	}
	s, err := r.Follow(ws, p, session.NewOutput(100), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// slots takes all slots that are free, counts them and gives them back.
func slots(r *registry.Registry) int {
	n := 0
	for r.Admit() == nil {
		n++
	}
	for range n {
		r.Release()
	}
	return n
}

func TestWorkspaces(t *testing.T) {
	a1, a2, b, kept := workspace("a", "a1"), workspace("a", "a2"), workspace("b", "b"), workspace("a", "kept")
	for _, tc := range []struct {
		name    string
		added   []codeexec.Workspace
		removed []codeexec.Workspace
		want    []codeexec.Workspace // of a
	}{
		{"none but the kept one", nil, nil, []codeexec.Workspace{kept}},
		{"in their order", []codeexec.Workspace{a2, b, a1}, nil, []codeexec.Workspace{a2, a1, kept}},
		{"each once", []codeexec.Workspace{kept, a1, kept, a1}, nil, []codeexec.Workspace{kept, a1}},
		{"without those that were removed", []codeexec.Workspace{a1, a2, b}, []codeexec.Workspace{a1, b}, []codeexec.Workspace{a2, kept}},
		{"all removed", []codeexec.Workspace{a1, a2}, []codeexec.Workspace{a1, a2}, []codeexec.Workspace{kept}},
		{"one removed that was never added", []codeexec.Workspace{a1}, []codeexec.Workspace{a2, b}, []codeexec.Workspace{a1, kept}},
		{"one added again", []codeexec.Workspace{a1, a2}, []codeexec.Workspace{a1}, []codeexec.Workspace{a2, kept}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := registry.New(1)
			for _, ws := range tc.added {
				r.Add(ws, workdir.NewRecord(ws.ID, time.Now()))
			}
			r.Remove(tc.removed...)
			if got := r.Workspaces("a", kept.Path); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRecords(t *testing.T) {
	r, ws := registry.New(1), workspace("a", "a")
	input := workdir.Input{Scheme: workdir.SchemeArtifact, Path: "x", InputSpec: codeexec.InputSpec{From: "artifact://x"}}
	if rec := r.Record(ws); rec.ID != "a" || len(rec.Inputs) != 0 {
		t.Errorf("of an unknown workspace: %+v", rec)
	}
	rec := workdir.NewRecord("a", time.Now())
	rec.AddInput(input, nil, time.Now())
	r.Add(ws, rec)
	copied := r.Record(ws)
	copied.AddInput(input, nil, time.Now())
	if got := len(r.Record(ws).Inputs); got != 1 || len(copied.Inputs) != 2 {
		t.Errorf("a change of the copy changed the registry: %d inputs, the copy has %d", got, len(copied.Inputs))
	}
	r.SetRecord(ws, copied)
	if got := len(r.Record(ws).Inputs); got != 2 {
		t.Errorf("got %d inputs after SetRecord", got)
	}
	r.Remove(ws)
	if got := len(r.Record(ws).Inputs); got != 0 {
		t.Errorf("got %d inputs after Remove", got)
	}
}

func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p := registry.New(2), newProcess()
		s := follow(t, r, workspace("a", "a"), p)
		if got := slots(r); got != 1 {
			t.Errorf("%d slots are free while a program runs", got)
		}
		if err := r.Admit(); err != nil {
			t.Fatal(err)
		}
		if err := r.Admit(); cubby.CodeOf(err) != cubby.CodeRateLimited || err.Error() != "2 programs run already (wait for one, or close one)" {
			t.Errorf("got %v", err)
		}
		r.Release()
		p.stop()
		if _, err := s.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait() // the slot is given back after that
		if got := slots(r); got != 2 {
			t.Errorf("%d slots are free in the end", got)
		}
	})
}

func TestEndPrograms(t *testing.T) {
	a, b, c := workspace("a", "a"), workspace("a", "b"), workspace("c", "c")
	for _, tc := range []struct {
		name string
		of   []codeexec.Workspace
		want []bool // ended: two of a, one of b, one of c
	}{
		{"no workspace", nil, []bool{false, false, false, false}},
		{"one", []codeexec.Workspace{a}, []bool{true, true, false, false}},
		{"two", []codeexec.Workspace{b, c}, []bool{false, false, true, true}},
		{"one without programs", []codeexec.Workspace{workspace("a", "x")}, []bool{false, false, false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := registry.New(4)
			var all []*process
			for _, ws := range []codeexec.Workspace{a, a, b, c} {
				all = append(all, newProcess())
				follow(t, r, ws, all[len(all)-1])
			}
			if err := r.EndPrograms(tc.of...); err != nil {
				t.Error(err)
			}
			for i, p := range all {
				if p.ended() != tc.want[i] {
					t.Errorf("program %d: ended %v, want %v", i, p.ended(), tc.want[i])
				}
			}
			if err := r.CheckOpen(); err != nil {
				t.Error(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClose(t *testing.T) {
	t.Run("ends what runs and what comes later", func(t *testing.T) {
		r, ws := registry.New(2), workspace("a", "a")
		before, after := newProcess(), newProcess()
		follow(t, r, ws, before)
		if err := errors.Join(r.CheckOpen(), r.Close()); err != nil || !before.ended() {
			t.Errorf("got %v, ended %v", err, before.ended())
		}
		if err := r.CheckOpen(); !errors.Is(err, registry.ErrClosed) || cubby.CodeOf(err) != cubby.CodeConflict {
			t.Errorf("got %v", err)
		}
		if err := r.Admit(); err != nil {
			t.Fatal(err)
		}
		s, err := r.Follow(ws, after, session.NewOutput(100), 0)
		if s != nil || !errors.Is(err, registry.ErrClosed) || !after.ended() {
			t.Errorf("got %v, %v, ended %v", s, err, after.ended())
		}
		if err := r.Close(); err != nil {
			t.Errorf("a second time: %v", err)
		}
	})
	t.Run("one that does not end holds up no other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry.New(3)
			deaf, other := newProcess(), newProcess()
			deaf.deaf = true
			follow(t, r, workspace("a", "a"), deaf)
			follow(t, r, workspace("b", "b"), other)
			closed := make(chan error)
			go func() { closed <- r.Close() }()
			synctest.Wait()
			if !other.ended() {
				t.Error("the other one was not ended")
			}
			if err := <-closed; cubby.CodeOf(err) != cubby.CodeTimeout {
				t.Errorf("got %v", err)
			}
			if got := slots(r); got != 2 {
				t.Errorf("%d slots are free while it runs", got)
			}
			deaf.stop()
			synctest.Wait()
			if got := slots(r); got != 3 {
				t.Errorf("%d slots are free in the end", got)
			}
		})
	})
}

// Programs begin and end, workspaces come and go, and in the middle of it the
// registry is closed: no more programs run than may, each ends, and every slot is
// given back.
func TestConcurrent(t *testing.T) {
	const most, workers, rounds = 4, 16, 50
	r := registry.New(most)
	var (
		wg      sync.WaitGroup
		running atomic.Int64
		began   atomic.Int64
	)
	half := make(chan struct{}) // closed when half of the rounds have begun
	for w := range workers {
		wg.Go(func() {
			id := fmt.Sprintf("id %d", w%3)
			for round := range rounds {
				if began.Add(1) == workers*rounds/2 {
					close(half)
				}
				ws := workspace(id, fmt.Sprintf("%d_%d", w, round))
				r.Add(ws, workdir.NewRecord(id, time.Now()))
				if !slices.Contains(r.Workspaces(id, "/root/ws_kept"), ws) {
					t.Errorf("%s is not there", ws.Path)
				}
				rec := r.Record(ws)
				rec.AddOutput(codeexec.OutputSpec{}, codeexec.OutputManifest{}, time.Now())
				r.SetRecord(ws, rec)
				if err := r.Admit(); err == nil {
					if now := running.Add(1); now > most {
						t.Errorf("%d programs run", now)
					}
					p := newProcess()
					p.gone = func() { running.Add(-1) }
					s, err := r.Follow(ws, p, session.NewQuietOutput(100), time.Hour)
					if err != nil && !errors.Is(err, registry.ErrClosed) {
						t.Error(err)
					}
					if round%2 == 0 {
						p.stop()
					} else if err := r.EndPrograms(ws); err != nil {
						t.Error(err)
					}
					if !p.ended() {
						t.Errorf("a program of %s goes on", ws.Path)
					}
					if s != nil {
						if _, err := s.Wait(t.Context()); err != nil {
							t.Error(err)
						}
					}
				} else if cubby.CodeOf(err) != cubby.CodeRateLimited {
					t.Error(err)
				}
				r.Remove(ws)
			}
		})
	}
	// These take no other lock, so the race detector sees a read without one.
	var (
		readers sync.WaitGroup
		over    atomic.Bool
	)
	for _, read := range []func(){
		func() { r.Workspaces("id 0", "/root/ws_kept") },
		func() { r.Record(workspace("id 0", "0_0")) },
		func() { _ = r.CheckOpen() },
	} {
		readers.Go(func() {
			for !over.Load() {
				read()
				time.Sleep(10 * time.Microsecond)
			}
		})
	}
	wg.Go(func() {
		<-half
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	over.Store(true)
	readers.Wait()
	for deadline := time.Now().Add(10 * time.Second); slots(r) != most; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d slots were given back", slots(r), most)
		}
	}
	for i := range 3 {
		if got := r.Workspaces(fmt.Sprintf("id %d", i), "/root/ws_kept"); len(got) != 1 {
			t.Errorf("%d workspaces are left", len(got)-1)
		}
	}
}
