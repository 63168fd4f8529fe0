package messages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

// maxContent bounds a reply's contents, in bytes. No model writes as much.
const maxContent = 16 << 20

// event is the data of an event, of any type.
type event struct {
	Type    endpoint.Text   `json:"type"`
	Index   endpoint.Number `json:"index"`
	Message struct {
		Model endpoint.Text `json:"model"`
		Usage usage         `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type     endpoint.Text   `json:"type"`
		Text     endpoint.Text   `json:"text"`
		Thinking endpoint.Text   `json:"thinking"`
		Data     endpoint.Text   `json:"data"`
		ID       endpoint.Text   `json:"id"`
		Name     endpoint.Text   `json:"name"`
		Input    json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type        endpoint.Text `json:"type"`
		Text        endpoint.Text `json:"text"`
		Thinking    endpoint.Text `json:"thinking"`
		Signature   endpoint.Text `json:"signature"`
		PartialJSON endpoint.Text `json:"partial_json"`
		StopReason  endpoint.Text `json:"stop_reason"`
	} `json:"delta"`
	Usage usage `json:"usage"`
}

type usage struct {
	Input         endpoint.Number `json:"input_tokens"`
	CacheCreation endpoint.Number `json:"cache_creation_input_tokens"`
	CacheRead     endpoint.Number `json:"cache_read_input_tokens"`
	Output        endpoint.Number `json:"output_tokens"`
}

// openBlock is a content block that arrives.
type openBlock struct {
	kind      string
	text      strings.Builder // of text, thinking or arguments
	signature strings.Builder
	id, name  string
	data      string // of redacted thinking
	whole     string // arguments that came with the beginning
}

// Reader puts a reply together from the events of its stream. Endpoint makes its
// errors; Stream, unless nil, is told of every piece.
type Reader struct {
	Endpoint *endpoint.Endpoint
	Stream   func(agent.Delta)

	ended  bool
	blocks []*openBlock
	size   int
	stop   string
	usage  agent.Usage
	model  string
}

// Ended reports whether the last event has come: the stream may stay open after it.
func (r *Reader) Ended() bool { return r.ended }

func (r *Reader) tell(d agent.Delta) {
	if r.Stream != nil {
		r.Stream(d)
	}
}

// Add takes the data of the next event. Its error is a [*agent.ModelError]: the
// endpoint's own, or that of a reply that is invalid or too large.
func (r *Reader) Add(data []byte) error {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return r.Endpoint.Invalid("an event of the reply: %v", err)
	}
	switch e.Type {
	case "error":
		return r.Endpoint.Said(data)
	case "message_start":
		u := e.Message.Usage
		r.model = string(e.Message.Model)
		input := u.Input.Tokens() + u.CacheCreation.Tokens() + u.CacheRead.Tokens()
		r.usage = agent.Usage{Input: endpoint.Number(input).Tokens(), Output: u.Output.Tokens()}
	case "content_block_start":
		if int64(e.Index) != int64(len(r.blocks)) {
			return r.Endpoint.Invalid("a content block out of order")
		}
		r.begin(e)
	case "content_block_delta":
		if e.Index < 0 || int64(e.Index) >= int64(len(r.blocks)) {
			return r.Endpoint.Invalid("a piece of a content block that did not begin")
		}
		r.piece(r.blocks[e.Index], e)
	case "message_delta":
		r.stop = cmp.Or(string(e.Delta.StopReason), r.stop)
		r.usage.Output = max(e.Usage.Output.Tokens(), r.usage.Output)
	case "message_stop":
		r.ended = true
	}
	if r.size > maxContent {
		return r.Endpoint.Invalid("the reply is larger than any model's")
	}
	return nil
}

func (r *Reader) begin(e event) {
	c := e.ContentBlock
	b := &openBlock{kind: string(c.Type), id: string(c.ID), name: string(c.Name), data: string(c.Data)}
	b.text.WriteString(string(c.Text + c.Thinking))
	r.blocks = append(r.blocks, b)
	r.size += 64 + b.text.Len() + len(b.data)
	if b.kind != typeToolUse {
		return
	}
	var input bytes.Buffer
	if endpoint.Present(c.Input) && json.Compact(&input, c.Input) == nil && input.String() != "{}" {
		b.whole = input.String()
		r.size += len(b.whole)
	}
	r.tell(agent.Delta{ToolName: b.name})
}

func (r *Reader) piece(b *openBlock, e event) {
	d := e.Delta
	r.size += len(d.Text) + len(d.Thinking) + len(d.PartialJSON) + len(d.Signature)
	switch d.Type {
	case "text_delta":
		b.text.WriteString(string(d.Text))
		r.tell(agent.Delta{Text: string(d.Text)})
	case "thinking_delta":
		b.text.WriteString(string(d.Thinking))
		r.tell(agent.Delta{Thinking: string(d.Thinking)})
	case "signature_delta":
		b.signature.WriteString(string(d.Signature))
	case "input_json_delta":
		b.text.WriteString(string(d.PartialJSON))
		r.tell(agent.Delta{ToolArguments: string(d.PartialJSON)})
	}
}

// Reply returns the whole reply, or nil if it has not ended.
func (r *Reader) Reply() *agent.Reply {
	if !r.ended {
		return nil
	}
	m := agent.Message{Role: agent.RoleAssistant}
	for _, b := range r.blocks {
		switch b.kind {
		case typeText:
			m.Parts = append(m.Parts, agent.Text{Text: b.text.String()})
		case typeThinking, typeRedactedThinking:
			raw, err := json.Marshal(opaque{b.text.String(), b.signature.String(), b.data})
			if err == nil {
				m.Parts = append(m.Parts, agent.Thinking{Text: b.text.String(), Opaque: raw})
			}
		case typeToolUse:
			m.Parts = append(m.Parts, agent.ToolCall{
				ID: cmp.Or(b.id, endpoint.CallID()), Name: b.name, Arguments: json.RawMessage(cmp.Or(b.text.String(), b.whole, "{}")),
			})
		}
	}
	stop := agent.StopEnd
	switch r.stop {
	case "max_tokens", "model_context_window_exceeded":
		stop = agent.StopLength
	case "tool_use":
		stop = agent.StopTools
	case "refusal":
		stop = agent.StopRefused
	}
	return &agent.Reply{Message: m, Stop: stop, Usage: r.usage, Model: r.model}
}
