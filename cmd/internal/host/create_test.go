package host

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestCreate: what a client asks for reaches the machine, its guest and the
// record.
func TestCreate(t *testing.T) {
	eng, recorder := &hosttest.Engine{}, newNotes(t)
	h := newHost(t, eng, func(c *Config) {
		c.Recorder = recorder
		c.Templates = Toolchain(Template{Digest: "d1", Root: "/template", Guest: []string{"/guest"}, Env: []string{"LANG=C.UTF-8"}})
	})
	req := CreateRequest{TeamID: "blue", Secure: true, DefaultTimeout: 5 * time.Minute}
	req.EnvVars = map[string]string{"COLOUR": "green"}
	req.Metadata = map[string]string{"user": "ann"}
	req.Limits = &protocol.Limits{MemoryMB: 256, CPUs: 1.5, PIDs: 99}
	req.Warm = []string{"python", "bash"}
	s, err := h.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	m := eng.Machines()[0]
	if want := []string{"LANG=C.UTF-8"}; !slices.Equal(m.Spec.Env, want) {
		t.Errorf("the machine has more than the template's environment: %v", m.Spec.Env)
	}
	if want := (engine.Limits{Memory: 256 << 20, CPUs: 1.5, Disk: 1 << 30, PIDs: 99}); m.Spec.Limits != want {
		t.Errorf("limits of the machine: %+v", m.Spec.Limits)
	}
	init := m.Init()
	if init.AccessToken != s.Token || len(s.Token) != 48 || init.EnvVars["COLOUR"] != "green" || init.SandboxID != s.ID || init.TemplateID != "base" ||
		init.Limits != (protocol.Limits{MemoryMB: 256, CPUs: 1.5, DiskMB: 1024, PIDs: 99}) || !slices.Equal(init.Warm, []string{"python", "bash"}) {
		t.Errorf("init: %+v", init)
	}
	if got := s.EndAt().Sub(s.StartedAt); got != 5*time.Minute {
		t.Errorf("lives for %v", got)
	}
	if got := recorder.history(s.ID).states; !slices.Equal(got, []State{StateBooting, StateRunning}) {
		t.Errorf("states: %v", got)
	}
	want := Record{
		Identity: Identity{
			ID: s.ID, PublicID: s.PublicID, Generation: 1, TeamID: "blue", TemplateID: "base", TemplateDigest: "d1", Engine: "test", EngineCommit: "1",
			Limits: protocol.Limits{MemoryMB: 256, CPUs: 1.5, DiskMB: 1024, PIDs: 99}, Asked: []string{"memory", "cpu", "pids"},
			Env: req.EnvVars, Warm: req.Warm, Metadata: req.Metadata, Secure: true, Lifecycle: Lifecycle{Timeout: 5 * time.Minute},
		},
		State: StateRunning, Instance: Instance{Memory: 1, Files: 1}, StartedAt: s.StartedAt, EndAt: s.EndAt(),
	}
	if got := recorder.history(s.ID).record; !reflect.DeepEqual(got, want) || !reflect.DeepEqual(s.Record(), want) {
		t.Errorf("record: %+v\nwant: %+v", got, want)
	}
}

// TestCreateInvalid: every bad request is refused before anything boots.
func TestCreateInvalid(t *testing.T) {
	eng := &hosttest.Engine{}
	h := newHost(t, eng, func(c *Config) { c.Templates = Toolchain(Template{}, "tpl-1") })
	many := map[string]string{}
	for i := range maxPairs + 1 {
		many[strings.Repeat("x", i+1)] = ""
	}
	closed := false
	for _, test := range []struct {
		name   string
		change func(*CreateRequest)
		is     any
		says   string
	}{
		{"timeout of zero", func(r *CreateRequest) { r.Timeout = new(0) }, fault.InvalidArgument, "Timeout must be greater than 0"},
		{"too long a timeout", func(r *CreateRequest) { r.Timeout = new(86401) }, fault.InvalidArgument, "Timeout cannot be greater than 24 hours"},
		{"unknown template", func(r *CreateRequest) { r.TemplateID = "nope" }, fault.NotFound, "template 'nope' not found"},
		{"unknown tag", func(r *CreateRequest) { r.TemplateID = "base:v7" }, fault.NotFound, "tag 'v7' does not exist for template 'base'"},
		{"only a tag", func(r *CreateRequest) { r.TemplateID = ":default" }, fault.NotFound, "not found"},
		{"variable with =", func(r *CreateRequest) { r.EnvVars = map[string]string{"A=B": "c"} }, fault.InvalidArgument, `"A=B" is no name`},
		{"variable with NUL", func(r *CreateRequest) { r.EnvVars = map[string]string{"A\x00": "c"} }, fault.InvalidArgument, "is no name"},
		{"variable without a name", func(r *CreateRequest) { r.EnvVars = map[string]string{"": "c"} }, fault.InvalidArgument, "is no name"},
		{"value with NUL", func(r *CreateRequest) { r.EnvVars = map[string]string{"A": "\x00"} }, fault.InvalidArgument, `value of "A" contains NUL`},
		{"variable that no process can have", func(r *CreateRequest) { r.EnvVars = map[string]string{"A": strings.Repeat("v", maxVariable)} }, fault.InvalidArgument, "too long"},
		{"too many variables", func(r *CreateRequest) { r.EnvVars = many }, fault.InvalidArgument, "at most 1024"},
		{"too many variables' bytes", func(r *CreateRequest) {
			r.EnvVars = map[string]string{}
			for _, name := range "ABCDE" {
				r.EnvVars[string(name)] = strings.Repeat("v", maxVariable-1)
			}
		}, fault.InvalidArgument, "at most 524288"},
		{"too much metadata", func(r *CreateRequest) { r.Metadata = map[string]string{"a": strings.Repeat("v", maxMetadata)} }, fault.InvalidArgument, "metadata has 65537 bytes"},
		{"too many metadata", func(r *CreateRequest) { r.Metadata = many }, fault.InvalidArgument, "at most 1024"},
		{"closed to the public without a token", func(r *CreateRequest) {
			r.Secure, r.Network = false, &protocol.Network{AllowPublicTraffic: &closed}
		}, fault.InvalidArgument, "unless you enable secure"},
		{"mask that is no host name", func(r *CreateRequest) { r.Network = &protocol.Network{MaskRequestHost: "a b\r\nX"} }, fault.InvalidArgument, "is no host name"},
		{"mask with a bad port", func(r *CreateRequest) { r.Network = &protocol.Network{MaskRequestHost: "localhost:0"} }, fault.InvalidArgument, "no port between"},
		{"too many languages", func(r *CreateRequest) { r.Warm = make([]string, maxWarm+1) }, fault.InvalidArgument, "at most 16"},
		{"a long language", func(r *CreateRequest) { r.Warm = []string{strings.Repeat("x", maxLanguage+1)} }, fault.InvalidArgument, "is no language"},
		{"tiny memory", func(r *CreateRequest) { r.Limits = &protocol.Limits{MemoryMB: 1} }, fault.InvalidArgument, "memory must be between"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := CreateRequest{Secure: true}
			test.change(&req)
			_, err := h.Create(t.Context(), req)
			if !is(err, test.is) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
	if n := len(eng.Machines()); n != 0 || h.Ready() != nil {
		t.Errorf("%d machines, %v", n, h.Ready())
	}
}

// TestTemplates: the names that E2B's clients use, and the owner's own, mean the
// machine's toolchain.
func TestTemplates(t *testing.T) {
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Templates = Toolchain(Template{}, "tpl-1") })
	for ref, want := range map[string]string{
		"": "base", "base": "base", "code-interpreter-v1": "code-interpreter-v1", "e2bdev/base": "e2bdev/base",
		"tpl-1": "tpl-1", "base:default": "base", "e2bdev/base:latest": "e2bdev/base",
	} {
		req := CreateRequest{}
		req.TemplateID = ref
		s, err := h.Create(t.Context(), req)
		if err != nil || s.TemplateID != want {
			t.Errorf("%q: %+v, %v", ref, s, err)
		}
	}
}

// TestTokens: who has which secret, by what was asked for.
func TestTokens(t *testing.T) {
	eng := &hosttest.Engine{}
	h := newHost(t, eng, nil)
	yes, no := true, false
	for _, test := range []struct {
		name            string
		secure          bool
		public          *bool
		token, forPorts bool
	}{
		{"secure", true, nil, true, false},
		{"not secure", false, nil, false, false},
		{"secure and public", true, &yes, true, false},
		{"secure and closed", true, &no, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := CreateRequest{Secure: test.secure}
			req.Network = &protocol.Network{AllowPublicTraffic: test.public, MaskRequestHost: "localhost:${PORT}"}
			s, err := h.Create(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if (s.Token != "") != test.token || (s.TrafficToken != "") != test.forPorts || s.MaskRequestHost != "localhost:${PORT}" {
				t.Errorf("%+v", s)
			}
			machines := eng.Machines()
			init := machines[len(machines)-1].Init()
			if init.AccessToken != s.Token {
				t.Errorf("the guest's token is %q, not %q", init.AccessToken, s.Token)
			}
			if init.HostToken == "" || init.HostToken == s.Token {
				t.Errorf("the host's own token is %q", init.HostToken)
			}
			if found, ok := h.ByToken(s.Token); ok != test.token || ok && found != s {
				t.Errorf("by its token: %v, %v", found, ok)
			}
		})
	}
	if s, ok := h.ByToken(""); ok {
		t.Errorf("the empty token is of %v", s)
	}
	if s, ok := h.ByToken("another"); ok {
		t.Errorf("an unknown token is of %v", s)
	}
	s := mustCreate(t, h, 60)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.ByToken(s.Token); ok {
		t.Error("the token of an ended sandbox is alive")
	}
}

// TestCreateFails: whatever goes wrong, no machine, no place and no open record is
// left behind.
func TestCreateFails(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name   string
		eng    *hosttest.Engine
		notes  func(*notes)
		limits *protocol.Limits
		is     any
		ready  bool // the failure is not the host's
	}{
		{"the engine", &hosttest.Engine{Boot: func(context.Context, engine.Spec) error { return broken }}, nil, nil, broken, false},
		{"the first record", &hosttest.Engine{}, func(n *notes) { n.fail = failing(broken, StateBooting) }, nil, broken, false},
		{"the record", &hosttest.Engine{}, func(n *notes) { n.fail = failing(broken, StateRunning) }, nil, broken, false},
		{"the engine, with the client's limits", &hosttest.Engine{Boot: func(context.Context, engine.Spec) error { return broken }}, nil, &protocol.Limits{MemoryMB: 16}, broken, true},
		{"a limit", &hosttest.Engine{Unenforced: []string{"cpu"}}, nil, &protocol.Limits{CPUs: 0.5}, fault.InvalidArgument, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			recorder := newNotes(t)
			if test.notes != nil {
				test.notes(recorder)
			}
			h := newHost(t, test.eng, func(c *Config) { c.Recorder, c.MaxSandboxes = recorder, 1 })
			for range 2 { // the second needs the first one's place
				req := CreateRequest{Secure: true}
				req.Limits = test.limits
				if s, err := h.Create(t.Context(), req); !is(err, test.is) {
					t.Fatalf("%v, %v", s, err)
				}
			}
			for _, m := range test.eng.Machines() {
				if m.Closed() != 1 {
					t.Errorf("a machine was closed %d times", m.Closed())
				}
			}
			for _, id := range recorder.all() {
				if n := len(recorder.history(id).ended); n != 1 {
					t.Errorf("%s ended %d times", id, n)
				}
			}
			if len(h.Live()) != 0 || (h.Ready() == nil) != test.ready {
				t.Errorf("%v live, ready: %v", h.Live(), h.Ready())
			}
		})
	}
}

// TestClientGone: nobody knows the id of a sandbox whose creator gave up, so it
// ends, whenever that was.
func TestClientGone(t *testing.T) {
	for _, when := range []State{StateBooting, StateRunning} {
		t.Run(string(when), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			recorder := newNotes(t)
			recorder.fail = func(r Record) error {
				if r.State == when {
					cancel()
				}
				return nil
			}
			eng := &hosttest.Engine{}
			h := newHost(t, eng, func(c *Config) { c.Recorder = recorder })
			if s, err := h.Create(ctx, CreateRequest{}); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v, %v", s, err)
			}
			ids := recorder.all()
			if len(ids) != 1 || len(recorder.history(ids[0]).ended) != 1 || eng.Machines()[0].Closed() != 1 || len(h.Live()) != 0 {
				t.Errorf("left: %v %v", ids, h.Live())
			}
			if err := h.Ready(); err != nil {
				t.Errorf("a client that gives up makes the host unfit: %v", err)
			}
		})
	}
}

// TestTeams: a team finds its own sandboxes, and cannot tell another's from none.
func TestTeams(t *testing.T) {
	h := newHost(t, &hosttest.Engine{}, nil)
	boxes := map[string]*Sandbox{}
	for _, team := range []string{"red", "blue"} {
		s, err := h.Create(t.Context(), CreateRequest{TeamID: team})
		if err != nil {
			t.Fatal(err)
		}
		boxes[team] = s
	}
	if s, err := h.Of(t.Context(), "red", boxes["red"].ID); s != boxes["red"] || err != nil {
		t.Errorf("its own: %v, %v", s, err)
	}
	if s, err := h.Get(boxes["red"].ID); s != boxes["red"] || err != nil {
		t.Errorf("the data plane's: %v, %v", s, err)
	}
	_, foreign := h.Of(t.Context(), "blue", boxes["red"].ID)
	_, never := h.Of(t.Context(), "blue", "inone")
	if foreign != never || !errors.Is(foreign, ErrNotFound) {
		t.Errorf("another's while it lives: %v; one that never was: %v", foreign, never)
	}
	if err := boxes["red"].Kill(); err != nil {
		t.Fatal(err)
	}
	if _, foreign = h.Of(t.Context(), "blue", boxes["red"].ID); foreign != never {
		t.Errorf("another's after its end: %v", foreign)
	}
	if _, err := h.Of(t.Context(), "red", boxes["red"].ID); reason(err) != "it was killed" {
		t.Errorf("its own after its end: %v", err)
	}
	if _, err := h.Logs(t.Context(), "blue", boxes["red"].ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another's log: %v", err)
	}
	if live := h.Live(); len(live) != 1 || live[0] != boxes["blue"] {
		t.Errorf("live: %v", live)
	}
}
