package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// The hosts of this file have what one handler needs and nothing else: whatever
// else it called would be a nil method, and panic.

// ask calls a server without keys that has only h.
func ask(t *testing.T, h Host, method, target string) called {
	t.Helper()
	a := &api{t: t, handler: New(Config{Host: h})}
	return a.call(method, target, "")
}

type readyHost struct {
	Host
	err error
}

func (h readyHost) Ready() error { return h.err }

func TestReadyNeedsReady(t *testing.T) {
	if c := ask(t, readyHost{}, "GET", "/ready"); c.status != http.StatusOK {
		t.Error(c)
	}
	for _, tt := range []struct {
		err  error
		says bool // to callers without a key
	}{
		{&fault.Error{Code: fault.RateLimited, Err: errors.New("it is full")}, true},
		{host.ErrClosing, true},
		{errors.New("no cgroup at /sys"), false},
		{&fault.Error{Code: fault.Internal, Err: fmt.Errorf("the last one failed: %w", host.ErrClosing)}, false},
	} {
		c := ask(t, readyHost{err: tt.err}, "GET", "/ready")
		if c.status != http.StatusServiceUnavailable || strings.Contains(c.body, tt.err.Error()) != tt.says {
			t.Errorf("%v: %v", tt.err, c)
		}
	}
}

type templatesHost struct{ Host }

func (templatesHost) Templates(context.Context, string) ([]host.TemplateInfo, error) {
	return []host.TemplateInfo{{Name: "base"}}, nil
}

func TestTemplatesNeedTemplates(t *testing.T) {
	if c := ask(t, templatesHost{}, "GET", "/templates"); c.status != http.StatusOK || !strings.Contains(c.body, `"base"`) {
		t.Error(c)
	}
}

// listHost is of a server that knows sandboxes from records alone.
type listHost struct {
	Host
	infos []host.Info
	err   error
}

func (h listHost) List(context.Context, string) ([]host.Info, error) { return h.infos, h.err }

func TestListNeedsDescriptionsOnly(t *testing.T) {
	c := ask(t, listHost{infos: []host.Info{{ID: "inode1", TemplateID: "base"}}}, "GET", "/v2/sandboxes")
	if c.status != http.StatusOK || !strings.Contains(c.body, `"sandboxID":"inode1"`) {
		t.Error(c)
	}
	for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
		if c := ask(t, listHost{err: errors.New("database is locked")}, "GET", path); c.status != http.StatusInternalServerError {
			t.Errorf("a list that cannot be had: %v", c)
		}
	}
}

// TestStates: lists and details say of every state what a client can do.
func TestStates(t *testing.T) {
	var infos []host.Info
	for state, said := range map[host.State]string{
		host.StateRunning: "running", host.StatePausing: "paused", host.StatePaused: "paused", host.StateResuming: "paused",
	} {
		info := host.Info{ID: "i" + string(state), State: state}
		infos = append(infos, info)
		var detail protocol.SandboxDetail
		a := &api{t: t}
		a.into(ask(t, controlHost{box: fixedSandbox{info: info}}, "GET", "/sandboxes/"+info.ID), http.StatusOK, &detail)
		if detail.State != said {
			t.Errorf("%s: the detail says %q", state, detail.State)
		}
	}
	all := []string{"irunning running", "ipausing paused", "ipaused paused", "iresuming paused"}
	for path, want := range map[string]struct {
		boxes   []string
		running string // in the header
	}{
		"/v2/sandboxes":                      {all, "1"},
		"/v2/sandboxes?state=running,paused": {all, "1"},
		"/v2/sandboxes?state=running":        {all[:1], "1"},
		"/v2/sandboxes?state=paused":         {all[1:], "0"},
		"/sandboxes":                         {all[:1], ""},
	} {
		c := ask(t, listHost{infos: infos}, "GET", path)
		var page []protocol.ListedSandbox
		(&api{t: t}).into(c, http.StatusOK, &page)
		var got []string
		for _, box := range page {
			got = append(got, box.SandboxID+" "+box.State)
		}
		slices.Sort(got)
		if !slices.Equal(got, slices.Sorted(slices.Values(want.boxes))) || c.header.Get("X-Total-Running") != want.running {
			t.Errorf("%s: %q, %s running; want %q, %s", path, got, c.header.Get("X-Total-Running"), want.boxes, want.running)
		}
	}
}

// controlHost has one sandbox.
type controlHost struct {
	Host
	box Sandbox
}

func (h controlHost) Of(_ context.Context, _, id string) (Sandbox, error) {
	if id != h.box.Info().ID {
		return nil, host.ErrNotFound
	}
	return h.box, nil
}

// fixedSandbox can be described, and is not in the state for anything else.
type fixedSandbox struct {
	Sandbox
	info host.Info
}

func (b fixedSandbox) Info() host.Info { return b.info }

func (b fixedSandbox) Extend(context.Context, time.Duration) error {
	return &fault.Error{Code: fault.Conflict, Err: &host.StateError{ID: b.info.ID, State: b.info.State, Intended: host.StateRunning}}
}

// TestExtendInAnotherState: what a state does not allow is no fault of the server's.
func TestExtendInAnotherState(t *testing.T) {
	for state, status := range map[host.State]int{
		host.StatePaused: http.StatusNotFound, host.StatePausing: http.StatusConflict, host.StateResuming: http.StatusConflict,
	} {
		h := controlHost{box: fixedSandbox{info: host.Info{ID: "inode1", State: state}}}
		if c := ask(t, h, "POST", "/sandboxes/inode1/refreshes"); c.status != status || !strings.Contains(c.body, string(state)) {
			t.Errorf("%s: %v", state, c)
		}
	}
}

// recordingSandbox knows what was done to it.
type recordingSandbox struct {
	Sandbox
	did *[]string
}

func (recordingSandbox) Info() host.Info { return host.Info{ID: "inode1"} }
func (b recordingSandbox) Kill() error   { *b.did = append(*b.did, "kill"); return nil }

func (b recordingSandbox) Extend(_ context.Context, d time.Duration) error {
	*b.did = append(*b.did, "extend "+d.String())
	return nil
}

func (b recordingSandbox) Pause(_ context.Context, o host.PauseOptions) error {
	*b.did = append(*b.did, fmt.Sprint("pause ", o.FilesOnly))
	return nil
}

func (b recordingSandbox) Connect(_ context.Context, o host.ResumeOptions) (bool, error) {
	*b.did = append(*b.did, fmt.Sprint("connect ", o.Timeout, " ", o.FilesOnly))
	return o.FilesOnly, nil
}

func (b recordingSandbox) Resume(_ context.Context, o host.ResumeOptions) error {
	*b.did = append(*b.did, fmt.Sprint("resume ", o.Timeout, " ", o.FilesOnly))
	return nil
}

func (b recordingSandbox) Fork(_ context.Context, n int, timeout time.Duration) ([]Forked, error) {
	*b.did = append(*b.did, fmt.Sprint("fork ", n, " ", timeout))
	return nil, nil
}

func TestControlOfASandbox(t *testing.T) {
	var did []string
	h := controlHost{box: recordingSandbox{did: &did}}
	a := &api{t: t, handler: New(Config{Host: h})}
	for _, call := range []struct {
		method, path, body string
		status             int
		did                string
	}{
		{"POST", "/sandboxes/inode1/refreshes", "", http.StatusNoContent, "extend 15s"},
		{"POST", "/sandboxes/inode1/connect", "", http.StatusOK, "connect 5m0s false"},
		{"POST", "/v2/sandboxes/inode1/connect", `{"timeout":7,"memory":false}`, http.StatusCreated, "connect 7s true"},
		{"POST", "/v2/sandboxes/inode1/connect", `{"memory":true}`, http.StatusOK, "connect 5m0s false"},
		{"POST", "/sandboxes/inode1/resume", "", http.StatusCreated, "resume 15s false"},
		{"POST", "/sandboxes/inode1/resume", `{"timeout":7,"memory":false,"autoPause":false}`, http.StatusCreated, "resume 7s true"},
		{"POST", "/sandboxes/inode1/pause", "", http.StatusNoContent, "pause false"},
		{"POST", "/sandboxes/inode1/pause", `{"memory":false}`, http.StatusNoContent, "pause true"},
		{"POST", "/sandboxes/inode1/fork", "", http.StatusCreated, "fork 1 0s"},
		{"POST", "/sandboxes/inode1/fork", `{"count":3,"timeout":7}`, http.StatusCreated, "fork 3 7s"},
		{"DELETE", "/sandboxes/inode2", "", http.StatusNotFound, ""},
		{"DELETE", "/sandboxes/inode1", "", http.StatusNoContent, "kill"},
	} {
		did = nil
		c := a.call(call.method, call.path, call.body)
		if c.status != call.status || strings.Join(did, ", ") != call.did {
			t.Errorf("%s %s %s: %v; did %q, want %q", call.method, call.path, call.body, c, did, call.did)
		}
	}
}

// nodeHost finds one sandbox, whose ports are those of an HTTP server on another
// node. The sandbox can get another machine there.
type nodeHost struct {
	Host
	ports *nodePorts
}

func (h *nodeHost) Get(id string) (Ports, error) {
	if id != h.ports.Info().ID {
		return nil, host.ErrNotFound
	}
	return h.ports, nil
}

func (*nodeHost) GetPublic(string) (Ports, error)                        { return nil, host.ErrNotFound }
func (*nodeHost) EndOf(context.Context, string, string) (host.End, bool) { return host.End{}, false }
func (h *nodeHost) Of(context.Context, string, string) (Sandbox, error) {
	return nil, host.ErrNotFound
}

func (h *nodeHost) BySignature(signed func(token string) bool) (Ports, bool) {
	return h.ports, signed(h.ports.Info().Token)
}

type nodePorts struct {
	node *url.URL // where the machine is
	gone chan struct{}
	http *http.Transport
	err  error // of a dial
}

// newNodePorts starts a machine that answers with a name and the request's path.
func newNodePorts(t *testing.T, name string) *nodePorts {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s answers %s", name, r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	u, _ := url.Parse(srv.URL)
	p := &nodePorts{node: u, gone: make(chan struct{})}
	p.http = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx, 0) }}
	return p
}

// end is the machine's.
func (p *nodePorts) end() {
	close(p.gone)
	p.http.CloseIdleConnections()
}

func (p *nodePorts) Info() host.Info                     { return host.Info{ID: "inode1", Token: "secret"} }
func (p *nodePorts) Transport(int) http.RoundTripper     { return p.http }
func (p *nodePorts) BeginRun(time.Duration) (_ func())   { return func() {} }
func (p *nodePorts) Wake(context.Context) (Ports, error) { return p, nil }
func (p *nodePorts) Done() <-chan struct{}               { return p.gone }

func (p *nodePorts) Dial(ctx context.Context, _ int) (net.Conn, error) {
	select {
	case <-p.gone:
		return nil, engine.ErrEnded
	default:
	}
	if p.err != nil {
		return nil, p.err
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.node.Host)
}

// TestPortsElsewhere: the data plane does not ask where a sandbox is, nor that it is
// the same machine for life.
func TestPortsElsewhere(t *testing.T) {
	h := &nodeHost{ports: newNodePorts(t, "first")}
	s := New(Config{Host: h})
	srv := httptest.NewServer(s)
	defer srv.Close()
	get := func(id, path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			r.Header.Set(protocol.HeaderSandboxID, id)
			r.Header.Set(protocol.HeaderSandboxPort, strconv.Itoa(3000))
		}
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if status, body := get("inode1", "/x"); status != http.StatusOK || body != "first answers /x" {
		t.Errorf("by the header: %d %q", status, body)
	}
	if status, body := get("", signedURL("f", "read", "", "secret", "")); status != http.StatusOK || body != "first answers /files" {
		t.Errorf("by a signature: %d %q", status, body)
	}
	if status, _ := get("inode2", "/x"); status != http.StatusBadGateway {
		t.Errorf("another sandbox: %d", status)
	}
	h.ports.http.CloseIdleConnections()
	h.ports.err = &fault.Error{Code: fault.Conflict, Err: &host.StateError{ID: "inode1", State: host.StatePausing, Intended: host.StateRunning}}
	const paused = "The sandbox was not found: it is paused"
	if status, body := get("inode1", "/x"); status != http.StatusBadGateway || !strings.Contains(body, paused) {
		t.Errorf("while it is being paused: %d %s", status, body)
	}
	// What was cut with the first machine is none of the second one's.
	first := s.liveSandbox(h.ports)
	h.ports.end()
	if status, _ := get("inode1", "/x"); status != http.StatusBadGateway {
		t.Errorf("between two machines: %d", status)
	}
	h.ports = newNodePorts(t, "second")
	second := s.liveSandbox(h.ports)
	<-first.ctx.Done()
	if status, body := get("inode1", "/x"); status != http.StatusOK || body != "second answers /x" || second.ctx.Err() != nil {
		t.Errorf("with another machine: %d %q, cut: %v", status, body, second.ctx.Err())
	}
	h.ports.end()
}
