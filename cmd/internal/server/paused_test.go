package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestPausedSandbox: what both planes say of a sandbox whose machine comes and goes.
func TestPausedSandbox(t *testing.T) {
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("here")) })
	a := newAPI(t, func(cfg *host.Config) {
		cfg.Engine, cfg.Images = &hosttest.Engine{Ports: map[int]http.Handler{3000: answers}}, &hosttest.Images{Dir: t.TempDir()}
	})
	id, other := a.create("{}"), a.create("{}")
	box, err := a.host.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	reach := func() called {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(protocol.HeaderSandboxID, id)
		r.Header.Set(protocol.HeaderSandboxPort, "3000")
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, r)
		return called{w.Code, w.Result().Header, w.Body.String()}
	}
	// says checks the detail, and the lists of both states.
	says := func(state string) {
		t.Helper()
		if got := a.detail(id).State; got != state {
			t.Errorf("the detail says %q, want %q", got, state)
		}
		lists := map[string][]string{"running": {other}, "paused": nil}
		lists[state] = append(lists[state], id)
		for state, want := range lists {
			got, _ := a.list(url.Values{"state": {state}})
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("the list of what is %s: %q, want %q", state, got, want)
			}
		}
	}

	says("running")
	if c := reach(); c.status != http.StatusOK || c.body != "here" {
		t.Errorf("its port: %v", c)
	}
	if err := box.Pause(t.Context(), host.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	says("paused")
	if end := a.detail(id).EndAt; end.After(time.Now()) || end.Before(box.StartedAt) {
		t.Errorf("paused at %v", end)
	}
	if c := reach(); c.status != http.StatusBadGateway || !strings.Contains(c.body, "it is paused") {
		t.Errorf("its port while it is paused: %v", c)
	}
	for _, move := range []string{"/timeout", "/refreshes"} {
		for _, body := range []string{`{"timeout":60}`, `{"timeout":0}`} {
			if c := a.call("POST", "/sandboxes/"+id+move, body); c.status != http.StatusNotFound || !strings.Contains(c.body, "it is paused") {
				t.Errorf("%s %s while it is paused: %v", move, body, c)
			}
		}
	}
	if c := a.call("PUT", "/sandboxes/"+id+"/network", `{"allow_internet_access":false}`); c.status != http.StatusNotFound || !strings.Contains(c.body, "it is paused") {
		t.Errorf("its network while it is paused: %v", c)
	}
	if err := box.Resume(t.Context(), host.ResumeOptions{Timeout: time.Hour}); err != nil {
		t.Fatal(err)
	}
	says("running")
	if left := time.Until(a.detail(id).EndAt); left < 50*time.Minute {
		t.Errorf("it has %v", left)
	}
	if c := reach(); c.status != http.StatusOK || c.body != "here" {
		t.Errorf("its port of another machine: %v", c)
	}
	if err := box.Pause(t.Context(), host.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if c := a.call("DELETE", "/sandboxes/"+id, ""); c.status != http.StatusNoContent {
		t.Errorf("the end while it is paused: %v", c)
	}
	if c := a.call("GET", "/sandboxes/"+id, ""); c.status != http.StatusNotFound || !strings.Contains(c.body, "it was killed") {
		t.Errorf("after the end: %v", c)
	}
}
