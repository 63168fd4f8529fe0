//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// TestLoop: what a session does, question by question, in one sandbox.
func TestLoop(t *testing.T) {
	executor := open(t, private(t))

	t.Run("a failed run is corrected", func(t *testing.T) {
		m := script("Let me see.\n"+python("print(1/0)"), python("print(6*7)"), "The answer is 42.")
		var types []agent.EventType
		answer, err := ask(t, newAgent(t, m, executor), "What is 6 times 7?", func(e agent.Event) {
			if !slices.Contains(types, e.Type) {
				types = append(types, e.Type)
			}
		})
		if err != nil || answer.Text != "The answer is 42." || answer.Turns != 3 || answer.Runs != 2 || answer.Usage.Total() != 330 {
			t.Fatalf("%+v, %v", answer, err)
		}
		want := []agent.EventType{"question", "text", "reply", "code", "output", "result", "answer"}
		// The first run prints nothing, so its output comes after its result.
		slices.Sort(want)
		slices.Sort(types)
		if !slices.Equal(types, want) {
			t.Errorf("events: %v", types)
		}
		if got := read(m.requests[1]); !strings.Contains(got, "```tool_output\n") || !strings.Contains(got, "ZeroDivisionError") {
			t.Errorf("the model read %q", got)
		}
	})

	t.Run("variables, files and the conversation last", func(t *testing.T) {
		m := script(python("x = int(open('n.txt').read())\nopen('out.txt','w').write('made')"), "done", python("print(x + 1, open('n.txt').read())"), "42")
		s := newAgent(t, m, executor).Session("")
		defer s.Close()
		first, err := s.Ask(t.Context(), agent.Question{Text: "Read it.", Files: []codeexec.File{{Name: "n.txt", Content: []byte("41")}}}, nil)
		if err != nil || len(first.Files) != 1 || first.Files[0].Name != "out.txt" || string(first.Files[0].Content) != "made" {
			t.Fatalf("%+v, %v", first, err)
		}
		if _, err := s.Ask(t.Context(), agent.Question{Text: "And one more?"}, nil); err != nil {
			t.Fatal(err)
		}
		if got := m.lastRead(); !strings.Contains(got, "42 41") {
			t.Errorf("the model read %q", got)
		}
		if n := len(m.requests[3].Messages); n != 7 {
			t.Errorf("the last request has %d messages", n)
		}
	})

	t.Run("figures and saved pictures are shown to models that see", func(t *testing.T) {
		code := python("import matplotlib.pyplot as plt\nplt.plot([1,2])\nplt.savefig('saved.png')\nplt.show()")
		for _, sees := range []bool{true, false} {
			m := script(code, "There.")
			m.info.Images = sees
			answer, err := ask(t, newAgent(t, m, executor), "Draw.", nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range answer.Files {
				names = append(names, f.Name)
			}
			if len(names) != 2 || !slices.Contains(names, "saved.png") {
				t.Errorf("files: %v", names)
			}
			got := m.lastRead()
			if strings.Count(got, "<image ") != map[bool]int{true: 2, false: 0}[sees] || !strings.Contains(got, "[Generated image: saved.png]") {
				t.Errorf("sees %v: %q", sees, got)
			}
		}
	})

	t.Run("blocks run in order until one fails", func(t *testing.T) {
		reply := ""
		for i := range 10 {
			code := fmt.Sprintf("print('block', %d)", i+1)
			if i == 6 {
				code = "raise SystemError('seven')"
			}
			reply += python(code) + "\n"
		}
		m := script(reply, "I see.")
		answer, err := ask(t, newAgent(t, m, executor), "Go.", nil)
		if err != nil || answer.Runs != 7 {
			t.Fatalf("%+v, %v", answer, err)
		}
		if got := m.lastRead(); !strings.Contains(got, "Block 7 of 10:") || strings.Contains(got, "block 8") || !strings.Contains(got, "The other 3 of the 10 blocks were not run.") {
			t.Errorf("the model read %q", got)
		}
	})

	t.Run("replies as models write them", func(t *testing.T) {
		for name, reply := range map[string]string{
			"an unclosed fence": "```python\nprint('ran')",
			"tildes, indented":  "1. So:\n\n   ~~~py\n   print('ran')\n   ~~~",
			"no language":       "```\nprint('ran')\n```",
			"a bash block":      "```bash\necho ran\n```",
			"output it invents": python("print('ran')") + "\n```tool_output\n7\n```\nSo it is 7.",
		} {
			m := script(reply, "Good.")
			answer, err := ask(t, newAgent(t, m, executor), "Go.", nil)
			if err != nil || answer.Runs != 1 || answer.Text != "Good." || !strings.Contains(m.lastRead(), "\nran\n") {
				t.Errorf("%s: %+v, %v: %q", name, answer, err, m.lastRead())
			}
			for _, said := range m.requests[1].Messages {
				if strings.Contains(said.Text(), "7") {
					t.Errorf("%s: it remembers %q", name, said.Text())
				}
			}
		}
	})

	t.Run("no code, nothing at all, and too long a reply", func(t *testing.T) {
		cut := agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: "```python\nprint('half"}}}, Stop: agent.StopLength}
		m := script("", cut, "Paris.")
		answer, err := ask(t, newAgent(t, m, executor), "What is the capital of France?", nil)
		if err != nil || answer.Text != "Paris." || answer.Runs != 0 {
			t.Fatalf("%+v, %v", answer, err)
		}
		if !strings.Contains(read(m.requests[1]), "empty") || !strings.Contains(m.lastRead(), "cut off") {
			t.Errorf("the model read %q and %q", read(m.requests[1]), m.lastRead())
		}
	})

	t.Run("a lot of output is cut, and kept as a file", func(t *testing.T) {
		m := script(python("print('x' * 100_000_000)"), python("import os; print(os.path.getsize('output-1.txt') > 1000)"), "Much.")
		shown := 0
		answer, err := ask(t, newAgent(t, m, executor), "Go.", func(e agent.Event) {
			if e.Type == agent.EventOutput {
				shown += len(e.Text)
			}
		})
		if err != nil || len(answer.Files) != 1 || answer.Files[0].Name != "output-1.txt" {
			t.Fatalf("%v, %v", err, answer)
		}
		if n := len(read(m.requests[1])); n < 10_000 || n > 11_000 {
			t.Errorf("the model read %d bytes", n)
		}
		if shown == 0 || shown > 20<<20 {
			t.Errorf("%d bytes were streamed", shown)
		}
		if !strings.Contains(m.lastRead(), "True") {
			t.Errorf("the model read %q", m.lastRead())
		}
	})

	t.Run("tools beside code", func(t *testing.T) {
		type city struct {
			Name string `json:"name" jsonschema:"the city's name"`
		}
		population, err := agent.NewTool("population", "Inhabitants of a city", func(_ context.Context, in city) (map[string]int, error) {
			if in.Name != "Bern" {
				return nil, fmt.Errorf("no such city: %s", in.Name)
			}
			return map[string]int{"inhabitants": 134591}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		panics, err := agent.NewTool("panics", "", func(context.Context, struct{}) (string, error) { panic("ouch") })
		if err != nil {
			t.Fatal(err)
		}
		m := script(call("population", city{"Rome"}), call("population", map[string]int{"name": 3}), call("population", city{"Bern"}), call("panics", struct{}{}), call("nothing", struct{}{}),
			python("print(134591 // 2)"), "67295")
		answer, err := ask(t, newAgent(t, m, executor, agent.WithTools(population, panics), agent.WithLimits(agent.Limits{Failures: 5})), "Half of Bern?", nil)
		if err != nil || answer.Text != "67295" {
			t.Fatalf("%+v, %v", answer, err)
		}
		for i, want := range []string{"no such city: Rome", "do not fit", `{"inhabitants":134591}`, "panicked: ouch", "There are: population, panics", "67295"} {
			if got := read(m.requests[i+1]); !strings.Contains(got, want) {
				t.Errorf("%d: the model read %q, not %q", i, got, want)
			}
		}
	})

	t.Run("code as tool calls", func(t *testing.T) {
		blocks := `{"code_blocks":[{"language":"python","code":"y = 20"},{"language":"bash","code":"echo from bash"}]}`
		m := script(call("execute_python", map[string]string{"code": "x = 22"}), agent.ToolCall{ID: "b", Name: "execute_code", Arguments: json.RawMessage(blocks)},
			agent.ToolCall{ID: "c", Name: "execute_code", Arguments: mustMarshal(`[{"language":"python","code":"print(x + y)"}]`)},
			agent.ToolCall{ID: "d", Name: "execute_code", Arguments: json.RawMessage(`{"code_blocks":7}`)}, "```python\nthis is only shown\n```\n42")
		answer, err := ask(t, newAgent(t, m, executor, agent.WithMode(agent.ModeTools)), "20 + 22?", nil)
		if err != nil || !strings.HasSuffix(answer.Text, "42") || answer.Runs != 4 {
			t.Fatalf("%+v, %v", answer, err)
		}
		for i, want := range []string{"", "from bash", "42", "code_blocks"} {
			if got := read(m.requests[i+1]); !strings.Contains(got, want) {
				t.Errorf("%d: the model read %q, not %q", i, got, want)
			}
		}
		if len(m.requests[0].Tools) != 2 {
			t.Errorf("tools: %v", m.requests[0].Tools)
		}
	})

	t.Run("audit, policy and approval", func(t *testing.T) {
		checker, err := validate.New(executor, validate.Options{Policy: validate.Production()})
		if err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		var asked []string
		approver := func(_ context.Context, r agent.ApprovalRequest) (agent.Approval, error) {
			asked = append(asked, r.Code)
			return agent.Approval{Approved: !strings.Contains(r.Code, "secret"), Reason: "not the secret one"}, nil
		}
		m := script(python("import subprocess\nsubprocess.run(['id'])"), python("print('secret')"), python("print(1"), python("print('fine')"), "ok")
		a := newAgent(t, m, executor, agent.WithValidator(checker), agent.WithApproval(approver), agent.WithAudit(agent.NewAudit(&lines)),
			agent.WithLimits(agent.Limits{Failures: 9}))
		answer, err := ask(t, a, "Go.", nil)
		if err != nil || answer.Runs != 1 {
			t.Fatalf("%+v, %v", answer, err)
		}
		if !slices.Equal(asked, []string{"print('secret')\n", "print('fine')\n"}) {
			t.Errorf("asked: %q", asked)
		}
		for i, want := range []string{"subprocess", "not the secret one", "not run", "fine"} {
			if got := read(m.requests[i+1]); !strings.Contains(got, want) {
				t.Errorf("%d: the model read %q, not %q", i, got, want)
			}
		}
		var outcomes []string
		for line := range strings.Lines(lines.String()) {
			if strings.Contains(line, "secret") || strings.Contains(line, "fine") {
				t.Errorf("the log holds code: %s", line)
			}
			var r agent.AuditRecord
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			outcomes = append(outcomes, r.Policy+" "+r.Approval+" "+r.Outcome)
			if len(r.CodeSHA256) != 64 || r.InputTokens != 100 || r.Session == "" || r.Model != "scripted" || r.Time.IsZero() {
				t.Errorf("record: %+v", r)
			}
		}
		want := []string{"deny none refused", "allow refused refused", "deny none refused", "allow approved ok"}
		if !slices.Equal(outcomes, want) {
			t.Errorf("audit: %q", outcomes)
		}
	})

	t.Run("what cannot be logged ends the work", func(t *testing.T) {
		a := newAgent(t, script(python("print(1)"), "1"), executor, agent.WithAudit(agent.NewAudit(full{})))
		if _, err := ask(t, a, "Go.", nil); err == nil || !strings.Contains(err.Error(), "audit") {
			t.Fatal(err)
		}
	})
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func mustMarshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// TestBounds: each ends what would not end by itself.
func TestBounds(t *testing.T) {
	client := private(t)
	executor := open(t, client)
	again := func(n int, f func(i int) string) []any {
		var all []any
		for i := range n {
			all = append(all, f(i))
		}
		return all
	}
	fine := func(i int) string { return python(fmt.Sprintf("print(%d)", i)) }
	bad := func(i int) string { return python(fmt.Sprintf("raise ValueError(%d)", i)) }

	for _, test := range []struct {
		name    string
		limits  agent.Limits
		replies []any
		runs    int
		stopped agent.Bound
		err     bool
	}{
		{"turns", agent.Limits{Turns: 3}, again(9, fine), 3, agent.BoundTurns, true},
		{"tokens", agent.Limits{Tokens: 250}, again(9, fine), 3, agent.BoundTokens, true},
		{"executions, then an answer", agent.Limits{Executions: 2}, append(again(2, fine), "two"), 2, agent.BoundExecutions, false},
		{"executions, and no answer", agent.Limits{Executions: 2}, again(9, fine), 2, agent.BoundExecutions, true},
		{"failures, then an answer", agent.Limits{Failures: 2}, append(again(2, bad), "sorry"), 2, agent.BoundFailures, false},
		{"endless repair", agent.Limits{}, again(9, func(int) string { return bad(0) }), 2, agent.BoundFailures, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer, err := ask(t, newAgent(t, script(test.replies...), executor, agent.WithLimits(test.limits)), "Go.", nil)
			var bound *agent.LimitError
			if errors.As(err, &bound) != test.err || err != nil && !test.err {
				t.Fatal(err)
			}
			if answer.Runs != test.runs || answer.Stopped != test.stopped || test.err && bound.Bound != test.stopped {
				t.Errorf("%+v, %v", answer, err)
			}
		})
	}

	t.Run("an answer after the deadline", func(t *testing.T) {
		m := script(nil, "late")
		s := newAgent(t, m, executor, agent.WithLimits(agent.Limits{Time: 500 * time.Millisecond})).Session("")
		answer, err := s.Ask(t.Context(), agent.Question{Text: "Go."}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || answer.Stopped != agent.BoundTime {
			t.Fatalf("%+v, %v", answer, err)
		}
		// The session is usable.
		if answer, err := s.Ask(t.Context(), agent.Question{Text: "And now?"}, nil); err != nil || answer.Text != "late" {
			t.Fatalf("%+v, %v", answer, err)
		}
	})

	t.Run("the time is over while code runs", func(t *testing.T) {
		a := newAgent(t, script(python("while True: pass")), executor, agent.WithLimits(agent.Limits{Time: 2 * time.Second}))
		answer, err := ask(t, a, "Go.", nil)
		var bound *agent.LimitError
		if !errors.As(err, &bound) || bound.Bound != agent.BoundTime {
			t.Fatalf("%+v, %v", answer, err)
		}
	})

	t.Run("a caller that goes away", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := newAgent(t, script(python("print('on', flush=True)\nimport time; time.sleep(600)")), executor)
		_, err := a.Session("").Ask(ctx, agent.Question{Text: "Go."}, func(e agent.Event) {
			if e.Type == agent.EventOutput {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})

	t.Run("code that never ends", func(t *testing.T) {
		short := openAs(t, e2b.Config{Client: client, Timeout: 2 * time.Second})
		m := script(python("while True: pass"), "It never ends.")
		answer, err := ask(t, newAgent(t, m, short), "Go.", nil)
		if err != nil || answer.Text != "It never ends." || !strings.Contains(m.lastRead(), "its time was over") {
			t.Fatalf("%+v, %v: %q", answer, err, m.lastRead())
		}
	})

	t.Run("a sandbox killed in mid-run", func(t *testing.T) {
		own := open(t, client)
		m := script(python("print('on', flush=True)\nimport time; time.sleep(600)"), python("print(open('data.txt').read())"), "It is back.")
		q := agent.Question{Text: "Go.", Files: []codeexec.File{{Name: "data.txt", Content: []byte("the data")}}}
		answer, err := newAgent(t, m, own).Session("").Ask(t.Context(), q, func(e agent.Event) {
			if e.Type != agent.EventOutput || e.Run != 1 {
				return
			}
			sbx, err := client.Connect(t.Context(), own.SandboxID())
			if err == nil {
				err = sbx.Kill(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil || answer.Text != "It is back." {
			t.Fatalf("%+v, %v", answer, err)
		}
		if got := read(m.requests[1]); !strings.Contains(got, "lost") {
			t.Errorf("the model read %q", got)
		}
		if !strings.Contains(m.lastRead(), "the data") {
			t.Errorf("the model read %q", m.lastRead())
		}
	})
}

// TestModelErrors: what endpoints answer instead of a reply.
func TestModelErrors(t *testing.T) {
	executor := open(t, private(t))
	limited := &agent.ModelError{Kind: agent.KindRateLimited, Provider: "script", Status: 429, RetryAfter: 20 * time.Millisecond}
	cut := &agent.ModelError{Kind: agent.KindStreamCut, Provider: "script"}
	denied := &agent.ModelError{Kind: agent.KindUnauthorized, Provider: "script", Status: 401, Hint: "set the key"}

	t.Run("asked again", func(t *testing.T) {
		notices := 0
		m := script(limited, cut, "Here.")
		answer, err := ask(t, newAgent(t, m, executor, agent.WithRetry(agent.RetryOptions{Base: time.Millisecond})), "Go.", func(e agent.Event) {
			if e.Type == agent.EventNotice {
				notices++
			}
		})
		if err != nil || answer.Text != "Here." || notices != 2 {
			t.Fatalf("%+v, %v, %d notices", answer, err, notices)
		}
	})
	t.Run("not asked again", func(t *testing.T) {
		long := *limited
		long.RetryAfter = time.Hour
		for _, e := range []*agent.ModelError{denied, &long} {
			m := script(e, "Here.")
			_, err := ask(t, newAgent(t, m, executor), "Go.", nil)
			if agent.KindOf(err) != e.Kind || len(m.requests) != 1 {
				t.Errorf("%v after %d requests", err, len(m.requests))
			}
		}
	})
	t.Run("then the session goes on", func(t *testing.T) {
		m := script(denied, "Here.")
		s := newAgent(t, m, executor).Session("")
		if _, err := s.Ask(t.Context(), agent.Question{Text: "One."}, nil); err == nil {
			t.Fatal("no error")
		}
		if _, err := s.Ask(t.Context(), agent.Question{Text: "Two."}, nil); err != nil || len(m.requests[1].Messages) != 1 {
			t.Fatalf("%v, %+v", err, m.requests[1].Messages)
		}
	})
}

// TestExecutorThatCannot ends the work, with its reason.
func TestExecutorThatCannot(t *testing.T) {
	executor := open(t, private(t))
	if err := executor.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := ask(t, newAgent(t, script(python("1"), python("2"), "no"), executor), "Go.", nil)
	var e *cubby.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
}
