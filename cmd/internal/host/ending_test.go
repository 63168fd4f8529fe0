package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestEnding: a team is told why its sandbox ended, by the process that ended it,
// by one after it, and when that no longer remembers. Nobody else is, and records
// that cannot be read say nothing.
func TestEnding(t *testing.T) {
	records := newNotes(t)
	log := &bytes.Buffer{}
	configure := func(c *Config) { c.Recorder, c.Logger = records, slog.New(slog.NewTextHandler(log, nil)) }
	before := newHost(t, &hosttest.Engine{}, configure)
	s, err := before.Create(t.Context(), CreateRequest{TeamID: "red"})
	if err != nil {
		t.Fatal(err)
	}
	live, err := before.Create(t.Context(), CreateRequest{TeamID: "red"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	evicted := newHost(t, &hosttest.Engine{}, configure) // what a host is that has evicted the tombstone
	for name, h := range map[string]*Host{"the host that ended it": before, "one after it": evicted} {
		if _, err := h.Of(t.Context(), "red", s.ID); reason(err) != "it was killed" {
			t.Errorf("%s: %v", name, err)
		}
		logs, err := h.Logs(t.Context(), "red", s.ID)
		if err != nil || len(logs) != 2 || logs[0].Message != "Sandbox created" || logs[1].Message != "Sandbox ended: it was killed" || !logs[0].At.Equal(s.StartedAt) {
			t.Errorf("%s: log %+v, %v", name, logs, err)
		}
		if _, err := h.Of(t.Context(), "blue", s.ID); err != ErrNotFound { //nolint:errorlint // it must be the same error, not one like it
			t.Errorf("%s tells another team: %v", name, err)
		}
		if _, err := h.Logs(t.Context(), "blue", s.ID); err != ErrNotFound { //nolint:errorlint // as above
			t.Errorf("%s tells another team its log: %v", name, err)
		}
	}
	if _, err := evicted.Of(t.Context(), "red", live.ID); err != ErrNotFound { //nolint:errorlint // it has not ended
		t.Errorf("a record without an end: %v", err)
	}
	records.failGet = errors.New("disk I/O error")
	if _, err := evicted.Of(t.Context(), "red", s.ID); err != ErrNotFound { //nolint:errorlint // no reason is no reason
		t.Errorf("records that cannot be read: %v", err)
	}
	if !strings.Contains(log.String(), "disk I/O error") {
		t.Errorf("the log does not say that records cannot be read: %s", log)
	}
}

// TestEndOf: who has a sandbox's access token is told why it ended, by the process
// that ended it and by one after it. Nobody else makes it look for a record.
func TestEndOf(t *testing.T) {
	key, records := secret.New(), newNotes(t)
	configure := func(c *Config) { c.Recorder, c.Key = records, key }
	before := newHost(t, &hosttest.Engine{}, configure)
	secure, live := mustCreate(t, before, 60), mustCreate(t, before, 60)
	open, err := before.Create(t.Context(), CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Sandbox{secure, open} {
		if _, known := before.EndOf(t.Context(), s.ID, s.Token); known {
			t.Error("it has not ended")
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	after := newHost(t, &hosttest.Engine{}, configure)
	other := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Recorder = records })
	for _, test := range []struct {
		name, id, token string
		host            *Host
		known, looks    bool
	}{
		{"its token", secure.ID, secure.Token, before, true, false},
		{"its token, after a restart", secure.ID, secure.Token, after, true, true},
		{"its token, for a host of another key", secure.ID, secure.Token, other, false, false},
		{"another token", secure.ID, live.Token, after, false, false},
		{"the traffic token", secure.ID, key.Token(secret.Traffic, secure.ID, 1), after, false, false},
		{"the token of another generation", secure.ID, key.Token(secret.Access, secure.ID, 2), after, false, true},
		{"none", secure.ID, "", after, false, false},
		{"none, of a sandbox without", open.ID, "", after, false, false},
		{"what would be the token of a sandbox without", open.ID, key.Token(secret.Access, open.ID, 1), after, false, true},
		{"the token of another", open.ID, secure.Token, after, false, false},
		{"a sandbox that never was", newID("i"), secure.Token, after, false, false},
		{"one that lives", live.ID, live.Token, after, false, true},
	} {
		looked := false
		test.host.cfg.Recorder = looking{records, &looked}
		if why, known := test.host.EndOf(t.Context(), test.id, test.token); known != test.known || known && why.Reason != "it was killed" {
			t.Errorf("%s: %v, %v", test.name, why, known)
		}
		if looked != test.looks {
			t.Errorf("%s: looked for a record: %v", test.name, looked)
		}
	}
}

// looking is a Recorder that says whether it was asked.
type looking struct {
	Recorder
	looked *bool
}

func (l looking) Get(ctx context.Context, id string) (Record, error) {
	*l.looked = true
	return l.Recorder.Get(ctx, id)
}

// TestEndWhileHandedOut: a sandbox that ends after it began to run and before its
// create returns was never there. Nothing of it stays in reach.
func TestEndWhileHandedOut(t *testing.T) {
	eng, records := &hosttest.Engine{}, newNotes(t)
	yes := true
	ended := onWarning{done: func() { // said between the two
		m := eng.Machines()[0]
		m.Die("its kernel panicked")
		deadline := time.Now().Add(time.Minute)
		for m.Closed() == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}}
	h := newHost(t, eng, func(c *Config) { c.Recorder, c.Logger = records, slog.New(ended) })
	req := CreateRequest{Secure: true}
	req.AllowInternetAccess = &yes
	if _, err := h.Create(t.Context(), req); err == nil || !strings.Contains(err.Error(), "its kernel panicked") {
		t.Errorf("create: %v", err)
	}
	if live := h.Live(); len(live) != 0 {
		t.Errorf("an ended sandbox can be reached: %s", live[0].State())
	}
	id := records.all()[0]
	if got := records.history(id).record; got.State != StateEnded || got.Reason != "its kernel panicked" {
		t.Errorf("record: %+v", got)
	}
}

// onWarning calls done at each warning that is logged.
type onWarning struct{ done func() }

func (onWarning) Enabled(_ context.Context, l slog.Level) bool { return l == slog.LevelWarn }
func (o onWarning) Handle(context.Context, slog.Record) error  { o.done(); return nil }
func (o onWarning) WithAttrs([]slog.Attr) slog.Handler         { return o }
func (o onWarning) WithGroup(string) slog.Handler              { return o }

// TestClosedNetworkIsSaid: a sandbox that was promised internet access by its
// client has none, and its log and the server's say so once.
func TestClosedNetworkIsSaid(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		name string
		asks *bool
		said int
	}{{"asked for", &yes, 1}, {"refused", &no, 0}, {"not mentioned", nil, 0}} {
		log := &bytes.Buffer{}
		h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		req := CreateRequest{}
		req.AllowInternetAccess = test.asks
		s, err := h.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, e := range s.Logs() {
			if e.Level == levelWarn && strings.Contains(e.Message, "network is closed") {
				said++
			}
		}
		if said != test.said || strings.Count(log.String(), "closed network") != test.said {
			t.Errorf("%s: %d times in its log; the server's:\n%s", test.name, said, log)
		}
	}
}

// TestTemplateList: what is listed is what a create takes, and uses are counted.
func TestTemplateList(t *testing.T) {
	h := newHost(t, &hosttest.Engine{}, func(c *Config) { c.Templates = Toolchain(Template{}, "tpl-1", "base") })
	seen := map[string]bool{}
	infos, err := h.Templates(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if seen[info.Name] || info.Uses != 0 || !info.UsedAt.IsZero() || info.Limits != defaultLimits {
			t.Errorf("%+v", info)
		}
		seen[info.Name] = true
		req := CreateRequest{}
		req.TemplateID = info.Name
		if _, err := h.Create(t.Context(), req); err != nil {
			t.Errorf("%s is listed, but: %v", info.Name, err)
		}
	}
	if !seen["base"] || !seen["code-interpreter-v1"] || !seen["tpl-1"] {
		t.Errorf("%v", seen)
	}
	for ref, want := range map[string]string{"": "base", "tpl-1": "tpl-1", "base:latest": "base", "base:default": "base"} {
		if got, err := h.Template(t.Context(), "", ref); err != nil || got.Name != want || got.Uses != 1 || got.UsedAt.IsZero() {
			t.Errorf("%q: %+v, %v", ref, got, err)
		}
	}
	for _, ref := range []string{"mine", "base:v9", ":default", "BASE"} {
		if got, err := h.Template(t.Context(), "", ref); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%q: %+v, %v", ref, got, err)
		}
	}
}
