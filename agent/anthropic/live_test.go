package anthropic_test

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
)

// TestLive asks the real endpoint, where there is a key: text, and a tool that is
// called and answered.
func TestLive(t *testing.T) {
	if os.Getenv("ANTHROPIC_API_KEY") == "" {
		t.Skip("set ANTHROPIC_API_KEY to ask the real endpoint")
	}
	m := anthropic.New(anthropic.FromEnv(anthropic.Config{Model: cmp.Or(os.Getenv("MODEL"), "claude-haiku-4-5")}))
	streamed := ""
	reply, err := m.Generate(t.Context(), agent.Request{
		System: "You answer in one word.", Messages: []agent.Message{agent.UserText("What is the capital of France?")}, MaxTokens: 2000,
	}, func(d agent.Delta) { streamed += d.Text })
	if err != nil || !strings.Contains(reply.Message.Text(), "Paris") || streamed != reply.Message.Text() || reply.Usage.Output == 0 {
		t.Fatalf("%+v, %v; streamed %q", reply, err, streamed)
	}
	ask := agent.UserText("Compute 6*7 with the tool, then say the number.")
	req := agent.Request{Messages: []agent.Message{ask}, Tools: []agent.ToolSpec{agent.ExecutePythonSpec()}, MaxTokens: 4000}
	if reply, err = m.Generate(t.Context(), req, nil); err != nil || reply.Stop != agent.StopTools {
		t.Fatalf("%+v, %v", reply, err)
	}
	results := agent.Message{Role: agent.RoleUser}
	for _, part := range reply.Message.Parts {
		if c, ok := part.(agent.ToolCall); ok {
			results.Parts = append(results.Parts, agent.ToolResult{CallID: c.ID, Name: c.Name, Parts: []agent.Part{agent.Text{Text: "42"}}})
		}
	}
	req.Messages = append(req.Messages, reply.Message, results)
	if reply, err = m.Generate(t.Context(), req, nil); err != nil || !strings.Contains(reply.Message.Text(), "42") {
		t.Fatalf("%+v, %v", reply, err)
	}
}
