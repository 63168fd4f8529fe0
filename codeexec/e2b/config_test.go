//go:build linux

package e2b_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// detour sends every request to one address, and notes which host it was for.
type detour struct {
	to string

	mu    sync.Mutex
	hosts []string
}

func (d *detour) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	d.hosts = append(d.hosts, r.URL.Host)
	d.mu.Unlock()
	to, err := neturl.Parse(d.to)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// Sandboxes are reached where the configuration says.
func TestWhereSandboxesAre(t *testing.T) {
	t.Run("SandboxURL", func(t *testing.T) {
		ports := &foreign{}
		srv := httptest.NewServer(ports)
		defer srv.Close()
		f := &foreign{}
		e := create(t, f.serve(t, e2b.Config{SandboxURL: srv.URL}))
		output(t, e, python("1"))
		if f.count("POST /execute") != 0 || ports.count("POST /execute") != 1 {
			t.Errorf("the server was asked %q, its sandboxes %q", f.requests, ports.requests)
		}
	})
	t.Run("Domain, through an HTTPClient", func(t *testing.T) {
		f := &foreign{}
		cfg := f.serve(t, e2b.Config{Domain: "sandboxes.example"})
		way := &detour{to: cfg.APIURL}
		cfg.HTTPClient = &http.Client{Transport: way}
		output(t, create(t, cfg), python("1"))
		way.mu.Lock()
		defer way.mu.Unlock()
		if !slices.Contains(way.hosts, "49999-iforeign.sandboxes.example") {
			t.Errorf("asked were %q", way.hosts)
		}
	})
}

func TestWhatNewSandboxesAreMadeWith(t *testing.T) {
	f := &foreign{}
	create(t, f.serve(t, e2b.Config{Metadata: map[string]string{"owner": "ada"}}))
	if f.count(`POST /v2/sandboxes {"templateID":"t","timeout":3600,"metadata":{"owner":"ada"}`) != 1 {
		t.Errorf("got %q", f.requests)
	}
}

// Languages that are named are all that runs, whatever the server has.
func TestLanguages(t *testing.T) {
	f := &foreign{}
	e := create(t, f.serve(t, e2b.Config{Languages: []string{"py", "r", "python"}}))
	if got := e.Languages(); !slices.Equal(got, []string{"python", "r"}) {
		t.Errorf("Languages: %q", got)
	}
	for language, runs := range map[string]bool{"python": true, "R": true, "bash": false, "java": false} {
		before := f.count("POST /execute")
		r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: language, Code: "1"}}})
		if err != nil || r.Blocks[0].Unsupported == runs || (f.count("POST /execute") > before) != runs {
			t.Errorf("%s: %+v, %v", language, r, err)
		}
	}
}

// What an executor says of itself, and whom it tells that it has ended.
func TestBackend(t *testing.T) {
	var log bytes.Buffer
	closed := 0
	f := &foreign{}
	cfg := f.serve(t, e2b.Config{
		Backend: "our-fleet", Describe: codeexec.Capabilities{Isolation: "kvm"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		OnClose: func() error {
			closed++
			return errors.New("not ended")
		},
	})
	e, err := e2b.Create(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	output(t, e, python("1"))
	if d := e.Engine().Describe(); d.Isolation != "kvm" || d.NetworkAllowed {
		t.Errorf("got %+v", d)
	}
	if !strings.Contains(log.String(), "backend=our-fleet") {
		t.Errorf("the log is %s", log.String())
	}
	if closed != 0 {
		t.Error("OnClose was called early")
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "not ended") {
		t.Errorf("got %v", err)
	}
	if err := e.Close(); err != nil || closed != 1 {
		t.Errorf("got %v, and OnClose was called %d times", err, closed)
	}
	cfg.SandboxID = "../x"
	if _, err := e2b.Create(t.Context(), cfg); err == nil || closed != 1 {
		t.Errorf("got %v, and OnClose was called %d times", err, closed)
	}
}

// tRPC-Agent's options are fields of the configuration by other names.
func TestOptions(t *testing.T) {
	f := &foreign{}
	cfg := f.serve(t, e2b.Config{})
	server := []e2b.Option{e2b.WithAPIURL(cfg.APIURL), e2b.WithAPIKey("k"), e2b.WithTemplate("std-2")}
	e, err := e2b.New(append(server, e2b.WithSandboxTimeout(10*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if f.count(`POST /v2/sandboxes {"templateID":"std-2","timeout":10,"allow_internet_access":false}`) != 1 {
		t.Errorf("got %q", f.requests)
	}
	e, err = e2b.New(append(server, e2b.WithSandboxID("iforeign"))...)
	if err != nil || e.SandboxID() != "iforeign" || f.count("POST /v2/sandboxes {") != 1 {
		t.Fatalf("got %v, and %q", err, f.requests)
	}
	if err := e.Close(); err != nil || f.count("DELETE") != 1 {
		t.Errorf("a sandbox that was attached to: %v, %q", err, f.requests)
	}
	for name, o := range map[string]e2b.Option{"sandbox timeout": e2b.WithSandboxTimeout(0), "execution timeout": e2b.WithExecutionTimeout(-1)} {
		_, err := e2b.New(append(server, o)...)
		wantCode(t, name, err, cubby.CodeInvalidArgument)
	}
}
