package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// killed is why a sandbox ended with its server, whose end nobody wrote down: the time
// in the record is that of the start which found it.
const killed = "the server was killed; this was found at its next start"

// TestRecover: what a server that was killed left behind is paused again or ended, by
// its state and by whether its image is whole.
func TestRecover(t *testing.T) {
	for _, test := range []struct {
		state State
		image string // "whole", "half" or none
		want  State
		why   string
	}{
		{StateBooting, "", StateEnded, killed},
		{StateRunning, "", StateEnded, killed},
		{StateRunning, "half", StateEnded, killed}, // it was resumed, and has moved on
		{StateRunning, "whole", StatePaused, ""},   // it was being resumed, and nobody was told
		{StatePausing, "half", StateEnded, killed},
		{StatePausing, "whole", StatePaused, ""}, // nothing had run on
		{StatePaused, "whole", StatePaused, ""},
		{StatePaused, "half", StateEnded, "it was paused, and its image is missing"},
		{StatePaused, "", StateEnded, "it was paused, and its image is missing"},
		{StateResuming, "whole", StatePaused, ""},
		{StateResuming, "", StateEnded, killed},
	} {
		t.Run(string(test.state)+" "+test.image, func(t *testing.T) {
			eng, key := &hosttest.Engine{}, secret.New()
			h, recorder := newPausing(t, eng, func(c *Config) { c.Key = key })
			r := Record{
				Identity: Identity{ID: "i1", PublicID: "p1", Generation: 3, TeamID: "red", TemplateID: "base", Engine: "test", EngineCommit: "1",
					Secure: true, Env: map[string]string{"A": "b"}, Lifecycle: Lifecycle{Timeout: time.Minute}},
				State: test.state, Instance: Instance{Memory: 2, Files: 5}, StartedAt: micros(time.Now()), EndAt: micros(time.Now()),
			}
			recorder.of["i1"] = &history{record: r}
			name := map[string]string{"whole": "i1", "half": "i1.new", "": "stranger"}[test.image]
			writeImage(t, h, name, manifest{Engine: "test", EngineCommit: "1", Guest: identity{"i1", 2}}, "x = 42")
			found, err := h.Recover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := recorder.history("i1").record
			if got.State != test.want || got.Reason != test.why {
				t.Errorf("record: %+v", got)
			}
			if test.want == StateEnded {
				if _, err := h.Get("i1"); !errors.Is(err, ErrNotFound) || found != (Recovered{Ended: 1}) || len(imageNames(t, h)) != 0 {
					t.Errorf("%v, %+v, images %v", err, found, imageNames(t, h))
				}
				return
			}
			s, err := h.Of(t.Context(), "red", "i1")
			if err != nil || found != (Recovered{Paused: 1}) {
				t.Fatalf("%v, %+v", err, found)
			}
			check(t, s, eng, StatePaused)
			if s.Token != key.Token(secret.Access, "i1", 3) {
				t.Error("its token is another")
			}
			if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
				t.Fatal(err)
			}
			check(t, s, eng, StateRunning)
			if m := eng.Machines()[0]; m.Memory() != "x = 42" || m.Init().EnvVars["A"] != "b" || s.Record().Instance != r.Instance {
				t.Errorf("%q, %+v, %+v", m.Memory(), m.Init(), s.Record())
			}
		})
	}
}

// TestRecoverRefuses: what cannot be read is not taken for nothing, and not removed.
func TestRecoverRefuses(t *testing.T) {
	broken := errors.New("disk I/O error")
	for name, spoil := range map[string]func(*Host, *notes){
		"the records":    func(_ *Host, n *notes) { n.failAll = broken },
		"a record's end": func(_ *Host, n *notes) { n.fail = failing(broken, StateEnded) },
		"an unknown state": func(_ *Host, n *notes) {
			n.of["i2"] = &history{record: Record{Identity: Identity{ID: "i2"}, State: "dreaming"}}
		},
		"no folder of images": func(h *Host, _ *notes) { h.cfg.Images = nil },
		"an unreadable image": func(h *Host, _ *notes) {
			h.cfg.Images.(*hosttest.Images).SetFail(func(string) error { return errImages })
		},
		"a record that it makes": func(_ *Host, n *notes) {
			n.of["i1"].record.State = StateResuming
			n.fail = failing(broken, StatePaused)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, recorder := newPausing(t, &hosttest.Engine{}, nil)
			recorder.of["i1"] = &history{record: Record{Identity: Identity{ID: "i1"}, State: StatePaused}}
			recorder.of["i0"] = &history{record: Record{Identity: Identity{ID: "i0"}, State: StateRunning}}
			images := h.cfg.Images.(*hosttest.Images)
			writeImage(t, h, "i1", manifest{Engine: "test", EngineCommit: "1"}, "")
			spoil(h, recorder)
			if found, err := h.Recover(t.Context()); err == nil {
				t.Errorf("%+v", found)
			}
			if names := images.Names(); !slices.Equal(names, []string{"i1"}) {
				t.Errorf("images: %q", names)
			}
		})
	}
}

// TestRecoverDoubtfulResume: a resume that failed because its record did, though that
// was written, leaves a record that says that the sandbox runs, if the next cannot be
// written either. Its image is kept, and the next start takes it up.
func TestRecoverDoubtfulResume(t *testing.T) {
	eng, broken, dir := &hosttest.Engine{}, errors.New("no answer in time"), t.TempDir()
	recorder, key := newNotes(t), secret.New()
	start := func() *Host {
		return newHost(t, eng, func(c *Config) { c.Recorder, c.Key, c.Images = recorder, key, &hosttest.Images{Dir: dir} })
	}
	before := start()
	s := mustCreate(t, before, 60)
	eng.Machines()[0].SetMemory("x = 42")
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	recorder.fail = func(r Record) error {
		if r.State == StateRunning {
			recorder.of[r.ID].record = r
		}
		if r.State == StateResuming {
			return nil
		}
		return broken
	}
	if err := s.Resume(t.Context(), ResumeOptions{}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	recorder.fail = nil
	if got := recorder.history(s.ID).record.State; got != StateRunning {
		t.Fatalf("recorded as %s", got)
	}
	after := start()
	if found, err := after.Recover(t.Context()); err != nil || found != (Recovered{Paused: 1}) {
		t.Fatalf("%+v, %v", found, err)
	}
	again, err := after.Get(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	check(t, again, eng, StatePaused)
	if err := again.Resume(t.Context(), ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	check(t, again, eng, StateRunning)
	machines := eng.Machines()
	if got := machines[len(machines)-1].Memory(); got != "x = 42" {
		t.Errorf("it remembers %q", got)
	}
}

// TestCloseLeavesPaused: with records, what is paused outlives the host; without,
// nothing does.
func TestCloseLeavesPaused(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		eng, recorder, dir := &hosttest.Engine{}, newNotes(t), t.TempDir()
		cfg := Config{Engine: eng, Images: &hosttest.Images{Dir: dir}, Key: secret.New()}
		if keeps {
			cfg.Recorder = recorder
		}
		before := New(cfg)
		s, other := mustCreate(t, before, 60), mustCreate(t, before, 60)
		eng.Machines()[0].SetMemory("x = 42")
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}
		}
		<-s.Done()
		<-other.Done()
		after := newHost(t, eng, func(c *Config) { *c = cfg })
		found, err := after.Recover(t.Context())
		if err != nil || running(eng) != 0 {
			t.Fatalf("%v, %d machines", err, running(eng))
		}
		if !keeps {
			if found != (Recovered{}) || len(imageNames(t, after)) != 0 {
				t.Errorf("left: %+v, %v", found, imageNames(t, after))
			}
			continue
		}
		again, err := after.Get(s.ID)
		if err != nil || found != (Recovered{Paused: 1}) || again.Token != s.Token {
			t.Fatalf("%v, %+v", err, found)
		}
		if err := s.Resume(t.Context(), ResumeOptions{}); err == nil {
			t.Error("a host that has closed resumes")
		}
		if err := again.Resume(t.Context(), ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		machines := eng.Machines()
		if got := machines[len(machines)-1].Memory(); got != "x = 42" {
			t.Errorf("it remembers %q", got)
		}
	}
}

// writeImage writes an image as an earlier host did, of a machine that remembers memory.
func writeImage(t *testing.T, h *Host, id string, about manifest, memory string) {
	t.Helper()
	err := h.cfg.Images.Create(t.Context(), id, 0, "", about, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "memory"), []byte(memory), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
