package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// Replies are the replies of all scripts that package modelserver comes with, by a
// name, and some of kinds that they do not have.
func Replies(t *testing.T) map[string]modelserver.Reply {
	t.Helper()
	scripts := []*modelserver.Script{TwoTurns()}
	for _, name := range modelserver.Scripts() {
		s, err := modelserver.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, s)
	}
	replies := map[string]modelserver.Reply{
		"length":  {Text: "x", Stop: "length"},
		"refused": {Text: "x", Stop: "refused"},
		"nothing": {Stop: "end"},
	}
	for _, s := range scripts {
		for i, step := range s.Steps {
			reply := step.Reply
			reply.Fault = nil
			replies[fmt.Sprintf("%s, step %d", s.Name, i+1)] = reply
		}
	}
	return replies
}

// Conversation is a request with all kinds of parts. Thinking is whatever a model
// thought before.
func Conversation(thinking ...agent.Part) agent.Request {
	temperature := 0.5
	text := func(s string) agent.Part { return agent.Text{Text: s} }
	img := agent.Image{Name: "p.png", Data: Pixel()}
	return agent.Request{
		System: "Be brief.", MaxTokens: 100, Temperature: &temperature,
		Tools: []agent.ToolSpec{{Name: "f", Description: "does <it>", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`)}, {Name: "g"}},
		Messages: []agent.Message{
			{Role: agent.RoleUser, Parts: []agent.Part{text("hi"), img}},
			{Role: agent.RoleAssistant, Parts: append(thinking, text("so"), agent.ToolCall{ID: "c1", Name: "f", Arguments: json.RawMessage(`{"a":"b"}`)},
				agent.ToolCall{ID: "c2", Name: "g", Arguments: json.RawMessage(`{"cut`)})},
			{Role: agent.RoleUser, Parts: []agent.Part{text("and?"), agent.ToolResult{CallID: "c1", Name: "f", Parts: []agent.Part{text("1"), img}},
				agent.ToolResult{CallID: "c2", Name: "g", IsError: true, Parts: []agent.Part{text("2")}}}},
			{Role: agent.RoleAssistant, Parts: []agent.Part{text("ok")}},
			agent.UserText("and this?"),
		},
	}
}

// Same compares two implementations: of every reply and every fault they must make
// the same, piece by piece, hints aside; and they must ask with the same JSON.
func Same(t *testing.T, one, other Open) {
	compare := func(name string, s *modelserver.Server, req agent.Request) {
		a, b := Ask(t.Context(), one(s, "scripted", "k"), req), Ask(t.Context(), other(s, "scripted", "k"), req)
		if a.String() != b.String() || !reflect.DeepEqual(a.Deltas, b.Deltas) || !reflect.DeepEqual(plain(a.Err), plain(b.Err)) {
			t.Errorf("%s:\n%v %+v\n%v %+v", name, a, plain(a.Err), b, plain(b.Err))
		}
		if asked := s.Requests(); len(asked) != 2 {
			t.Errorf("%s: %d requests", name, len(asked))
		} else if !sameJSON(asked[0].Body, asked[1].Body) {
			t.Errorf("%s: asked with\n%.2000s\n%.2000s", name, asked[0].Body, asked[1].Body)
		}
	}
	for name, reply := range Replies(t) {
		for _, size := range []int{1, 12, 1 << 20} {
			s := Serve(t, modelserver.Config{Piece: size, Reply: func(modelserver.Conversation) modelserver.Reply { return reply }})
			compare(fmt.Sprintf("%s, in pieces of %d", name, size), s, Conversation())
		}
	}
	for _, f := range Faults() {
		compare(f.Name, ServeFault(t, f), Question("Go."))
	}
}

// plain is an error of a model without what depends on how it is configured.
func plain(err error) agent.ModelError {
	var e *agent.ModelError
	if !errors.As(err, &e) {
		return agent.ModelError{}
	}
	out := *e
	out.Hint, out.Err = "", nil
	return out
}

// sameJSON compares requests. The bound of tokens has two names.
func sameJSON(a, b []byte) bool {
	var v, w map[string]any
	if json.Unmarshal(a, &v) != nil || json.Unmarshal(b, &w) != nil {
		return false
	}
	for _, m := range []map[string]any{v, w} {
		if n, ok := m["max_completion_tokens"]; ok {
			delete(m, "max_completion_tokens")
			m["max_tokens"] = n
		}
	}
	return reflect.DeepEqual(v, w)
}
