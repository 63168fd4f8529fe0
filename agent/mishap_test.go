//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/toolbox"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
)

func cutOff(parts ...agent.Part) agent.Reply {
	return agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Parts: parts},
		Stop: agent.StopLength, Usage: agent.Usage{Input: 1, Output: 1}}
}

// TestMishaps: what a session gets over.
func TestMishaps(t *testing.T) {
	client := private(t)
	executor := open(t, client)
	data := []codeexec.File{{Name: "data.txt", Content: []byte("original")}}

	t.Run("a kernel that dies leaves files as they are", func(t *testing.T) {
		m := script(python("open('data.txt','w').write('changed')"), python("import os; os._exit(3)"), python("print(open('data.txt').read())"),
			python("print(open('data.txt').read())"), "ok")
		answer, err := newAgent(t, m, executor).Session("").Ask(t.Context(), agent.Question{Text: "Go.", Files: data}, nil)
		if err != nil || !strings.Contains(m.lastRead(), "changed") {
			t.Fatalf("%+v, %v: %q", answer, err, m.lastRead())
		}
	})

	t.Run("a sandbox that ended between two questions", func(t *testing.T) {
		own := open(t, client)
		checker, err := validate.New(own, validate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := script(python("print(1)"), "one", python("print(open('data.txt').read())"), python("print(open('data.txt').read())"), "ok")
		s := newAgent(t, m, own, agent.WithValidator(checker)).Session("")
		if _, err := s.Ask(t.Context(), agent.Question{Text: "Go.", Files: data}, nil); err != nil {
			t.Fatal(err)
		}
		sbx, err := client.Connect(t.Context(), own.SandboxID())
		if err == nil {
			err = sbx.Kill(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ask(t.Context(), agent.Question{Text: "And now?"}, nil); err != nil || !strings.Contains(m.lastRead(), "original") {
			t.Fatalf("%v: %q", err, m.lastRead())
		}
	})

	t.Run("a bad file name is that question's error only", func(t *testing.T) {
		s := newAgent(t, script("fine"), executor).Session("")
		for _, name := range []string{"../x", "/etc/x", "", "a\x00b"} {
			if _, err := s.Ask(t.Context(), agent.Question{Text: "Go.", Files: []codeexec.File{{Name: name}}}, nil); err == nil {
				t.Errorf("%q was taken", name)
			}
		}
		if _, err := s.Ask(t.Context(), agent.Question{Text: "Go."}, nil); err != nil {
			t.Error(err)
		}
	})

	t.Run("code that no executor takes", func(t *testing.T) {
		m := script(python("print('a\x00b')"), python("print('a\xffb')"), "ok")
		if _, err := ask(t, newAgent(t, m, executor), "Go.", nil); err != nil || !strings.Contains(m.lastRead(), "NUL") {
			t.Fatalf("%v: %q", err, m.lastRead())
		}
	})

	t.Run("nothing of a reply that was cut off or refused runs", func(t *testing.T) {
		called := false
		tool, err := agent.NewTool("fire", "", func(context.Context, struct{}) (string, error) { called = true; return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		m := script(cutOff(agent.ToolCall{ID: "1", Name: "fire", Arguments: json.RawMessage("{}")}), cutOff(agent.Text{Text: python("open('ran','w')")}), "ok")
		answer, err := ask(t, newAgent(t, m, executor, agent.WithTools(tool)), "Go.", nil)
		if err != nil || called || answer.Runs != 0 {
			t.Fatalf("%+v, %v, called: %v", answer, err, called)
		}
		refused := cutOff(agent.Text{Text: python("print(1)")})
		refused.Stop = agent.StopRefused
		if answer, err = ask(t, newAgent(t, script(refused), executor), "Go.", nil); err == nil || answer.Runs != 0 {
			t.Fatalf("%+v, %v", answer, err)
		}
	})

	t.Run("a reply that begins with output it invents", func(t *testing.T) {
		m := script("```tool_output\n41\n```\nSo:\n"+python("print(42)"), python("print(42)"), "42")
		answer, err := ask(t, newAgent(t, m, executor), "Go.", nil)
		if err != nil || answer.Text != "42" || answer.Runs != 1 || !strings.Contains(read(m.requests[1]), "Nothing was run") {
			t.Fatalf("%+v, %v", answer, err)
		}
	})

	t.Run("a tool that does not heed its context, and a late reply", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		tool, err := agent.NewTool("stuck", "", func(context.Context, struct{}) (string, error) { <-release; return "", nil })
		if err != nil {
			t.Fatal(err)
		}
		late := func(agent.Request) any { time.Sleep(600 * time.Millisecond); return "late" }
		for _, reply := range []any{call("stuck", struct{}{}), late} {
			a := newAgent(t, script(reply), executor, agent.WithTools(tool), agent.WithLimits(agent.Limits{Time: 300 * time.Millisecond}))
			answer, err := ask(t, a, "Go.", nil)
			var bound *agent.LimitError
			if !errors.As(err, &bound) || bound.Bound != agent.BoundTime || answer.Text == "late" {
				t.Errorf("%+v, %v", answer, err)
			}
		}
	})

	t.Run("pictures of a question do not pile up", func(t *testing.T) {
		figure := python("import matplotlib.pyplot as plt\nfor i in range(4):\n    plt.figure(); plt.plot([i]); plt.show()")
		m := script(figure, figure, figure, "ok")
		if _, err := ask(t, newAgent(t, m, executor), "Draw.", nil); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, message := range m.requests[3].Messages {
			n += strings.Count(textOf(message.Parts), "<image ")
		}
		if n != 8 {
			t.Errorf("%d pictures in the last request", n)
		}
	})
}

// TestReview: what a policy wants a person to look at runs only when one said yes.
func TestReview(t *testing.T) {
	executor := open(t, private(t))
	policy, err := validate.ParsePolicy([]byte("version: 1\nname: all\ndefault: review\n"))
	if err != nil {
		t.Fatal(err)
	}
	checker, err := validate.New(executor, validate.Options{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	code := python("import os\nprint(os.getcwd())")
	for _, test := range []struct {
		name    string
		approve agent.Approver
		runs    int
	}{
		{"nobody there", nil, 0},
		{"no", func(context.Context, agent.ApprovalRequest) (agent.Approval, error) { return agent.Approval{}, nil }, 0},
		{"yes", func(_ context.Context, r agent.ApprovalRequest) (agent.Approval, error) {
			return agent.Approval{Approved: r.Required && len(r.Report.Findings) > 0}, nil
		}, 1},
	} {
		opts := []agent.Option{agent.WithValidator(checker)}
		if test.approve != nil {
			opts = append(opts, agent.WithApproval(test.approve))
		}
		if answer, err := ask(t, newAgent(t, script(code, "ok"), executor, opts...), "Go.", nil); err != nil || answer.Runs != test.runs {
			t.Errorf("%s: %+v, %v", test.name, answer, err)
		}
	}
}

// TestKeptTools pass the same gate as a reply's code, see the question's files,
// and give theirs back, in another session, too.
func TestKeptTools(t *testing.T) {
	executor := open(t, private(t))
	box, err := toolbox.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source := "def shout(name):\n    text = open(name).read().upper()\n    open('shouted.txt', 'w').write(text)\n    return text\n"
	keep := call("keep_tool", map[string]any{
		"name": "shout", "description": "A file in capitals", "language": "python", "function": "shout", "code": source,
		"schema":  map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}, "required": []string{"name"}},
		"example": map[string]any{"name": "data.txt"},
	})
	files := []codeexec.File{{Name: "data.txt", Content: []byte("hello")}}
	var asked []agent.ApprovalRequest
	approver := func(_ context.Context, r agent.ApprovalRequest) (agent.Approval, error) {
		asked = append(asked, r)
		return agent.Approval{Approved: true}, nil
	}
	var audit bytes.Buffer
	m := script(keep, "kept", call("shout", map[string]string{"name": "data.txt"}), "HELLO")
	a := newAgent(t, m, executor, agent.WithToolbox(box), agent.WithApproval(approver),
		agent.WithAudit(agent.NewAudit(&audit, agent.AuditCode())))
	for _, want := range []string{"kept", "HELLO"} { // two sessions
		answer, err := a.Session("").Ask(t.Context(), agent.Question{Text: "Go.", Files: files}, nil)
		if err != nil || answer.Text != want {
			t.Fatalf("%+v, %v; it read %q", answer, err, m.lastRead())
		}
		if want == "HELLO" && (len(answer.Files) != 1 || answer.Files[0].Name != "shouted.txt" || string(answer.Files[0].Content) != "HELLO") {
			t.Errorf("files: %+v", answer.Files)
		}
	}
	if !strings.Contains(m.lastRead(), "HELLO") {
		t.Errorf("the model read %q", m.lastRead())
	}
	if len(asked) != 2 || asked[1].Tool != "shout" || !strings.Contains(asked[1].Code, "upper") || !strings.Contains(string(asked[1].Arguments), "data.txt") {
		t.Errorf("asked: %+v", asked)
	}
	if n := strings.Count(audit.String(), `"kind":"tool"`); n != 2 || !strings.Contains(audit.String(), `"arguments_sha256"`) {
		t.Errorf("audit: %s", audit.String())
	}
	var last agent.AuditRecord // of the call
	lines := strings.Split(strings.TrimSpace(audit.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Code != asked[1].Code || last.Arguments != `{"name":"data.txt"}` {
		t.Errorf("with AuditCode: %+v, %v", last, err)
	}
}
