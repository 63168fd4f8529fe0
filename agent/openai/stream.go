package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

const (
	maxContent = 16 << 20
	maxCalls   = 128
)

// reader puts a reply together from its chunks.
type reader struct {
	stream func(agent.Delta)

	text, thinking strings.Builder
	field          string // that thinking came in
	refused        bool
	calls          []*call
	size           int
	finish, model  string
	usage          agent.Usage
}

type call struct {
	index     int64
	id, name  string
	arguments strings.Builder
}

func (r *reader) tell(d agent.Delta) {
	if r.stream != nil {
		r.stream(d)
	}
}

func (r *reader) chunk(c sdk.ChatCompletionChunk) error {
	if c.Model != "" {
		r.model = c.Model
	}
	if c.Usage.PromptTokens > 0 || c.Usage.CompletionTokens > 0 {
		r.usage = agent.Usage{Input: tokens(c.Usage.PromptTokens), Output: tokens(c.Usage.CompletionTokens)}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // nobody asked for more than one
		}
		d := choice.Delta
		thinking := r.reasoning(d.JSON.ExtraFields)
		r.size += len(d.Content) + len(d.Refusal) + len(thinking)
		if thinking != "" {
			r.thinking.WriteString(thinking)
			r.tell(agent.Delta{Thinking: thinking})
		}
		for _, text := range []string{d.Content, d.Refusal} {
			if text != "" {
				r.text.WriteString(text)
				r.tell(agent.Delta{Text: text})
			}
		}
		r.refused = r.refused || d.Refusal != ""
		for _, t := range d.ToolCalls {
			if err := r.call(t); err != nil {
				return err
			}
		}
		if r.size > maxContent {
			return errors.New("the reply is larger than 16 MiB")
		}
		if choice.FinishReason != "" {
			r.finish = choice.FinishReason
		}
	}
	return nil
}

// reasoning returns what compatible servers send of a model's thoughts.
func (r *reader) reasoning(extra map[string]respjson.Field) string {
	for _, field := range []string{"reasoning_content", "reasoning"} {
		var s string
		if raw := extra[field].Raw(); raw != "" && json.Unmarshal([]byte(raw), &s) == nil && s != "" {
			r.field = field
			return s
		}
	}
	return ""
}

// call takes a piece of a call. A new index begins one, and so does a new id:
// some servers count all as 0.
func (r *reader) call(t sdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	var c *call
	for _, known := range r.calls {
		if known.index == t.Index {
			c = known // the last of them
		}
	}
	if c == nil || (t.ID != "" && c.id != "" && t.ID != c.id) {
		if len(r.calls) >= maxCalls {
			return errors.New("the reply calls more than 128 tools")
		}
		c = &call{index: t.Index}
		r.calls = append(r.calls, c)
	}
	if c.id == "" {
		c.id = t.ID
	}
	if c.name == "" && t.Function.Name != "" {
		c.name = t.Function.Name
		r.tell(agent.Delta{ToolName: c.name})
	}
	if t.Function.Arguments != "" {
		c.arguments.WriteString(t.Function.Arguments)
		if c == r.calls[len(r.calls)-1] {
			r.tell(agent.Delta{ToolArguments: t.Function.Arguments})
		}
	}
	r.size += len(t.Function.Name) + len(t.Function.Arguments) + len(t.ID)
	return nil
}

// reply is the whole, once there is a finish.
func (r *reader) reply() *agent.Reply {
	out := &agent.Reply{Message: agent.Message{Role: agent.RoleAssistant}, Usage: r.usage, Model: r.model}
	parts := &out.Message.Parts
	if r.thinking.Len() > 0 {
		o, err := json.Marshal(opaque{r.field})
		if err != nil {
			o = nil
		}
		*parts = append(*parts, agent.Thinking{Text: r.thinking.String(), Opaque: o})
	}
	if r.text.Len() > 0 {
		*parts = append(*parts, agent.Text{Text: r.text.String()})
	}
	seen := map[string]bool{}
	for _, c := range r.calls {
		if c.id == "" || seen[c.id] {
			c.id = endpoint.CallID()
		}
		seen[c.id] = true
		arguments := c.arguments.String()
		if strings.TrimSpace(arguments) == "" {
			arguments = "{}"
		}
		*parts = append(*parts, agent.ToolCall{ID: c.id, Name: c.name, Arguments: json.RawMessage(arguments)})
	}
	switch {
	case r.finish == "length":
		out.Stop = agent.StopLength
	case r.finish == "content_filter" || r.refused:
		out.Stop = agent.StopRefused
	case len(r.calls) > 0: // whatever it says: some say "stop"
		out.Stop = agent.StopTools
	default:
		out.Stop = agent.StopEnd
	}
	return out
}

// tokens bounds a count that an endpoint claims.
func tokens(n int64) int { return int(min(max(n, 0), 1<<30)) }

func (m *Model) streamError(ctx context.Context, err error) error {
	var said *ssestream.StreamError
	if errors.As(err, &said) && ctx.Err() == nil {
		return m.endpoint.Said(said.Event.Data)
	}
	return m.endpoint.Error(ctx, err)
}
