//go:build linux

package e2b_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// foreign is a server that is no Cubby. Answers by "METHOD path" stand for its
// own.
type foreign struct {
	mu       sync.Mutex
	answers  map[string]http.HandlerFunc
	requests []string // "METHOD path body"
	paused   bool
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Method + " " + r.URL.Path
	f.mu.Lock()
	f.requests = append(f.requests, key+" "+string(body))
	answer, paused := f.answers[key], f.paused
	f.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r)
	case key == "POST /v2/sandboxes", key == "POST /v2/sandboxes/iforeign/connect" && !paused:
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"sandboxID":"iforeign","templateID":"t","envdAccessToken":"tok"}`)
	case key == "GET /sandboxes/iforeign":
		state := "running"
		if paused {
			state = "paused"
		}
		fmt.Fprintf(w, `{"sandboxID":"iforeign","state":%q,"cpuCount":2,"memoryMB":512,"diskSizeMB":1024,"endAt":"2026-01-01T00:00:00Z"}`, state)
	case paused:
		w.WriteHeader(http.StatusBadGateway)
	case key == "POST /sandboxes/iforeign/timeout", key == "DELETE /sandboxes/iforeign":
		w.WriteHeader(http.StatusNoContent)
	case key == "POST /contexts":
		var req struct{ Language string }
		if json.Unmarshal(body, &req); req.Language != "python" && req.Language != "r" {
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"message":"no such kernel"}`)
			return
		}
		fmt.Fprintf(w, `{"id":"k-%s","language":%q,"cwd":"/"}`, req.Language, req.Language)
	case key == "POST /execute":
		io.WriteString(w, `{"type":"stdout","text":"ran\n"}`+"\n"+`{"type":"end_of_execution"}`+"\n")
	default:
		io.WriteString(w, "{}")
	}
}

// count is how many requests began with prefix.
func (f *foreign) count(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (f *foreign) answer(key string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers == nil {
		f.answers = map[string]http.HandlerFunc{}
	}
	f.answers[key] = h
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func (f *foreign) serve(t *testing.T, cfg e2b.Config) e2b.Config {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	cfg.APIURL, cfg.APIKey, cfg.Template = cmp.Or(cfg.APIURL, srv.URL), "k", "t"
	return cfg
}

// What is missing is named, with the option and the variable to give it by.
func TestEnvironment(t *testing.T) {
	f := &foreign{}
	srv := httptest.NewServer(f)
	defer srv.Close()
	all := map[string]string{"E2B_API_URL": srv.URL, "E2B_API_KEY": "from-environment", "CUBE_TEMPLATE_ID": "std-1"}
	for variable, option := range map[string]string{"E2B_API_URL": "WithAPIURL", "E2B_API_KEY": "WithAPIKey", "CUBE_TEMPLATE_ID": "WithTemplate"} {
		t.Run("without "+variable, func(t *testing.T) {
			for name, value := range all {
				if name != variable {
					t.Setenv(name, value)
				}
			}
			_, err := e2b.New()
			wantCode(t, "New", err, cubby.CodeInvalidArgument)
			if err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), option) {
				t.Errorf("it does not name %s and %s: %v", option, variable, err)
			}
			_, err = e2b.NewPool(t.Context(), e2b.Config{}, e2b.PoolConfig{})
			wantCode(t, "NewPool", err, cubby.CodeInvalidArgument)
		})
	}
	if len(f.requests) != 0 {
		t.Errorf("the server was asked: %q", f.requests)
	}
	t.Run("with all", func(t *testing.T) {
		for name, value := range all {
			t.Setenv(name, value)
		}
		e, err := e2b.New()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if f.count(`POST /v2/sandboxes {"templateID":"std-1","timeout":3600,"allow_internet_access":false}`) != 1 {
			t.Errorf("got %q", f.requests)
		}
	})
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	f := &foreign{}
	for name, cfg := range map[string]e2b.Config{
		"idle timeout of less than a second": {IdleTimeout: 500 * time.Millisecond}, "of seconds that are not whole": {IdleTimeout: 1500 * time.Millisecond},
		"negative": {IdleTimeout: -time.Second}, "timeout": {Timeout: -1}, "sandbox timeout": {SandboxTimeout: -1},
		"output": {MaxOutput: -1}, "kernels": {MaxKernels: 1}, "folder": {WorkspaceRoot: "relative"}, "root": {WorkspaceRoot: "/"},
		"user": {User: "a:b"}, "variable": {Env: map[string]string{"A=B": "c"}}, "limit": {Limits: codeexec.ResourceLimits{CPUs: -1}},
		"address": {APIURL: "ftp://x"}, "domain": {Domain: "not a domain"}, "id": {SandboxID: "../../etc"},
		"a sandbox for each call, and one": {SandboxID: "iforeign", FreshSandbox: true}, "no language": {Languages: []string{}},
		"a language that is data": {Languages: []string{"json"}}, "a language of two lines": {Languages: []string{"r\nr"}},
		"a client and an address": {Client: client(t, exampleServer)},
	} {
		_, err := e2b.Create(t.Context(), f.serve(t, cfg))
		wantCode(t, name, err, cubby.CodeInvalidArgument)
	}
	if len(f.requests) != 0 {
		t.Errorf("the server was asked: %q", f.requests)
	}
}

func TestWrongKey(t *testing.T) {
	_, err := e2b.Create(t.Context(), at(exampleServer, e2b.Config{APIKey: "e2b_" + strings.Repeat("0", 40)}))
	wantCode(t, "Create", err, cubby.CodeUnauthenticated)
}

func TestNoServer(t *testing.T) {
	srv := httptest.NewServer(&foreign{})
	srv.Close()
	_, err := e2b.Create(t.Context(), at(exampleServer, e2b.Config{APIURL: srv.URL}))
	wantCode(t, "Create", err, cubby.CodeUnavailable)
}

func TestPaused(t *testing.T) {
	f := &foreign{paused: true}
	cfg := f.serve(t, e2b.Config{SandboxID: "iforeign"})
	for name, open := range map[string]func(context.Context, e2b.Config) (*e2b.CodeExecutor, error){
		"Create": e2b.Create, "Attach": e2b.Attach,
		"CreateOrRecreate": func(ctx context.Context, cfg e2b.Config) (*e2b.CodeExecutor, error) {
			return e2b.CreateOrRecreate(ctx, cfg, func(string) { t.Error("it was given up") })
		},
	} {
		_, err := open(t.Context(), cfg)
		wantCode(t, name, err, cubby.CodePaused)
	}
	t.Run("since the last call", func(t *testing.T) {
		f := &foreign{}
		e := create(t, f.serve(t, e2b.Config{IdleTimeout: time.Second}))
		output(t, e, python("1"))
		f.mu.Lock()
		f.paused = true
		f.mu.Unlock()
		ran := f.count("POST /execute")
		for range 2 {
			_, err := e.ExecuteCode(t.Context(), python("1"))
			wantCode(t, "ExecuteCode", err, cubby.CodePaused)
		}
		if n := f.count("POST /execute") - ran; n > 1 {
			t.Errorf("the code was sent %d times", n)
		}
		f.mu.Lock()
		f.paused = false
		f.mu.Unlock()
		output(t, e, python("1"))
	})
}

// A server that takes no notice of limits keeps none, whatever size it says that
// its machines have.
func TestLimitsThatNobodyKeeps(t *testing.T) {
	f := &foreign{}
	cfg := f.serve(t, e2b.Config{Limits: codeexec.ResourceLimits{MemoryBytes: 1 << 30}})
	_, err := e2b.Create(t.Context(), cfg)
	wantCode(t, "Create", err, cubby.CodeUnimplemented)
	if !errors.Is(err, codeexec.ErrLimitNotEnforceable) || f.count("DELETE") != 1 {
		t.Errorf("got %v, and %q", err, f.requests)
	}
	cfg.SandboxID = "iforeign"
	_, err = e2b.Attach(t.Context(), cfg)
	if !errors.Is(err, codeexec.ErrLimitNotEnforceable) || f.count("DELETE") != 1 {
		t.Errorf("got %v, and %q", err, f.requests)
	}
	e := create(t, f.serve(t, e2b.Config{}))
	if limits := e.Engine().Describe().Limits; len(limits) != 0 {
		t.Errorf("it is said to keep %v", limits)
	}
}

func TestNonsense(t *testing.T) {
	nonsense := []string{
		"", "null", "[]", `""`, "{", "<html>", `{"sandboxID":17}`, `{"sandboxID":"../../v2/keys"}`, `{"sandboxID":"a b"}`,
		`{"sandboxID":"` + strings.Repeat("a", 1<<20) + `"}`, `{"sandboxID":null,"state":"\u0000"}`, strings.Repeat("[", 1<<20), "\xff\xfe",
	}
	t.Run("to a create", func(t *testing.T) {
		for _, body := range nonsense {
			for _, status := range []int{200, 201, 302, 400, 500, 503} {
				f := &foreign{}
				f.answer("POST /v2/sandboxes", says(status, body))
				f.answer("POST /sandboxes", says(status, body))
				e, err := e2b.Create(t.Context(), f.serve(t, e2b.Config{}))
				if err == nil {
					e.Close()
				}
				if cubby.CodeOf(err) == 0 || len(err.Error()) > 10_000 {
					t.Errorf("%d %.40q: got %.200v", status, body, err)
				}
			}
		}
	})
	t.Run("to a question about the sandbox", func(t *testing.T) {
		for _, body := range nonsense {
			f := &foreign{}
			f.answer("GET /sandboxes/iforeign", says(200, body))
			e, err := e2b.Create(t.Context(), f.serve(t, e2b.Config{}))
			if err == nil {
				// What cannot be read says nothing; the sandbox is there.
				e.Close()
			} else if cubby.CodeOf(err) == 0 {
				t.Errorf("%.40q: got %v", body, err)
			}
			if f.count("DELETE") != 1 {
				t.Errorf("%.40q: the sandbox was not ended", body)
			}
		}
	})
	t.Run("to code", func(t *testing.T) {
		f := &foreign{}
		e := create(t, f.serve(t, e2b.Config{}))
		for _, body := range append(nonsense, `{"type":"stdout","text":{}}`, `{"type":"stdout","text":"cut`, `{"type":"end_of_execution","exit_code":"x"}`) {
			for _, status := range []int{200, 400, 500} {
				f.answer("POST /execute", says(status, body))
				before := f.count("POST /execute")
				r, err := e.ExecuteCode(t.Context(), python("1"))
				if cubby.CodeOf(err) == 0 {
					t.Errorf("%d %.40q: got %+v, %v", status, body, r, err)
				}
				if n := f.count("POST /execute") - before; n != 1 {
					t.Errorf("%d %.40q: the code was sent %d times", status, body, n)
				}
			}
		}
		f.answer("POST /execute", nil)
		output(t, e, python("1"))
	})
	t.Run("to a kernel that is asked for", func(t *testing.T) {
		for _, body := range append(nonsense, `{"id":"","language":"python"}`, `{"id":7}`) {
			f := &foreign{}
			f.answer("POST /contexts", says(200, body))
			e := create(t, f.serve(t, e2b.Config{}))
			_, err := e.ExecuteCode(t.Context(), in("a", "1"))
			if f.count("POST /execute") != 0 || cubby.CodeOf(err) == 0 {
				t.Errorf("%.40q: got %v", body, err)
			}
		}
	})
	t.Run("to a program", func(t *testing.T) {
		for _, body := range nonsense {
			f := &foreign{}
			f.answer("POST /process.Process/Start", says(200, body))
			e := create(t, f.serve(t, e2b.Config{}))
			_, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
			if cubby.CodeOf(err) == 0 {
				t.Errorf("%.40q: got %v", body, err)
			}
		}
	})
}

// A stream that breaks off leaves open what the code did: it is not run again.
func TestCodeIsNeverSentTwice(t *testing.T) {
	f := &foreign{}
	e := create(t, f.serve(t, e2b.Config{}))
	f.answer("POST /execute", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"type":"stdout","text":"began\n"}`+"\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{
		{Language: "python", Code: "first()"}, {Language: "python", Code: "second()"},
	}})
	wantCode(t, "ExecuteCode", err, cubby.CodeSandboxGone)
	if r.Output != "began\n" || len(r.Blocks) != 1 || f.count("POST /execute") != 1 {
		t.Errorf("got %+v after %d requests", r, f.count("POST /execute"))
	}
	f.answer("POST /execute", nil)
	output(t, e, python("1")) // it was the way to it, not the sandbox
}

// A kernel that the server has forgotten is replaced, since nothing ran.
func TestForgottenKernel(t *testing.T) {
	f := &foreign{}
	e := create(t, f.serve(t, e2b.Config{}))
	output(t, e, in("a", "x = 1"))
	refused := false
	f.answer("POST /execute", func(w http.ResponseWriter, r *http.Request) {
		if !refused {
			refused = true
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"message":"Context k-python not found"}`)
			return
		}
		io.WriteString(w, `{"type":"stdout","text":"ran\n"}`+"\n"+`{"type":"end_of_execution"}`+"\n")
	})
	r, err := e.ExecuteCode(t.Context(), in("a", "print(x)"))
	if err != nil || r.Output != "ran\n" || !r.StateLost || f.count("POST /contexts") != 2 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A server that knows nothing of timeouts: the client ends the code.
func TestTimeoutThatTheServerDoesNotKnow(t *testing.T) {
	f := &foreign{}
	e := create(t, f.serve(t, e2b.Config{Timeout: time.Second}))
	f.answer("POST /execute", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"type":"stdout","text":"began\n"}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	r, err := e.ExecuteCode(t.Context(), in("a", "while True: pass"))
	if err != nil || !r.TimedOut || r.Outcome != codeexec.OutcomeDeadlineExceeded || r.ExitCode != codeexec.ExitTimedOut ||
		r.Limit != "time" || !r.StateLost || r.Output != "began\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	if f.count("POST /contexts/k-python/restart") != 1 {
		t.Errorf("the code was left running: %q", f.requests)
	}
}

// Languages that only this server has.
func TestLanguagesOfTheServersOwn(t *testing.T) {
	f := &foreign{}
	e := create(t, f.serve(t, e2b.Config{}))
	r, err := e.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{
		{Language: "R", Code: "cat('ran')"}, {Language: "julia", Code: "1"}, {Language: "json", Code: "{}"},
	}})
	if err != nil || len(r.Blocks) != 3 || r.Blocks[0].Unsupported || r.Blocks[0].Stdout != "ran\n" ||
		!r.Blocks[1].Unsupported || !r.Blocks[2].Unsupported {
		t.Errorf("got %+v, %v", r, err)
	}
	if f.count(`POST /contexts {"language":"json"`) != 0 || f.count("POST /execute") != 1 {
		t.Errorf("asked for %q", f.requests)
	}
}

// Logs say how much ran, where, and how it ended. Never what.
func TestLogs(t *testing.T) {
	var log lockedBuffer
	f := &foreign{}
	e := create(t, f.serve(t, e2b.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Env: map[string]string{"TOKEN": "secret-value"}}))
	output(t, e, in("conversation", "secret_code()"))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"code executed", "backend=e2b", "outcome=ok", "sandbox created", "sandbox ended", "sandbox_id=iforeign"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in\n%s", want, log.String())
		}
	}
	for _, never := range []string{"secret", "ran", "api_key"} {
		if strings.Contains(log.String(), never) {
			t.Errorf("%q is in\n%s", never, log.String())
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
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
