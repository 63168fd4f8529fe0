//go:build linux

package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// The Bash kernel is this binary again.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Name {
		os.Exit(Main())
	}
	// A test that runs in the background ignores it, and what a terminal starts would,
	// too: a signal that is handled here is the children's by default.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	goleak.VerifyTestMain(m)
}

// box is a guest that runs as an ordinary process, as whoever runs the tests.
type box struct {
	*testing.T
	g          *Guest
	home       string
	envd, code *httptest.Server
}

// newBox returns a guest that has been told the host's token and nothing else.
func newBox(t *testing.T, change ...func(*Config)) *box {
	t.Helper()
	b := newUninitialised(t, change...)
	b.tell(protocol.InitRequest{HostToken: hostToken})
	return b
}

// hostToken is what boxes are told first.
const hostToken = "the-host's"

// tell is one of the host's calls of /init.
func (b *box) tell(req protocol.InitRequest) {
	b.Helper()
	body, err := json.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	if resp, text := b.do("POST", "/init", bytes.NewReader(body), protocol.HeaderHostToken, hostToken); resp.StatusCode != http.StatusNoContent {
		b.Fatal(resp.Status, text)
	}
}

func newUninitialised(t *testing.T, change ...func(*Config)) *box {
	t.Helper()
	cfg := Config{
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), UserName: "user",
		Home: t.TempDir(), KernelDir: t.TempDir(),
		Interpreters: map[string]string{python: "/usr/bin/python3", bash: "/bin/bash"},
		Missing:      map[string]string{},
		Env:          []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
	}
	if node, err := exec.LookPath("node"); err == nil {
		cfg.Interpreters[javascript] = node
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{T: t, g: g, home: cfg.Home, envd: httptest.NewServer(g.Envd()), code: httptest.NewServer(g.CodeInterpreter())}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		b.code.CloseClientConnections()
		g.Close()
		b.envd.Close()
		b.code.Close()
	})
	return b
}

// answer is what one execution said.
type answer struct {
	lines          []protocol.Event
	stdout, stderr string
	results        []protocol.Event
	failure        *protocol.ErrorData
	end            protocol.EndOfExecution
	kinds          string // of the lines, one letter each
}

// call is an execution to be.
type call struct {
	language, context, code string
	env                     map[string]string
	header                  map[string]string
	program                 *protocol.Program
	stdin                   *protocol.Stdin
}

func (b *box) request(ctx context.Context, c call) *http.Response {
	b.Helper()
	body, _ := json.Marshal(protocol.ExecuteRequest{Code: c.code, Language: c.language, ContextID: c.context, EnvVars: c.env, Program: c.program, Stdin: c.stdin})
	req, _ := http.NewRequestWithContext(ctx, "POST", b.code.URL+"/execute", bytes.NewReader(body))
	for k, v := range c.header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	return resp
}

func (b *box) run(c call) answer {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	resp := b.request(ctx, c)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		b.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	var a answer
	var stdout, stderr strings.Builder
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		for _, c := range lines.Bytes() {
			if c >= 0x7f {
				b.Fatalf("not ASCII: %s", lines.Bytes())
			}
		}
		e := protocol.Event{ResultData: &protocol.ResultData{}, ErrorData: &protocol.ErrorData{}, EndOfExecution: &protocol.EndOfExecution{}}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			b.Fatalf("%v: %s", err, lines.Bytes())
		}
		a.lines = append(a.lines, e)
		a.kinds += e.Type[:1]
		switch e.Type {
		case protocol.EventStdout:
			a.kinds = a.kinds[:len(a.kinds)-1] + "o"
			stdout.WriteString(e.Text)
		case protocol.EventStderr:
			stderr.WriteString(e.Text)
		case protocol.EventResult:
			a.results = append(a.results, e)
		case protocol.EventError:
			a.kinds = a.kinds[:len(a.kinds)-1] + "E"
			a.failure = e.ErrorData
		case protocol.EventEnd:
			a.end = *e.EndOfExecution
		}
	}
	a.stdout, a.stderr = stdout.String(), stderr.String()
	if !strings.HasSuffix(a.kinds, "e") {
		b.Fatalf("no end: %q, %v", a.kinds, lines.Err())
	}
	return a
}

func limit(d time.Duration) map[string]string {
	return map[string]string{protocol.HeaderTimeoutMS: fmt.Sprint(d.Milliseconds())}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}
