package host

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// last is the machine that was started last.
func last(eng *hosttest.Engine) *hosttest.Machine {
	all := eng.Machines()
	return all[len(all)-1]
}

// TestSnapshot: a sandbox goes on while and after it is written to a snapshot, and others
// are made of that, with its memory and what was asked for.
func TestSnapshot(t *testing.T) {
	eng := &hosttest.Engine{}
	h, _ := newPausing(t, eng, nil)
	req := CreateRequest{TeamID: "red", Secure: true}
	req.EnvVars, req.Limits = map[string]string{"COLOUR": "green"}, &protocol.Limits{MemoryMB: 700}
	s, err := h.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	first := last(eng)
	first.SetMemory("x = 42")
	ports := s.Ports()
	snapshot, err := s.Snapshot(t.Context(), SnapshotRequest{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if ports.Done() != s.Ports().Done() || first.Frozen() || s.State() != StateRunning || health(s) != nil {
		t.Errorf("the source does not go on: %s, frozen %v", s.State(), first.Frozen())
	}
	if snapshot.Ref() != "mine:default" || !IsSnapshotID(snapshot.ID) || snapshot.SandboxID != s.ID || snapshot.Size == 0 {
		t.Errorf("%+v", snapshot)
	}
	for _, ref := range []string{"mine", "mine:default", "mine:DEFAULT", snapshot.ID, snapshot.ID + ":default"} {
		req := CreateRequest{TeamID: "red", Secure: true}
		req.TemplateID = ref
		copied, err := h.Create(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		m := last(eng)
		told := m.Init()
		if m.Memory() != "x = 42" || told.Restored != protocol.RestoredCopy || told.HostToken == first.Init().HostToken ||
			told.AccessToken != copied.Token || copied.Token == s.Token || told.EnvVars["COLOUR"] != "green" || copied.Limits.MemoryMB != 700 {
			t.Errorf("%s: it remembers %q and was told %+v", ref, m.Memory(), told)
		}
		if err := copied.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		team, ref string
		limits    *protocol.Limits
		code      fault.Code
	}{
		"another team's":   {"blue", "mine", nil, fault.NotFound},
		"another tag":      {"red", "mine:v1", nil, fault.NotFound},
		"a tag of an id":   {"red", snapshot.ID + ":v1", nil, fault.NotFound},
		"another disk":     {"red", "mine", &protocol.Limits{DiskMB: 2000}, fault.InvalidArgument},
		"no template":      {"red", "nothing", nil, fault.NotFound},
		"an image's place": {"red", "../" + snapshot.ID, nil, fault.NotFound},
	} {
		req := CreateRequest{TeamID: c.team}
		req.TemplateID, req.Limits = c.ref, c.limits
		if _, err := h.Create(t.Context(), req); fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"Mine", "a b", "a/b", "base", snapshot.ID, "x:", ":v", "x:v w", strings.Repeat("x", 129)} {
		if _, err := s.Snapshot(t.Context(), SnapshotRequest{Name: name}); fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	// The next one with that name has it; the one before keeps its id.
	first.SetMemory("x = 43")
	second, err := s.Snapshot(t.Context(), SnapshotRequest{Name: "mine", FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.ListSnapshots(t.Context(), "red")
	if err != nil || len(list) != 2 || list[0].ID != second.ID || !list[0].FilesOnly || list[1].Ref() != snapshot.ID+":default" {
		t.Errorf("%+v, %v", list, err)
	}
	req = CreateRequest{TeamID: "red"}
	req.TemplateID = "mine"
	if _, err := h.Create(t.Context(), req); err != nil || last(eng).Memory() != "" || last(eng).Init().Restored != "" {
		t.Errorf("of files alone: %v, %q, %+v", err, last(eng).Memory(), last(eng).Init())
	}
	if err := h.DeleteSnapshot(t.Context(), "blue", "mine"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another team deletes it: %v", err)
	}
	for _, ref := range []string{"mine", snapshot.ID} {
		if err := h.DeleteSnapshot(t.Context(), "red", ref); err != nil {
			t.Error(err)
		}
		if err := h.DeleteSnapshot(t.Context(), "red", ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("deleted again: %v", err)
		}
	}
	if names := imageNames(t, h); len(names) != 0 {
		t.Errorf("left on disk: %q", names)
	}
	if len(h.used) != 1 {
		t.Errorf("snapshots that are gone are remembered: %v", h.used)
	}
}

// TestSnapshotOfPaused: one that is paused can be copied as it is, and stays so.
func TestSnapshotOfPaused(t *testing.T) {
	eng := &hosttest.Engine{}
	h, _ := newPausing(t, eng, nil)
	s := mustCreate(t, h, 60)
	last(eng).SetMemory("x = 42")
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshot(t.Context(), SnapshotRequest{FilesOnly: true}); fault.CodeOf(err) != fault.InvalidArgument {
		t.Errorf("its files alone: %v", err)
	}
	snapshot, err := s.Snapshot(t.Context(), SnapshotRequest{})
	if err != nil || s.State() != StatePaused {
		t.Fatalf("%v, %s", err, s.State())
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	req := CreateRequest{}
	req.TemplateID = snapshot.Ref()
	if _, err := h.Create(t.Context(), req); err != nil || last(eng).Memory() != "x = 42" {
		t.Errorf("%v, %q", err, last(eng).Memory())
	}
}

// TestSnapshotFails: whatever goes wrong, the sandbox goes on and nothing is left.
func TestSnapshotFails(t *testing.T) {
	broken := errors.New("broken")
	for name, spoil := range map[string]func(*Host, *hosttest.Engine){
		"the engine": func(_ *Host, e *hosttest.Engine) { e.Save = func(context.Context, engine.Spec) error { return broken } },
		"no room": func(h *Host, _ *hosttest.Engine) {
			h.cfg.Images.(*hosttest.Images).SetFail(func(method string) error {
				if method == "Create" {
					return broken
				}
				return nil
			})
		},
		"the record": func(h *Host, _ *hosttest.Engine) { h.cfg.Snapshots = failingSnapshots{h.cfg.Snapshots, broken} },
	} {
		t.Run(name, func(t *testing.T) {
			eng := &hosttest.Engine{}
			h, _ := newPausing(t, eng, nil)
			s := mustCreate(t, h, 60)
			spoil(h, eng)
			if _, err := s.Snapshot(t.Context(), SnapshotRequest{}); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			if last(eng).Frozen() {
				t.Error("it stays frozen")
			}
			check(t, s, eng, StateRunning)
		})
	}
}

type failingSnapshots struct {
	Snapshots
	err error
}

func (f failingSnapshots) PutSnapshot(context.Context, Snapshot) error { return f.err }

// TestFork: copies have the memory of their source, and tokens and ids of their own; the
// source goes on, or stays paused.
func TestFork(t *testing.T) {
	for _, paused := range []bool{false, true} {
		eng := &hosttest.Engine{}
		h, _ := newPausing(t, eng, nil)
		req := CreateRequest{TeamID: "red", Secure: true}
		req.Metadata = map[string]string{"a": "b"}
		s, err := h.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		last(eng).SetMemory("x = 42")
		state := StateRunning
		if paused {
			state = StatePaused
			if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		copies, err := s.Fork(t.Context(), 3, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		ids, tokens := []string{s.ID}, []string{s.Token}
		for _, c := range copies {
			if c.Err != nil {
				t.Fatal(c.Err)
			}
			r := c.Sandbox.Record()
			if r.State != StateRunning || r.TeamID != "red" || r.Metadata["a"] != "b" || r.Instance != (Instance{1, 1}) || r.Lifecycle.Timeout != time.Hour {
				t.Errorf("%+v", r)
			}
			ids, tokens = append(ids, r.ID), append(tokens, c.Sandbox.Token)
		}
		for _, all := range [][]string{ids, tokens} {
			if slices.Sort(all); len(slices.Compact(all)) != 4 {
				t.Errorf("not each has its own: %q", all)
			}
		}
		for _, m := range eng.Machines()[1:] {
			if m.Memory() != "x = 42" || m.Init().Restored != protocol.RestoredCopy {
				t.Errorf("a copy remembers %q", m.Memory())
			}
		}
		if s.State() != state || !paused && health(s) != nil {
			t.Errorf("the source is %s", s.State())
		}
		if names := imageNames(t, h); len(names) != map[bool]int{true: 1}[paused] {
			t.Errorf("images: %q", names)
		}
		for _, n := range []int{0, -1, MaxForks + 1} {
			if _, err := s.Fork(t.Context(), n, 0); fault.CodeOf(err) != fault.InvalidArgument {
				t.Errorf("%d copies: %v", n, err)
			}
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fork(t.Context(), 1, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("of one that has ended: %v", err)
		}
	}
}

// TestForkFails: each copy says why there is none.
func TestForkFails(t *testing.T) {
	eng := &hosttest.Engine{}
	h, _ := newPausing(t, eng, func(c *Config) { c.MaxSandboxes = 2 })
	s := mustCreate(t, h, 60)
	copies, err := s.Fork(t.Context(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	made, full := 0, 0
	for _, c := range copies {
		switch {
		case c.Err == nil:
			made++
		case fault.CodeOf(c.Err) == fault.RateLimited:
			full++
		}
	}
	if made != 1 || full != 2 {
		t.Errorf("%+v", copies)
	}
	if names := imageNames(t, h); len(names) != 0 || last(eng).Frozen() {
		t.Errorf("left: %q", names)
	}
}

// TestRollback: a sandbox is what its snapshot was, with its own id and tokens.
func TestRollback(t *testing.T) {
	eng := &hosttest.Engine{}
	h, recorder := newPausing(t, eng, nil)
	s := mustCreate(t, h, 600)
	last(eng).SetMemory("x = 1")
	snapshot, err := s.Snapshot(t.Context(), SnapshotRequest{Name: "good"})
	if err != nil {
		t.Fatal(err)
	}
	for round, paused := range []bool{false, true, false} {
		before := last(eng).Init()
		last(eng).SetMemory("x = 2")
		if paused {
			if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Rollback(t.Context(), "good"); err != nil {
			t.Fatal(err)
		}
		now := last(eng).Init()
		if last(eng).Memory() != "x = 1" || running(eng) != 1 || now.Restored != protocol.RestoredCopy || now.AccessToken != s.Token ||
			now.HostToken == before.HostToken || s.Record().Instance != (Instance{round + 2, round + 2}) || health(s) != nil {
			t.Errorf("round %d: %q, %+v, %+v", round, last(eng).Memory(), now, s.Record().Instance)
		}
		if left := time.Until(s.EndAt()); left < 9*time.Minute || left > 10*time.Minute {
			t.Errorf("it has %v left", left)
		}
		// Its own image is put away beside what it does next.
		for deadline := time.Now().Add(10 * time.Second); !slices.Equal(imageNames(t, h), []string{snapshot.ID}); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("images: %q", imageNames(t, h))
			}
		}
	}
	if err := s.Rollback(t.Context(), "bad"); fault.CodeOf(err) != fault.NotFound || s.State() != StateRunning {
		t.Errorf("without a snapshot: %v, %s", err, s.State())
	}
	// What is found out before its machine is closed leaves it as it is.
	h.cfg.Images.(*hosttest.Images).SetFail(func(method string) error {
		if method == "Use" {
			return ErrDamagedImage
		}
		return nil
	})
	if err := s.Rollback(t.Context(), "good"); !errors.Is(err, ErrDamagedImage) || s.State() != StateRunning || health(s) != nil {
		t.Errorf("with a damaged one: %v, %s, %v", err, s.State(), health(s))
	}
	h.cfg.Images.(*hosttest.Images).SetFail(nil)
	// After that there is nothing to go back to.
	eng.Load = func(context.Context, engine.Spec) error { return errors.New("broken") }
	if err := s.Rollback(t.Context(), "good"); err == nil {
		t.Error("without a machine")
	}
	<-s.Done()
	if ended := recorder.history(s.ID).ended; len(ended) != 1 || !strings.HasSuffix(ended[0], "it could not be rolled back") {
		t.Errorf("%q", ended)
	}
}

// TestFilesOnly: a pause that keeps files alone boots anew, and so does a resume that asks
// for it; another build of the engine, or a template that has changed, is no matter then.
func TestFilesOnly(t *testing.T) {
	eng := &hosttest.Engine{}
	templates := Toolchain(Template{Programs: []string{"p1"}})
	h, _ := newPausing(t, eng, func(c *Config) { c.Templates = templates })
	s := mustCreate(t, h, 60)
	last(eng).SetMemory("x = 42")
	if err := s.Pause(t.Context(), PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if told := last(eng).Init(); last(eng).Memory() != "" || told.Restored != "" || s.Record().Instance != (Instance{2, 1}) {
		t.Errorf("%q, %+v, %+v", last(eng).Memory(), told, s.Record().Instance)
	}
	last(eng).SetMemory("x = 43")
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(){
		"another build":    func() { h.cfg.Engine = rebuilt{eng} },
		"another template": func() { h.cfg.Templates = Toolchain(Template{Digest: "other", Programs: []string{"p1"}}) },
		"no guest of its":  func() { h.cfg.Templates = Toolchain(Template{Programs: []string{"p2"}}) },
	} {
		h.cfg.Engine, h.cfg.Templates = eng, templates
		spoil()
		if err := s.Resume(t.Context(), ResumeOptions{}); fault.CodeOf(err) != fault.Incompatible || fault.In(err).Hint == "" {
			t.Errorf("%s, with memory: %v", name, err)
		}
	}
	if err := s.Resume(t.Context(), ResumeOptions{FilesOnly: true}); err != nil || s.Record().Instance != (Instance{3, 1}) {
		t.Errorf("files: %v, %+v", err, s.Record().Instance)
	}
}

// TestConnect: it resumes what is paused, once however many ask, and never makes a
// deadline sooner.
func TestConnect(t *testing.T) {
	eng := &hosttest.Engine{}
	h, _ := newPausing(t, eng, nil)
	s := mustCreate(t, h, 600)
	if resumed, err := s.Connect(t.Context(), ResumeOptions{Timeout: time.Minute}); resumed ||
		err != nil || time.Until(s.EndAt()) < 9*time.Minute {
		t.Errorf("%v, %v, it ends at %v", resumed, err, s.EndAt())
	}
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	var resumes atomic.Int32
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			resumed, err := s.Connect(t.Context(), ResumeOptions{Timeout: time.Minute})
			if err != nil {
				t.Error(err)
			}
			if resumed {
				resumes.Add(1)
			}
		})
	}
	all.Wait()
	if n := len(eng.Machines()); resumes.Load() != 1 || n != 2 {
		t.Errorf("%d resumed it, %d machines", resumes.Load(), n)
	}
}

// TestWake: requests that come together wake a sandbox once; one without auto-resume
// stays paused, and nobody wakes one again and again.
func TestWake(t *testing.T) {
	create := func(t *testing.T, auto bool, set func(*Config)) (*Sandbox, *hosttest.Engine) {
		eng := &hosttest.Engine{}
		h, _ := newPausing(t, eng, set)
		req := CreateRequest{}
		req.AutoResume = &protocol.AutoResume{Enabled: auto}
		s, err := h.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return s, eng
	}
	pause := func(t *testing.T, s *Sandbox) {
		t.Helper()
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("together", func(t *testing.T) {
		s, eng := create(t, true, nil)
		if err := s.Wake(t.Context()); err != nil || len(eng.Machines()) != 1 {
			t.Errorf("one that runs: %v", err)
		}
		pause(t, s)
		loading, goOn := make(chan struct{}), make(chan struct{})
		eng.Load = func(context.Context, engine.Spec) error { close(loading); <-goOn; return nil }
		gone, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- s.Wake(gone) }()
		<-loading
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := s.Wake(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up: %v", err)
		}
		close(goOn)
		all.Wait()
		if n := len(eng.Machines()); n != 2 || s.State() != StateRunning {
			t.Errorf("%d machines, %s", n, s.State())
		}
		if left := time.Until(s.EndAt()); left < minWakeTimeout-time.Minute {
			t.Errorf("it has %v", left)
		}
	})
	t.Run("not without auto-resume", func(t *testing.T) {
		s, _ := create(t, false, nil)
		pause(t, s)
		var state *StateError
		if err := s.Wake(t.Context()); !errors.As(err, &state) || state.State != StatePaused {
			t.Error(err)
		}
	})
	t.Run("not too often", func(t *testing.T) {
		s, eng := create(t, true, nil)
		var err error
		for range wakesAtOnce + 1 {
			pause(t, s)
			if err = s.Wake(t.Context()); err != nil {
				break
			}
		}
		if fault.CodeOf(err) != fault.RateLimited || fault.In(err).RetryAfter == 0 || len(eng.Machines()) != wakesAtOnce+1 {
			t.Errorf("%v after %d machines", err, len(eng.Machines()))
		}
	})
	t.Run("not without room", func(t *testing.T) {
		s, _ := create(t, true, func(c *Config) { c.MaxSandboxes = 1 })
		pause(t, s)
		mustCreate(t, s.host, 60)
		if err := s.Wake(t.Context()); fault.CodeOf(err) != fault.RateLimited || s.State() != StatePaused {
			t.Errorf("%v, %s", err, s.State())
		}
	})
	t.Run("not after its end", func(t *testing.T) {
		s, _ := create(t, true, nil)
		pause(t, s)
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Wake(t.Context()); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

// TestIdle: a sandbox in which nothing happens is paused, or ends; what happens is an
// execution, a byte of a connection, and what its guest says that runs.
func TestIdle(t *testing.T) {
	for name, test := range map[string]struct {
		pause bool
		want  State
	}{"pauses": {true, StatePaused}, "ends": {false, StateEnded}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var busy atomic.Bool
				eng := &hosttest.Engine{Ports: map[int]http.Handler{protocol.EnvdPort: http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/cubby/activity" && busy.Load() {
							_, _ = w.Write([]byte(`{"busy":true}`))
							return
						}
						_, _ = w.Write([]byte(`{}`))
					})}}
				h, _ := newPausing(t, eng, nil)
				defer h.Close()
				req := CreateRequest{}
				req.IdleTimeout, req.AutoPause = new(60), &test.pause
				s, err := h.Create(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				stays := func(why string) {
					t.Helper()
					if synctest.Wait(); s.State() != StateRunning {
						t.Fatalf("%s: it is %s", why, s.State())
					}
				}
				for range 5 {
					time.Sleep(50 * time.Second)
					if err := health(s); err != nil {
						t.Fatal(err)
					}
					stays("a request now and then")
				}
				end := s.Ports().BeginRun(0)
				time.Sleep(10 * time.Minute)
				stays("an execution")
				end()
				busy.Store(true)
				time.Sleep(10 * time.Minute)
				stays("a command")
				busy.Store(false)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if s.State() != test.want {
					t.Errorf("it is %s", s.State())
				}
			})
		})
	}
}

// TestPlannedEnd: a server that is stopped pauses what is to be kept, and the next resumes
// it with the time that it had left; what is not to be kept ends.
func TestPlannedEnd(t *testing.T) {
	eng, recorder, key := &hosttest.Engine{}, newNotes(t), secret.New()
	images := &hosttest.Images{Dir: t.TempDir()}
	open := func() *Host {
		return newHost(t, eng, func(c *Config) { c.Recorder, c.Key, c.Images = recorder, key, images })
	}
	h := open()
	keep := CreateRequest{}
	keep.Timeout, keep.AutoPause = new(600), new(true)
	kept, err := h.Create(t.Context(), keep)
	if err != nil {
		t.Fatal(err)
	}
	last(eng).SetMemory("x = 42")
	ends := mustCreate(t, h, 600)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if r := recorder.history(kept.ID).record; r.State != StatePaused || r.Remaining < 9*time.Minute || r.Remaining > 10*time.Minute {
		t.Errorf("%+v", r)
	}
	if r := recorder.history(ends.ID).record; r.State != StateEnded || r.Reason != "the server was stopped" {
		t.Errorf("%+v", r)
	}
	h = open()
	if found, err := h.Recover(t.Context()); err != nil || found != (Recovered{Paused: 1}) {
		t.Fatalf("%+v, %v", found, err)
	}
	h.ResumeKept(t.Context())
	s, err := h.Get(kept.ID)
	if err != nil || s.State() != StateRunning || last(eng).Memory() != "x = 42" || s.Token != kept.Token {
		t.Fatalf("%v, it remembers %q", err, last(eng).Memory())
	}
	if left := time.Until(s.EndAt()); left < 9*time.Minute || left > 10*time.Minute || s.Record().Remaining != 0 {
		t.Errorf("it has %v", left)
	}
	// One that its client has paused stays so.
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = open()
	if _, err := h.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ResumeKept(t.Context())
	if s, err := h.Get(kept.ID); err != nil || s.State() != StatePaused {
		t.Errorf("%v", err)
	}
}

// TestDamagedImage: what is not what was written is set apart, and its sandbox ends.
func TestDamagedImage(t *testing.T) {
	eng, recorder := &hosttest.Engine{}, newNotes(t)
	images := &hosttest.Images{Dir: t.TempDir()}
	h := newHost(t, eng, func(c *Config) { c.Recorder, c.Images = recorder, images })
	s := mustCreate(t, h, 60)
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	images.SetFail(func(method string) error {
		if method == "Use" {
			return ErrDamagedImage
		}
		return nil
	})
	if err := s.Resume(t.Context(), ResumeOptions{}); !errors.Is(err, ErrDamagedImage) || fault.CodeOf(err) != fault.NotFound {
		t.Error(err)
	}
	<-s.Done()
	if ended := recorder.history(s.ID).ended; len(ended) != 1 || !strings.Contains(ended[0], "its image is damaged") {
		t.Errorf("%q", ended)
	}
	if names := images.Names(); !slices.Equal(names, []string{s.ID + ".apart"}) {
		t.Errorf("%q", names)
	}
}

// TestEndDuringCopy: a call whose sandbox ends while it is written says that it has ended.
func TestEndDuringCopy(t *testing.T) {
	for name, copyOf := range map[string]func(*Sandbox) error{
		"fork":     func(s *Sandbox) error { _, err := s.Fork(t.Context(), 1, 0); return err },
		"snapshot": func(s *Sandbox) error { _, err := s.Snapshot(t.Context(), SnapshotRequest{}); return err },
	} {
		for how, end := range map[string]func(*Sandbox, *hosttest.Engine){
			"killed": func(s *Sandbox, _ *hosttest.Engine) { go s.Kill() },
			"died":   func(_ *Sandbox, eng *hosttest.Engine) { last(eng).Die("of something") },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				eng := &hosttest.Engine{}
				h, _ := newPausing(t, eng, nil)
				s := mustCreate(t, h, 60)
				eng.Save = func(context.Context, engine.Spec) error {
					end(s, eng)
					for last(eng).Closed() == 0 { // a checkpoint ends with its machine
						time.Sleep(time.Millisecond)
					}
					return engine.ErrEnded
				}
				if err := copyOf(s); !errors.Is(err, ErrNotFound) {
					t.Errorf("%v", err)
				}
				<-s.Done()
				if names := imageNames(t, h); len(names) != 0 {
					t.Errorf("left: %q", names)
				}
			})
		}
	}
}

// TestDeletedMeanwhile: a snapshot that is deleted between the look at its record and at
// its image is not there for who wanted it, and no failure of the server.
func TestDeletedMeanwhile(t *testing.T) {
	for _, method := range []string{"Describe", "Use"} {
		for name, use := range map[string]func(*Host, *Sandbox) error{
			"created of": func(h *Host, _ *Sandbox) error {
				var req CreateRequest
				req.TemplateID = "mine"
				_, err := h.Create(t.Context(), req)
				return err
			},
			"rolled back to": func(_ *Host, s *Sandbox) error { return s.Rollback(t.Context(), "mine") },
		} {
			t.Run(method+" "+name, func(t *testing.T) {
				eng := &hosttest.Engine{}
				h, _ := newPausing(t, eng, nil)
				s := mustCreate(t, h, 60)
				if _, err := s.Snapshot(t.Context(), SnapshotRequest{Name: "mine"}); err != nil {
					t.Fatal(err)
				}
				var once sync.Once
				h.cfg.Images.(*hosttest.Images).SetFail(func(called string) error {
					if called == method {
						once.Do(func() {
							if err := h.DeleteSnapshot(t.Context(), "", "mine"); err != nil {
								t.Error(err)
							}
						})
					}
					return nil
				})
				if err := use(h, s); fault.CodeOf(err) != fault.NotFound || !strings.Contains(err.Error(), "mine") {
					t.Errorf("%v", err)
				}
				check(t, s, eng, StateRunning)
			})
		}
	}
}

// TestForkOfOneThatIsResumed: copies of a paused sandbox that is resumed before its image
// is looked at are made of the machine that it has then.
func TestForkOfOneThatIsResumed(t *testing.T) {
	eng := &hosttest.Engine{}
	h, _ := newPausing(t, eng, nil)
	s := mustCreate(t, h, 60)
	last(eng).SetMemory("x = 42")
	if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	images := h.cfg.Images.(*hosttest.Images)
	images.SetFail(func(called string) error {
		if called == "Use" {
			images.SetFail(nil)
			return s.Resume(t.Context(), ResumeOptions{})
		}
		return nil
	})
	copies, err := s.Fork(t.Context(), 1, 0)
	if err != nil || copies[0].Err != nil || last(eng).Memory() != "x = 42" || s.State() != StateRunning {
		t.Errorf("%v, %+v", err, copies)
	}
}

// endingTemplates ends a sandbox when they are asked for a template.
type endingTemplates struct {
	Templates
	s *Sandbox
}

func (e endingTemplates) Resolve(ctx context.Context, teamID, ref string) (Template, error) {
	if err := e.s.Kill(); err != nil {
		return Template{}, err
	}
	return e.Templates.Resolve(ctx, teamID, ref)
}

// TestForkKeepsRules: a source that ends while its copies are made takes neither its rules
// nor its variables from them: without rules they would be open.
func TestForkKeepsRules(t *testing.T) {
	c := &cards{rules: map[string]egress.Rules{}}
	eng := &hosttest.Engine{}
	h, _ := newPausing(t, eng, func(cfg *Config) { cfg.Networks, cfg.OpenNetwork = c, true })
	req := CreateRequest{}
	req.Network, req.EnvVars = &protocol.Network{DenyOut: []string{"0.0.0.0/0"}}, map[string]string{"COLOUR": "green"}
	s, err := h.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := c.of(s.ID)
	h.cfg.Templates = endingTemplates{h.cfg.Templates, s} // which is asked when the image is written
	copies, err := s.Fork(t.Context(), 1, 0)
	if err != nil || copies[0].Err != nil {
		t.Fatalf("%v, %+v", err, copies)
	}
	got, _ := c.of(copies[0].Sandbox.ID)
	if !reflect.DeepEqual(got, want) || got.Open && len(got.Deny) == 0 || last(eng).Init().EnvVars["COLOUR"] != "green" {
		t.Errorf("the copy has the rules %+v, its source had %+v; %v", got, want, last(eng).Init().EnvVars)
	}
	// Nor does a machine that is still being made get a card of a sandbox that has ended.
	if _, err := s.rulesNow(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Errorf("rules of one that has ended: %v", err)
	}
}
