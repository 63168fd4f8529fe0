// Package anthropic is a model behind Anthropic's Messages API.
//
//	model := anthropic.New(anthropic.FromEnv(anthropic.Config{Model: "claude-sonnet-4-5"}))
//
// The wire is anthropic-sdk-go's.
package anthropic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/internal/endpoint"
)

// defaultMaxTokens bounds replies where nobody does: the protocol wants a number.
const defaultMaxTokens = 8192

const provider = "anthropic"

// maxReply bounds a reply's contents, in bytes. No model writes as much.
const maxReply = 16 << 20

// Config says which model is asked, and where. Model and APIKey must be set.
// Nothing is read from the environment: [FromEnv] does that.
type Config struct {
	APIKey  string
	BaseURL string // without the version; "" is Anthropic's
	Model   string
	// HTTPClient is copied and follows no redirects; nil is a default one. Time is
	// bounded by the context alone, unless it has a Timeout.
	HTTPClient *http.Client
	// MaxTokens bounds a reply whose request does not; 0 is 8192: the protocol
	// wants a number.
	MaxTokens int
	// ThinkingTokens, at least 1024 as the provider wants it, lets the model think
	// that much before it replies, on top of the bound of the reply; 0 does not.
	ThinkingTokens int
	Header         map[string]string // sent with every request
}

// FromEnv fills in what c leaves empty: APIKey from ANTHROPIC_API_KEY and BaseURL
// from ANTHROPIC_BASE_URL. Spaces and line breaks around them do not count.
func FromEnv(c Config) Config {
	c.APIKey = cmp.Or(strings.TrimSpace(c.APIKey), strings.TrimSpace(os.Getenv("ANTHROPIC_API_KEY")))
	c.BaseURL = cmp.Or(strings.TrimSpace(c.BaseURL), strings.TrimSpace(os.Getenv("ANTHROPIC_BASE_URL")))
	return c
}

// Model is a model behind the Messages API. It is safe for concurrent use.
type Model struct {
	config   Config
	endpoint *endpoint.Endpoint
	messages sdk.MessageService
	official bool // it is Anthropic
}

var _ agent.Model = (*Model)(nil)

// New returns a model. It sends nothing: what is wrong with c, the first
// [Model.Generate] says.
func New(c Config) *Model {
	c.BaseURL = cmp.Or(c.BaseURL, "https://api.anthropic.com")
	c.MaxTokens = cmp.Or(c.MaxTokens, defaultMaxTokens)
	m := &Model{config: c}
	if u, err := url.Parse(c.BaseURL); err == nil {
		m.official = u.Hostname() == "anthropic.com" || strings.HasSuffix(u.Hostname(), ".anthropic.com")
	}
	m.endpoint = &endpoint.Endpoint{Provider: provider, BaseURL: c.BaseURL, KeyVar: "ANTHROPIC_API_KEY", URLVar: "ANTHROPIC_BASE_URL", Key: c.APIKey}
	opts := []option.RequestOption{
		option.WithHTTPClient(endpoint.Client(c.HTTPClient)),
		option.WithBaseURL(c.BaseURL),
		option.WithMaxRetries(0), // agent.Retry's work
		option.WithMiddleware(m.endpoint.Middleware),
	}
	if c.APIKey != "" {
		opts = append(opts, option.WithAPIKey(c.APIKey))
	}
	for k, v := range c.Header {
		opts = append(opts, option.WithHeader(k, v))
		m.endpoint.Secrets = append(m.endpoint.Secrets, v)
	}
	m.messages = sdk.NewMessageService(opts...)
	return m
}

// Info says what the model is and takes.
func (m *Model) Info() agent.ModelInfo {
	return agent.ModelInfo{Provider: provider, Name: m.config.Model, Images: true, Tools: true}
}

// Generate asks for one reply; see [agent.Model]. A reply on the wire is bounded
// by 64 MiB, its contents by 16 MiB.
func (m *Model) Generate(ctx context.Context, req agent.Request, stream func(agent.Delta)) (*agent.Reply, error) {
	if err := m.endpoint.Check(m.config.Model); err != nil {
		return nil, err
	}
	if m.config.APIKey == "" && len(m.config.Header) == 0 && m.official {
		return nil, m.endpoint.NoKey()
	}
	params, err := m.params(req)
	if err != nil {
		return nil, err
	}
	if stream == nil {
		stream = func(agent.Delta) {}
	}
	s := m.messages.NewStreaming(ctx, params)
	defer s.Close()
	var r reply
	for !r.ended && s.Next() { // the body may stay open after the last event
		if err := r.add(s.Current(), stream); err != nil {
			return nil, m.endpoint.Invalid("%v", err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if err := s.Err(); err != nil {
		var said *sdk.Error // an event of the stream; other answers do not get here
		if errors.As(err, &said) && ctx.Err() == nil {
			return nil, m.endpoint.Said([]byte(said.RawJSON()))
		}
		return nil, m.endpoint.Error(ctx, err)
	}
	if !r.ended {
		return nil, m.endpoint.Cut(ctx)
	}
	return r.whole(), nil
}

// block is a content block that arrives.
type block struct {
	kind      string
	text      strings.Builder // of text, thinking or arguments
	signature strings.Builder
	id, name  string
	data      string // of redacted thinking
	whole     string // arguments that came with the beginning
}

// reply is put together event by event.
type reply struct {
	ended  bool
	blocks []*block
	size   int
	stop   sdk.StopReason
	usage  agent.Usage
	model  string
}

func (r *reply) add(event sdk.MessageStreamEventUnion, stream func(agent.Delta)) error {
	switch event.Type {
	case "message_start":
		u := event.Message.Usage
		r.model = event.Message.Model
		input := tokens(u.InputTokens) + tokens(u.CacheCreationInputTokens) + tokens(u.CacheReadInputTokens)
		r.usage = agent.Usage{Input: int(tokens(input)), Output: int(tokens(u.OutputTokens))}
	case "content_block_start":
		if event.Index != int64(len(r.blocks)) {
			return errors.New("a content block out of order")
		}
		c := event.ContentBlock
		b := &block{kind: c.Type, id: c.ID, name: c.Name, data: c.Data}
		b.text.WriteString(c.Text + c.Thinking)
		if input, err := json.Marshal(c.Input); err == nil && len(input) > len("{}") && b.kind == "tool_use" {
			b.whole = string(input)
			r.size += len(input)
		}
		r.blocks = append(r.blocks, b)
		r.size += 64 + len(c.Data)
		if b.kind == "tool_use" {
			stream(agent.Delta{ToolName: b.name})
		}
	case "content_block_delta":
		if event.Index < 0 || event.Index >= int64(len(r.blocks)) {
			return errors.New("a piece of a content block that did not begin")
		}
		b, d := r.blocks[event.Index], event.Delta
		r.size += len(d.Text) + len(d.Thinking) + len(d.PartialJSON) + len(d.Signature)
		switch d.Type {
		case "text_delta":
			b.text.WriteString(d.Text)
			stream(agent.Delta{Text: d.Text})
		case "thinking_delta":
			b.text.WriteString(d.Thinking)
			stream(agent.Delta{Thinking: d.Thinking})
		case "signature_delta":
			b.signature.WriteString(d.Signature)
		case "input_json_delta":
			b.text.WriteString(d.PartialJSON)
			stream(agent.Delta{ToolArguments: d.PartialJSON})
		}
	case "message_delta":
		r.stop = cmp.Or(event.Delta.StopReason, r.stop)
		r.usage.Output = max(int(tokens(event.Usage.OutputTokens)), r.usage.Output)
	case "message_stop":
		r.ended = true
	}
	if r.size > maxReply {
		return errors.New("the reply is larger than any model's")
	}
	return nil
}

// tokens bounds a count that an endpoint claims.
func tokens(n int64) int64 { return min(max(n, 0), 1<<30) }

// opaque is thinking as the provider wants it back.
type opaque struct {
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

func (r *reply) whole() *agent.Reply {
	m := agent.Message{Role: agent.RoleAssistant}
	for _, b := range r.blocks {
		switch b.kind {
		case "text":
			m.Parts = append(m.Parts, agent.Text{Text: b.text.String()})
		case "thinking", "redacted_thinking":
			raw, err := json.Marshal(opaque{b.text.String(), b.signature.String(), b.data})
			if err == nil {
				m.Parts = append(m.Parts, agent.Thinking{Text: b.text.String(), Opaque: raw})
			}
		case "tool_use":
			m.Parts = append(m.Parts, agent.ToolCall{
				ID: cmp.Or(b.id, endpoint.CallID()), Name: b.name, Arguments: json.RawMessage(cmp.Or(b.text.String(), b.whole, "{}")),
			})
		}
	}
	stop := agent.StopEnd
	switch r.stop {
	case sdk.StopReasonMaxTokens, "model_context_window_exceeded":
		stop = agent.StopLength
	case sdk.StopReasonToolUse:
		stop = agent.StopTools
	case sdk.StopReasonRefusal:
		stop = agent.StopRefused
	}
	return &agent.Reply{Message: m, Stop: stop, Usage: r.usage, Model: r.model}
}

// params puts a request into the protocol's form.
func (m *Model) params(req agent.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: m.config.Model, MaxTokens: int64(cmp.Or(req.MaxTokens, m.config.MaxTokens))}
	if req.System != "" {
		p.System = []sdk.TextBlockParam{{Text: req.System}}
	}
	if n := int64(m.config.ThinkingTokens); n > 0 {
		p.MaxTokens += n // the protocol's bound is of both; the reply keeps its own
		p.Thinking = sdk.ThinkingConfigParamOfEnabled(n)
	} else if req.Temperature != nil { // not together with thinking
		p.Temperature = param.NewOpt(*req.Temperature)
	}
	for _, message := range req.Messages {
		blocks := content(message.Parts)
		if len(blocks) == 0 {
			blocks = []sdk.ContentBlockParamUnion{sdk.NewTextBlock("(nothing)")} // empty messages are refused
		}
		if last := blocks[len(blocks)-1]; last.OfThinking != nil || last.OfRedactedThinking != nil {
			blocks = append(blocks, sdk.NewTextBlock("(nothing)")) // thinking at the end is refused
		}
		role := sdk.MessageParamRoleUser
		if message.Role == agent.RoleAssistant {
			role = sdk.MessageParamRoleAssistant
		}
		p.Messages = append(p.Messages, sdk.MessageParam{Role: role, Content: blocks})
	}
	for _, t := range req.Tools {
		tool := &sdk.ToolParam{Name: t.Name}
		if t.Description != "" {
			tool.Description = param.NewOpt(t.Description)
		}
		schema, err := endpoint.Schema(t.Schema)
		if err != nil {
			return p, m.endpoint.Invalid("the schema of the tool %s: %v", t.Name, err)
		}
		delete(schema, "type") // which the SDK adds
		tool.InputSchema.ExtraFields = schema
		p.Tools = append(p.Tools, sdk.ToolUnionParam{OfTool: tool})
	}
	return p, nil
}

func content(parts []agent.Part) []sdk.ContentBlockParamUnion {
	// Results of calls come first, or the request is refused.
	var results, blocks []sdk.ContentBlockParamUnion
	for _, part := range parts {
		switch part := part.(type) {
		case agent.Text:
			if strings.TrimSpace(part.Text) != "" { // blank ones are refused
				blocks = append(blocks, sdk.NewTextBlock(part.Text))
			}
		case agent.Image:
			if mimeType, data, note := endpoint.Picture(part, true); note != "" {
				blocks = append(blocks, sdk.NewTextBlock(note))
			} else {
				blocks = append(blocks, sdk.NewImageBlockBase64(mimeType, data))
			}
		case agent.Thinking:
			var o opaque
			if json.Unmarshal(part.Opaque, &o) != nil {
				continue // another provider's
			}
			if o.Redacted != "" {
				blocks = append(blocks, sdk.NewRedactedThinkingBlock(o.Redacted))
			} else if o.Signature != "" {
				blocks = append(blocks, sdk.NewThinkingBlock(o.Signature, o.Thinking))
			}
		case agent.ToolCall:
			blocks = append(blocks, sdk.NewToolUseBlock(endpoint.Name(part.ID), endpoint.Object(part.Arguments), endpoint.Name(part.Name)))
		case agent.ToolResult:
			results = append(results, sdk.ContentBlockParamUnion{OfToolResult: toolResult(part)})
		}
	}
	return append(results, blocks...)
}

func toolResult(r agent.ToolResult) *sdk.ToolResultBlockParam {
	p := &sdk.ToolResultBlockParam{ToolUseID: endpoint.Name(r.CallID)}
	if r.IsError {
		p.IsError = param.NewOpt(true)
	}
	for _, b := range content(r.Parts) {
		switch {
		case b.OfText != nil:
			p.Content = append(p.Content, sdk.ToolResultBlockParamContentUnion{OfText: b.OfText})
		case b.OfImage != nil:
			p.Content = append(p.Content, sdk.ToolResultBlockParamContentUnion{OfImage: b.OfImage})
		}
	}
	return p
}
