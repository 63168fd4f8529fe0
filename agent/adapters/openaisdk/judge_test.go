package openaisdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/cubby-sandbox/cubby/agent/internal/modeltest"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// The SDK judges the test server of package modelserver: what the SDK refuses or
// misreads is no reply that the provider would send.

func newClient(s *modelserver.Server, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.OpenAIURL()), option.WithAPIKey(key))
}

// said is what an SDK made of a reply.
type said struct {
	Text, Thinking string
	Calls          []modelserver.Call
	Stop           string
	Usage          modelserver.Usage
}

func ask(ctx context.Context, client openai.Client, stream bool,
	params openai.ChatCompletionNewParams) (said, openai.ChatCompletionMessageParamUnion, error) {
	var completion *openai.ChatCompletion
	thinking := ""
	if stream {
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		events := client.Chat.Completions.NewStreaming(ctx, params)
		var acc openai.ChatCompletionAccumulator
		for events.Next() {
			if !acc.AddChunk(events.Current()) {
				return said{}, openai.ChatCompletionMessageParamUnion{}, errors.New("the accumulator refuses a chunk")
			}
			for _, c := range events.Current().Choices {
				thinking += extra(c.Delta.JSON.ExtraFields["reasoning_content"].Raw())
			}
		}
		if err := events.Err(); err != nil {
			return said{}, openai.ChatCompletionMessageParamUnion{}, err
		}
		completion = &acc.ChatCompletion
	} else {
		var err error
		if completion, err = client.Chat.Completions.New(ctx, params); err != nil {
			return said{}, openai.ChatCompletionMessageParamUnion{}, err
		}
		thinking = extra(completion.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw())
	}
	if len(completion.Choices) != 1 {
		return said{}, openai.ChatCompletionMessageParamUnion{}, errors.New("not one choice")
	}
	c := completion.Choices[0]
	out := said{Text: c.Message.Content, Thinking: thinking, Stop: c.FinishReason,
		Usage: modelserver.Usage{Input: int(completion.Usage.PromptTokens), Output: int(completion.Usage.CompletionTokens)}}
	for _, call := range c.Message.ToolCalls {
		out.Calls = append(out.Calls, modelserver.Call{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
	}
	return out, c.Message.ToParam(), nil
}

func extra(raw string) string {
	var s string
	_ = json.Unmarshal([]byte(raw), &s) // it may be missing
	return s
}

func TestModelServer(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := modeltest.Serve(t, modelserver.Config{Script: modeltest.TwoTurns()})
		client := newClient(s, "k")
		params := openai.ChatCompletionNewParams{
			Model: "scripted",
			Messages: []openai.ChatCompletionMessageParamUnion{
				openai.SystemMessage("Be brief."),
				openai.UserMessage("How much is it?"),
			},
			Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
				Name: "add", Parameters: openai.FunctionParameters{"type": "object"},
			})},
		}
		got, param, err := ask(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		want := said{Text: "Let me see: äöü 🎉.", Thinking: "Two sums, I think.", Stop: "tool_calls", Usage: modelserver.Usage{Input: 11, Output: 22}, Calls: []modelserver.Call{
			{ID: "call_scripted00101", Name: "add", Arguments: `{"a":1,"b":[2,3]}`}, {ID: "second", Name: "now", Arguments: "{}"},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		params.Messages = append(params.Messages, param,
			openai.ToolMessage("six", "call_scripted00101"), openai.ToolMessage("noon", "second"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("The picture:"),
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64," + modeltest.Pixel64}),
			}))
		got, _, err = ask(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		if want := (said{Text: "Six, at noon.", Stop: "stop", Usage: modelserver.Usage{Input: 33, Output: 44}}); !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		requests := s.Requests()
		if len(requests) != 2 || requests[1].Status != 200 || requests[1].Conversation.Turn() != 2 || requests[1].Conversation.System != "Be brief." {
			t.Errorf("recorded %+v", requests)
		}
	}
}
