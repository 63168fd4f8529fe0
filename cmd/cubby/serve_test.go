//go:build linux

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"

	"github.com/cubby-sandbox/cubby/cmd/internal/ownerconfig"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// home is a user with a configuration folder and a data folder.
type home struct{ config, data string }

func newHome(t *testing.T) home {
	t.Helper()
	testenv.CheckLeaks(t)
	dir := t.TempDir()
	return home{filepath.Join(dir, "config"), filepath.Join(dir, "data")}
}

// running is a `cubby serve` that has said where it is.
type running struct {
	cmd    *exec.Cmd
	banner string // what it printed
	url    string
	exited chan struct{}
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (h home) command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.Command(testenv.Cubby(t), args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+h.config)
	return cmd
}

// serve starts a server and returns when it serves. It is killed with the test.
func (h home) serve(t *testing.T, listen string, args ...string) *running {
	t.Helper()
	r := &running{cmd: h.command(t, append([]string{"serve", "--listen", listen, "--data-dir", h.data}, args...)...), exited: make(chan struct{}), log: &lockedBuffer{}}
	r.cmd.Stderr = r.log
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.cmd.Process.Signal(syscall.SIGTERM)
		<-r.exited
	})
	// What it says comes in one write, which a pipe does not split.
	buf := make([]byte, 4096)
	n, _ := out.Read(buf)
	r.banner = string(buf[:n])
	go func() {
		io.Copy(io.Discard, out)
		r.cmd.Wait()
		close(r.exited)
	}()
	found := regexp.MustCompile(`export E2B_API_URL=(\S+)`).FindStringSubmatch(r.banner)
	if found == nil {
		t.Fatalf("it does not serve: %s\n%s", r.banner, r.log)
	}
	r.url = found[1]
	return r
}

// key is the one that the banner shows.
func (r *running) key() string {
	if found := regexp.MustCompile(`E2B_API_KEY=(e2b_[0-9a-f]{40})\n`).FindStringSubmatch(r.banner); found != nil {
		return found[1]
	}
	return ""
}

// child is the process in which the sandboxes live.
func (r *running) child(t *testing.T) int {
	t.Helper()
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(r.cmd.Process.Pid) + "/task/*/children")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			return pid
		}
	}
	t.Fatal("no child process")
	return 0
}

func call(t *testing.T, method, url, key, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-KEY", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v map[string]any
	_ = json.NewDecoder(resp.Body).Decode(&v)
	return resp.StatusCode, v
}

func (r *running) create(t *testing.T, key string) string {
	t.Helper()
	code, v := call(t, "POST", r.url+"/v2/sandboxes", key, `{"templateID":"base"}`)
	id, _ := v["sandboxID"].(string)
	if code != http.StatusCreated || id == "" {
		t.Fatalf("create: %d %v\n%s", code, v, r.log)
	}
	return id
}

// record is what the data folder knows of a sandbox.
func (h home) record(t *testing.T, id string) store.Sandbox {
	t.Helper()
	st, err := store.Open(t.Context(), h.data)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	b, err := st.Sandbox(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestServeStarts follows a new owner: the first start shows a key once and keeps
// it, the second names the file, and only a key gets in.
func TestServeStarts(t *testing.T) {
	h := newHome(t)
	first := h.serve(t, "127.0.0.1:0")
	key := first.key()
	file := filepath.Join(h.config, "cubby", "config.json")
	if key == "" || !strings.Contains(first.banner, file) {
		t.Fatalf("banner:\n%s", first.banner)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	for name, test := range map[string]struct {
		key  string
		want int
	}{"none": {"", 401}, "another": {"e2b_" + strings.Repeat("0", 40), 401}, "the key": {key, 200}} {
		if code, v := call(t, "GET", first.url+"/sandboxes", test.key, ""); code != test.want {
			t.Errorf("%s: %d %v", name, code, v)
		}
	}
	id := first.create(t, key)
	first.cmd.Process.Signal(syscall.SIGTERM)
	<-first.exited
	if first.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("ended with %v:\n%s", first.cmd.ProcessState, first.log)
	}
	if !strings.Contains(first.log.String(), "name=gvisor commit=v0.0.0-") {
		t.Errorf("the log does not say what keeps sandboxes apart:\n%s", first.log)
	}
	if strings.Contains(first.log.String(), key) {
		t.Error("the log shows the key")
	}
	if b := h.record(t, id); b.EndedAt.IsZero() || !strings.Contains(b.EndReason, "stopped") {
		t.Errorf("record: %+v", b)
	}

	second := h.serve(t, strings.TrimPrefix(first.url, "http://"))
	if strings.Contains(second.banner, key) || !strings.Contains(second.banner, file) {
		t.Errorf("second banner:\n%s", second.banner)
	}
	if code, v := call(t, "GET", second.url+"/sandboxes/"+id, key, ""); code != 404 {
		t.Errorf("a sandbox of before: %d %v", code, v)
	}
	second.create(t, key)

	second.cmd.Process.Signal(syscall.SIGTERM)
	<-second.exited
	third := h.serve(t, "127.0.0.1:0")
	if strings.Contains(third.banner, key) || !strings.Contains(third.banner, file) {
		t.Errorf("banner at another address:\n%s", third.banner)
	}
	// The file follows its server, and the command line finds it.
	if out, err := h.command(t, "ls").CombinedOutput(); err != nil || !strings.Contains(string(out), third.url) {
		t.Errorf("%v: %s", err, out)
	}
	// Not so one of another server, or one that its owner has written.
	for _, c := range []ownerconfig.Config{
		{APIURL: "http://127.0.0.1:1", SandboxURL: "http://127.0.0.1:1", APIKey: "e2b_" + strings.Repeat("0", 40)},
		{APIURL: "https://cubby.example.com", SandboxURL: "https://cubby.example.com", APIKey: key},
		{APIURL: "http://127.0.0.1:1", SandboxURL: "https://cubby.example.com", APIKey: key},
	} {
		third.cmd.Process.Signal(syscall.SIGTERM)
		<-third.exited
		if err := ownerconfig.Save(file, c); err != nil {
			t.Fatal(err)
		}
		third = h.serve(t, "127.0.0.1:0")
		if !strings.Contains(third.banner, file+" keeps the key that was made for "+c.APIURL) || strings.Contains(third.banner, c.APIKey) {
			t.Errorf("banner:\n%s", third.banner)
		}
		if got, err := ownerconfig.Load(file); err != nil || got != c {
			t.Errorf("%+v, %v", got, err)
		}
	}
	third.create(t, key)
}

// TestServerURL: the address that is printed is one at which this machine reaches the
// server, also where it has no IPv6.
func TestServerURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:0": "127.0.0.1", "0.0.0.0:0": "127.0.0.1", ":0": "127.0.0.1", "[::]:0": "127.0.0.1", "[::1]:0": "[::1]",
	} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Logf("%s: %v", listen, err) // no IPv6
			continue
		}
		defer l.Close()
		got, err := neturl.Parse(url(l.Addr().(*net.TCPAddr)))
		if err != nil || !strings.HasPrefix(got.Host, want+":") {
			t.Errorf("%s: %v, %v", listen, got, err)
			continue
		}
		conn, err := net.Dial("tcp", got.Host)
		if err != nil {
			t.Errorf("%s: %v", listen, err)
			continue
		}
		conn.Close()
	}
}

// TestServeFirstStartFails fails to start at first: the key is made, and shown, by
// the start that succeeds.
func TestServeFirstStartFails(t *testing.T) {
	h := newHome(t)
	out, err := h.command(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", h.data, "--python", "/nonexistent").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--python") {
		t.Fatalf("%v %s", err, out)
	}
	r := h.serve(t, "127.0.0.1:0")
	if r.key() == "" {
		t.Fatalf("no key:\n%s", r.banner)
	}
	r.create(t, r.key())
}

// TestServeKilled kills the server's processes in the middle: nothing runs on, and
// the record of the sandbox says why it ended.
func TestServeKilled(t *testing.T) {
	for _, victim := range []string{"parent", "child", "both"} {
		t.Run(victim, func(t *testing.T) {
			h := newHome(t)
			r := h.serve(t, "127.0.0.1:0")
			key, child := r.key(), r.child(t)
			id := r.create(t, key)
			if victim != "child" {
				r.cmd.Process.Kill()
			}
			if victim != "parent" {
				syscall.Kill(child, syscall.SIGKILL)
			}
			<-r.exited
			if code := r.cmd.ProcessState.ExitCode(); code == 0 {
				t.Error("it ended as if told to")
			}
			for deadline := time.Now().Add(time.Minute); syscall.Kill(child, 0) == nil; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the child goes on without its parent")
				}
			}
			// The next start removes what nobody was left to, unless it is just
			// being made.
			dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "cubby-run-*"))
			for _, dir := range dirs {
				hour := time.Now().Add(-time.Hour)
				os.Chtimes(dir, hour, hour)
			}
			next := h.serve(t, "127.0.0.1:0")
			if b := h.record(t, id); b.EndedAt.IsZero() || b.EndReason == "" {
				t.Errorf("record: %+v", b)
			}
			if victim != "parent" && !strings.Contains(next.banner, "server that was killed") {
				t.Errorf("banner:\n%s", next.banner)
			}
			if code, _ := call(t, "GET", next.url+"/sandboxes/"+id, key, ""); code != 404 {
				t.Errorf("got %d", code)
			}
			next.create(t, key)
		})
	}
}

// TestServeRefuses starts servers that cannot be: each says why, and changes
// nothing.
func TestServeRefuses(t *testing.T) {
	h := newHome(t)
	r := h.serve(t, "127.0.0.1:0")
	refused := func(name string, h home, want ...string) {
		t.Helper()
		out, err := h.command(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", h.data).CombinedOutput()
		if err == nil {
			t.Errorf("%s: it served", name)
		}
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: %q is not in %s", name, w, out)
			}
		}
	}
	refused("a folder in use", h, "another cubby serve", "hint:")
	out, err := h.command(t, "serve", "--listen", strings.TrimPrefix(r.url, "http://"), "--data-dir", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another program listens there") {
		t.Errorf("an address in use: %v %s", err, out)
	}

	broken := home{h.config, t.TempDir()}
	if err := os.Chmod(broken.data, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(broken.data, "cubby.db")
	garbage := bytes.Repeat([]byte("not a database "), 1000)
	if err := os.WriteFile(file, garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("records that cannot be read", broken, "cubby.db", "hint:")
	if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, garbage) {
		t.Errorf("the file was changed: %v", err)
	}
}

// TestServeStoppedAtStart: a server that is told to end before it serves ends as
// one that serves.
func TestServeStoppedAtStart(t *testing.T) {
	h := newHome(t)
	if err := os.Mkdir(h.data, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(h.data)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// As another process does that makes the database: the start waits.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "c") // short and open, or run folders are made elsewhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o711); err != nil {
		t.Fatal(err)
	}
	cmd := h.command(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", h.data, "--log-level", "error")
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	runDirs := func() []string {
		found, err := filepath.Glob(filepath.Join(tmp, handshake.RunPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for len(runDirs()) == 0 {
		select {
		case err := <-exited:
			t.Fatalf("it ended: %v: %s", err, log)
		case <-time.After(time.Millisecond):
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-exited; err != nil || log.String() != "" {
		t.Errorf("it ended with %v, and said %q", err, log)
	}
	if left := runDirs(); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// TestServeCannotRecordTheEnd: a server that is told to end, and cannot write down what
// became of its sandboxes, says so and does not end as if all were well.
func TestServeCannotRecordTheEnd(t *testing.T) {
	h := newHome(t)
	r := h.serve(t, "127.0.0.1:0")
	r.create(t, r.key())
	db, err := sql.Open("sqlite", filepath.Join(h.data, "cubby.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const refuse = `CREATE TRIGGER refuse BEFORE UPDATE OF ended_at ON sandboxes BEGIN SELECT RAISE(ABORT, 'no room for it'); END`
	if _, err := db.Exec(refuse); err != nil {
		t.Fatal(err)
	}
	r.cmd.Process.Signal(syscall.SIGTERM)
	<-r.exited
	if code := r.cmd.ProcessState.ExitCode(); code != exitCannotRun || !strings.Contains(r.log.String(), "no room for it") {
		t.Errorf("it ended with %d:\n%s", code, r.log)
	}
}

// TestServeWithoutOutput: a server whose standard output cannot be written serves,
// says once in its log where it is, and ends as any other.
func TestServeWithoutOutput(t *testing.T) {
	noReader := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		t.Cleanup(func() { w.Close() })
		return w
	}
	for _, test := range []struct {
		name, redirect string
		stdout         func(t *testing.T) *os.File
		why            string
	}{
		{"full", ">/dev/full", nil, "no space left on device"},
		{"closed", ">&-", nil, "bad file descriptor"},
		{"a pipe without a reader", "", noReader, "broken pipe"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", `exec "$0" serve --listen 127.0.0.1:0 --log-level error --data-dir "$1" `+test.redirect,
				testenv.Cubby(t), h.data)
			cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+h.config)
			if test.stdout != nil {
				cmd.Stdout = test.stdout(t)
			}
			log := &lockedBuffer{}
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			var url string
			for url == "" {
				select {
				case err := <-exited:
					t.Fatalf("it ended: %v: %s", err, log)
				case <-time.After(10 * time.Millisecond):
				}
				if found := regexp.MustCompile(`url=(\S+) `).FindStringSubmatch(log.String()); found != nil {
					url = found[1]
				}
			}
			if code, _ := call(t, "GET", url+"/health", "", ""); code >= 300 {
				t.Errorf("/health: %d", code)
			}
			cmd.Process.Signal(syscall.SIGTERM)
			if err := <-exited; err != nil {
				t.Errorf("told to end, it ended with %v", err)
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, test.why) || !strings.Contains(got, "keys create") {
				t.Errorf("not one line that says %q: %s", test.why, got)
			}
		})
	}
}
