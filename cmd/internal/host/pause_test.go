package host

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// newPausing is a host that can pause, with records.
func newPausing(t *testing.T, eng *hosttest.Engine, set func(*Config)) (*Host, *notes) {
	t.Helper()
	recorder := newNotes(t)
	return newHost(t, eng, func(c *Config) {
		c.Recorder, c.Images = recorder, &hosttest.Images{Dir: t.TempDir()}
		if set != nil {
			set(c)
		}
	}), recorder
}

// images are the names of what is in the host's folder for images.
func imageNames(t *testing.T, h *Host) []string {
	t.Helper()
	return h.cfg.Images.(*hosttest.Images).Names()
}

var errImages = errors.New("images fail")

// running are the machines that were not closed.
func running(eng *hosttest.Engine) (n int) {
	for _, m := range eng.Machines() {
		if m.Closed() == 0 {
			n++
		}
	}
	return n
}

// check says in what state a sandbox is to be, with all that belongs to the state.
func check(t *testing.T, s *Sandbox, eng *hosttest.Engine, want State) {
	t.Helper()
	machines, image := 0, []string{}
	switch want {
	case StateRunning:
		machines = 1
	case StatePaused:
		image = []string{s.ID}
	}
	s.shelving.Wait()
	if got := imageNames(t, s.host); s.State() != want || running(eng) != machines || !slices.Equal(got, image) {
		t.Errorf("it is %s with %d machines and the images %v, and not %s", s.State(), running(eng), got, want)
	}
	s.host.mu.Lock()
	taken := s.host.taken
	s.host.mu.Unlock()
	if taken != machines {
		t.Errorf("%s: it takes %d places", want, taken)
	}
	select {
	case <-s.Ports().Done():
		if want == StateRunning {
			t.Error("the ports of a running sandbox are closed")
		}
	default:
		if want != StateRunning {
			t.Errorf("%s: its ports are open", want)
		}
	}
	if err := health(s); (err == nil) != (want == StateRunning) {
		t.Errorf("%s: a request: %v", want, err)
	}
}

// health asks the guest whether it is there.
func health(s *Sandbox) error {
	req, err := http.NewRequest(http.MethodGet, "http://guest/health", nil)
	if err != nil {
		return err
	}
	resp, err := s.Ports().Transport(protocol.EnvdPort).RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// TestShelveLate: a resume does not wait until the room of its image is free, and the next
// pause does: it makes an image of the same name.
func TestShelveLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &hosttest.Engine{}
		h, _ := newPausing(t, eng, nil)
		s, err := h.Create(t.Context(), CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		let := make(chan struct{})
		h.cfg.Images.(*hosttest.Images).SetFail(func(method string) error {
			if method == "Shelve" {
				<-let
			}
			return nil
		})
		if err := errors.Join(s.Pause(t.Context(), PauseOptions{}), s.Resume(t.Context(), ResumeOptions{})); err != nil {
			t.Fatal(err)
		}
		paused := make(chan error, 1)
		go func() { paused <- s.Pause(t.Context(), PauseOptions{}) }()
		synctest.Wait()
		if s.State() != StateRunning {
			t.Errorf("it is %s, and its last image is not away", s.State())
		}
		close(let)
		if err := <-paused; err != nil {
			t.Fatal(err)
		}
		check(t, s, eng, StatePaused)
		if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestPauseResume: a paused sandbox has no machine and takes no place; resumed it has
// another one with the same memory, tokens and environment.
func TestPauseResume(t *testing.T) {
	eng := &hosttest.Engine{}
	h, recorder := newPausing(t, eng, func(c *Config) { c.MaxSandboxes = 1 })
	req := CreateRequest{Secure: true}
	req.Timeout, req.EnvVars = new(60), map[string]string{"COLOUR": "green"}
	s, err := h.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	first := eng.Machines()[0]
	first.SetMemory("x = 42")
	check(t, s, eng, StateRunning)
	for round := range 2 {
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		check(t, s, eng, StatePaused)
		if got, err := h.Of(t.Context(), "", s.ID); got != s || err != nil {
			t.Errorf("a paused sandbox is not found: %v", err)
		}
		var wrong *StateError
		for name, err := range map[string]error{
			"pause":       s.Pause(t.Context(), PauseOptions{}),
			"set timeout": s.SetTimeout(t.Context(), time.Hour), "extend": s.Extend(t.Context(), time.Hour),
		} {
			says := "sandbox " + s.ID + " is paused"
			if name == "pause" {
				says += " and cannot be paused"
			}
			if !errors.As(err, &wrong) || wrong.State != StatePaused || err.Error() != says {
				t.Errorf("%s of a paused sandbox: %v", name, err)
			}
		}
		if round == 1 {
			// Somebody takes its place, and it waits.
			other := mustCreate(t, h, 60)
			if err := s.Resume(t.Context(), ResumeOptions{}); fault.CodeOf(err) != fault.RateLimited || s.State() != StatePaused {
				t.Errorf("resumed without a place: %v, %s", err, s.State())
			}
			if err := other.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Resume(t.Context(), ResumeOptions{Timeout: time.Duration(round) * time.Hour}); err != nil {
			t.Fatal(err)
		}
		check(t, s, eng, StateRunning)
		if err := s.Resume(t.Context(), ResumeOptions{}); !errors.As(err, &wrong) || wrong.State != StateRunning || err.Error() != "sandbox "+s.ID+" is running and cannot be resumed" {
			t.Errorf("resume of a running sandbox: %v", err)
		}
		want := []time.Duration{time.Minute, time.Hour}[round]
		if left := time.Until(s.EndAt()); left > want || left < want-50*time.Second {
			t.Errorf("it ends in %v, not in %v", left, want)
		}
	}
	machines := eng.Machines()
	last := machines[len(machines)-1]
	if last == first || last.Memory() != "x = 42" {
		t.Errorf("the new machine remembers %q", last.Memory())
	}
	if a, b := first.Init(), last.Init(); a.HostToken != b.HostToken || a.AccessToken != b.AccessToken || b.EnvVars["COLOUR"] != "green" {
		t.Errorf("its guest was told %+v, and then %+v", a, b)
	}
	if first.Spec.ID != last.Spec.ID || first.Spec.Limits != last.Spec.Limits {
		t.Errorf("it was %+v and is %+v", first.Spec, last.Spec)
	}
	got := recorder.history(s.ID)
	want := []State{StateBooting, StateRunning, StatePausing, StatePaused, StateResuming, StateRunning}
	if !slices.Equal(got.states[:len(want)], want) || got.record.Instance != (Instance{Memory: 1, Files: 1}) || got.record.PausedAt.IsZero() {
		t.Errorf("record: %v, %+v", got.states, got.record)
	}
	var log []string
	for _, e := range s.Logs() {
		log = append(log, e.Message)
	}
	if text := strings.Join(log, ", "); !strings.Contains(text, "Sandbox paused, Sandbox resumed") {
		t.Errorf("its log: %s", text)
	}
}

// TestPauseCutsRequests: requests are cut when the image is safe, and what is asked for
// meanwhile is not let in. A pause that fails leaves requests alone.
func TestPauseCutsRequests(t *testing.T) {
	saving := make(chan struct{})
	goOn := make(chan struct{})
	eng := &hosttest.Engine{Ports: map[int]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}}
	eng.Save = func(context.Context, engine.Spec) error { close(saving); <-goOn; return nil }
	h, _ := newPausing(t, eng, nil)
	saved := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(saved)
	s := mustCreate(t, h, 60)
	ports := s.Ports()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://guest/", nil)
	stream, err := ports.Transport(3000).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	raw, err := ports.Dial(t.Context(), protocol.EnvdPort)
	if err != nil {
		t.Fatal(err)
	}
	paused := make(chan error, 1)
	go func() { paused <- s.Pause(t.Context(), PauseOptions{}) }()
	<-saving
	select {
	case <-ports.Done():
		t.Error("requests are cut before the image is safe")
	default:
	}
	if !eng.Machines()[0].Frozen() {
		t.Error("the machine runs on while its image is made")
	}
	for name, p := range map[string]*Ports{"the ports of before": ports, "new ones": s.Ports()} {
		var state *StateError
		if _, err := p.Dial(t.Context(), protocol.EnvdPort); !errors.As(err, &state) || state.State != StatePausing {
			t.Errorf("%s: %v", name, err)
		}
	}
	saved()
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	<-ports.Done()
	if _, err := io.ReadAll(stream.Body); err == nil {
		t.Error("a stream that was cut looks whole")
	}
	if _, err := raw.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a connection that was cut: %v", err)
	}
	if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ports.Dial(t.Context(), protocol.EnvdPort); err == nil {
		t.Error("the ports of before lead into the new machine")
	}
	if err := health(s); err != nil {
		t.Error(err)
	}
	select {
	case <-s.Ports().Done():
		t.Error("the new machine's ports are closed")
	default:
	}
}

// TestPauseFails: whatever goes wrong, the sandbox goes on running in its machine.
func TestPauseFails(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name  string
		spoil func(*Host, *hosttest.Engine, *notes)
		is    any
	}{
		{"the engine", func(_ *Host, e *hosttest.Engine, _ *notes) {
			e.Save = func(context.Context, engine.Spec) error { return broken }
		}, broken},
		{"the record of its beginning", func(_ *Host, _ *hosttest.Engine, n *notes) { n.fail = failing(broken, StatePausing) }, broken},
		{"the record of its end", func(_ *Host, _ *hosttest.Engine, n *notes) { n.fail = failing(broken, StatePaused) }, broken},
		{"that record and the next", func(_ *Host, _ *hosttest.Engine, n *notes) { n.fail = failing(broken, StatePaused, StateRunning) }, broken},
		{"the folder", func(h *Host, _ *hosttest.Engine, _ *notes) {
			h.cfg.Images.(*hosttest.Images).SetFail(func(string) error { return errImages })
		}, errImages},
		{"an engine that cannot restore", func(h *Host, e *hosttest.Engine, _ *notes) { h.cfg.Engine = struct{ engine.Engine }{e} }, fault.Unimplemented},
		{"no folder", func(h *Host, _ *hosttest.Engine, _ *notes) { h.cfg.Images = nil }, fault.Unimplemented},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &hosttest.Engine{}
			h, recorder := newPausing(t, eng, nil)
			s := mustCreate(t, h, 60)
			images := h.cfg.Images
			test.spoil(h, eng, recorder)
			if err := s.Pause(t.Context(), PauseOptions{}); err == nil || test.is != nil && !is(err, test.is) {
				t.Fatalf("%v", err)
			}
			recorder.fail, h.cfg.Images, eng.Save, h.cfg.Engine = nil, images, nil, eng
			images.(*hosttest.Images).SetFail(nil)
			check(t, s, eng, StateRunning)
			if n := len(eng.Machines()); n != 1 {
				t.Errorf("%d machines", n)
			}
			if err := s.SetTimeout(t.Context(), time.Hour); err != nil {
				t.Errorf("its deadline: %v", err)
			}
			if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
				t.Errorf("the next time: %v", err)
			}
			check(t, s, eng, StatePaused)
		})
	}
}

// rebuilt is the same engine of another build.
type rebuilt struct{ *hosttest.Engine }

func (rebuilt) Commit() string { return "2" }

// TestResumeFails: whatever goes wrong, the sandbox is paused with its image, and can
// be resumed when the cause is gone.
func TestResumeFails(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name  string
		spoil func(*Host, *hosttest.Engine, *notes)
		is    any
	}{
		{"the engine", func(_ *Host, e *hosttest.Engine, _ *notes) {
			e.Load = func(context.Context, engine.Spec) error { return broken }
		}, broken},
		{"an image of another engine", func(_ *Host, e *hosttest.Engine, _ *notes) {
			e.Load = func(context.Context, engine.Spec) error { return engine.ErrForeign }
		}, fault.Incompatible},
		{"a limit that no longer holds", func(_ *Host, e *hosttest.Engine, _ *notes) { e.Unenforced = []string{"cpu"} }, fault.InvalidArgument},
		{"the record of its beginning", func(_ *Host, _ *hosttest.Engine, n *notes) { n.fail = failing(broken, StateResuming) }, broken},
		{"the record of its end", func(_ *Host, _ *hosttest.Engine, n *notes) { n.fail = failing(broken, StateRunning) }, broken},
		{"that record and the next", func(_ *Host, _ *hosttest.Engine, n *notes) { n.fail = failing(broken, StateRunning, StatePaused) }, broken},
		{"an image that keeps its name", func(h *Host, _ *hosttest.Engine, n *notes) {
			n.fail = func(r Record) error {
				if r.State == StateRunning {
					h.cfg.Images.(*hosttest.Images).SetFail(func(string) error { return errImages })
				}
				return nil
			}
		}, errImages},
		{"another template", func(h *Host, _ *hosttest.Engine, _ *notes) { h.cfg.Templates = Toolchain(Template{Digest: "other"}) }, fault.Incompatible},
		{"another build of the engine", func(h *Host, e *hosttest.Engine, _ *notes) { h.cfg.Engine = rebuilt{e} }, fault.Incompatible},
		{"no template", func(h *Host, _ *hosttest.Engine, _ *notes) { h.cfg.Templates = toolchain{} }, fault.NotFound},
		{"an engine that cannot restore", func(h *Host, e *hosttest.Engine, _ *notes) { h.cfg.Engine = struct{ engine.Engine }{e} }, fault.Unimplemented},
	} {
		t.Run(test.name, func(t *testing.T) {
			eng := &hosttest.Engine{}
			h, recorder := newPausing(t, eng, nil)
			req := CreateRequest{}
			req.TemplateID, req.Limits = "code-interpreter-v1", &protocol.Limits{CPUs: 0.5}
			s, err := h.Create(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			templates := h.cfg.Templates
			test.spoil(h, eng, recorder)
			if err := s.Resume(t.Context(), ResumeOptions{}); !is(err, test.is) {
				t.Fatalf("%v", err)
			}
			h.cfg.Images.(*hosttest.Images).SetFail(nil)
			recorder.fail, h.cfg.Templates, h.cfg.Engine, eng.Load, eng.Unenforced = nil, templates, eng, nil, nil
			check(t, s, eng, StatePaused)
			if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
				t.Errorf("the next time: %v", err)
			}
			check(t, s, eng, StateRunning)
		})
	}
}

// TestPausedDeadline: a paused sandbox has no deadline, and one that was resumed has.
func TestPausedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &hosttest.Engine{}
		h, recorder := newPausing(t, eng, nil)
		s := mustCreate(t, h, 60)
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		check(t, s, eng, StatePaused)
		if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		check(t, s, eng, StateRunning)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		check(t, s, eng, StateEnded)
		if got := recorder.history(s.ID).ended; !slices.Equal(got, []string{"its timeout was reached"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestDeadlineWhilePausing: the deadline of a sandbox that is being paused does not
// end it, unless it could not be paused.
func TestDeadlineWhilePausing(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			eng := &hosttest.Engine{Save: func(context.Context, engine.Spec) error {
				time.Sleep(2 * time.Minute)
				if fails {
					return errors.New("broken")
				}
				return nil
			}}
			h, _ := newPausing(t, eng, nil)
			s := mustCreate(t, h, 60)
			if err := s.Pause(t.Context(), PauseOptions{}); (err != nil) != fails {
				t.Fatal(err)
			}
			synctest.Wait()
			check(t, s, eng, map[bool]State{false: StatePaused, true: StateEnded}[fails])
		})
	}
}

// TestPauseAtDeadline: a sandbox that asked for it is paused when its time is over,
// and ends if that cannot be.
func TestPauseAtDeadline(t *testing.T) {
	for _, test := range []struct {
		name    string
		breaks  bool
		extends bool
		want    State
	}{
		{"paused", false, false, StatePaused},
		{"cannot be paused", true, false, StateEnded},
		{"given more time", false, true, StateRunning},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := &hosttest.Engine{}
				if test.breaks {
					eng.Save = func(context.Context, engine.Spec) error { return errors.New("broken") }
				}
				h, recorder := newPausing(t, eng, nil)
				req := CreateRequest{}
				req.Timeout, req.AutoPause = new(60), new(true)
				s, err := h.Create(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(59 * time.Second)
				if test.extends {
					if err := s.Extend(t.Context(), time.Minute); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				check(t, s, eng, test.want)
				if got := recorder.history(s.ID).ended; test.breaks && (len(got) != 1 || !strings.Contains(got[0], "could not be paused: image of ")) {
					t.Errorf("%q", got)
				}
				if test.want != StatePaused {
					return
				}
				for range 2 { // and again
					if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(61 * time.Second)
					synctest.Wait()
					check(t, s, eng, StatePaused)
				}
			})
		})
	}
}

// TestLateRestore: the end of a sandbox waits for a machine that comes too late, and
// leaves nothing of it.
func TestLateRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng, loading := &hosttest.Engine{}, make(chan struct{})
		eng.Load = func(ctx context.Context, _ engine.Spec) error {
			close(loading)
			<-ctx.Done()
			time.Sleep(time.Second) // and nevertheless
			return nil
		}
		h, _ := newPausing(t, eng, nil)
		s := mustCreate(t, h, 60)
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		resumed := make(chan error, 1)
		go func() { resumed <- s.Resume(t.Context(), ResumeOptions{}) }()
		<-loading
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if n := len(eng.Machines()); n != 2 {
			t.Errorf("%d machines: the end did not wait for the second", n)
		}
		check(t, s, eng, StateEnded)
		if err := <-resumed; !errors.Is(err, ErrNotFound) {
			t.Errorf("resume: %v", err)
		}
	})
}

// TestFormerMachine: what is still to be said of a machine that a sandbox had is
// nothing to the one that it has.
func TestFormerMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &hosttest.Engine{}
		h, _ := newPausing(t, eng, nil)
		s := mustCreate(t, h, 3600)
		end := s.Ports().BeginRun(time.Second) // which its pause cuts
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		check(t, s, eng, StatePaused)
		if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		other := s.Ports().BeginRun(time.Minute)
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		check(t, s, eng, StateRunning)
		end()
		other()
		if n := s.machine.runs.Load(); n != 0 {
			t.Errorf("%d executions in the new machine", n)
		}
	})
}

// TestCannotPause: a sandbox that is to be paused is refused where none can be.
func TestCannotPause(t *testing.T) {
	eng := &hosttest.Engine{}
	req := CreateRequest{}
	req.AutoPause = new(true)
	for name, set := range map[string]func(*Config){
		"an engine that cannot": func(c *Config) { c.Engine, c.Images = struct{ engine.Engine }{eng}, &hosttest.Images{Dir: t.TempDir()} },
		"no folder":             func(c *Config) { c.Images = nil },
	} {
		if _, err := newHost(t, eng, set).Create(t.Context(), req); fault.CodeOf(err) != fault.Unimplemented {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(eng.Machines()); n != 0 {
		t.Errorf("%d machines", n)
	}
}

// TestEndWins: an end comes at any moment, also while a sandbox is paused, resumed or
// has no machine, and nothing of it is left.
func TestEndWins(t *testing.T) {
	for _, test := range []struct {
		name string
		in   State // in which it ends
	}{{"running", StateRunning}, {"pausing", StatePausing}, {"paused", StatePaused}, {"resuming", StateResuming}} {
		for how, end := range map[string]func(*Sandbox, *hosttest.Engine) error{
			"killed": func(s *Sandbox, _ *hosttest.Engine) error { return s.Kill() },
			"set to 0": func(s *Sandbox, _ *hosttest.Engine) error {
				err := s.SetTimeout(context.Background(), 0)
				if test.in == StatePaused && fault.CodeOf(err) == fault.Conflict {
					return s.Kill() // its time does not pass
				}
				return err
			},
			"died": func(s *Sandbox, eng *hosttest.Engine) error {
				if test.in == StatePaused || test.in == StateResuming {
					return s.Kill() // there is nothing to die
				}
				eng.Machines()[0].Die("of something")
				<-s.Done()
				return nil
			},
		} {
			t.Run(test.name+" "+how, func(t *testing.T) {
				reached := make(chan struct{})
				eng := &hosttest.Engine{}
				h, recorder := newPausing(t, eng, nil)
				s := mustCreate(t, h, 60)
				called := make(chan error, 1)
				// A checkpoint ends with its machine, a restore with its context.
				wait := func(ctx context.Context) error {
					close(reached)
					for len(eng.Machines()) == 1 && eng.Machines()[0].Closed() == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					return context.Cause(ctx)
				}
				switch test.in {
				case StateRunning:
					called <- ErrNotFound
				case StatePausing:
					eng.Save = func(context.Context, engine.Spec) error { return wait(context.Background()) }
					go func() { called <- s.Pause(t.Context(), PauseOptions{}) }()
					<-reached
				case StatePaused, StateResuming:
					if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
						t.Fatal(err)
					}
					called <- ErrNotFound
				}
				if test.in == StateResuming {
					<-called
					eng.Load = func(ctx context.Context, _ engine.Spec) error {
						close(reached)
						<-ctx.Done()
						return context.Cause(ctx)
					}
					go func() { called <- s.Resume(t.Context(), ResumeOptions{}) }()
					<-reached
				}
				if s.State() != test.in {
					t.Fatalf("it is %s", s.State())
				}
				if err := end(s, eng); err != nil {
					t.Fatal(err)
				}
				if err := <-called; !errors.Is(err, ErrNotFound) {
					t.Errorf("what was under way says %v", err)
				}
				check(t, s, eng, StateEnded)
				if got := recorder.history(s.ID); got.record.State != StateEnded || len(got.ended) != 1 {
					t.Errorf("%+v", got)
				}
				for name, err := range map[string]error{"pause": s.Pause(t.Context(), PauseOptions{}), "resume": s.Resume(t.Context(), ResumeOptions{})} {
					if !errors.Is(err, ErrNotFound) {
						t.Errorf("%s after the end: %v", name, err)
					}
				}
			})
		}
	}
}

// TestKillWaitsForAResume: when a kill returns, a resume that was under way, and took
// its time to give up, has left nothing either.
func TestKillWaitsForAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &hosttest.Engine{}
		h, _ := newPausing(t, eng, nil)
		s := mustCreate(t, h, 60)
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		gaveUp := false
		eng.Load = func(ctx context.Context, _ engine.Spec) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			gaveUp = true
			return context.Cause(ctx)
		}
		go func() { _ = s.Resume(context.Background(), ResumeOptions{}) }()
		synctest.Wait()
		if err := s.Kill(); err != nil || !gaveUp {
			t.Errorf("%v, and the resume has given up: %v", err, gaveUp)
		}
	})
}

// TestCloseWhileResuming: a resume that the host's end gives up leaves the sandbox
// paused, for the next host with the same records.
func TestCloseWhileResuming(t *testing.T) {
	eng := &hosttest.Engine{}
	h, recorder := newPausing(t, eng, nil)
	s := mustCreate(t, h, 60)
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	loading := make(chan struct{})
	eng.Load = func(ctx context.Context, _ engine.Spec) error {
		close(loading)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	resumed := make(chan error, 1)
	go func() { resumed <- s.Resume(context.Background(), ResumeOptions{}) }()
	<-loading
	if err := h.Close(); err != nil && !errors.Is(err, ErrClosing) {
		t.Error(err)
	}
	if err := <-resumed; !errors.Is(err, ErrClosing) {
		t.Errorf("resume: %v", err)
	}
	if got := recorder.history(s.ID).record; got.State != StatePaused {
		t.Errorf("recorded as %s, %q", got.State, got.Reason)
	}
	check(t, s, eng, StatePaused)
}
