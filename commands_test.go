package cubby_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// envd is a server whose sandbox answers calls of envd as the test says: one
// handler for each method.
type envd struct {
	wire
	methods map[string]http.HandlerFunc
	data    http.Handler // everything else of the sandbox; may be nil

	mu    sync.Mutex
	calls []call
}

// call is what a method was called with.
type call struct {
	method string
	header http.Header
	body   string
}

func (e *envd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := e.methods[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
	switch {
	case r.Header.Get("E2b-Sandbox-Id") == "":
		e.wire.ServeHTTP(w, r)
	case h != nil:
		b, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.calls = append(e.calls, call{r.URL.Path, r.Header.Clone(), string(b)})
		e.mu.Unlock()
		h(w, r)
	case e.data != nil:
		e.data.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

// called returns the calls so far of a method.
func (e *envd) called(method string) []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.calls), func(c call) bool { return !strings.HasSuffix(c.method, "/"+method) })
}

func startEnvd(t testing.TB, e *envd) *cubby.Sandbox {
	t.Helper()
	srv := httptest.NewServer(e)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	sbx, err := c.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sbx
}

func frame(flags byte, message string) string {
	head := []byte{flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], uint32(len(message)))
	return string(head) + message
}

// stream answers a call with these bytes.
func stream(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+json")
		for _, p := range parts {
			io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

func data(stream, text string) string {
	return frame(0, fmt.Sprintf(`{"event":{"data":{%q:%q}}}`, stream, base64.StdEncoding.EncodeToString([]byte(text))))
}

var (
	begun  = frame(0, `{"event":{"start":{"pid":7}}}`)
	exited = frame(0, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`)
	over   = frame(2, `{}`)
)

func TestCommandHears(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames []string
		opts   []cubby.CommandOption
		want   cubby.CommandResult
		heard  []string
	}{
		{"output in pieces", []string{begun, data("stdout", "a\n"), data("stderr", "b"), data("stdout", "c"), exited, over}, nil,
			cubby.CommandResult{Stdout: "a\nc", Stderr: "b", Status: "exit status 0"}, []string{"a\n", "!b", "c"}},
		{"a terminal", []string{begun, data("pty", "x\r\n"), exited, over}, []cubby.CommandOption{cubby.WithPTY(80, 24)},
			cubby.CommandResult{Stdout: "x\r\n", Status: "exit status 0"}, []string{"x\r\n"}},
		{"characters that were cut", []string{begun, data("stdout", "h\xc3"), data("stdout", "\xa9\xf0\x9f"), data("stdout", "\x98\x80\xe2"), exited, over}, nil,
			cubby.CommandResult{Stdout: "hé😀\xe2", Status: "exit status 0"}, []string{"h", "é", "😀", "\xe2"}},
		{"bytes that are no text", []string{begun, data("stdout", "\xff\x00\xfe"), exited, over}, nil,
			cubby.CommandResult{Stdout: "\xff\x00\xfe", Status: "exit status 0"}, []string{"\xff\x00\xfe"}},
		{"keepalives, and events of a newer server", []string{frame(0, `{"event":{"keepalive":{}}}`), begun, frame(0, `{"event":{"confetti":{"n":1}},"x":1}`), frame(0, `{}`), exited, over}, nil,
			cubby.CommandResult{Status: "exit status 0"}, nil},
		{"a status", []string{begun, frame(0, `{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}`), over}, nil,
			cubby.CommandResult{ExitCode: 3, Status: "exit status 3"}, nil},
		{"a signal", []string{begun, frame(0, `{"event":{"end":{"exitCode":-1,"status":"signal: killed"}}}`), over}, nil,
			cubby.CommandResult{ExitCode: -1, Status: "signal: killed"}, nil},
		{"the end is enough", []string{begun, exited}, nil, cubby.CommandResult{Status: "exit status 0"}, nil},
		{"what comes after the end is nothing", []string{begun, exited, data("stdout", "late"), frame(2, `{"error":{"code":"internal"}}`)}, nil,
			cubby.CommandResult{Status: "exit status 0"}, nil},
		{"output over the bound", []string{begun, data("stdout", "abé"), data("stdout", "x"), data("stderr", "abc"), exited, over}, []cubby.CommandOption{cubby.WithMaxOutput(3)},
			cubby.CommandResult{Stdout: "ab", Stderr: "abc", Truncated: true, Status: "exit status 0"}, []string{"ab", "!abc"}},
		{"out of time", []string{begun, data("stdout", "a"), frame(2, `{"error":{"code":"deadline_exceeded"}}`)}, []cubby.CommandOption{cubby.WithTimeout(time.Minute)},
			cubby.CommandResult{Stdout: "a", ExitCode: 124, TimedOut: true, Status: "timed out"}, []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sbx := startEnvd(t, &envd{methods: map[string]http.HandlerFunc{"Start": stream(tt.frames...)}})
			var heard []string
			opts := append(tt.opts, cubby.OnStdout(func(s string) { heard = append(heard, s) }),
				cubby.OnStderr(func(s string) { heard = append(heard, "!"+s) }))
			got, err := sbx.Commands().Run(t.Context(), "x", opts...)
			if err != nil {
				t.Fatal(err)
			}
			got.Duration = 0
			if *got != tt.want || !slices.Equal(heard, tt.heard) {
				t.Errorf("got  %+v, heard %q\nwant %+v, heard %q", *got, heard, tt.want, tt.heard)
			}
		})
	}
}

// TestCommandSends looks at the bytes of each call.
func TestCommandSends(t *testing.T) {
	e := &envd{methods: map[string]http.HandlerFunc{"SendInput": answer(`{}`), "CloseStdin": answer(`{}`), "Update": answer(`{}`), "SendSignal": answer(`{}`)}}
	input := make(chan struct{})
	e.methods["Start"] = func(w http.ResponseWriter, r *http.Request) {
		stream(begun)(w, r)
		<-input
		stream(exited, over)(w, r)
	}
	sbx := startEnvd(t, e)
	cmd, err := sbx.Commands().StartExec(t.Context(), []string{"prog", "-a", "b c"}, cubby.WithUser("root"), cubby.WithCwd("/tmp"),
		cubby.WithEnv(map[string]string{"A": "1"}), cubby.WithTag("mine"), cubby.WithTimeout(1500*time.Microsecond), cubby.WithOpenStdin())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		cmd.Write(t.Context(), []byte("hello")), cmd.CloseStdin(t.Context()), cmd.Resize(t.Context(), 80, 24),
		cmd.Signal(t.Context(), cubby.SignalTerm), cmd.Kill(t.Context()),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	close(input)
	if _, err := cmd.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string][]string{
		"Start":      {frame(0, `{"process":{"cmd":"prog","args":["-a","b c"],"envs":{"A":"1"},"cwd":"/tmp"},"tag":"mine","stdin":true}`)},
		"SendInput":  {`{"process":{"pid":7},"input":{"stdin":"aGVsbG8="}}`},
		"CloseStdin": {`{"process":{"pid":7}}`},
		"Update":     {`{"process":{"pid":7},"pty":{"size":{"cols":80,"rows":24}}}`},
		"SendSignal": {`{"process":{"pid":7},"signal":"SIGNAL_SIGTERM"}`, `{"process":{"pid":7},"signal":"SIGNAL_SIGKILL"}`},
	} {
		var got []string
		for _, c := range e.called(method) {
			got = append(got, c.body)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s was sent %q, want %q", method, got, want)
		}
	}
	h := e.called("Start")[0].header
	for k, want := range map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "2",
		"Keepalive-Ping-Interval": "50", "Authorization": "Basic cm9vdDo=", "X-Access-Token": "tok",
		"E2b-Sandbox-Id": "isbx1", "E2b-Sandbox-Port": "49983", "Accept-Encoding": "identity", "Cubby-Attached": "",
	} {
		if got := h.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}

	e.methods["Start"] = stream(begun, exited, over)
	if _, err := sbx.Commands().Run(t.Context(), "echo hi"); err != nil {
		t.Fatal(err)
	}
	last := e.called("Start")[1]
	if !strings.Contains(last.body, `{"process":{"cmd":"/bin/bash","args":["-l","-c","echo hi"]},"tag":"cubby-`) || !strings.HasSuffix(last.body, `"stdin":false}`) {
		t.Errorf("a command line was sent as %q", last.body)
	}
	if h := last.header; h.Get("Cubby-Attached") != "1" || h.Get("Connect-Timeout-Ms") != "" || h.Get("Authorization") != "" {
		t.Errorf("headers of Run: %v", h)
	}
}

// answer is that of a unary call.
func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

// refuse is the error of a unary call, and of a stream that does not begin.
func refuse(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"code": code, "message": message})
	}
}

func endless(block string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(begun)(w, r)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	}
}

func TestHostileCommands(t *testing.T) {
	for _, tt := range []struct {
		name    string
		start   http.HandlerFunc
		gone    string
		code    cubby.Code
		message string
	}{
		{"nothing", stream(), "", cubby.CodeSandboxGone, "ended before"},
		{"cut in the head", stream(begun, "\x00\x00"), "", cubby.CodeSandboxGone, "ended before"},
		{"cut in the message", stream(begun, "\x00\x00\x00\x00\x09{"), "", cubby.CodeSandboxGone, "ended before"},
		{"cut after it began", stream(begun, data("stdout", "x")), "", cubby.CodeSandboxGone, "ended before"},
		{"cut, of a sandbox that ended", stream(begun), "it used up its memory", cubby.CodeSandboxGone, "used up its memory"},
		{"aborted", func(w http.ResponseWriter, r *http.Request) { stream(begun)(w, r); panic(http.ErrAbortHandler) }, "", cubby.CodeSandboxGone, ""},
		{"a giant claim", stream(begun, "\x00\xff\xff\xff\xff"), "", cubby.CodeInternal, "envelope of 4294967295 bytes"},
		{"a giant envelope", endless(frame(0, strings.Repeat(" ", 4<<20+1))), "", cubby.CodeInternal, "envelope of"},
		{"compressed", stream(begun, frame(1, "{}")), "", cubby.CodeInternal, "flags 0x1"},
		{"unknown flags", stream(begun, frame(0x80, "{}")), "", cubby.CodeInternal, "flags 0x80"},
		{"no JSON", stream(begun, frame(0, "{")), "", cubby.CodeInternal, "malformed"},
		{"no object", stream(begun, frame(0, "[1]")), "", cubby.CodeInternal, "malformed"},
		{"no base64", stream(begun, frame(0, `{"event":{"data":{"stdout":"%"}}}`)), "", cubby.CodeInternal, "malformed"},
		{"a status beyond numbers", stream(begun, frame(0, `{"event":{"end":{"exitCode":1e99}}}`)), "", cubby.CodeInternal, "malformed"},
		{"a negative number of a process", stream(frame(0, `{"event":{"start":{"pid":-1}}}`)), "", cubby.CodeInternal, "malformed"},
		{"no number", stream(frame(0, `{"event":{"start":{}}}`)), "", cubby.CodeInternal, "number is missing"},
		{"output before the number", stream(data("stdout", "x"), begun), "", cubby.CodeInternal, "number is missing"},
		{"over before it began", stream(over), "", cubby.CodeInternal, "before the command began"},
		{"over without an end", stream(begun, over), "", cubby.CodeInternal, "before the command did"},
		{"an end that is no JSON", stream(begun, frame(2, "x")), "", cubby.CodeInternal, "malformed"},
		{"out of time that nobody set", stream(begun, frame(2, `{"error":{"code":"deadline_exceeded","message":"late"}}`)), "", cubby.CodeTimeout, "late"},
		{"ended by the sandbox", stream(begun, frame(2, `{"error":{"code":"unavailable","message":"ending"}}`)), "it was killed", cubby.CodeSandboxGone, "it was killed"},
		{"an error without words", stream(frame(2, `{"error":{"code":"confetti"}}`)), "", cubby.CodeInternal, "internal"},
		{"an error of many words", stream(frame(2, `{"error":{"code":"internal","message":"`+strings.Repeat("y", 1<<20)+`"}}`)), "", cubby.CodeInternal, "yyy…"},
		{"too many commands", stream(frame(2, `{"error":{"code":"resource_exhausted","message":"too many"}}`)), "", cubby.CodeRateLimited, "too many"},
		{"no such user", stream(frame(2, `{"error":{"code":"unauthenticated","message":"invalid username: 'x'"}}`)), "", cubby.CodeUnauthenticated, "invalid username"},
		{"no such folder", stream(frame(2, `{"error":{"code":"invalid_argument","message":"cwd"}}`)), "", cubby.CodeInvalidArgument, "cwd"},
		{"refused at once", refuse(http.StatusUnauthorized, "unauthenticated", "no token"), "", cubby.CodeUnauthenticated, "no token"},
		{"a page of a proxy", answer("<html>welcome</html>"), "", cubby.CodeInternal, "not a stream"},
		{"endless header", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 12<<20))
			stream(begun)(w, r)
		}, "", cubby.CodeUnavailable, "header"},
		{"a sandbox that is gone", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, `{"sandboxId":"isbx1","message":"The sandbox was not found","code":502}`)
		}, "it reached its end of life", cubby.CodeSandboxGone, "end of life"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &envd{methods: map[string]http.HandlerFunc{"Start": tt.start, "SendSignal": refuse(http.StatusNotFound, "not_found", "none")}}
			e.gone = tt.gone
			sbx := startEnvd(t, e)
			_, err := sbx.Commands().Run(t.Context(), "x")
			if cubby.CodeOf(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.message) {
				t.Errorf("got %v (%v), want %v with %q", err, cubby.CodeOf(err), tt.code, tt.message)
			}
			if err != nil && len(err.Error()) > 5000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}

// TestCommandCancelled: a server that goes on when its client has gone is told
// to end the command, by its number if that came, else by its tag.
func TestCommandCancelled(t *testing.T) {
	for name, first := range map[string]string{"by number": begun + data("stdout", "x"), "by tag": ""} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			change := func() { cancel(errors.New("changed my mind")) }
			e := &envd{methods: map[string]http.HandlerFunc{"SendSignal": answer(`{}`)}}
			e.methods["Start"] = func(w http.ResponseWriter, r *http.Request) {
				stream(first)(w, r)
				if first == "" {
					change()
				}
				<-r.Context().Done()
			}
			sbx := startEnvd(t, e)
			_, err := sbx.Commands().Run(ctx, "x", cubby.WithTag("mine"), cubby.OnStdout(func(string) { change() }))
			if err == nil || !strings.Contains(err.Error(), "changed my mind") {
				t.Errorf("got %v", err)
			}
			killed := e.called("SendSignal")
			want := map[string]string{
				"by number": `{"process":{"pid":7},"signal":"SIGNAL_SIGKILL"}`,
				"by tag":    `{"process":{"tag":"mine"},"signal":"SIGNAL_SIGKILL"}`,
			}[name]
			if len(killed) != 1 || killed[0].body != want || killed[0].header.Get("Cubby-Signal-Group") != "1" {
				t.Errorf("told %+v, want %s", killed, want)
			}
		})
	}
}

// TestCommandInput: a reader's bytes arrive in order and then the end, however
// the reader hands them out.
func TestCommandInput(t *testing.T) {
	var got strings.Builder
	closed := make(chan struct{})
	e := &envd{methods: map[string]http.HandlerFunc{}}
	sends := 0
	e.methods["SendInput"] = func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Input struct{ Stdin []byte } }
		calls := e.called("SendInput")
		if err := json.Unmarshal([]byte(calls[len(calls)-1].body), &in); err != nil {
			t.Error(err)
		}
		got.Write(in.Input.Stdin)
		sends++
		io.WriteString(w, `{}`)
	}
	e.methods["CloseStdin"] = func(w http.ResponseWriter, _ *http.Request) { close(closed); io.WriteString(w, `{}`) }
	e.methods["Start"] = func(w http.ResponseWriter, r *http.Request) {
		stream(begun)(w, r)
		select {
		case <-closed:
			stream(exited, over)(w, r)
		case <-r.Context().Done():
		}
	}
	sbx := startEnvd(t, e)
	const size = 3<<20 + 17
	if _, err := sbx.Commands().Run(t.Context(), "x", cubby.WithStdin(io.LimitReader(alphabet{}, size))); err != nil {
		t.Fatal(err)
	}
	if got.Len() != size || got.String()[:26] != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("%d bytes arrived", got.Len())
	}
	if sends > 16 {
		t.Errorf("they took %d calls", sends)
	}
}

// TestCommandWhoseInputIsLost is ended: it would wait for the rest for ever.
func TestCommandWhoseInputIsLost(t *testing.T) {
	for method, lost := range map[string]http.HandlerFunc{
		"SendInput":  refuse(http.StatusTooManyRequests, "resource_exhausted", "too much at once"),
		"CloseStdin": refuse(http.StatusForbidden, "permission_denied", "not yours"),
	} {
		t.Run(method, func(t *testing.T) {
			e := &envd{methods: map[string]http.HandlerFunc{"SendInput": answer(`{}`), "CloseStdin": answer(`{}`), "SendSignal": answer(`{}`)}}
			e.methods[method] = lost
			e.methods["Start"] = func(w http.ResponseWriter, r *http.Request) {
				stream(begun)(w, r)
				<-r.Context().Done()
			}
			sbx := startEnvd(t, e)
			_, err := sbx.Commands().Run(t.Context(), "cat", cubby.WithStdin(strings.NewReader("x")))
			if code := cubby.CodeOf(err); code != cubby.CodeRateLimited && code != cubby.CodePermissionDenied {
				t.Errorf("got %v", err)
			}
			if len(e.called("SendSignal")) != 1 {
				t.Error("the command was not ended")
			}
		})
	}
}

type alphabet struct{}

func (alphabet) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return len(b), nil
}

// TestEndlessOutputIsBounded: a sandbox cannot fill its caller's memory.
func TestEndlessOutputIsBounded(t *testing.T) {
	block := data("stdout", strings.Repeat("x", 32<<10)) + data("stderr", strings.Repeat("y", 32<<10))
	sbx := startEnvd(t, &envd{methods: map[string]http.HandlerFunc{"Start": func(w http.ResponseWriter, r *http.Request) {
		stream(begun)(w, r)
		for range 500 {
			io.WriteString(w, block)
		}
		stream(exited, over)(w, r)
	}, "SendSignal": answer(`{}`)}})
	res, err := sbx.Commands().Run(t.Context(), "x", cubby.WithMaxOutput(1000))
	if err != nil || len(res.Stdout) != 1000 || len(res.Stderr) != 1000 || !res.Truncated {
		t.Errorf("kept %d and %d bytes, %v", len(res.Stdout), len(res.Stderr), err)
	}
}

func TestCommandList(t *testing.T) {
	e := &envd{methods: map[string]http.HandlerFunc{"List": answer(`{"processes":[{"config":{"cmd":"sh","args":["-c","x"],"envs":{"A":"b"},"cwd":"/tmp"},"pid":2147483647,"tag":"t"},{"pid":1}]}`)}}
	sbx := startEnvd(t, e)
	got, err := sbx.Commands().List(t.Context())
	if err != nil || len(got) != 2 || got[0].PID != 2147483647 || got[0].Tag != "t" ||
		!slices.Equal(got[0].Argv, []string{"sh", "-c", "x"}) || got[0].Env["A"] != "b" {
		t.Errorf("got %+v, %v", got, err)
	}
	e.methods["List"] = answer(`{"processes":[` + strings.Repeat(`{},`, 20_000) + `{}]}`)
	if _, err := sbx.Commands().List(t.Context()); cubby.CodeOf(err) != cubby.CodeInternal {
		t.Errorf("a list of 20,000: %v", err)
	}
	for _, pid := range []int{0, -1} {
		if err := sbx.Commands().Kill(t.Context(), pid); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("kill %d: %v", pid, err)
		}
		if _, err := sbx.Commands().Connect(t.Context(), pid); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("connect to %d: %v", pid, err)
		}
	}
}

// TestCommandsLeaveNothing: however a command's call ends, nothing of it stays.
func TestCommandsLeaveNothing(t *testing.T) {
	e := &envd{methods: map[string]http.HandlerFunc{"SendSignal": answer(`{}`), "SendInput": answer(`{}`), "CloseStdin": answer(`{}`)}}
	e.methods["Start"] = func(w http.ResponseWriter, r *http.Request) {
		stream(begun)(w, r)
		b := e.called("Start")
		if strings.Contains(b[len(b)-1].body, "ends") {
			stream(exited, over)(w, r)
			return
		}
		<-r.Context().Done()
	}
	sbx := startEnvd(t, e)
	c := sbx.Commands()
	round := func() {
		ctx, cancel := context.WithCancel(t.Context())
		cmds := make([]*cubby.Command, 0, 4)
		for _, opts := range [][]cubby.CommandOption{nil, {cubby.WithTimeout(time.Hour)},
			{cubby.WithStdin(strings.NewReader("x"))}, {cubby.WithOpenStdin()}} {
			cmd, err := c.Start(ctx, "goes on", opts...)
			if err != nil {
				t.Fatal(err)
			}
			cmds = append(cmds, cmd)
		}
		cmds[0].Detach()
		cancel()
		for _, cmd := range cmds {
			<-cmd.Done()
		}
		if _, err := c.Run(t.Context(), "ends"); err != nil {
			t.Fatal(err)
		}
	}
	round()
	settled := func() int {
		n := runtime.NumGoroutine()
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			if m := runtime.NumGoroutine(); m < n {
				n = m
			}
		}
		return n
	}
	before := settled()
	for range 50 {
		round()
	}
	if after := settled(); after > before+20 {
		t.Errorf("%d goroutines became %d", before, after)
	}
}

// TestWaitIsShared: many may wait; the answer is the same, an error included.
func TestWaitIsShared(t *testing.T) {
	for name, frames := range map[string][]string{"an end": {begun, exited, over}, "an error": {begun, "\x00"}} {
		t.Run(name, func(t *testing.T) {
			sbx := startEnvd(t, &envd{methods: map[string]http.HandlerFunc{"Start": stream(frames...)}})
			cmd, err := sbx.Commands().Start(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			<-cmd.Done()
			res, why := cmd.Wait(t.Context())
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					over, cancel := context.WithCancel(t.Context())
					cancel() // does not matter any more
					if r, err := cmd.Wait(over); r != res || err != why {
						t.Errorf("got %+v, %v", r, err)
					}
				})
			}
			all.Wait()
			if why != nil && !strings.HasPrefix(why.Error(), "wait for command: ") {
				t.Errorf("got %v", why)
			}
		})
	}
}
