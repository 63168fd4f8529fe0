package openai

import (
	"encoding/json"
	"fmt"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

// params makes a request of Chat Completions.
func (m *Model) params(req agent.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         m.config.Model,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
	}
	if n := req.MaxTokens; n > 0 || m.config.MaxTokens > 0 {
		if n <= 0 {
			n = m.config.MaxTokens
		}
		if m.official {
			p.MaxCompletionTokens = sdk.Int(int64(n))
		} else {
			p.MaxTokens = sdk.Int(int64(n))
		}
	}
	if req.Temperature != nil {
		p.Temperature = sdk.Float(*req.Temperature)
	}
	if m.info.Tools {
		for _, t := range req.Tools {
			schema, err := endpoint.Schema(t.Schema)
			if err != nil {
				return p, fmt.Errorf("openai: the schema of tool %q is no JSON object: %w", t.Name, err)
			}
			f := shared.FunctionDefinitionParam{Name: t.Name, Parameters: schema}
			if t.Description != "" {
				f.Description = sdk.String(t.Description)
			}
			p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
		}
	}
	if req.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(req.System))
	}
	for _, msg := range req.Messages {
		if msg.Role == agent.RoleAssistant {
			p.Messages = append(p.Messages, assistant(msg))
		} else {
			p.Messages = append(p.Messages, m.user(msg)...)
		}
	}
	return p, nil
}

// opaque is agent.Thinking.Opaque of this package: the field that reasoning came in.
type opaque struct {
	Field string `json:"openai_field"`
}

func assistant(msg agent.Message) sdk.ChatCompletionMessageParamUnion {
	var a sdk.ChatCompletionAssistantMessageParam
	reasoning := map[string]any{}
	for _, part := range msg.Parts {
		switch p := part.(type) {
		case agent.ToolCall:
			a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID: p.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: endpoint.Name(p.Name), Arguments: string(endpoint.Object(p.Arguments)),
				},
			}})
		case agent.Thinking:
			var o opaque
			if json.Unmarshal(p.Opaque, &o) == nil && (o.Field == "reasoning_content" || o.Field == "reasoning") {
				reasoning[o.Field] = p.Text
			}
		}
	}
	if text := msg.Text(); text != "" || len(a.ToolCalls) == 0 {
		a.Content.OfString = sdk.String(text)
	}
	// Some servers want the thoughts that led to calls back, and some refuse all
	// others.
	if len(a.ToolCalls) > 0 && len(reasoning) > 0 {
		a.SetExtraFields(reasoning)
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &a}
}

// user returns the messages that one of the user becomes: results of tools, which
// must come right after their calls and are texts only, and everything else.
func (m *Model) user(msg agent.Message) []sdk.ChatCompletionMessageParamUnion {
	var out []sdk.ChatCompletionMessageParamUnion
	var rest []sdk.ChatCompletionContentPartUnionParam
	pictures := false
	add := func(part agent.Part) {
		switch p := part.(type) {
		case agent.Text:
			if p.Text != "" {
				rest = append(rest, sdk.TextContentPart(p.Text))
			}
		case agent.Image:
			mimeType, data, note := endpoint.Picture(p, m.info.Images)
			if note != "" {
				rest = append(rest, sdk.TextContentPart(note))
				return
			}
			pictures = true
			rest = append(rest, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: "data:" + mimeType + ";base64," + data}))
		}
	}
	for _, part := range msg.Parts {
		r, ok := part.(agent.ToolResult)
		if !ok {
			continue
		}
		text := agent.Message{Parts: r.Parts}.Text()
		if r.IsError {
			text = "Error: " + text
		}
		out = append(out, sdk.ToolMessage(text, r.CallID))
		for i, shown := range images(r.Parts) {
			if i == 0 {
				add(agent.Text{Text: "Pictures of the call of " + endpoint.Name(r.Name) + ":"})
			}
			add(shown)
		}
	}
	for _, part := range msg.Parts {
		add(part)
	}
	switch {
	case pictures:
		out = append(out, sdk.UserMessage(rest))
	case len(rest) > 0: // a plain string: not every server knows parts
		text := ""
		for i, p := range rest {
			if i > 0 {
				text += "\n"
			}
			text += p.OfText.Text
		}
		out = append(out, sdk.UserMessage(text))
	}
	return out
}

func images(parts []agent.Part) []agent.Image {
	var out []agent.Image
	for _, p := range parts {
		if img, ok := p.(agent.Image); ok {
			out = append(out, img)
		}
	}
	return out
}
