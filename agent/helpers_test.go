//go:build linux

package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("CUBBY_PYTHON", "/usr/bin/python3")
	os.Exit(m.Run())
}

// private is a Cubby of a test's own.
func private(t *testing.T) *cubby.Client {
	t.Helper()
	testenv.CheckLeaks(t)
	c, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t), Python: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c.Client
}

func open(t *testing.T, c *cubby.Client) *e2b.CodeExecutor {
	t.Helper()
	return openAs(t, e2b.Config{Client: c})
}

func openAs(t *testing.T, cfg e2b.Config) *e2b.CodeExecutor {
	t.Helper()
	e, err := sandbox.New(t.Context(), sandbox.Config{Executor: cfg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// scripted is a model that replies by a script: a string is a text, a func is
// asked, an agent.ToolCall calls, an error fails.
type scripted struct {
	info    agent.ModelInfo
	replies []any

	mu       sync.Mutex
	requests []agent.Request
}

func script(replies ...any) *scripted {
	return &scripted{info: agent.ModelInfo{Provider: "script", Name: "scripted", Tools: true, Images: true}, replies: replies}
}

func (m *scripted) Info() agent.ModelInfo { return m.info }

func (m *scripted) Generate(ctx context.Context, req agent.Request, stream func(agent.Delta)) (*agent.Reply, error) {
	m.mu.Lock()
	n := len(m.requests)
	m.requests = append(m.requests, req)
	m.mu.Unlock()
	if n >= len(m.replies) {
		return nil, fmt.Errorf("the script has %d replies", len(m.replies))
	}
	reply := &agent.Reply{Message: agent.Message{Role: agent.RoleAssistant}, Stop: agent.StopEnd, Usage: agent.Usage{Input: 100, Output: 10}}
	say := func(text string) {
		stream(agent.Delta{Text: text})
		reply.Message.Parts = append(reply.Message.Parts, agent.Text{Text: text})
	}
	next := m.replies[n]
	if f, ok := next.(func(agent.Request) any); ok {
		next = f(req)
	}
	switch next := next.(type) {
	case string:
		say(next)
	case agent.ToolCall:
		reply.Message.Parts, reply.Stop = append(reply.Message.Parts, next), agent.StopTools
	case agent.Reply:
		*reply = next
	case error:
		return nil, next
	case nil:
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		panic(fmt.Sprintf("a reply of type %T", next))
	}
	return reply, nil
}

// lastRead is what the model read last: texts and results of tools.
func (m *scripted) lastRead() string { return read(m.requests[len(m.requests)-1]) }

func read(req agent.Request) string { return textOf(req.Messages[len(req.Messages)-1].Parts) }

func textOf(parts []agent.Part) string {
	s := ""
	for _, p := range parts {
		switch p := p.(type) {
		case agent.Text:
			s += p.Text + "\n"
		case agent.Image:
			s += "<image " + p.Name + " " + p.MIMEType + ">\n"
		case agent.ToolResult:
			s += textOf(p.Parts)
		}
	}
	return s
}

func call(name string, args any) agent.ToolCall {
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return agent.ToolCall{ID: "call_" + name, Name: name, Arguments: text}
}

func python(code string) string { return "```python\n" + code + "\n```" }

// newAgent makes an agent that does not look into the sandbox first: environment_test.go
// is about that.
func newAgent(t *testing.T, m agent.Model, e *e2b.CodeExecutor, opts ...agent.Option) *agent.Agent {
	t.Helper()
	a, err := agent.New(m, e, append([]agent.Option{agent.WithEnvironment("")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask asks in a session of its own.
func ask(t *testing.T, a *agent.Agent, question string, events func(agent.Event)) (*agent.Answer, error) {
	t.Helper()
	s := a.Session("")
	defer s.Close()
	return s.Ask(t.Context(), agent.Question{Text: question}, events)
}
