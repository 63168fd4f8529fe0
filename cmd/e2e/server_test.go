//go:build linux

// Package e2e judges a real `cubby serve` by E2B's own clients: the official npm
// packages in two generations (folders new and old, tests in js), and clients
// that send what two agent frameworks send. Everything else here speaks plain
// HTTP, to say what no well-behaved client would.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// patience bounds whatever must happen on a machine that may be busy.
const patience = 2 * time.Minute

// debianPython is what the script of `make test` installs packages for.
const debianPython = "/usr/bin/python3"

// server is a running `cubby serve` with a data folder and a home of its own.
type server struct {
	URL, Key string
	DataDir  string
	env      []string // for other commands of the same owner
	cmd      *exec.Cmd
	log      *buffer
}

// start runs `cubby serve` until the test ends, with further arguments, and
// fails the test if it leaves anything behind.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	testenv.CheckLeaks(t)
	return startIn(t, os.Getenv("TMPDIR"), args...)
}

// startIn does the same in a folder that may hold an earlier server's data, and
// leaves the check for leaks to the caller. Key is empty at a later start.
func startIn(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	return startBy(t, dir, nil, nil, args...)
}

// startBy does the same with a command line before that of cubby, which becomes it, and
// with further variables.
func startBy(t *testing.T, dir string, by, env []string, args ...string) *server {
	t.Helper()
	s := &server{DataDir: filepath.Join(dir, "data"), log: &buffer{}}
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "XDG_") && !strings.HasPrefix(entry, "HOME=") && !strings.HasPrefix(entry, "E2B_") {
			s.env = append(s.env, entry)
		}
	}
	s.env = append(s.env, "HOME="+home)
	line := slices.Concat(by, []string{testenv.Cubby(t), "serve", "--listen", "127.0.0.1:0", "--data-dir", s.DataDir, "--python", debianPython}, args)
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Env = append(slices.Clone(s.env), env...)
	s.cmd.Stderr = s.log
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log.tail(4<<10))
		}
	})
	found := make(chan error, 1)
	go func() { found <- s.read(stdout) }()
	select {
	case err := <-found:
		if err != nil {
			t.Fatalf("cubby serve: %v\n%s", err, s.log.tail(4<<10))
		}
	case <-time.After(patience):
		t.Fatalf("cubby serve printed nothing to paste within %v\n%s", patience, s.log.tail(4<<10))
	}
	return s
}

// read takes the lines to paste from the server's output, and drains the rest.
func (s *server) read(stdout io.Reader) error {
	sandboxURL, lines := "", bufio.NewScanner(stdout)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), "=")
		switch strings.TrimSpace(name) {
		case "export E2B_API_URL":
			s.URL = value
		case "export E2B_SANDBOX_URL":
			sandboxURL = value
		case "export E2B_API_KEY":
			if key, _, _ := strings.Cut(value, " "); key != "…" { // a later start says where it is
				s.Key = key
			}
		}
		// The last of the three, or the comment that stands for it later.
		if s.URL != "" && sandboxURL != "" && (found && strings.HasPrefix(name, "export E2B_API_KEY") || strings.HasPrefix(name, "# an API key")) {
			if sandboxURL != s.URL {
				return fmt.Errorf("two addresses: %s and %s", s.URL, sandboxURL)
			}
			go io.Copy(io.Discard, stdout)
			return nil
		}
	}
	return errors.Join(errors.New("it ended without the lines to paste"), lines.Err())
}

// stop ends the server as a service manager would, and expects it to end well.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if s.cmd.ProcessState != nil {
		return
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	timer := time.AfterFunc(patience, func() {
		t.Errorf("cubby serve did not end within %v of SIGTERM", patience)
		s.cmd.Process.Kill()
	})
	defer timer.Stop()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("cubby serve ended: %v", err)
	}
}

// keys runs `cubby keys` beside the server and returns what it prints.
func (s *server) keys(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(testenv.Cubby(t), append([]string{"keys", "--data-dir", s.DataDir}, args...)...)
	cmd.Env = s.env
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("cubby keys %q: %v\n%s", args, err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return out
}

// newKey makes a key of a team, which is made if it is new.
func (s *server) newKey(t *testing.T, team string) (secret, id string) {
	t.Helper()
	var key struct{ Secret, ID string }
	if err := json.Unmarshal(s.keys(t, "create", "--json", "--team", team), &key); err != nil || key.Secret == "" || key.ID == "" {
		t.Fatalf("cubby keys create: %+v, %v", key, err)
	}
	return key.Secret, key.ID
}

// processes are the server's own, without its sandboxes'; none after its end.
func (s *server) processes(t *testing.T) []int {
	t.Helper()
	var pids []int
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(entry)
		if err != nil {
			continue
		}
		argv := strings.Split(string(text), "\x00")
		if len(argv) > 1 && argv[1] == "serve" && strings.Contains(string(text), s.DataDir) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// usage is what the server's processes hold: private memory in KiB, and open
// descriptors. Clean pages do not count: they are the binary's, and private or
// shared as other processes of it come and go.
func (s *server) usage(t *testing.T) (kib, descriptors int) {
	t.Helper()
	pids := s.processes(t)
	if len(pids) == 0 {
		t.Fatal("no process of the server was found")
	}
	for _, pid := range pids {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(rollup)) {
			var n int
			if name, rest, _ := strings.Cut(line, ":"); name == "Private_Dirty" {
				fmt.Sscanf(rest, "%d", &n)
				kib += n
			}
		}
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		descriptors += len(fds)
	}
	return kib, descriptors
}

// viaProxy is a client whose every request goes through the server as a proxy.
func (s *server) viaProxy(t *testing.T) *http.Client {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(u), MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.b.String()
	return text[max(0, len(text)-n):]
}

// until calls check until it returns nil, and fails the test with its last
// error after patience.
func until(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// serveOnce starts a server that is not meant to start, and returns what it says.
func serveOnce(t *testing.T, dataDir string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testenv.Cubby(t), "serve", "--listen", "127.0.0.1:0", "--data-dir", dataDir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(out), nil
	}
	return string(out), err
}
