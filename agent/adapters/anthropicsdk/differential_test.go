package anthropicsdk_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/adapters/anthropicsdk"
	light "github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

func openLight(s *modelserver.Server, name, key string) agent.Model {
	return light.New(light.Config{Model: name, BaseURL: s.AnthropicURL(), APIKey: key})
}

// TestSame: with and without the SDK, models do the same.
func TestSame(t *testing.T) {
	modeltest.Same(t, openLight, func(s *modelserver.Server, name, key string) agent.Model {
		return anthropicsdk.New(newClient(s, key), anthropicsdk.Config{Model: name})
	})
}

// TestRepliesAsTheSDKReadsThem: of every reply package agent/anthropic makes what
// the SDK's own types and accumulator make of it.
func TestRepliesAsTheSDKReadsThem(t *testing.T) {
	stops := map[string]agent.StopReason{"end_turn": agent.StopEnd, "max_tokens": agent.StopLength, "tool_use": agent.StopTools, "refusal": agent.StopRefused}
	for name, reply := range modeltest.Replies(t) {
		s := modeltest.Serve(t, modelserver.Config{Reply: func(modelserver.Conversation) modelserver.Reply { return reply }})
		want, _, err := ask(t.Context(), newClient(s, "k"), true, anthropic.MessageNewParams{
			Model: "m", MaxTokens: 8192, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Go."))},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := modeltest.Ask(t.Context(), openLight(s, "m", "k"), modeltest.Question("Go."))
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		out := said{Stop: want.Stop, Usage: modelserver.Usage{Input: got.Reply.Usage.Input, Output: got.Reply.Usage.Output}}
		for _, part := range got.Reply.Message.Parts {
			switch p := part.(type) {
			case agent.Text:
				out.Text += p.Text
			case agent.Thinking:
				out.Thinking += p.Text
			case agent.ToolCall:
				out.Calls = append(out.Calls, modelserver.Call{ID: p.ID, Name: p.Name, Arguments: string(p.Arguments)})
			}
		}
		if !reflect.DeepEqual(out, want) || got.Reply.Stop != stops[want.Stop] {
			t.Errorf("%s:\ngot  %+v, %s\nwant %+v", name, out, got.Reply.Stop, want)
		}
	}
}

// TestRequestsAsTheSDKReadsThem: a request that went through the SDK's own types
// is the same, so that there is nothing in it that they do not know.
func TestRequestsAsTheSDKReadsThem(t *testing.T) {
	s := modeltest.Serve(t, modelserver.Config{Script: modelserver.Say("x")})
	thoughts := []agent.Part{
		agent.Thinking{Opaque: json.RawMessage(`{"thinking":"hm","signature":"s"}`)}, agent.Thinking{Opaque: json.RawMessage(`{"signature":"s"}`)},
		agent.Thinking{Opaque: json.RawMessage(`{"redacted":"r"}`)},
	}
	modeltest.Ask(t.Context(), openLight(s, "m", "k"), modeltest.Conversation(thoughts...))
	body := s.Requests()[0].Body
	var params anthropic.MessageNewParams
	if err := json.Unmarshal(body, &params); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(again, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &want); err != nil {
		t.Fatal(err)
	}
	delete(want, "stream") // which the SDK adds
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %s\nwant %s", again, body)
	}
}
