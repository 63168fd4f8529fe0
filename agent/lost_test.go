//go:build linux

package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/toolbox"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/local"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
)

// TestWhatIsLostIsTold: in a sandbox, in a pool's, behind wrappers: when the place
// of a session is lost, the user's files are put back before the next run, and the
// model reads what is gone.
func TestWhatIsLostIsTold(t *testing.T) {
	client := private(t)
	kill := func(t *testing.T, id string) {
		t.Helper()
		sbx, err := client.Get(t.Context(), id)
		if err == nil {
			err = sbx.Kill(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pool := func(t *testing.T) *e2b.Pool {
		t.Helper()
		p, err := sandbox.NewPool(t.Context(), sandbox.Config{Executor: e2b.Config{Client: client}}, e2b.PoolConfig{Size: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	const data = "original"
	files := []codeexec.File{{Name: "data.txt", Content: []byte(data)}}
	for name, start := range map[string]func(t *testing.T) (e codeexec.CodeExecutor, lose func()){
		"a sandbox that ended": func(t *testing.T) (codeexec.CodeExecutor, func()) {
			e := open(t, client)
			return e, func() { kill(t, e.SandboxID()) }
		},
		"a pool that had no room": func(t *testing.T) (codeexec.CodeExecutor, func()) {
			p := pool(t)
			return p, func() {
				if _, err := p.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{ExecutionID: "other", Code: "1"}); err != nil {
					t.Fatal(err)
				}
			}
		},
		"a pool's sandbox that ended": func(t *testing.T) (codeexec.CodeExecutor, func()) {
			p := pool(t)
			return p, func() {
				e, err := p.Get(t.Context(), p.Sessions()[0])
				if err != nil {
					t.Fatal(err)
				}
				kill(t, e.SandboxID())
			}
		},
		"behind wrappers": func(t *testing.T) (codeexec.CodeExecutor, func()) {
			e := open(t, client)
			wrapped := codeexec.Observe(e, codeexec.ObserveOptions{})
			return codeexec.Observe(wrapped, codeexec.ObserveOptions{}), func() { kill(t, e.SandboxID()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, lose := start(t)
			then := func(code string) func(agent.Request) any {
				return func(agent.Request) any { lose(); return code }
			}
			// What a tool does counts as a run: its files are back, too.
			box := toolbox.Memory()
			kept := toolbox.Kept{
				Name: "shout", Description: "A file in capitals", Language: "python", Function: "shout",
				Code: "def shout(): return open('data.txt').read().upper()", Schema: []byte(`{"type":"object"}`),
			}
			if _, err := box.Keep(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			m := script(python("x = 1; open('mine', 'w').write('m')"), then(python("import os; print(open('data.txt').read(), os.path.exists('mine'), 'x' in globals())")),
				python("print('quiet')"), func(agent.Request) any { lose(); return call("shout", struct{}{}) }, "done")
			var notices []string
			a, err := agent.New(m, e, agent.WithToolbox(box))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := a.Session("").Ask(t.Context(), agent.Question{Text: "Go.", Files: files}, func(e agent.Event) {
				if e.Type == agent.EventNotice {
					notices = append(notices, e.Text)
				}
			})
			if err != nil || answer.Text != "done" {
				t.Fatalf("%+v, %v; it read %q", answer, err, m.lastRead())
			}
			if got := read(m.requests[2]); !strings.Contains(got, data+" False False") || !strings.Contains(got, "variables and files that code wrote are gone") {
				t.Errorf("after the loss the model read %q", got)
			}
			if got := read(m.requests[3]); strings.Contains(got, "gone") {
				t.Errorf("told twice: %q", got)
			}
			if got := m.lastRead(); !strings.Contains(got, "ORIGINAL") || !strings.Contains(got, "are gone") {
				t.Errorf("of the tool the model read %q", got)
			}
			if len(notices) != 2 || !strings.Contains(notices[0], "new one") {
				t.Errorf("the caller was told %q", notices)
			}
		})
	}

	t.Run("a kernel that died, behind wrappers", func(t *testing.T) {
		e := codeexec.Observe(codeexec.Observe(open(t, client), codeexec.ObserveOptions{}), codeexec.ObserveOptions{})
		m := script(python("x = 1; open('data.txt', 'w').write('changed')"), python("import os; os._exit(3)"), python("print('x' in globals(), open('data.txt').read())"), "ok")
		a, err := agent.New(m, e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Session("").Ask(t.Context(), agent.Question{Text: "Go.", Files: files}, nil); err != nil {
			t.Fatal(err)
		}
		if got := read(m.requests[2]); !strings.Contains(got, "Variables and imports of earlier runs are gone; the files are as they were") {
			t.Errorf("the model read %q", got)
		}
		if got := m.lastRead(); !strings.Contains(got, "False changed") || strings.Contains(got, "runs are gone") {
			t.Errorf("the model read %q", got)
		}
	})
}

// TestWhereLessLasts: the model is told of it once, and its code finds the user's
// files in each run.
func TestWhereLessLasts(t *testing.T) {
	client := private(t)
	files := []codeexec.File{{Name: "data.txt", Content: []byte("original")}}
	folder, err := local.NewUnsafe(t.Context(), local.Config{WorkDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	each, err := local.NewUnsafe(t.Context(), local.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		e     codeexec.CodeExecutor
		rule  string
		found string
	}{
		"a folder that lasts":     {folder, "Variables do not last", "original True False"},
		"a folder for each call":  {each, "Nothing lasts", "original False False"},
		"a sandbox for each call": {openAs(t, e2b.Config{Client: client, FreshSandbox: true}), "Nothing lasts", "original False False"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { tc.e.Close() })
			look := python("import os; print(open('data.txt').read(), os.path.exists('mine'), 'x' in globals())")
			m := script(python("x = 1; open('mine', 'w').write('m')"), look, look, "ok")
			a, err := agent.New(m, tc.e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Session("").Ask(t.Context(), agent.Question{Text: "Go.", Files: files}, nil); err != nil {
				t.Fatal(err)
			}
			if got := read(m.requests[1]); !strings.Contains(got, tc.rule) {
				t.Errorf("first the model read %q", got)
			}
			for _, got := range []string{read(m.requests[2]), m.lastRead()} {
				if !strings.Contains(got, tc.found) || strings.Contains(got, "last from run") || strings.Contains(got, "gone") {
					t.Errorf("then the model read %q", got)
				}
			}
		})
	}
}

// losing is an executor whose state is lost by a script: each call takes the next
// state, and notes which files it was given.
type losing struct {
	codeexec.CodeExecutor
	states []codeexec.Instance
	fails  map[int]error // by call
	calls  int
	put    []string
}

func (l *losing) Languages() []string                                { return []string{codeexec.Python} }
func (l *losing) CodeBlockDelimiters() []codeexec.CodeBlockDelimiter { return nil }
func (l *losing) ExecuteCode(_ context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	n := l.calls
	l.calls++
	what := "look"
	if len(in.Blocks()) > 0 {
		what = "run"
	}
	for _, f := range in.InputFiles {
		what += " " + f.Name
	}
	l.put = append(l.put, what)
	if err := l.fails[n]; err != nil {
		return codeexec.CodeExecutionResult{}, err
	}
	return codeexec.CodeExecutionResult{Outcome: codeexec.OutcomeOK, Instance: l.states[min(n, len(l.states)-1)]}, nil
}

// TestFilesArePutBack: by what results say alone, for executors of any kind.
func TestFilesArePutBack(t *testing.T) {
	type instance = codeexec.Instance
	first, kernel, moved := instance{ID: "s", Memory: 1, Files: 1}, instance{ID: "s", Memory: 2, Files: 1}, instance{ID: "t", Memory: 2, Files: 2}
	gone := &cubby.Error{Code: cubby.CodeSandboxGone, Err: fmt.Errorf("the sandbox is gone")}
	for name, tc := range map[string]struct {
		states []instance
		fails  map[int]error
		put    []string
		reads  string // what the model reads last
	}{
		"nothing is lost":                 {[]instance{first}, nil, []string{"run a b", "look", "run"}, ""},
		"a kernel before the run":         {[]instance{first, kernel}, nil, []string{"run a b", "look", "run"}, "Variables and imports of earlier runs are gone"},
		"the place before the run":        {[]instance{first, moved}, nil, []string{"run a b", "look", "run a b"}, "The user's files are back"},
		"the place as the run began":      {[]instance{first, first, moved}, nil, []string{"run a b", "look", "run"}, "The user's files are back"},
		"the run breaks off, and nothing": {[]instance{first}, map[int]error{2: gone}, []string{"run a b", "look", "run", "look"}, "Variables and files are there"},
		"the run breaks off, and the place": {[]instance{first, first, first, moved}, map[int]error{2: gone}, []string{"run a b", "look", "run", "look"},
			"A new one takes its place: variables and the files that code wrote are gone"},
		"nothing lasts": {[]instance{{}}, nil, []string{"run a b", "run a b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := &losing{states: tc.states, fails: tc.fails}
			m := script(python("1"), python("2"), "ok")
			a, err := agent.New(m, e, agent.WithEnvironment(""))
			if err != nil {
				t.Fatal(err)
			}
			files := []codeexec.File{{Name: "a"}, {Name: "b"}}
			if _, err := a.Session("").Ask(t.Context(), agent.Question{Text: "Go.", Files: files}, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(e.put, tc.put) {
				t.Errorf("it did %q, want %q", e.put, tc.put)
			}
			if got := m.lastRead(); !strings.Contains(got, tc.reads) || tc.reads == "" && strings.Contains(got, "gone") {
				t.Errorf("the model read %q", got)
			}
		})
	}
}
