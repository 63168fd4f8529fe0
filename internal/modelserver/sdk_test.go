package modelserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// start serves a script until the test ends.
func start(t *testing.T, config Config) *Server {
	t.Helper()
	s, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openAIClient(s *Server) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.OpenAIURL()), option.WithAPIKey("k"), option.WithMaxRetries(0))
}

func anthropicClient(s *Server) anthropicsdk.Client {
	return anthropicsdk.NewClient(anthropicoption.WithBaseURL(s.AnthropicURL()), anthropicoption.WithAPIKey("k"), anthropicoption.WithMaxRetries(0))
}

// said is what an SDK made of a reply.
type said struct {
	Text, Thinking string
	Calls          []Call
	Stop           string
	Usage          Usage
}

func askOpenAI(ctx context.Context, client openai.Client, stream bool, params openai.ChatCompletionNewParams) (said, openai.ChatCompletionMessageParamUnion, error) {
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
		Usage: Usage{int(completion.Usage.PromptTokens), int(completion.Usage.CompletionTokens)}}
	for _, call := range c.Message.ToolCalls {
		out.Calls = append(out.Calls, Call{call.ID, call.Function.Name, call.Function.Arguments})
	}
	return out, c.Message.ToParam(), nil
}

func extra(raw string) string {
	var s string
	_ = json.Unmarshal([]byte(raw), &s) // it may be missing
	return s
}

func askAnthropic(ctx context.Context, client anthropicsdk.Client, stream bool, params anthropicsdk.MessageNewParams) (said, anthropicsdk.MessageParam, error) {
	message := &anthropicsdk.Message{}
	if stream {
		events := client.Messages.NewStreaming(ctx, params)
		for events.Next() {
			if err := message.Accumulate(events.Current()); err != nil {
				return said{}, anthropicsdk.MessageParam{}, err
			}
		}
		if err := events.Err(); err != nil {
			return said{}, anthropicsdk.MessageParam{}, err
		}
	} else {
		var err error
		if message, err = client.Messages.New(ctx, params); err != nil {
			return said{}, anthropicsdk.MessageParam{}, err
		}
	}
	out := said{Stop: string(message.StopReason), Usage: Usage{int(message.Usage.InputTokens), int(message.Usage.OutputTokens)}}
	for _, b := range message.Content {
		switch b := b.AsAny().(type) {
		case anthropicsdk.TextBlock:
			out.Text += b.Text
		case anthropicsdk.ThinkingBlock:
			out.Thinking += b.Thinking
		case anthropicsdk.ToolUseBlock:
			out.Calls = append(out.Calls, Call{b.ID, b.Name, string(b.Input)})
		}
	}
	return out, message.ToParam(), nil
}

// pixel is a PNG of one.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// twoTurns thinks, writes and calls two tools, and answers what they said.
func twoTurns() *Script {
	return &Script{Name: "two turns", Steps: []Step{
		{Expect: []string{"How much"}, ExpectSystem: []string{"/^Be .+\\.$/"}, Reply: Reply{
			Thinking: "Two sums, I think.", Text: "Let me see: äöü 🎉.", Usage: Usage{11, 22},
			Calls: []Call{
				{Name: "add", Arguments: map[string]any{"a": 1, "b": []int{2, 3}}},
				{ID: "second", Name: "now"},
			}}},
		{Expect: []string{"six", "/(?s)six.*noon/"}, Images: 1, Reply: Reply{Text: "Six, at noon.", Usage: Usage{33, 44}}},
	}}
}

func TestOpenAISDK(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := start(t, Config{Script: twoTurns()})
		client := openAIClient(s)
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
		got, param, err := askOpenAI(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		want := said{Text: "Let me see: äöü 🎉.", Thinking: "Two sums, I think.", Stop: "tool_calls", Usage: Usage{11, 22}, Calls: []Call{
			{"call_scripted00101", "add", `{"a":1,"b":[2,3]}`}, {"second", "now", "{}"},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		params.Messages = append(params.Messages, param,
			openai.ToolMessage("six", "call_scripted00101"), openai.ToolMessage("noon", "second"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("The picture:"),
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64," + pixel}),
			}))
		got, _, err = askOpenAI(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		if want := (said{Text: "Six, at noon.", Stop: "stop", Usage: Usage{33, 44}}); !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		requests := s.Requests()
		if len(requests) != 2 || requests[1].Status != 200 || requests[1].Conversation.Turn() != 2 || requests[1].Conversation.System != "Be brief." {
			t.Errorf("recorded %+v", requests)
		}
	}
}

func TestAnthropicSDK(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := start(t, Config{Script: twoTurns()})
		client := anthropicClient(s)
		params := anthropicsdk.MessageNewParams{
			Model: "scripted", MaxTokens: 4096,
			System:   []anthropicsdk.TextBlockParam{{Text: "Be brief."}},
			Messages: []anthropicsdk.MessageParam{anthropicsdk.NewUserMessage(anthropicsdk.NewTextBlock("How much is it?"))},
			Tools:    []anthropicsdk.ToolUnionParam{anthropicsdk.ToolUnionParamOfTool(anthropicsdk.ToolInputSchemaParam{Properties: map[string]any{}}, "add")},
			Thinking: anthropicsdk.ThinkingConfigParamOfEnabled(1024),
		}
		got, param, err := askAnthropic(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		want := said{Text: "Let me see: äöü 🎉.", Thinking: "Two sums, I think.", Stop: "tool_use", Usage: Usage{11, 22}, Calls: []Call{
			{"toolu_scripted00101", "add", `{"a":1,"b":[2,3]}`}, {"second", "now", "{}"},
		}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		picture := anthropicsdk.ToolResultBlockParam{ToolUseID: "second", Content: []anthropicsdk.ToolResultBlockParamContentUnion{
			{OfText: &anthropicsdk.TextBlockParam{Text: "noon"}},
			{OfImage: &anthropicsdk.ImageBlockParam{Source: anthropicsdk.ImageBlockParamSourceUnion{
				OfBase64: &anthropicsdk.Base64ImageSourceParam{Data: pixel, MediaType: "image/png"},
			}}},
		}}
		params.Messages = append(params.Messages, param, anthropicsdk.NewUserMessage(
			anthropicsdk.NewToolResultBlock("toolu_scripted00101", "six", false),
			anthropicsdk.ContentBlockParamUnion{OfToolResult: &picture}))
		got, _, err = askAnthropic(t.Context(), client, stream, params)
		if err != nil {
			t.Fatal(err)
		}
		if want := (said{Text: "Six, at noon.", Stop: "end_turn", Usage: Usage{33, 44}}); !reflect.DeepEqual(got, want) {
			t.Errorf("stream %v: got %+v, want %+v", stream, got, want)
		}
		c := s.Requests()[1].Conversation
		raw, _ := base64.StdEncoding.DecodeString(pixel)
		if c.Messages[1].Thinking != "Two sums, I think." || string(c.Images()[0].Data) != string(raw) || c.Messages[2].Results[1].Text != "noon" {
			t.Errorf("read %+v", c)
		}
	}
}

func TestReplyHook(t *testing.T) {
	s := start(t, Config{Reply: func(c Conversation) Reply {
		if strings.Contains(c.Last(), "password") {
			return Reply{Text: "It is hunter2."}
		}
		if strings.Contains(c.Last(), "stop") {
			return Reply{Stop: "never"}
		}
		return Reply{Refuse: "not that"}
	}})
	ask := func(text string) (said, error) {
		got, _, err := askOpenAI(t.Context(), openAIClient(s), true, openai.ChatCompletionNewParams{
			Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}})
		return got, err
	}
	if got, err := ask("The password?"); err != nil || got.Text != "It is hunter2." || got.Usage.Input == 0 || got.Usage.Output == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	var refused *openai.Error
	if _, err := ask("What?"); !errors.As(err, &refused) || refused.StatusCode != 400 || refused.Message != "not that" {
		t.Errorf("got %v", err)
	}
	if _, err := ask("Please stop."); !errors.As(err, &refused) || !strings.Contains(refused.Message, `"never"`) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	s := start(t, Config{Reply: func(Conversation) Reply { return Reply{Fault: &Fault{Hang: true}} }})
	done := make(chan error)
	go func() {
		_, _, err := askAnthropic(context.Background(), anthropicClient(s), true, anthropicsdk.MessageNewParams{
			Model: "m", MaxTokens: 1, Messages: []anthropicsdk.MessageParam{anthropicsdk.NewUserMessage(anthropicsdk.NewTextBlock("x"))}})
		done <- err
	}()
	for len(s.Requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a request outlived the server")
	}
}
