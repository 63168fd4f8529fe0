//go:build linux

package agent_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/openai"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// overTheWire serves a script and returns both models that speak to it.
func overTheWire(t *testing.T, cfg modelserver.Config) map[string]agent.Model {
	t.Helper()
	srv, err := modelserver.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return map[string]agent.Model{
		"openai":    openai.New(openai.Config{Model: "scripted", BaseURL: srv.OpenAIURL(), APIKey: "any"}),
		"anthropic": anthropic.New(anthropic.Config{Model: "scripted", BaseURL: srv.AnthropicURL(), APIKey: "any"}),
	}
}

// TestOverTheWire: whole questions over both providers' protocols.
func TestOverTheWire(t *testing.T) {
	executor := open(t, private(t))

	blocks := &modelserver.Script{Steps: []modelserver.Step{
		{Expect: []string{"Draw"}, Reply: modelserver.Reply{Thinking: "A line will do.", Text: python("import matplotlib.pyplot as plt\nplt.plot(data)")}},
		{Expect: []string{"NameError", "tool_output"}, Reply: modelserver.Reply{Text: python("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint('drawn')")}},
		{Expect: []string{"drawn", "[Generated image:"}, Images: 1, Reply: modelserver.Reply{Text: "Drawn."}},
	}}
	for name, m := range overTheWire(t, modelserver.Config{Script: blocks}) {
		t.Run(name+"/blocks", func(t *testing.T) {
			thought := ""
			answer, err := ask(t, newAgent(t, m, executor), "Draw a line.", func(e agent.Event) {
				if e.Type == agent.EventThinking {
					thought += e.Text
				}
			})
			if err != nil || answer.Text != "Drawn." || len(answer.Files) != 1 || answer.Usage.Input == 0 {
				t.Fatalf("%+v, %v", answer, err)
			}
			if thought != "A line will do." {
				t.Errorf("thought: %q", thought)
			}
		})
	}

	code := func(text string) []modelserver.Call {
		return []modelserver.Call{{Name: "execute_python", Arguments: map[string]any{"code": text}}}
	}
	tools := &modelserver.Script{Steps: []modelserver.Step{
		{Reply: modelserver.Reply{Text: "I compute.", Calls: append(code("x = 6"), modelserver.Call{
			Name: "execute_code", Arguments: map[string]any{"code_blocks": []any{map[string]any{"language": "python", "code": "print(x * 7)"}}}})}},
		{Expect: []string{"42"}, Reply: modelserver.Reply{Calls: code("import matplotlib.pyplot as plt\nplt.plot([x])\nplt.show()")}},
		{Images: 1, Reply: modelserver.Reply{Text: "42"}},
		{Expect: []string{"once more"}, Reply: modelserver.Reply{Text: "Still 42."}},
	}}
	for name, m := range overTheWire(t, modelserver.Config{Script: tools}) {
		t.Run(name+"/tools", func(t *testing.T) {
			s := newAgent(t, m, executor, agent.WithMode(agent.ModeTools)).Session("")
			defer s.Close()
			answer, err := s.Ask(t.Context(), agent.Question{Text: "6 * 7?"}, nil)
			if err != nil || answer.Text != "42" || answer.Runs != 3 {
				t.Fatalf("%+v, %v", answer, err)
			}
			if answer, err = s.Ask(t.Context(), agent.Question{Text: "And once more?"}, nil); err != nil || answer.Text != "Still 42." {
				t.Fatalf("%+v, %v", answer, err)
			}
		})
	}
}

// TestEndpoints: what goes wrong between here and a model.
func TestEndpoints(t *testing.T) {
	executor := open(t, private(t))
	at := func(n int) *int { return &n }
	says := func(f modelserver.Fault) *modelserver.Script {
		return &modelserver.Script{Steps: []modelserver.Step{{Reply: modelserver.Reply{Text: "Here is the answer, in some words.", Fault: &f}}}}
	}
	quick := agent.WithRetry(agent.RetryOptions{Base: time.Millisecond, MaxWait: time.Second})
	for _, test := range []struct {
		name  string
		fault modelserver.Fault
		kind  agent.ModelErrorKind // "": it answers in the end
	}{
		{"401", modelserver.Fault{Status: 401}, agent.KindUnauthorized},
		{"429, then an answer", modelserver.Fault{Status: 429, RetryAfterMS: 20, Times: 2}, ""},
		{"429, and a long wait", modelserver.Fault{Status: 429, RetryAfter: "3600"}, agent.KindRateLimited},
		{"overloaded", modelserver.Fault{Status: 503}, agent.KindOverloaded},
		{"too long", modelserver.Fault{ContextTooLong: true}, agent.KindContextTooLong},
		{"a stream cut in the middle, once", modelserver.Fault{CutAfter: at(300), Times: 1}, ""},
		{"a stream always cut", modelserver.Fault{CutAfter: at(300)}, agent.KindStreamCut},
		{"a stream that ends too early", modelserver.Fault{EndAfter: at(300)}, agent.KindStreamCut},
		{"a web page", modelserver.Fault{Body: "<html>Sign in</html>"}, agent.KindInvalidResponse},
	} {
		for name, m := range overTheWire(t, modelserver.Config{Script: says(test.fault)}) {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				answer, err := ask(t, newAgent(t, m, executor, quick), "Go.", nil)
				if agent.KindOf(err) != test.kind || test.kind == "" && (err != nil || !strings.HasPrefix(answer.Text, "Here is")) {
					t.Fatalf("%+v, %v", answer, err)
				}
			})
		}
	}
	t.Run("nobody there", func(t *testing.T) {
		m := openai.New(openai.Config{Model: "x", BaseURL: "http://127.0.0.1:1/v1"})
		_, err := ask(t, newAgent(t, m, executor, quick), "Go.", nil)
		var e *agent.ModelError
		if !errors.As(err, &e) || e.Kind != agent.KindUnreachable || e.Hint == "" {
			t.Fatal(err)
		}
	})
	for name, m := range overTheWire(t, modelserver.Config{Script: says(modelserver.Fault{Hang: true})}) {
		t.Run("one that never answers/"+name, func(t *testing.T) {
			answer, err := ask(t, newAgent(t, m, executor, agent.WithLimits(agent.Limits{Time: 300 * time.Millisecond})), "Go.", nil)
			var bound *agent.LimitError
			if !errors.As(err, &bound) || bound.Bound != agent.BoundTime {
				t.Fatalf("%+v, %v", answer, err)
			}
		})
	}
}
