package gvisor_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/protocol"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestPausedSandbox pauses a real sandbox: nothing of it runs, and resumed, by the
// same host and by one after it, its kernel has its variables and its files.
func TestPausedSandbox(t *testing.T) {
	f := newFixture(t, "")
	testenv.CheckLeaksIn(t, f.dir)
	root := f.root
	images := &hosttest.Images{Dir: t.TempDir()}
	cfg := host.Config{
		Engine: f.engine, Key: secret.New(), Recorder: &memory{}, Images: images,
		Templates: host.Toolchain(host.Template{Root: root.Dir, Guest: []string{root.GuestPath}, Env: []string{
			"PATH=" + root.Path, "CUBBY_PYTHON=" + root.Python, "CUBBY_NODE=" + root.Node, "CUBBY_BASH=" + root.Bash, "CUBBY_TYPESCRIPT=" + root.TypeScriptPath,
		}}),
	}
	first := host.New(cfg)
	defer first.Close()
	req := host.CreateRequest{Secure: true}
	req.EnvVars = map[string]string{"COLOUR": "green"}
	s, err := first.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, s, "import os; x = 42; print(open('/tmp/kept', 'w').write(os.environ['COLOUR']))", "5")
	const look = "print(x, open('/tmp/kept').read(), os.environ['COLOUR'])"
	pause := func(s *host.Sandbox) {
		t.Helper()
		if err := s.Pause(t.Context(), host.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if pids := sentries(t); len(pids) > 0 {
			t.Errorf("processes of a paused sandbox: %v", pids)
		}
	}
	resume := func(s *host.Sandbox) {
		t.Helper()
		if err := s.Resume(t.Context(), host.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		execute(t, s, look, "42 green green")
	}
	pause(s)
	resume(s)
	pause(s)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	second := host.New(cfg)
	defer second.Close()
	if found, err := second.Recover(t.Context()); err != nil || found.Paused != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	again, err := second.Get(s.ID)
	if err != nil || again.Token != s.Token {
		t.Fatal(err)
	}
	resume(again)
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(images.Dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of images: %v, %v", left, err)
	}
}

// sentries are the sandboxes' processes of this one.
func sentries(t *testing.T) (pids []string) {
	t.Helper()
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name, _, _ := strings.Cut(string(cmdline), "\x00")
		if strings.HasPrefix(name, "runsc-") && readStatus(t, dir)["PPid"] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, filepath.Base(dir)+" "+name)
		}
	}
	return pids
}

// execute runs Python in a sandbox, and says what it is to print.
func execute(t *testing.T, s *host.Sandbox, code, want string) {
	t.Helper()
	body, err := json.Marshal(protocol.ExecuteRequest{Code: code})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://guest/execute", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(protocol.HeaderAccessToken, s.Token)
	resp, err := s.Ports().Transport(protocol.CodeInterpreterPort).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var printed string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var e protocol.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		if e.Type == protocol.EventError {
			t.Fatalf("%s: %+v", code, e.ErrorData)
		}
		if e.Type == protocol.EventStdout {
			printed += e.Text
		}
	}
	if got := strings.TrimSpace(printed); resp.StatusCode != http.StatusOK || got != want {
		t.Errorf("%s: %s prints %q, not %q", code, resp.Status, got, want)
	}
}

// memory is a host.Recorder of this process.
type memory struct {
	mu      sync.Mutex
	records map[string]host.Record
}

func (m *memory) Put(_ context.Context, r host.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string]host.Record{}
	}
	m.records[r.ID] = r
	return nil
}

func (m *memory) Get(_ context.Context, id string) (host.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.records[id]; ok {
		return r, nil
	}
	return host.Record{}, host.ErrNotFound
}

func (m *memory) Live(context.Context) (live []host.Record, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.State != host.StateEnded {
			live = append(live, r)
		}
	}
	return live, nil
}
