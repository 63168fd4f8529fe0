package gvisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// guest is a machine and its guest, as a host talks to it.
type guest struct {
	*testing.T
	m      engine.Machine
	client *http.Client
	host   string // the host's token
	token  string // everybody else's
}

func (f fixture) spec(id string) engine.Spec {
	return engine.Spec{
		ID: id, Root: f.root.Dir, Args: []string{f.root.GuestPath}, Hostname: "cubby",
		Limits: engine.Limits{Memory: 1 << 30, PIDs: 200},
		Env:    []string{"PATH=" + f.root.Path, "CUBBY_PYTHON=" + f.root.Python, "CUBBY_NODE=" + f.root.Node, "CUBBY_BASH=" + f.root.Bash},
	}
}

func newGuest(t *testing.T, m engine.Machine, err error) *guest {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		return m.Dial(ctx, n)
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		m.Close()
	})
	return &guest{T: t, m: m, client: &http.Client{Transport: tr, Timeout: 2 * time.Minute}}
}

// post makes a request and returns the status and the whole answer, with an error if
// that is cut.
func (g *guest) post(port int, path string, body any, header ...string) (int, string, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(g.Context(), http.MethodPost, fmt.Sprintf("http://guest:%d%s", port, path), bytes.NewReader(b))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// become is a host's call of /init.
func (g *guest) become(with string, req protocol.InitRequest) {
	g.Helper()
	if status, text, err := g.post(protocol.EnvdPort, "/init", req, protocol.HeaderHostToken, with); err != nil || status != http.StatusNoContent {
		g.Fatal(status, text, err)
	}
	if req.HostToken != "" {
		g.host = req.HostToken
	}
	if g.token = req.AccessToken; req.AccessToken == "" {
		g.token = "none"
	}
}

// run runs code and returns what it prints.
func (g *guest) run(language, code string, header ...string) string {
	g.Helper()
	status, text, err := g.post(protocol.CodeInterpreterPort, "/execute", protocol.ExecuteRequest{Code: code, Language: language},
		append(header, protocol.HeaderAccessToken, g.token)...)
	if err != nil || status != http.StatusOK {
		g.Fatal(status, text, err)
	}
	var printed strings.Builder
	for line := range strings.Lines(text) {
		var e protocol.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			g.Fatalf("%v in %q", err, line)
		}
		switch e.Type {
		case protocol.EventError:
			g.Fatalf("%.100s: %+v", code, e.ErrorData)
		case protocol.EventStdout:
			printed.WriteString(e.Text)
		case protocol.EventStderr:
			g.Errorf("%.100s: on stderr: %s", code, e.Text)
		}
	}
	return printed.String()
}

// execute runs code with a token and returns the status.
func (g *guest) execute(token string) int {
	g.Helper()
	status, _, err := g.post(protocol.CodeInterpreterPort, "/execute", protocol.ExecuteRequest{Code: "1"}, protocol.HeaderAccessToken, token)
	if err != nil {
		g.Error(err)
	}
	return status
}

// checkpoint writes the guest's machine to a folder. It goes on.
func (g *guest) checkpoint() string {
	g.Helper()
	dir := filepath.Join(g.TempDir(), "image")
	if err := os.Mkdir(dir, 0o711); err != nil {
		g.Fatal(err)
	}
	if err := g.m.(engine.Checkpointer).Checkpoint(g.Context(), dir, engine.CheckpointOptions{}); err != nil {
		g.Fatal(err)
	}
	return dir
}

// restore boots a machine of an image of f's. Nothing has greeted it yet.
func (f fixture) restore(t *testing.T, id, image string) *guest {
	t.Helper()
	m, err := f.engine.Restore(t.Context(), f.spec(id), image, engine.RestoreOptions{})
	return newGuest(t, m, err)
}

// source draws from every generator once, so that all have states, and some known ones.
var source = map[string]string{
	"python": `
import random, ssl, uuid, tempfile, secrets, os, numpy
random.seed(7); numpy.random.seed(7); ssl.RAND_bytes(1); uuid.uuid1(); next(tempfile._get_candidate_names())
own = random.Random(7)`,
	"javascript": `
const { randomBytes, randomInt, randomUUID, randomFill } = require('crypto')
randomBytes(8); randomInt(9); randomUUID(); Math.random(); crypto.getRandomValues(new Uint8Array(8))`,
	"bash": `RANDOM=7; echo $SRANDOM >/dev/null`,
}

// draws are a thousand of each generator, by language and name.
var draws = []struct {
	language, name, code string
	// kept says that a machine that is resumed always draws what its checkpoint would have:
	// that the copies do not is Cubby's doing. Calls with a callback draw in threads,
	// each of which has a state of its own.
	kept bool
}{
	{"python", "random", "for _ in range(1000): print(random.getrandbits(64))", true},
	{"python", "numpy", "for _ in range(1000): print(numpy.random.randint(0, 1 << 62))", true},
	{"python", "numpy.default_rng", "for _ in range(1000): print(numpy.random.default_rng().integers(0, 1 << 62))", false},
	{"python", "ssl", "for _ in range(1000): print(ssl.RAND_bytes(8).hex())", true},
	{"python", "uuid1", "for _ in range(1000): print(uuid.uuid1().hex)", false},
	{"python", "node of uuid1", "print(uuid.uuid1().node)", true},
	{"python", "uuid4", "for _ in range(1000): print(uuid.uuid4().hex)", false},
	{"python", "tempfile", "names = tempfile._get_candidate_names()\nfor _ in range(1000): print(next(names))", true},
	{"python", "secrets", "for _ in range(1000): print(secrets.token_hex(8))", false},
	{"python", "a child", "import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', 'import random\\nfor _ in range(1000): print(random.getrandbits(64))'], text=True))", false},
	{"javascript", "Math.random", "for (let i = 0; i < 1000; i++) console.log(Math.random())", true},
	{"javascript", "randomBytes", "for (let i = 0; i < 1000; i++) console.log(require('crypto').randomBytes(8).toString('hex'))", true},
	{"javascript", "randomBytes that was taken before", "for (let i = 0; i < 1000; i++) console.log(randomBytes(8).toString('hex'))", true},
	{"javascript", "randomBytes with a callback", `
for (let i = 0; i < 1000; i++) console.log(await new Promise((ok) => randomBytes(8, (err, b) => ok(b.toString('hex')))))`, false},
	{"javascript", "randomFill", `
for (let i = 0; i < 1000; i++) console.log(await new Promise((ok) => randomFill(Buffer.alloc(12), 4, 8, (err, b) => ok(b.toString('hex')))))`, false},
	{"javascript", "randomInt", "for (let i = 0; i < 1000; i++) console.log(randomInt(2 ** 48 - 1))", true},
	{"javascript", "randomInt with a callback", `
for (let i = 0; i < 1000; i++) console.log(await new Promise((ok) => randomInt(2 ** 48 - 1, (err, n) => ok(n))))`, false},
	{"javascript", "randomUUID", "for (let i = 0; i < 1000; i++) console.log(randomUUID())", true},
	{"javascript", "randomUUID without its cache", "for (let i = 0; i < 1000; i++) console.log(randomUUID({ disableEntropyCache: true }))", true},
	{"javascript", "getRandomValues", "for (let i = 0; i < 1000; i++) console.log(String(crypto.getRandomValues(new BigUint64Array(1))[0]))", true},
	{"javascript", "getRandomValues of crypto.webcrypto", `
for (let i = 0; i < 1000; i++) console.log(require('crypto').webcrypto.getRandomValues(new Uint32Array(2)).join())`, true},
	{"bash", "RANDOM", "for ((i = 0; i < 1000; i++)); do echo $RANDOM$RANDOM$RANDOM$RANDOM$RANDOM; done", true},
	{"bash", "SRANDOM", "for ((i = 0; i < 1000; i++)); do echo $SRANDOM$SRANDOM; done", false},
}

// TestCopiesDrawDifferentNumbers restores one image four times within a moment. Two
// are told that they are the sandbox that was: where a process's memory decides, they
// draw the same thousand numbers, which shows that the memory is the same. The two that
// are told that they are copies have no number in common with each other, or with those.
func TestCopiesDrawDifferentNumbers(t *testing.T) {
	f := newFixture(t, "")
	if f.root.Node == "" {
		t.Skip("no node")
	}
	m, err := f.engine.Start(t.Context(), f.spec("source"))
	g := newGuest(t, m, err)
	g.become("", protocol.InitRequest{HostToken: "h0", AccessToken: "a0"})
	for language, code := range source {
		g.run(language, code)
	}
	// A cell that runs meanwhile draws after the copy, too.
	const flag, said = "/home/user/go", "/home/user/said"
	go func() {
		_, _, _ = g.post(protocol.CodeInterpreterPort, "/execute", protocol.ExecuteRequest{Code: `
import os, time, random
random.seed(7)
open("/home/user/runs", "w")
while not os.path.exists("` + flag + `"): time.sleep(.01)
open("` + said + `.new", "w").write("".join("%d\n" % random.getrandbits(64) for _ in range(1000)))
os.rename("` + said + `.new", "` + said + `")`, ContextID: g.context()}, protocol.HeaderAccessToken, g.token)
	}()
	g.run("bash", "until [ -e /home/user/runs ]; do sleep .05; done")
	image := g.checkpoint()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	begin := time.Now()
	var copies [4]*guest
	for i, how := range []string{protocol.RestoredResume, protocol.RestoredResume, protocol.RestoredCopy, protocol.RestoredCopy} {
		c := f.restore(t, fmt.Sprint("copy", i), image)
		copies[i] = c
		if status := c.execute("a0"); status != http.StatusServiceUnavailable {
			t.Errorf("before it was greeted: %d", status)
		}
		restored := time.Now()
		c.become("h0", protocol.InitRequest{Restored: how, HostToken: fmt.Sprint("h", i+1), AccessToken: fmt.Sprint("a", i+1)})
		t.Logf("%s: greeted in %v, %v after the first restore began", how, time.Since(restored), time.Since(begin))
		if status := c.execute("a0"); status != http.StatusUnauthorized {
			t.Errorf("with the source's token: %d", status)
		}
	}
	drawn := map[string]*[4][]string{}
	var boots []string
	for i, c := range copies {
		boots = append(boots, c.run("bash", "cat /proc/sys/kernel/random/boot_id"))
		all := "= python: a cell that runs\n" + c.run("bash", "touch "+flag+"; until [ -e "+said+" ]; do sleep .05; done; cat "+said)
		for language, title := range map[string]string{"python": "print('= %s')\n", "javascript": "console.log(`= %s`)\n", "bash": "echo \"= %s\"\n"} {
			var code strings.Builder
			for _, d := range draws {
				if d.language == language {
					fmt.Fprintf(&code, title, language+": "+d.name)
					code.WriteString(d.code + "\n")
				}
			}
			all += c.run(language, code.String())
		}
		for _, section := range strings.Split(all, "= ")[1:] {
			name, numbers, _ := strings.Cut(section, "\n")
			if drawn[name] == nil {
				drawn[name] = &[4][]string{}
			}
			drawn[name][i] = strings.Fields(numbers)
		}
		if got := c.run("python", "print(own.getrandbits(32) == random.Random(7).getrandbits(32))"); got != "True\n" {
			t.Errorf("a generator of the code's own: %s", got)
		}
	}
	if len(slices.Compact(boots)) != 1 || len(boots[0]) != 37 {
		t.Errorf("a restore is no boot, but has another boot_id: %q", boots)
	}
	kept := map[string]bool{"python: a cell that runs": true}
	for _, d := range draws {
		kept[d.language+": "+d.name] = d.kept
	}
	if len(drawn) != len(kept) {
		t.Errorf("%d of %d generators drew", len(drawn), len(kept))
	}
	for name, all := range drawn {
		if kept[name] && !slices.Equal(all[0], all[1]) {
			t.Errorf("%s: two that were resumed draw different numbers: this shows nothing of copies", name)
		}
		for i := range all {
			if want := 1000; len(all[i]) != want && (!strings.HasSuffix(name, "node of uuid1") || len(all[i]) != 1) {
				t.Errorf("%s: %d draws", name, len(all[i]))
			}
			for j := 2; j < i; j++ {
				if n := common(all[i], all[j]); n > 0 {
					t.Errorf("%s: two copies have %d of %d draws in common", name, n, len(all[i]))
				}
			}
			if i >= 2 && kept[name] {
				if n := common(all[i], all[0]); n > 0 {
					t.Errorf("%s: a copy has %d draws in common with what its source would draw", name, n)
				}
			}
		}
	}
}

// common counts what is in both.
func common(a, b []string) (n int) {
	in := map[string]bool{}
	for _, s := range a {
		in[s] = true
	}
	for _, s := range b {
		if in[s] {
			n++
		}
	}
	return n
}

// context makes a Python context and returns its id.
func (g *guest) context() string {
	g.Helper()
	var c protocol.Context
	status, text, err := g.post(protocol.CodeInterpreterPort, "/contexts", protocol.CreateContextRequest{Language: "python"}, protocol.HeaderAccessToken, g.token)
	if err == nil {
		err = json.Unmarshal([]byte(text), &c)
	}
	if err != nil {
		g.Fatal(status, text, err)
	}
	return c.ID
}

// TestCallsUnderWayGoOn has a cell, an attached command and a watch under way when a
// machine is checkpointed. Restored, the cell ends by itself in the kernel that there
// is, with a time limit that was over on the disk; the command runs on, and the watch
// has what happened since.
func TestCallsUnderWayGoOn(t *testing.T) {
	f := newFixture(t, "")
	m, err := f.engine.Start(t.Context(), f.spec("underway"))
	g := newGuest(t, m, err)
	g.become("", protocol.InitRequest{HostToken: "h0", AccessToken: "a0"})
	const limit = 8 * time.Second
	go func() {
		_, _, _ = g.post(protocol.CodeInterpreterPort, "/execute", protocol.ExecuteRequest{Code: `
import os, time
x = "begun"
open("/home/user/runs", "w")
while not os.path.exists("/home/user/watched/go"): time.sleep(.01)
x = "finished"`}, protocol.HeaderAccessToken, g.token, protocol.HeaderTimeoutMS, strconv.Itoa(int(limit.Milliseconds())))
	}()
	g.run("bash", "mkdir /home/user/watched; until [ -e /home/user/runs ]; do sleep .05; done")
	start := connect.NewRequest(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "sleep", Args: []string{"1000"}}})
	start.Header().Set(protocol.HeaderAccessToken, "a0")
	start.Header().Set(protocol.HeaderAttached, "1")
	stream, err := g.processes().Start(t.Context(), start)
	if err != nil || !stream.Receive() {
		t.Fatal(err)
	}
	defer stream.Close()
	watch := connect.NewRequest(&envd.CreateWatcherRequest{Path: "watched"})
	watch.Header().Set(protocol.HeaderAccessToken, "a0")
	watching, err := g.files().CreateWatcher(t.Context(), watch)
	if err != nil {
		t.Fatal(err)
	}
	image := g.checkpoint()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(limit)

	r := f.restore(t, "underwayr", image)
	r.become("h0", protocol.InitRequest{Restored: protocol.RestoredResume, HostToken: "h1", AccessToken: "a0"})
	r.run("bash", "touch /home/user/watched/go")
	if got := r.run("python", "print(x)"); got != "finished\n" {
		t.Errorf("the cell left %q", got)
	}
	list := connect.NewRequest(&envd.ListRequest{})
	list.Header().Set(protocol.HeaderAccessToken, "a0")
	if l, err := r.processes().List(t.Context(), list); err != nil || len(l.Msg.GetProcesses()) != 1 {
		t.Errorf("commands that run: %v, %v", l, err)
	}
	events := connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: watching.Msg.GetWatcherId()})
	events.Header().Set(protocol.HeaderAccessToken, "a0")
	if e, err := r.files().GetWatcherEvents(t.Context(), events); err != nil ||
		len(e.Msg.GetEvents()) == 0 || e.Msg.GetEvents()[0].GetName() != "go" {
		t.Errorf("watched: %v, %v", e, err)
	}
}

func (g *guest) processes() envdconnect.ProcessClient {
	return envdconnect.NewProcessClient(g.client, fmt.Sprint("http://guest:", protocol.EnvdPort), connect.WithProtoJSON())
}

func (g *guest) files() envdconnect.FilesystemClient {
	return envdconnect.NewFilesystemClient(g.client, fmt.Sprint("http://guest:", protocol.EnvdPort), connect.WithProtoJSON())
}
