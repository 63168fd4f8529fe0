package cubby_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// wire is a server that speaks the protocol and answers /execute as the test
// says.
type wire struct {
	mu      sync.Mutex
	header  http.Header     // of the last /execute
	body    json.RawMessage // of the last create or /execute
	deleted []string

	execute http.HandlerFunc
	gone    string // a message: GET /sandboxes/{id} answers 404 with it
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("E2b-Sandbox-Id") != "" {
		w.data(rw, r)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /v2/sandboxes":
		w.keep(r)
		rw.WriteHeader(http.StatusCreated)
		io.WriteString(rw, `{"sandboxID":"isbx1","templateID":"base","envdAccessToken":"tok","envdVersion":"0.6.13","cubbyLimitsNotEnforced":["cpu"],"cubbyLimits":{"memoryMB":2}}`)
	case "GET /sandboxes/isbx1":
		if w.gone != "" {
			rw.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(rw, `{"code":404,"message":%q,"hint":"ask for more"}`, w.gone)
			return
		}
		io.WriteString(rw, `{"sandboxID":"isbx1","state":"running","cpuCount":1,"memoryMB":512,"diskSizeMB":1024}`)
	case "DELETE /sandboxes/isbx1":
		w.mu.Lock()
		w.deleted = append(w.deleted, "isbx1")
		w.mu.Unlock()
		rw.WriteHeader(http.StatusNoContent)
	default:
		rw.WriteHeader(http.StatusNotFound)
		io.WriteString(rw, `{"code":404,"message":"no such thing"}`)
	}
}

func (w *wire) keep(r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header, w.body = r.Header.Clone(), b
}

func (w *wire) data(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("E2b-Sandbox-Port") == "49999" && strings.HasPrefix(r.URL.Path, "/execute") {
		if r.URL.Path == "/execute" {
			w.keep(r)
		}
		w.execute(rw, r)
		return
	}
	http.NotFound(rw, r)
}

// lines answers an execution with these lines.
func lines(all ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		for _, l := range all {
			io.WriteString(rw, l+"\n")
		}
	}
}

func start(t testing.TB, w *wire) *cubby.Sandbox {
	t.Helper()
	srv := httptest.NewServer(w)
	t.Cleanup(srv.Close)
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

func TestCreateSendsOnlyWhatWasAsked(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []cubby.CreateOption
		want string
	}{
		{"nothing", nil, `{"templateID":"code-interpreter-v1","timeout":300,"allow_internet_access":false}`},
		{"zero limits", []cubby.CreateOption{cubby.WithLimits(cubby.Limits{})}, `{"templateID":"code-interpreter-v1","timeout":300,"allow_internet_access":false}`},
		{"memory rounds up to MiB", []cubby.CreateOption{cubby.WithLimits(cubby.Limits{Memory: 1<<20 + 1})},
			`{"templateID":"code-interpreter-v1","timeout":300,"allow_internet_access":false,"cubbyLimits":{"memoryMB":2}}`},
		{"a timeout rounds up to seconds", []cubby.CreateOption{cubby.WithTimeout(1500 * time.Millisecond), cubby.WithWarm("python")},
			`{"templateID":"code-interpreter-v1","timeout":2,"allow_internet_access":false,"cubbyWarm":["python"]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &wire{}
			srv := httptest.NewServer(w)
			defer srv.Close()
			c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL, APIKey: "e2b_k"})
			if err != nil {
				t.Fatal(err)
			}
			sbx, err := c.Create(t.Context(), tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if string(w.body) != tt.want {
				t.Errorf("sent %s\nwant %s", w.body, tt.want)
			}
			if w.header.Get("X-API-Key") != "e2b_k" {
				t.Error("no API key was sent")
			}
			if got := sbx.LimitsNotEnforced(); len(got) != 1 || got[0] != "cpu" {
				t.Errorf("LimitsNotEnforced = %v", got)
			}
		})
	}
}

// A server that is no Cubby ignores what it does not know.
func TestCreateRefusesLimitsThatNobodyKeeps(t *testing.T) {
	deleted := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted++
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"sandboxID":"iforeign"}`)
	}))
	defer srv.Close()
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), cubby.WithLimits(cubby.Limits{PIDs: 64})); cubby.CodeOf(err) != cubby.CodeUnimplemented {
		t.Errorf("got %v", err)
	}
	if deleted != 1 {
		t.Errorf("%d sandboxes were ended, want the one that was made", deleted)
	}
}

func TestRunCode(t *testing.T) {
	const end = `{"type":"end_of_execution","exit_code":0,"duration_ms":12}`
	for _, tt := range []struct {
		name  string
		lines []string
		opts  []cubby.RunOption
		check func(*cubby.Execution) bool
	}{
		{"text, result, count", []string{
			`{"type":"number_of_executions","execution_count":3}`,
			`{"type":"stdout","text":"a\n","timestamp":"2026-01-01T00:00:00Z"}`,
			`{"type":"keepalive"}`,
			`{"type":"stderr","text":"b\u00e9","timestamp":"2026-01-01T00:00:00Z"}`,
			`{"type":"result","text":"42","is_main_result":true,"extra":{}}`, end},
			nil,
			func(ex *cubby.Execution) bool {
				return ex.Count == 3 && ex.Stdout == "a\n" && ex.Stderr == "bé" && ex.Text() == "42" && ex.Duration == 12*time.Millisecond
			}},
		{"a picture is decoded", []string{`{"type":"result","png":"aGk=","json":{"a":[1]},"extra":{"x/y":1}}`, end}, nil,
			func(ex *cubby.Execution) bool {
				r := ex.Results[0]
				return string(r.PNG) == "hi" && string(r.JSON) == `{"a":[1]}` && string(r.Extra["x/y"]) == "1"
			}},
		{"a bad picture costs only itself", []string{`{"type":"result","text":"t","png":"%%%"}`, end}, nil,
			func(ex *cubby.Execution) bool { return ex.Results[0].Text == "t" && ex.Results[0].PNG == nil }},
		{"numbers keep their digits", []string{`{"type":"result","json":{"a": 1.0,"b":1152921504606846977},"data":{"id":[18446744073709551615]},"chart":{"v":-0.0},"extra":{"x/y":1e400}}`, end}, nil,
			func(ex *cubby.Execution) bool {
				r := ex.Results[0]
				again, err := json.Marshal(r)
				return string(r.JSON) == `{"a": 1.0,"b":1152921504606846977}` && string(r.Data) == `{"id":[18446744073709551615]}` &&
					string(r.Chart) == `{"v":-0.0}` && string(r.Extra["x/y"]) == "1e400" && err == nil &&
					string(again) == `{"json":{"a":1.0,"b":1152921504606846977},"data":{"id":[18446744073709551615]},"chart":{"v":-0.0},"is_main_result":false,"extra":{"x/y":1e400}}`
			}},
		{"JSON that nobody could read costs only itself", []string{`{"type":"result","text":"t","json":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `,"data":{"\ud800":1},"extra":{"x/y":` +
			strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300) + `,"x/z":null}}`, end}, nil,
			func(ex *cubby.Execution) bool {
				r := ex.Results[0]
				return r.Text == "t" && r.JSON == nil && string(r.Data) == `{"\ufffd":1}` && len(r.Extra) == 1
			}},
		{"an error without Cubby's fields is status 1", []string{`{"type":"error","name":"E","value":"v","traceback":"T"}`, `{"type":"end_of_execution"}`}, nil,
			func(ex *cubby.Execution) bool { return ex.ExitCode == 1 && ex.Error.Error() == "E: v" }},
		{"extra fields", []string{`{"type":"end_of_execution","exit_code":124,"timed_out":true,"limit":"time","state_lost":true,"fresh_kernel":true}`}, nil,
			func(ex *cubby.Execution) bool {
				return ex.ExitCode == 124 && ex.TimedOut && ex.Limit == "time" && ex.StateLost && ex.FreshKernel
			}},
		{"foreign events and blank lines are passed over", []string{`{"type":"confetti","text":5}`, ``, end}, nil,
			func(ex *cubby.Execution) bool { return ex.ExitCode == 0 }},
		{"output over the limit is cut at a character", []string{`{"type":"stdout","text":"abé"}`, `{"type":"stdout","text":"more"}`, end},
			[]cubby.RunOption{cubby.WithMaxOutput(3)},
			func(ex *cubby.Execution) bool { return ex.Stdout == "ab" && ex.Truncated && ex.Limit == "output" }},
		{"negative and huge durations", []string{`{"type":"end_of_execution","duration_ms":9223372036854775807}`}, nil,
			func(ex *cubby.Execution) bool { return ex.Duration > 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sbx := start(t, &wire{execute: lines(tt.lines...)})
			ex, err := sbx.RunCode(t.Context(), "x", tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(ex) {
				t.Errorf("got %+v", ex)
			}
		})
	}
}

func TestRunCodeSendsItsOptions(t *testing.T) {
	w := &wire{execute: lines(`{"type":"end_of_execution"}`)}
	sbx := start(t, w)
	_, err := sbx.RunCode(t.Context(), "x", cubby.WithLanguage("bash"), cubby.WithEnv(map[string]string{"A": "1"}),
		cubby.WithTimeout(1500*time.Microsecond), cubby.WithMaxOutput(9), cubby.WithDrain())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"code":"x","language":"bash","env_vars":{"A":"1"}}`; string(w.body) != want {
		t.Errorf("sent %s, want %s", w.body, want)
	}
	for k, want := range map[string]string{
		"Cubby-Timeout-Ms": "2", "Cubby-Max-Output": "9", "Cubby-Drain": "1", "X-Access-Token": "tok",
		"E2b-Sandbox-Id": "isbx1", "E2b-Sandbox-Port": "49999",
	} {
		if got := w.header.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
}

func TestCallbacksComeInOrder(t *testing.T) {
	sbx := start(t, &wire{execute: lines(
		`{"type":"stdout","text":"1"}`, `{"type":"result","text":"2"}`, `{"type":"stderr","text":"3"}`,
		`{"type":"error","name":"4"}`, `{"type":"end_of_execution"}`)})
	var got strings.Builder // no lock: the race detector watches the promise of one goroutine
	_, err := sbx.RunCode(t.Context(), "x",
		cubby.OnStdout(func(s string) { got.WriteString(s) }), cubby.OnStderr(func(s string) { got.WriteString(s) }),
		cubby.OnResult(func(r cubby.Result) { got.WriteString(r.Text) }),
		cubby.OnError(func(e cubby.ExecutionError) { got.WriteString(e.Name) }))
	if err != nil || got.String() != "1234" {
		t.Errorf("got %q, %v", got.String(), err)
	}
}

func TestHostileStreams(t *testing.T) {
	for _, tt := range []struct {
		name    string
		execute http.HandlerFunc
		gone    string
		code    cubby.Code
		message string
	}{
		{"cut stream", lines(`{"type":"stdout","text":"x"}`), "", cubby.CodeSandboxGone, "ended before the execution did"},
		{"cut in a line", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"type":"end_of`) }, "", cubby.CodeSandboxGone, "ended before"},
		{"cut stream of a sandbox that ended", lines(), "the sandbox used up its memory", cubby.CodeSandboxGone, "used up its memory"},
		{"broken JSON", lines(`{"type":`), "", cubby.CodeInternal, "malformed"},
		{"broken result", lines(`{"type":"result","png":{}`), "", cubby.CodeInternal, "malformed"},
		{"text that is no text", lines(`{"type":"stdout","text":{}}`), "", cubby.CodeInternal, "malformed"},
		{"JSON that is no object", lines(`[1]`), "", cubby.CodeInternal, "malformed"},
		{"endless line", func(w http.ResponseWriter, r *http.Request) {
			block := strings.Repeat("x", 1<<20)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, block); err != nil {
					return
				}
			}
		}, "", cubby.CodeInternal, "longer than 96 MiB"},
		{"aborted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", cubby.CodeUnavailable, ""},
		{"gone before the start", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, `{"sandboxId":"isbx1","message":"The sandbox was not found","code":502}`)
		}, "it reached its end of life", cubby.CodeSandboxGone, "end of life"},
		{"plain text", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, "python3 is not on this machine: apt-get install python3")
		}, "", cubby.CodeInternal, "apt-get install python3"},
		{"endless error", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for range 1 << 10 {
				io.WriteString(w, strings.Repeat("y", 1<<10))
			}
		}, "", cubby.CodeInternal, "yyy…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sbx := start(t, &wire{execute: tt.execute, gone: tt.gone})
			_, err := sbx.RunCode(t.Context(), "x")
			if cubby.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("got %v (%v), want %v with %q", err, cubby.CodeOf(err), tt.code, tt.message)
			}
			if len(err.Error()) > 5000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestResultsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 300 MB")
	}
	big := `{"type":"result","text":"` + strings.Repeat("z", 30<<20) + `"}` + "\n"
	sbx := start(t, &wire{execute: func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			io.WriteString(w, big)
		}
		io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
	}})
	ex, err := sbx.RunCode(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if len(ex.Results) != 8 || !ex.Truncated {
		t.Errorf("%d results of 30 MiB were kept, truncated %v", len(ex.Results), ex.Truncated)
	}
}

func TestCancelEndsTheRequest(t *testing.T) {
	ended := make(chan struct{})
	sbx := start(t, &wire{execute: func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"type":"stdout","text":"before"}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ex, err := sbx.RunCode(ctx, "x", cubby.OnStdout(func(string) { cancel() }))
	if cubby.CodeOf(err) != cubby.CodeCanceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if ex == nil || ex.Stdout != "before" {
		t.Errorf("what came before is lost: %+v", ex)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the request goes on")
	}
}

func TestCodesMapToHTTP(t *testing.T) {
	for status := 400; status < 600; status++ {
		if cubby.CodeFromHTTP(status) == 0 {
			t.Errorf("%d has no code", status)
		}
	}
	for c := cubby.CodeInvalidArgument; c <= cubby.CodePaused; c++ {
		if cubby.CodeFromHTTP(c.HTTPStatus()) != c {
			t.Errorf("%v does not survive HTTP", c)
		}
		if strings.HasPrefix(c.String(), "code(") {
			t.Errorf("%d has no name", c)
		}
	}
}

func TestBadURLs(t *testing.T) {
	for _, u := range []string{"://", "unix:///x", "http://", "nonsense"} {
		if _, err := cubby.NewClient(cubby.Config{APIURL: u}); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestBadIDsAreNotSent(t *testing.T) {
	c, err := cubby.NewClient(cubby.Config{APIURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "../x", "A", "a/b", strings.Repeat("a", 65), "a\r\nX: y"} {
		if _, err := c.Get(t.Context(), id); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%q: %v", id, err)
		}
	}
}
