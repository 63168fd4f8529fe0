// Package messages is the wire format of Anthropic's Messages: requests, and replies
// that arrive as events. Who sends and receives them is not its concern.
package messages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

// DefaultMaxTokens bounds replies where nobody does: the protocol wants a number.
const DefaultMaxTokens = 8192

// Options say of a model what its requests depend on.
type Options struct {
	Model          string
	MaxTokens      int // bounds a reply whose request does not; 0 is [DefaultMaxTokens]
	ThinkingTokens int // 0 does not let the model think
}

type request struct {
	Model       string    `json:"model"`
	MaxTokens   int       `json:"max_tokens"`
	System      []block   `json:"system,omitempty"`
	Thinking    *thinking `json:"thinking,omitempty"`
	Temperature *float64  `json:"temperature,omitempty"`
	Messages    []message `json:"messages"`
	Tools       []tool    `json:"tools,omitempty"`
	Stream      bool      `json:"stream"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a content block of a request, of any type.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Source    *source         `json:"source,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"` // may be empty
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Content   []block         `json:"content,omitempty"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

type tool struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	InputSchema map[string]any `json:"input_schema"`
}

const (
	typeText             = "text"
	typeImage            = "image"
	typeThinking         = "thinking"
	typeRedactedThinking = "redacted_thinking"
	typeToolUse          = "tool_use"
	typeToolResult       = "tool_result"
)

// Request returns the body of a request for a streamed reply. It fails if a tool's
// schema is not a JSON object.
func Request(o Options, req agent.Request) ([]byte, error) {
	out := request{Model: o.Model, MaxTokens: cmp.Or(req.MaxTokens, o.MaxTokens, DefaultMaxTokens), Stream: true}
	if req.System != "" {
		out.System = []block{text(req.System)}
	}
	if o.ThinkingTokens > 0 {
		out.MaxTokens += o.ThinkingTokens // the protocol's bound is of both; the reply keeps its own
		out.Thinking = &thinking{"enabled", o.ThinkingTokens}
	} else {
		out.Temperature = req.Temperature // not together with thinking
	}
	for _, m := range req.Messages {
		blocks := content(m.Parts)
		if len(blocks) == 0 {
			blocks = []block{nothing} // empty messages are refused
		}
		if last := blocks[len(blocks)-1].Type; last == typeThinking || last == typeRedactedThinking {
			blocks = append(blocks, nothing) // thinking at the end is refused
		}
		role := "user"
		if m.Role == agent.RoleAssistant {
			role = "assistant"
		}
		out.Messages = append(out.Messages, message{role, blocks})
	}
	for _, t := range req.Tools {
		schema, err := endpoint.Schema(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("the schema of tool %q is no JSON object: %w", t.Name, err)
		}
		schema["type"] = "object" // the protocol knows no other
		out.Tools = append(out.Tools, tool{t.Name, t.Description, schema})
	}
	return json.Marshal(out)
}

func text(s string) block { return block{Type: typeText, Text: s} }

// nothing stands where a text must be.
var nothing = text("(nothing)")

// opaque is agent.Thinking.Opaque of this format: thinking as the provider wants it
// back.
type opaque struct {
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

func content(parts []agent.Part) []block {
	// Results of calls come first, or the request is refused.
	var results, blocks []block
	for _, part := range parts {
		switch part := part.(type) {
		case agent.Text:
			if strings.TrimSpace(part.Text) != "" { // blank ones are refused
				blocks = append(blocks, text(part.Text))
			}
		case agent.Image:
			if mimeType, data, note := endpoint.Picture(part, true); note != "" {
				blocks = append(blocks, text(note))
			} else {
				blocks = append(blocks, block{Type: typeImage, Source: &source{"base64", mimeType, data}})
			}
		case agent.Thinking:
			var o opaque
			if json.Unmarshal(part.Opaque, &o) != nil {
				continue // another provider's
			}
			if o.Redacted != "" {
				blocks = append(blocks, block{Type: typeRedactedThinking, Data: o.Redacted})
			} else if o.Signature != "" {
				blocks = append(blocks, block{Type: typeThinking, Thinking: &o.Thinking, Signature: o.Signature})
			}
		case agent.ToolCall:
			blocks = append(blocks, block{
				Type: typeToolUse, ID: endpoint.Name(part.ID), Name: endpoint.Name(part.Name), Input: endpoint.Object(part.Arguments),
			})
		case agent.ToolResult:
			result := block{Type: typeToolResult, ToolUseID: endpoint.Name(part.CallID), IsError: part.IsError}
			for _, b := range content(part.Parts) {
				if b.Type == typeText || b.Type == typeImage {
					result.Content = append(result.Content, b)
				}
			}
			results = append(results, result)
		}
	}
	return append(results, blocks...)
}
