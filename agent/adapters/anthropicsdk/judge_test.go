package anthropicsdk_test

import (
	"bytes"
	"context"
	"reflect"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// The SDK judges the test server of package modelserver: what the SDK refuses or
// misreads is no reply that the provider would send.

func newClient(s *modelserver.Server, key string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(s.AnthropicURL()), option.WithAPIKey(key))
}

// said is what an SDK made of a reply.
type said struct {
	Text, Thinking string
	Calls          []modelserver.Call
	Stop           string
	Usage          modelserver.Usage
}

func ask(ctx context.Context, client anthropic.Client, stream bool,
	params anthropic.MessageNewParams) (said, anthropic.MessageParam, error) {
	message := &anthropic.Message{}
	if stream {
		events := client.Messages.NewStreaming(ctx, params)
		for events.Next() {
			if err := message.Accumulate(events.Current()); err != nil {
				return said{}, anthropic.MessageParam{}, err
			}
		}
		if err := events.Err(); err != nil {
			return said{}, anthropic.MessageParam{}, err
		}
	} else {
		var err error
		if message, err = client.Messages.New(ctx, params); err != nil {
			return said{}, anthropic.MessageParam{}, err
		}
	}
	out := said{Stop: string(message.StopReason),
		Usage: modelserver.Usage{Input: int(message.Usage.InputTokens), Output: int(message.Usage.OutputTokens)}}
	for _, b := range message.Content {
		switch b := b.AsAny().(type) {
		case anthropic.TextBlock:
			out.Text += b.Text
		case anthropic.ThinkingBlock:
			out.Thinking += b.Thinking
		case anthropic.ToolUseBlock:
			out.Calls = append(out.Calls, modelserver.Call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		}
	}
	return out, message.ToParam(), nil
}

func TestModelServer(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := modeltest.Serve(t, modelserver.Config{Script: modeltest.TwoTurns()})
		client := newClient(s, "k")
		params := anthropic.MessageNewParams{
			Model: "scripted", MaxTokens: 4096,
			System:   []anthropic.TextBlockParam{{Text: "Be brief."}},
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("How much is it?"))},
			Tools:    []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{}}, "add")},
			Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
		}
		got, param, err := ask(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		want := said{Text: "Let me see: äöü 🎉.", Thinking: "Two sums, I think.", Stop: "tool_use", Usage: modelserver.Usage{Input: 11, Output: 22}, Calls: []modelserver.Call{
			{ID: "toolu_scripted00101", Name: "add", Arguments: `{"a":1,"b":[2,3]}`}, {ID: "second", Name: "now", Arguments: "{}"},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		picture := anthropic.ToolResultBlockParam{ToolUseID: "second", Content: []anthropic.ToolResultBlockParamContentUnion{
			{OfText: &anthropic.TextBlockParam{Text: "noon"}},
			{OfImage: &anthropic.ImageBlockParam{Source: anthropic.ImageBlockParamSourceUnion{
				OfBase64: &anthropic.Base64ImageSourceParam{Data: modeltest.Pixel64, MediaType: "image/png"},
			}}},
		}}
		params.Messages = append(params.Messages, param, anthropic.NewUserMessage(
			anthropic.NewToolResultBlock("toolu_scripted00101", "six", false),
			anthropic.ContentBlockParamUnion{OfToolResult: &picture}))
		got, _, err = ask(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		if want := (said{Text: "Six, at noon.", Stop: "end_turn", Usage: modelserver.Usage{Input: 33, Output: 44}}); !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		c := s.Requests()[1].Conversation
		if c.Messages[1].Thinking != "Two sums, I think." || !bytes.Equal(c.Images()[0].Data, modeltest.Pixel()) || c.Messages[2].Results[1].Text != "noon" {
			t.Errorf("read %+v", c)
		}
	}
}
