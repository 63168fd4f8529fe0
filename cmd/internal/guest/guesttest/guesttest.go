//go:build linux

// Package guesttest is what the tests of a guest and of its services share: a service
// that runs in the test's process, as whoever runs the tests.
package guesttest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript/transform"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// HostToken is the host's token of the boxes that New returns.
const HostToken = "the-host's"

// Main is a TestMain. The test binary is also the Bash kernel of its tests, and
// TypeScript's compiler; main is what
// a program called settings.Program runs, nil for kernel.BashMain. It sees to it that
// nothing is left running.
func Main(m *testing.M, main func() int) {
	if typescript.Is(os.Args[0]) {
		os.Exit(transform.Main())
	}
	if filepath.Base(os.Args[0]) == settings.Program {
		if main == nil {
			main = kernel.BashMain
		}
		os.Exit(main())
	}
	// A test that runs in the background ignores it, and what a terminal starts would,
	// too: a signal that is handled here is the children's by default.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	goleak.VerifyTestMain(m)
}

// Config is that of a guest that runs as an ordinary process, with folders of the test.
func Config(t testing.TB) settings.Config {
	cfg := settings.Config{
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), UserName: "user",
		Home: t.TempDir(), KernelDir: t.TempDir(),
		Interpreters: map[string]string{settings.Python: "/usr/bin/python3", settings.Bash: "/bin/bash"},
		Missing:      map[string]string{},
		Env:          []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
	}
	if self, err := os.Executable(); err == nil {
		cfg.TypeScript = self
	}
	if node, err := exec.LookPath("node"); err == nil {
		cfg.Interpreters[settings.JavaScript] = node
	}
	return cfg
}

// Box is what a service of a guest needs.
type Box struct {
	*testing.T
	Ctx      context.Context // the guest's
	End      func()          // ends Ctx
	Settings *settings.Store
	Children *reaper.Children
	Home     string
}

// New returns a box that has been told HostToken and nothing else.
func New(t *testing.T, change ...func(*settings.Config)) *Box {
	t.Helper()
	cfg := Config(t)
	for _, f := range change {
		f(&cfg)
	}
	b := &Box{T: t, Settings: settings.New(cfg), Children: &reaper.Children{}, Home: cfg.Home}
	b.Ctx, b.End = context.WithCancel(context.Background())
	b.Tell(protocol.InitRequest{HostToken: HostToken})
	return b
}

// Tell changes the settings as a call of /init does.
func (b *Box) Tell(req protocol.InitRequest) {
	b.Helper()
	if err := b.Settings.Check(req); err != nil {
		b.Fatal(err)
	}
	b.Settings.Set(b.Settings.Load().With(req))
}

// At is on t, in the same box.
func (b *Box) At(t *testing.T) *Box {
	c := *b
	c.T = t
	return &c
}

// Serve serves h until the test's end. Then the box is ended, and wait is called.
func (b *Box) Serve(h http.Handler, wait func()) *httptest.Server {
	server := httptest.NewServer(h)
	b.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.CloseClientConnections()
		b.End()
		wait()
		server.Close()
	})
	return server
}

// Plain is a client that asks for no compression and undoes none.
var Plain = &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}

// Do makes a request of a server and returns the answer with its body, which is read.
func Do(t testing.TB, server *httptest.Server, method, path string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, server.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := Plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// WaitFor waits until ok, for half a minute at most.
func WaitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}

// Must fails the test at the first error.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
