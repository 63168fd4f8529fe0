package completions

import (
	"encoding/json"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

// Bounds of a reply's contents.
const (
	maxContent = 16 << 20 // bytes
	maxCalls   = 128
)

// chunk is the data of an event.
type chunk struct {
	Error   json.RawMessage `json:"error"` // many servers send null with every chunk
	Model   endpoint.Text   `json:"model"`
	Choices []struct {
		Index        endpoint.Number `json:"index"`
		Delta        delta           `json:"delta"`
		FinishReason endpoint.Text   `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		PromptTokens     endpoint.Number `json:"prompt_tokens"`
		CompletionTokens endpoint.Number `json:"completion_tokens"`
	} `json:"usage"`
}

type delta struct {
	Content endpoint.Text `json:"content"`
	Refusal endpoint.Text `json:"refusal"`
	// These are what compatible servers send of a model's thoughts.
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ToolCalls        []callPiece     `json:"tool_calls"`
}

type callPiece struct {
	Index    endpoint.Number `json:"index"`
	ID       endpoint.Text   `json:"id"`
	Function struct {
		Name      endpoint.Text `json:"name"`
		Arguments endpoint.Text `json:"arguments"`
	} `json:"function"`
}

// Reader puts a reply together from the events of its stream. Endpoint makes its
// errors; Stream, unless nil, is told of every piece.
type Reader struct {
	Endpoint *endpoint.Endpoint
	Stream   func(agent.Delta)

	text, thinking strings.Builder
	field          string // that thinking came in
	refused        bool
	calls          []*openCall
	size           int
	finish, model  string
	usage          agent.Usage
}

// openCall is a call of a tool whose pieces arrive.
type openCall struct {
	index     endpoint.Number
	id, name  string
	arguments strings.Builder
}

func (r *Reader) tell(d agent.Delta) {
	if r.Stream != nil {
		r.Stream(d)
	}
}

// Add takes the data of the next event. Its error is a [*agent.ModelError]: the
// endpoint's own, or that of a reply that is invalid or too large.
func (r *Reader) Add(data []byte) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return r.Endpoint.Invalid("a chunk of the reply: %v", err)
	}
	if endpoint.Present(c.Error) {
		return r.Endpoint.Said(data)
	}
	if c.Model != "" {
		r.model = string(c.Model)
	}
	if c.Usage.PromptTokens > 0 || c.Usage.CompletionTokens > 0 {
		r.usage = agent.Usage{Input: c.Usage.PromptTokens.Tokens(), Output: c.Usage.CompletionTokens.Tokens()}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // nobody asked for more than one
		}
		if err := r.delta(choice.Delta); err != nil {
			return err
		}
		if choice.FinishReason != "" {
			r.finish = string(choice.FinishReason)
		}
	}
	return nil
}

func (r *Reader) delta(d delta) error {
	thinking := r.reasoning(d)
	r.size += len(d.Content) + len(d.Refusal) + len(thinking)
	if thinking != "" {
		r.thinking.WriteString(thinking)
		r.tell(agent.Delta{Thinking: thinking})
	}
	for _, text := range []string{string(d.Content), string(d.Refusal)} {
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
		return r.Endpoint.Invalid("the reply is larger than 16 MiB")
	}
	return nil
}

func (r *Reader) reasoning(d delta) string {
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{fieldReasoningContent, d.ReasoningContent}, {fieldReasoning, d.Reasoning}} {
		var s string
		if len(f.raw) > 0 && json.Unmarshal(f.raw, &s) == nil && s != "" {
			r.field = f.name
			return s
		}
	}
	return ""
}

// call takes a piece of a call. A new index begins one, and so does a new id:
// some servers count all as 0.
func (r *Reader) call(t callPiece) error {
	var c *openCall
	for _, known := range r.calls {
		if known.index == t.Index {
			c = known // the last of them
		}
	}
	id, name, arguments := string(t.ID), string(t.Function.Name), string(t.Function.Arguments)
	if c == nil || (id != "" && c.id != "" && id != c.id) {
		if len(r.calls) >= maxCalls {
			return r.Endpoint.Invalid("the reply calls more than %d tools", maxCalls)
		}
		c = &openCall{index: t.Index}
		r.calls = append(r.calls, c)
	}
	if c.id == "" {
		c.id = id
	}
	if c.name == "" && name != "" {
		c.name = name
		r.tell(agent.Delta{ToolName: c.name})
	}
	if arguments != "" {
		c.arguments.WriteString(arguments)
		if c == r.calls[len(r.calls)-1] {
			r.tell(agent.Delta{ToolArguments: arguments})
		}
	}
	r.size += len(name) + len(arguments) + len(id)
	return nil
}

// Reply returns the whole reply, or nil if it has not ended. It is called once,
// after the last event.
func (r *Reader) Reply() *agent.Reply {
	if r.finish == "" {
		return nil
	}
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
