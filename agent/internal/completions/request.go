// Package completions is the wire format of OpenAI's Chat Completions: requests,
// and replies that arrive as events. Who sends and receives them is not its concern.
package completions

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

// Options say of a model what its requests depend on.
type Options struct {
	Model         string
	Images, Tools bool // what it takes
	MaxTokens     int  // bounds a reply whose request does not; 0 is no bound
	// LegacyMaxTokens sends bounds as max_tokens, the older name, which newer models
	// of OpenAI refuse and many other servers alone know.
	LegacyMaxTokens bool
}

type request struct {
	Model               string        `json:"model"`
	Messages            []message     `json:"messages"`
	Tools               []tool        `json:"tools,omitempty"`
	MaxTokens           int           `json:"max_tokens,omitempty"`
	MaxCompletionTokens int           `json:"max_completion_tokens,omitempty"`
	Temperature         *float64      `json:"temperature,omitempty"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role             string `json:"role"`
	Content          any    `json:"content,omitempty"` // a string, []contentPart, or nil
	ToolCalls        []call `json:"tool_calls,omitempty"`
	ToolCallID       string `json:"tool_call_id,omitempty"`
	ReasoningContent string `json:"reasoning_content,omitempty"`
	Reasoning        string `json:"reasoning,omitempty"`
}

type contentPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type call struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters"`
}

// Request returns the body of a request for a streamed reply. It fails if a tool's
// schema is not a JSON object.
func Request(o Options, req agent.Request) ([]byte, error) {
	out := request{Model: o.Model, Temperature: req.Temperature, Stream: true, StreamOptions: streamOptions{IncludeUsage: true}}
	bound := req.MaxTokens
	if bound <= 0 {
		bound = o.MaxTokens
	}
	if o.LegacyMaxTokens {
		out.MaxTokens = max(bound, 0)
	} else {
		out.MaxCompletionTokens = max(bound, 0)
	}
	if o.Tools {
		for _, t := range req.Tools {
			schema, err := endpoint.Schema(t.Schema)
			if err != nil {
				return nil, fmt.Errorf("the schema of tool %q is no JSON object: %w", t.Name, err)
			}
			out.Tools = append(out.Tools, tool{"function", function{t.Name, t.Description, schema}})
		}
	}
	if req.System != "" {
		out.Messages = append(out.Messages, message{Role: "system", Content: req.System})
	}
	for _, m := range req.Messages {
		if m.Role == agent.RoleAssistant {
			out.Messages = append(out.Messages, assistant(m))
		} else {
			out.Messages = append(out.Messages, user(o, m)...)
		}
	}
	return json.Marshal(out)
}

// opaque is agent.Thinking.Opaque of this format: the field that reasoning came in.
type opaque struct {
	Field string `json:"openai_field"`
}

const (
	fieldReasoningContent = "reasoning_content"
	fieldReasoning        = "reasoning"
)

func assistant(m agent.Message) message {
	out := message{Role: "assistant"}
	var reasoningContent, reasoning string
	for _, part := range m.Parts {
		switch p := part.(type) {
		case agent.ToolCall:
			out.ToolCalls = append(out.ToolCalls, call{p.ID, "function", functionCall{endpoint.Name(p.Name), string(endpoint.Object(p.Arguments))}})
		case agent.Thinking:
			var o opaque
			if json.Unmarshal(p.Opaque, &o) != nil {
				continue // another provider's
			}
			switch o.Field {
			case fieldReasoningContent:
				reasoningContent = p.Text
			case fieldReasoning:
				reasoning = p.Text
			}
		}
	}
	if text := m.Text(); text != "" || len(out.ToolCalls) == 0 {
		out.Content = text
	}
	// Some servers want the thoughts that led to calls back, and some refuse all
	// others.
	if len(out.ToolCalls) > 0 {
		out.ReasoningContent, out.Reasoning = reasoningContent, reasoning
	}
	return out
}

// user returns the messages that one of the user becomes: results of tools, which
// must come right after their calls and are texts only, and everything else.
func user(o Options, m agent.Message) []message {
	var out []message
	var rest []contentPart
	pictures := false
	add := func(part agent.Part) {
		switch p := part.(type) {
		case agent.Text:
			if p.Text != "" {
				rest = append(rest, contentPart{Type: "text", Text: p.Text})
			}
		case agent.Image:
			mimeType, data, note := endpoint.Picture(p, o.Images)
			if note != "" {
				rest = append(rest, contentPart{Type: "text", Text: note})
				return
			}
			pictures = true
			rest = append(rest, contentPart{Type: "image_url", ImageURL: &imageURL{"data:" + mimeType + ";base64," + data}})
		}
	}
	for _, part := range m.Parts {
		r, ok := part.(agent.ToolResult)
		if !ok {
			continue
		}
		text := agent.Message{Parts: r.Parts}.Text()
		if r.IsError {
			text = "Error: " + text
		}
		out = append(out, message{Role: "tool", ToolCallID: r.CallID, Content: text})
		for i, shown := range images(r.Parts) {
			if i == 0 {
				add(agent.Text{Text: "Pictures of the call of " + endpoint.Name(r.Name) + ":"})
			}
			add(shown)
		}
	}
	for _, part := range m.Parts {
		add(part)
	}
	switch {
	case pictures:
		out = append(out, message{Role: "user", Content: rest})
	case len(rest) > 0: // a plain string: not every server knows parts
		var texts []string
		for _, p := range rest {
			texts = append(texts, p.Text)
		}
		out = append(out, message{Role: "user", Content: strings.Join(texts, "\n")})
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
