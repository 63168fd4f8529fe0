package modelserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

const apiAnthropic = "anthropic"

// anthropic is the format of Messages.
type anthropic struct{}

func (anthropic) key(h http.Header) string {
	if key := h.Get("X-Api-Key"); key != "" {
		return key
	}
	return openAI{}.key(h) // OAuth tokens come like this
}

func (anthropic) failure(e *apiError) any {
	return object{"type": "error", "error": object{"type": e.kind, "message": e.message}, "request_id": "req_scripted"}
}

func (d anthropic) failureEvent(*apiError) (string, any) { return "error", d.failure(d.ofStatus(529)) }

func (anthropic) missingKey() *apiError {
	return &apiError{status: http.StatusUnauthorized, kind: "authentication_error", message: "x-api-key header is required"}
}

func (anthropic) longContext() *apiError {
	return invalid("prompt is too long: 200112 tokens > 200000 maximum")
}

func (anthropic) ofStatus(status int) *apiError {
	e := &apiError{status: status, kind: "invalid_request_error"}
	switch {
	case status == http.StatusUnauthorized:
		e.kind, e.message = "authentication_error", "invalid x-api-key"
	case status == http.StatusForbidden:
		e.kind, e.message = "permission_error", "Your API key does not have permission to use the specified resource"
	case status == http.StatusNotFound:
		e.kind, e.message = "not_found_error", "Not found"
	case status == http.StatusRequestEntityTooLarge:
		e.kind, e.message = "request_too_large", "Request exceeds the maximum size"
	case status == http.StatusTooManyRequests:
		e.kind, e.message = "rate_limit_error", "This request would exceed your account's rate limit. Please try again later."
	case status == 529:
		e.kind, e.message = "overloaded_error", "Overloaded"
	case status >= 500:
		e.kind, e.message = "api_error", "Internal server error"
	default:
		e.message = http.StatusText(status)
	}
	return e
}

var anthropicStops = map[string]string{"end": "end_turn", "tools": "tool_use", "length": "max_tokens", "refused": "refusal"}

// signature is what a block of thinking must come back with.
func signature(thinking string) string {
	sum := sha256.Sum256([]byte("scripted\x00" + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// input is a call's arguments as Messages has them: always an object.
func (c Call) input() json.RawMessage {
	raw := []byte(c.arguments())
	if json.Valid(raw) {
		return raw
	}
	return json.RawMessage("{}")
}

func anthropicMessage(x exchange, content []any, stop any, usage object) object {
	return object{
		"id": "msg_" + x.id, "type": "message", "role": roleAssistant, "model": x.Model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
}

func anthropicUsage(input, output int) object {
	return object{
		"input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
		"output_tokens": output, "service_tier": "standard",
	}
}

func (anthropic) whole(x exchange, r Reply) any {
	content := []any{}
	if r.Thinking != "" {
		content = append(content, object{"type": "thinking", "thinking": r.Thinking, "signature": signature(r.Thinking)})
	}
	if r.Text != "" {
		content = append(content, object{"type": "text", "text": r.Text})
	}
	for _, c := range r.Calls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.input()})
	}
	return anthropicMessage(x, content, anthropicStops[r.Stop], anthropicUsage(r.Usage.Input, r.Usage.Output))
}

func (anthropic) stream(w *writer, x exchange, r Reply) error {
	send := func(kind string, v object) error {
		v["type"] = kind
		return w.event(kind, v)
	}
	err := send("message_start", object{"message": anthropicMessage(x, []any{}, nil, anthropicUsage(r.Usage.Input, 1))})
	if err != nil {
		return err
	}
	index := 0
	// block sends a block: how it begins, the pieces of a text, the deltas after.
	block := func(start object, text string, delta func(piece string) object, last ...object) error {
		if err := send("content_block_start", object{"index": index, "content_block": start}); err != nil {
			return err
		}
		if index == 0 {
			if err := send("ping", object{}); err != nil {
				return err
			}
		}
		for _, piece := range pieces(text, x.piece) {
			if err := w.rest(); err != nil {
				return err
			}
			if err := send("content_block_delta", object{"index": index, "delta": delta(piece)}); err != nil {
				return err
			}
		}
		for _, d := range last {
			if err := send("content_block_delta", object{"index": index, "delta": d}); err != nil {
				return err
			}
		}
		index++
		return send("content_block_stop", object{"index": index - 1})
	}
	if r.Thinking != "" {
		err := block(object{"type": "thinking", "thinking": "", "signature": ""}, r.Thinking,
			func(p string) object { return object{"type": "thinking_delta", "thinking": p} },
			object{"type": "signature_delta", "signature": signature(r.Thinking)})
		if err != nil {
			return err
		}
	}
	if r.Text != "" {
		err := block(object{"type": "text", "text": ""}, r.Text,
			func(p string) object { return object{"type": "text_delta", "text": p} })
		if err != nil {
			return err
		}
	}
	for _, c := range r.Calls {
		err := block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, c.arguments(),
			func(p string) object { return object{"type": "input_json_delta", "partial_json": p} })
		if err != nil {
			return err
		}
	}
	err = send("message_delta", object{
		"delta": object{"stop_reason": anthropicStops[r.Stop], "stop_sequence": nil},
		"usage": object{"output_tokens": r.Usage.Output},
	})
	if err != nil {
		return err
	}
	return send("message_stop", object{})
}

// anthropicRequest is what we look at of a request.
type anthropicRequest struct {
	Model       string                 `json:"model"`
	MaxTokens   *int                   `json:"max_tokens"`
	System      json.RawMessage        `json:"system"`
	Messages    []anthropicRequestTurn `json:"messages"`
	Tools       []anthropicTool        `json:"tools"`
	Stream      bool                   `json:"stream"`
	Temperature *float64               `json:"temperature"`
	Thinking    *struct {
		Type         string `json:"type"`
		BudgetTokens int    `json:"budget_tokens"`
	} `json:"thinking"`
	ToolChoice json.RawMessage `json:"tool_choice"`
}

type anthropicRequestTurn struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
	Content   json.RawMessage `json:"content"`
	Source    *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

func (anthropic) read(h http.Header, body []byte) (exchange, *apiError) {
	x := exchange{Conversation: Conversation{API: apiAnthropic}}
	var request anthropicRequest
	if !isJSON(h) {
		return x, invalid("Content-Type must be application/json, not %q", h.Get("Content-Type"))
	}
	if h.Get("Anthropic-Version") == "" {
		return x, invalid("anthropic-version: header is required")
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return x, invalid("The request body is not valid JSON: %v", err)
	}
	x.Model, x.Stream = request.Model, request.Stream
	if request.MaxTokens != nil {
		x.MaxTokens = *request.MaxTokens
	}
	if e := request.check(body); e != nil {
		return x, e
	}
	for _, t := range request.Tools {
		x.Tools = append(x.Tools, Tool{t.Name, t.Description, t.InputSchema})
	}
	if len(request.System) > 0 {
		blocks, e := blocksOf(request.System, "system")
		if e != nil {
			return x, e
		}
		for _, b := range blocks {
			if b.Text == nil || *b.Text == "" && isList(request.System) {
				return x, invalid("system: text content blocks must be non-empty")
			}
		}
		x.System = textOf(blocks)
	}
	var turns [][]anthropicBlock
	for i, m := range request.Messages {
		blocks, e := blocksOf(m.Content, at("messages", i, "content"))
		if e != nil {
			return x, e
		}
		turns = append(turns, blocks)
		message, e := readTurn(m.Role, i, blocks)
		if e != nil {
			return x, e
		}
		x.Messages = append(x.Messages, message)
	}
	return x, request.checkTurns(turns)
}

// blocksOf reads content, which is a text or blocks.
func blocksOf(raw json.RawMessage, where string) ([]anthropicBlock, *apiError) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, invalid("%s: Field required", where)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return nil, invalid("%s: Input should be a valid string or list of blocks", where)
	}
	return blocks, nil
}

func textOf(blocks []anthropicBlock) string {
	var b strings.Builder
	for _, block := range blocks {
		if block.Type == "text" && block.Text != nil {
			b.WriteString(*block.Text)
		}
	}
	return b.String()
}

// readTurn brings a message into the common form, and refuses blocks that may
// not be where they are.
func readTurn(role string, i int, blocks []anthropicBlock) (Message, *apiError) {
	m := Message{Role: role}
	for j, b := range blocks {
		where := at("messages", i, "content", j)
		mine := role == roleAssistant
		switch {
		case b.Type == "text":
			if b.Text == nil {
				return m, invalid("%s.text.text: Field required", where)
			}
			if *b.Text == "" {
				return m, invalid("messages: text content blocks must be non-empty")
			}
			m.Text += *b.Text
		case b.Type == "image" && !mine:
			image, e := b.image(where)
			if e != nil {
				return m, e
			}
			m.Images = append(m.Images, image)
		case b.Type == "thinking" && mine:
			if b.Signature != signature(b.Thinking) {
				return m, invalid("%s: Invalid `signature` in `thinking` block", where)
			}
			m.Thinking += b.Thinking
		case b.Type == "tool_use" && mine:
			if b.ID == "" || !anthropicName.MatchString(b.Name) {
				return m, invalid("%s.tool_use: id and name are required; name: String should match pattern '%s'", where, anthropicName)
			}
			if !isObject(b.Input) {
				return m, invalid("%s.tool_use.input: Input should be a valid dictionary", where)
			}
			m.Calls = append(m.Calls, Call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		case b.Type == "tool_result" && !mine:
			result := Result{CallID: b.ToolUseID, IsError: b.IsError}
			if len(b.Content) > 0 {
				inner, e := blocksOf(b.Content, where+".tool_result.content")
				if e != nil {
					return m, e
				}
				for k, c := range inner {
					switch {
					case c.Type == "text" && c.Text != nil && (*c.Text != "" || !isList(b.Content)):
						result.Text += *c.Text
					case c.Type == "text":
						return m, invalid("messages: text content blocks must be non-empty")
					case c.Type == "image":
						image, e := c.image(at("messages", i, "content", j, "tool_result", "content", k))
						if e != nil {
							return m, e
						}
						result.Images = append(result.Images, image)
					default:
						return m, invalid("%s.tool_result.content.%d: Input tag '%s' is not allowed here", where, k, c.Type)
					}
				}
			}
			m.Results = append(m.Results, result)
		default:
			return m, invalid("%s: Input tag '%s' is not allowed in a message of the %s", where, b.Type, role)
		}
	}
	return m, nil
}

func (b anthropicBlock) image(where string) (Image, *apiError) {
	if b.Source == nil || b.Source.Type != "base64" {
		return Image{}, invalid("%s.image.source: the scripted model takes type base64 only", where)
	}
	image, err := picture(b.Source.MediaType, b.Source.Data)
	if err != nil {
		return Image{}, invalid("%s.image.source: %v", where, err)
	}
	return image, nil
}
