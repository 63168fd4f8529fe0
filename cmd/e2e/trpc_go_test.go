//go:build linux

package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
)

// trpcGo sends what the E2B executor of trpc-agent-go sends: creates by the
// first version of the API, reaches sandboxes by host names, never by headers,
// and does everything to files and programs in Bash cells.
type trpcGo struct {
	box
	server *server
	data   *http.Client // through the proxy: no name resolves
	host   string       // of the code interpreter
}

// trpcDomain resolves nowhere.
const trpcDomain = "sandboxes.example.test"

func newTrpcGo(t *testing.T, s *server) *trpcGo {
	t.Helper()
	c := &trpcGo{server: s, data: s.viaProxy(t)}
	created := c.control(t, "POST", "/sandboxes", `{"templateID":"code-interpreter-v1","timeout":300,"metadata":{},"envVars":{}}`)
	created.decode(t, http.StatusCreated, &c.box)
	t.Cleanup(func() {
		try(context.Background(), http.DefaultClient, "DELETE", s.URL+"/sandboxes/"+c.ID, nil, "X-API-Key", s.Key)
	})
	c.host = "http://" + c.name(portCode)
	return c
}

// name is the host of a port. The client's id is part of it only where the
// server told no domain.
func (c *trpcGo) name(port string) string {
	if c.Domain != "" {
		return port + "-" + c.ID + "." + c.Domain
	}
	return port + "-" + c.ID + "-" + c.ClientID + "." + trpcDomain
}

func (c *trpcGo) control(t *testing.T, method, path string, body any) answer {
	t.Helper()
	header := []string{"X-API-Key", c.server.Key, "Accept", "application/json"}
	if c.Token != "" {
		header = append(header, "X-Access-Token", c.Token)
	}
	return call(t, http.DefaultClient, method, c.server.URL+path, body, header...)
}

// cell is what came of one execution.
type cell struct {
	Stdout, Stderr, Text string
	Error                string // its name
	Results              int
}

// maxLine is the longest line that the client takes.
const maxLine = 16 << 20

func (c *trpcGo) execute(ctx context.Context, body map[string]any) (cell, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return cell{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.host+"/execute", bytes.NewReader(text))
	if err != nil {
		return cell{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		req.Header.Set("X-Access-Token", c.Token)
	}
	res, err := c.data.Do(req)
	if err != nil {
		return cell{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return cell{}, fmt.Errorf("status %d: %.500s", res.StatusCode, text)
	}
	var out cell
	ended := false
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var message struct {
			Type string `json:"type"`
			Text string `json:"text"`
			Name string `json:"name"`
			Main bool   `json:"is_main_result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return out, fmt.Errorf("%w: %.200s", err, lines.Bytes())
		}
		switch message.Type {
		case "stdout":
			out.Stdout += message.Text
		case "stderr":
			out.Stderr += message.Text
		case "error":
			out.Error = message.Name
		case "result":
			out.Results++
			if message.Main {
				out.Text = message.Text
			}
		case "end_of_execution":
			ended = true
		}
	}
	if err := lines.Err(); err != nil {
		return out, err
	}
	if !ended {
		return out, errors.New("the stream ended early")
	}
	return out, nil
}

// bash runs a cell that must neither fail to run nor be an error: an exit status
// is none.
func (c *trpcGo) bash(t *testing.T, code string) cell {
	t.Helper()
	out, err := c.execute(t.Context(), map[string]any{"code": code, "language": "bash"})
	if err != nil {
		t.Fatalf("%v\nin %.300s", err, code)
	}
	if out.Error != "" {
		t.Fatalf("error %s (%s)\nin %.300s", out.Error, out.Stderr, code)
	}
	return out
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// program runs a program in the frame by which the client tells its output and
// exit status from noise: the status comes on stdout, stderr afterwards.
func (c *trpcGo) program(t *testing.T, dir, command string) outcome {
	t.Helper()
	inner := fmt.Sprintf("mkdir -p %[1]s/runs/r1 %[1]s/out && cd %[1]s && env WORKSPACE_DIR=%[1]s OUTPUT_DIR=%[1]s/out %[2]s", quote(dir), command)
	out := c.bash(t, "E=$(mktemp); echo STDOUT-BEGIN; { "+inner+`; } 2>"$E"; S=$?; echo STDOUT-END; echo STATUS=$S; echo STDERR-BEGIN >&2; cat "$E" >&2; echo STDERR-END >&2; rm -f "$E"`)
	between := func(text, begin, end string) string {
		_, text, ok1 := strings.Cut(text, begin+"\n")
		text, _, ok2 := strings.Cut(text, end+"\n")
		if !ok1 || !ok2 {
			t.Fatalf("the frame is broken: %+v", out)
		}
		return text
	}
	var status int
	if _, rest, found := strings.Cut(out.Stdout, "STATUS="); !found {
		t.Fatalf("no exit status: %+v", out)
	} else if _, err := fmt.Sscanf(rest, "%d\n", &status); err != nil {
		t.Fatalf("exit status: %v", err)
	}
	return outcome{Stdout: between(out.Stdout, "STDOUT-BEGIN", "STDOUT-END"), Stderr: between(out.Stderr, "STDERR-BEGIN", "STDERR-END"), Exit: status}
}

// put unpacks an archive of files below dir; it travels in the code.
func (c *trpcGo) put(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	var archive bytes.Buffer
	gz := gzip.NewWriter(&archive)
	tw := tar.NewWriter(gz)
	for name, content := range files {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	c.bash(t, fmt.Sprintf("set -e; mkdir -p %[1]s; printf %%s %[2]s | base64 -d | tar -xzf - -C %[1]s", quote(dir), quote(base64.StdEncoding.EncodeToString(archive.Bytes()))))
}

// get reads at most limit bytes of a file, and its size.
func (c *trpcGo) get(t *testing.T, path string, limit int) (content []byte, size int) {
	t.Helper()
	out := c.bash(t, fmt.Sprintf(`set -e; F=%s; SIZE=$(stat -c%%s "$F" 2>/dev/null || wc -c < "$F"); echo SIZE=$SIZE; echo --BEGIN--; head -c %d "$F" | base64; echo --END--`, quote(path), limit))
	head, rest, ok1 := strings.Cut(out.Stdout, "--BEGIN--\n")
	body, _, ok2 := strings.Cut(rest, "--END--\n")
	if _, err := fmt.Sscanf(head, "SIZE=%d", &size); err != nil || !ok1 || !ok2 {
		t.Fatalf("%v: %.300s", err, out.Stdout)
	}
	content, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(body, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return content, size
}

// TestTrpcAgentGo is the life of an agent's sandbox as that executor lives it.
func TestTrpcAgentGo(t *testing.T) {
	s := start(t)
	c := newTrpcGo(t, s)
	const dir = "/tmp/run/ws_session_1"

	t.Run("create answers what the client reads", func(t *testing.T) {
		if c.ID == "" || c.ClientID == "" || c.Template != "code-interpreter-v1" {
			t.Errorf("%+v", c.box)
		}
		if c.Token != "" {
			t.Error("a token, which is only for those who ask for secure")
		}
	})
	t.Run("a workspace, by set -e", func(t *testing.T) {
		c.bash(t, fmt.Sprintf("set -e; mkdir -p %[1]s %[1]s/skills %[1]s/work %[1]s/runs %[1]s/out ; [ -f %[1]s/metadata.json ] || echo '{}' > %[1]s/metadata.json", quote(dir)))
	})
	t.Run("set -e does not reach the next cell", func(t *testing.T) {
		if out := c.program(t, dir, "bash -c 'echo some; echo why >&2; exit 7'"); out.Exit != 7 || out.Stdout != "some\n" || out.Stderr != "why\n" {
			t.Errorf("%+v", out)
		}
	})
	t.Run("a cell that set -e ends is no error, and costs nothing", func(t *testing.T) {
		if out := c.bash(t, "set -e; echo before; false; echo after"); out.Stdout != "before\n" {
			t.Errorf("%+v", out)
		}
		if out := c.bash(t, "set -euo pipefail; shopt -s failglob; exit 4"); out.Stdout != "" {
			t.Errorf("%+v", out)
		}
		if out := c.bash(t, "false; echo fine $UNSET; echo *.nothing"); out.Stdout != "fine\n*.nothing\n" {
			t.Errorf("%+v", out)
		}
	})
	// Random, so that the archive is as big as its content: about 11 MB of code.
	rnd := rand.New(rand.NewChaCha8([32]byte{1}))
	big := make([]byte, 8<<20)
	for i := range big {
		big[i] = byte(rnd.Uint32())
	}
	t.Run("an archive of megabytes in the code", func(t *testing.T) {
		c.put(t, dir, map[string][]byte{"src/code_0.py": []byte("print(6*7)\n"), "work/big.bin": big, "work/sub/small.txt": []byte("small")})
		if out := c.bash(t, "stat -c %s "+dir+"/work/big.bin"); out.Stdout != fmt.Sprintln(len(big)) {
			t.Errorf("%+v", out)
		}
	})
	t.Run("a file read back in Base64", func(t *testing.T) {
		if content, size := c.get(t, dir+"/work/big.bin", 4<<20); size != len(big) || !bytes.Equal(content, big[:4<<20]) {
			t.Errorf("%d of %d bytes", len(content), size)
		}
	})
	t.Run("one line of many megabytes", func(t *testing.T) {
		if out := c.bash(t, "base64 -w0 "+dir+"/work/big.bin"); out.Stdout != base64.StdEncoding.EncodeToString(big) {
			t.Errorf("%d bytes came", len(out.Stdout))
		}
	})
	t.Run("a Python program with input", func(t *testing.T) {
		if out := c.program(t, dir, "python3 src/code_0.py"); out.Stdout != "42\n" || out.Exit != 0 {
			t.Errorf("%+v", out)
		}
		input := base64.StdEncoding.EncodeToString([]byte("the input\n"))
		if out := c.program(t, dir, "cat < <(printf %s "+quote(input)+" | base64 -d)"); out.Stdout != "the input\n" {
			t.Errorf("%+v", out)
		}
	})
	t.Run("files by pattern, links out of the workspace refused", func(t *testing.T) {
		c.bash(t, "ln -sf /etc/passwd "+dir+"/out/leak; echo x > "+dir+"/out/.hidden")
		out := c.bash(t, "cd "+quote(dir)+" && base=$(readlink -f .); shopt -s globstar nullglob dotglob; for p in 'out/**' 'work/**/*.txt'; do for f in $p; do "+
			`if [ -f "$f" ]; then r=$(readlink -f "$f"); case "$r" in "$base"/*) printf '%s\n' "$r";; esac; fi; done; done`)
		if want := dir + "/out/.hidden\n" + dir + "/work/sub/small.txt\n"; out.Stdout != want {
			t.Errorf("got %q, want %q", out.Stdout, want)
		}
	})
	t.Run("languages", func(t *testing.T) {
		for language, code := range map[string]string{"python": "6*7", "javascript": "6*7", "typescript": "const n: number = 6; n*7"} {
			if out, err := c.execute(t.Context(), map[string]any{"code": code, "language": language}); err != nil || out.Text != "42" {
				t.Errorf("%s: %+v, %v", language, out, err)
			}
		}
		if out, err := c.execute(t.Context(), map[string]any{"code": "1/0"}); err != nil || out.Error != "ZeroDivisionError" {
			t.Errorf("default language: %+v, %v", out, err)
		}
		if out, err := c.execute(t.Context(), map[string]any{"code": "import os; os.environ['K']", "language": "python", "env_vars": map[string]string{"K": "v"}}); err != nil || out.Text != "v" {
			t.Errorf("environment: %+v, %v", out, err)
		}
		// Another client of the same kind sends nulls.
		if out, err := c.execute(t.Context(), map[string]any{"code": "6*7", "context_id": nil, "env_vars": nil}); err != nil || out.Text != "42" {
			t.Errorf("nulls: %+v, %v", out, err)
		}
	})
	t.Run("contexts", func(t *testing.T) {
		var made struct{ ID, Language, Cwd string }
		header := []string{"X-Access-Token", c.Token}
		call(t, c.data, "POST", c.host+"/contexts", map[string]string{"language": "python", "cwd": "/tmp"}, header...).decode(t, 200, &made)
		if made.ID == "" || made.Language != "python" || made.Cwd != "/tmp" {
			t.Errorf("%+v", made)
		}
		if out, err := c.execute(t.Context(), map[string]any{"code": "import os; os.getcwd()", "context_id": made.ID}); err != nil || out.Text != "/tmp" {
			t.Errorf("%+v, %v", out, err)
		}
		var all []struct{ ID string }
		call(t, c.data, "GET", c.host+"/contexts", nil, header...).decode(t, 200, &all)
		if !slices.ContainsFunc(all, func(x struct{ ID string }) bool { return x.ID == made.ID }) {
			t.Errorf("%+v is without %s", all, made.ID)
		}
		for _, step := range [][2]string{{"POST", "/restart"}, {"DELETE", ""}} {
			if a := call(t, c.data, step[0], c.host+"/contexts/"+made.ID+step[1], nil, header...); a.Status != 200 {
				t.Errorf("%s: %v", step, a)
			}
		}
	})
	t.Run("its time-out is a request that it cancels", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.execute(ctx, map[string]any{"code": "exec -a trpc-left-over sleep 4711", "language": "bash"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		until(t, "the cell's program ends", func() error {
			if out := c.bash(t, "pgrep -f 'trpc-left-over|sleep 471[1]' || true"); out.Stdout != "" {
				return fmt.Errorf("still there: %s", out.Stdout)
			}
			return nil
		})
	})
	t.Run("control plane", func(t *testing.T) {
		var info struct {
			SandboxID, TemplateID, State string
			StartedAt, EndAt             time.Time
		}
		c.control(t, "GET", "/sandboxes/"+c.ID, nil).decode(t, 200, &info)
		if info.SandboxID != c.ID || info.State != "running" || !info.EndAt.After(info.StartedAt) {
			t.Errorf("%+v", info)
		}
		var all []struct{ SandboxID, State string }
		c.control(t, "GET", "/sandboxes", nil).decode(t, 200, &all)
		if len(all) != 1 || all[0].SandboxID != c.ID || all[0].State != "running" {
			t.Errorf("%+v", all)
		}
		if a := c.control(t, "POST", "/sandboxes/"+c.ID+"/timeout", `{"timeout":600}`); a.Status >= 400 {
			t.Errorf("timeout: %v", a)
		}
		var again box
		c.control(t, "POST", "/sandboxes/"+c.ID+"/connect", `{"timeout":300}`).decode(t, 200, &again)
		if again.ID != c.ID || again.ClientID != c.ClientID {
			t.Errorf("%+v", again)
		}
		if a := c.control(t, "POST", "/sandboxes/"+c.ID+"/pause", nil); a.Status != 204 {
			t.Errorf("pause: %v", a)
		}
		c.control(t, "POST", "/sandboxes/"+c.ID+"/connect", `{"timeout":300}`).decode(t, 201, &again)
		c.bash(t, "rm -rf "+quote(dir))
		if a := c.control(t, "DELETE", "/sandboxes/"+c.ID, nil); a.Status >= 400 {
			t.Errorf("kill: %v", a)
		}
		if a := c.control(t, "GET", "/sandboxes/"+c.ID, nil); a.Status != 404 {
			t.Errorf("get of a gone one: %v", a)
		}
		if _, err := c.execute(t.Context(), map[string]any{"code": "1"}); err == nil || !strings.Contains(err.Error(), "status 502") {
			t.Errorf("execute in a gone one: %v", err)
		}
	})
}

// TestConnectGo reaches envd by Connect's own client for Go, which speaks binary
// messages and compresses them: newer executors do.
func TestConnectGo(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	token := connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			req.Header().Set("X-Access-Token", b.Token)
			return next(ctx, req)
		}
	}))
	url := "http://" + envd49983(b)
	processes := envdconnect.NewProcessClient(s.viaProxy(t), url, token, connect.WithSendGzip())
	files := envdconnect.NewFilesystemClient(s.viaProxy(t), url, token, connect.WithSendGzip())

	t.Run("a process with input", func(t *testing.T) {
		stdin := true
		req := connect.NewRequest(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "cat"}, Stdin: &stdin})
		req.Header().Set("X-Access-Token", b.Token)
		stream, err := processes.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		pid := &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: stream.Msg().GetEvent().GetStart().GetPid()}}
		list, err := processes.List(t.Context(), connect.NewRequest(&envd.ListRequest{}))
		if err != nil || len(list.Msg.Processes) != 1 || list.Msg.Processes[0].Pid != pid.GetPid() {
			t.Fatalf("%v, %v", list, err)
		}
		input := &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: []byte("hello")}}
		if _, err := processes.SendInput(t.Context(), connect.NewRequest(&envd.SendInputRequest{Process: pid, Input: input})); err != nil {
			t.Fatal(err)
		}
		if _, err := processes.CloseStdin(t.Context(), connect.NewRequest(&envd.CloseStdinRequest{Process: pid})); err != nil {
			t.Fatal(err)
		}
		var out []byte
		var end *envd.ProcessEvent_EndEvent
		for stream.Receive() {
			out = append(out, stream.Msg().GetEvent().GetData().GetStdout()...)
			if e := stream.Msg().GetEvent().GetEnd(); e != nil {
				end = e
			}
		}
		if err := stream.Err(); err != nil || string(out) != "hello" || end == nil || !end.Exited || end.ExitCode != 0 {
			t.Errorf("%q, %v, %v", out, end, err)
		}
		_, err = processes.SendSignal(t.Context(), connect.NewRequest(&envd.SendSignalRequest{Process: pid, Signal: envd.Signal_SIGNAL_SIGKILL}))
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("signal to a process that ended: %v", err)
		}
	})
	t.Run("files", func(t *testing.T) {
		if _, err := files.MakeDir(t.Context(), connect.NewRequest(&envd.MakeDirRequest{Path: "/tmp/d/e"})); err != nil {
			t.Fatal(err)
		}
		list, err := files.ListDir(t.Context(), connect.NewRequest(&envd.ListDirRequest{Path: "/tmp/d", Depth: 2}))
		if err != nil || len(list.Msg.Entries) != 1 || list.Msg.Entries[0].Path != "/tmp/d/e" {
			t.Errorf("%v, %v", list, err)
		}
		_, err = files.Stat(t.Context(), connect.NewRequest(&envd.StatRequest{Path: "/no/such"}))
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v", err)
		}
	})
	t.Run("polled watchers, which the Python SDK uses", func(t *testing.T) {
		made, err := files.CreateWatcher(t.Context(), connect.NewRequest(&envd.CreateWatcherRequest{Path: "/tmp/d", Recursive: true}))
		if err != nil {
			t.Fatal(err)
		}
		id := made.Msg.WatcherId
		if _, err := files.MakeDir(t.Context(), connect.NewRequest(&envd.MakeDirRequest{Path: "/tmp/d/new"})); err != nil {
			t.Fatal(err)
		}
		until(t, "the watcher sees it", func() error {
			got, err := files.GetWatcherEvents(t.Context(), connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: id}))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(got.Msg.Events, func(e *envd.FilesystemEvent) bool {
				return e.Name == "new" && e.Type == envd.EventType_EVENT_TYPE_CREATE
			}) {
				return fmt.Errorf("events %v", got.Msg.Events)
			}
			return nil
		})
		if _, err := files.RemoveWatcher(t.Context(), connect.NewRequest(&envd.RemoveWatcherRequest{WatcherId: id})); err != nil {
			t.Error(err)
		}
		_, err = files.GetWatcherEvents(t.Context(), connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: id}))
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a watcher that was removed: %v", err)
		}
	})
}

// envd49983 is the host name of a sandbox's envd.
func envd49983(b box) string { return portEnvd + "-" + b.ID + "." + trpcDomain }
