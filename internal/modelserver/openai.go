package modelserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

const apiOpenAI = "openai"

// openAI is the format of Chat Completions.
type openAI struct{}

func (openAI) key(h http.Header) string {
	key, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return key
}

func (openAI) failure(e *apiError) any {
	inner := object{"message": e.message, "type": e.kind, "param": nil, "code": nil}
	if e.param != "" {
		inner["param"] = e.param
	}
	if e.code != "" {
		inner["code"] = e.code
	}
	return object{"error": inner}
}

func (d openAI) failureEvent(e *apiError) (string, any) { return "", d.failure(e) }

func (openAI) missingKey() *apiError {
	return &apiError{status: http.StatusUnauthorized, kind: "invalid_request_error",
		message: "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."}
}

func (openAI) longContext() *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", code: "context_length_exceeded", param: "messages",
		message: "This model's maximum context length is 128000 tokens. However, your messages resulted in 130112 tokens. Please reduce the length of the messages."}
}

func (openAI) ofStatus(status int) *apiError {
	e := &apiError{status: status, kind: "invalid_request_error"}
	switch {
	case status == http.StatusUnauthorized:
		e.code, e.message = "invalid_api_key", "Incorrect API key provided: ***. You can find your API key at https://platform.openai.com/account/api-keys."
	case status == http.StatusForbidden:
		e.code, e.message = "unsupported_country_region_territory", "Country, region, or territory not supported"
		e.kind = "request_forbidden"
	case status == http.StatusNotFound:
		e.code, e.message = "model_not_found", "The model does not exist or you do not have access to it."
	case status == http.StatusRequestEntityTooLarge:
		e.message = "Request too large."
	case status == http.StatusTooManyRequests:
		e.kind, e.code, e.message = "requests", "rate_limit_exceeded", "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s."
	case status == http.StatusServiceUnavailable:
		e.kind, e.message = "service_unavailable_error", "The engine is currently overloaded, please try again later"
	case status >= 500:
		e.kind, e.message = "server_error", "The server had an error while processing your request. Sorry about that!"
	default:
		e.message = http.StatusText(status)
	}
	return e
}

var openAIStops = map[string]string{"end": "stop", "tools": "tool_calls", "length": "length", "refused": "content_filter"}

func openAIUsage(u Usage) object {
	return object{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     object{"cached_tokens": 0, "audio_tokens": 0},
		"completion_tokens_details": object{"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
	}
}

func (openAI) whole(x exchange, r Reply) any {
	message := object{"role": roleAssistant, "content": r.Text, "refusal": nil, "annotations": []any{}}
	if r.Text == "" && len(r.Calls) > 0 {
		message["content"] = nil
	}
	if r.Thinking != "" {
		message[x.reasoning] = r.Thinking
	}
	if len(r.Calls) > 0 {
		var calls []any
		for _, c := range r.Calls {
			calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.arguments()}})
		}
		message["tool_calls"] = calls
	}
	return object{
		"id": "chatcmpl-" + x.id, "object": "chat.completion", "created": created.Unix(), "model": x.Model,
		"choices":      []any{object{"index": 0, "message": message, "logprobs": nil, "finish_reason": openAIStops[r.Stop]}},
		"usage":        openAIUsage(r.Usage),
		"service_tier": "default", "system_fingerprint": "fp_scripted",
	}
}

func (openAI) stream(w *writer, x exchange, r Reply) error {
	send := func(choices []any, usage any) error {
		chunk := object{
			"id": "chatcmpl-" + x.id, "object": "chat.completion.chunk", "created": created.Unix(), "model": x.Model,
			"service_tier": "default", "system_fingerprint": "fp_scripted", "choices": choices,
		}
		if x.includeUsage {
			chunk["usage"] = usage
		}
		return w.event("", chunk)
	}
	delta := func(d object, finish any) error {
		return send([]any{object{"index": 0, "delta": d, "logprobs": nil, "finish_reason": finish}}, nil)
	}
	spread := func(text string, d func(piece string) object) error {
		for _, piece := range pieces(text, x.piece) {
			if err := w.rest(); err != nil {
				return err
			}
			if err := delta(d(piece), nil); err != nil {
				return err
			}
		}
		return nil
	}

	first := object{"role": roleAssistant, "content": "", "refusal": nil}
	if r.Text == "" && len(r.Calls) > 0 {
		first["content"] = nil
	}
	if err := delta(first, nil); err != nil {
		return err
	}
	if err := spread(r.Thinking, func(p string) object { return object{x.reasoning: p} }); err != nil {
		return err
	}
	if err := spread(r.Text, func(p string) object { return object{"content": p} }); err != nil {
		return err
	}
	for i, c := range r.Calls {
		call := func(c object) object { return object{"tool_calls": []any{c}} }
		if err := delta(call(object{"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""}}), nil); err != nil {
			return err
		}
		err := spread(c.arguments(), func(p string) object {
			return call(object{"index": i, "function": object{"arguments": p}})
		})
		if err != nil {
			return err
		}
	}
	if err := delta(object{}, openAIStops[r.Stop]); err != nil {
		return err
	}
	if x.includeUsage {
		if err := send([]any{}, openAIUsage(r.Usage)); err != nil {
			return err
		}
	}
	return w.raw("", []byte("[DONE]"))
}

// openAIRequest is what we look at of a request.
type openAIRequest struct {
	Model         string          `json:"model"`
	Messages      []openAIMessage `json:"messages"`
	Tools         *[]openAITool   `json:"tools"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	N                   *int            `json:"n"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
}

type openAIMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []openAICall    `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	// Compatible servers take these of the assistant's messages.
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"`
}

type openAICall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

type openAITool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type openAIPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL *struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

func (openAI) read(h http.Header, body []byte) (exchange, *apiError) {
	x := exchange{Conversation: Conversation{API: apiOpenAI}}
	if !isJSON(h) {
		return x, invalid("Unsupported Content-Type. Expected application/json, got %q.", h.Get("Content-Type"))
	}
	var request openAIRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return x, invalid("We could not parse the JSON body of your request: %v", err)
	}
	x.Model, x.Stream = request.Model, request.Stream
	x.includeUsage = request.StreamOptions != nil && request.StreamOptions.IncludeUsage
	for _, n := range []*int{request.MaxTokens, request.MaxCompletionTokens} {
		if n != nil {
			x.MaxTokens = *n
		}
	}
	if e := request.check(body); e != nil {
		return x, e
	}
	if request.Tools != nil {
		for _, t := range *request.Tools {
			x.Tools = append(x.Tools, Tool{t.Function.Name, t.Function.Description, t.Function.Parameters})
		}
	}
	var systems []string
	for i, m := range request.Messages {
		text, images, e := m.content(i)
		if e != nil {
			return x, e
		}
		switch m.Role {
		case "system", "developer":
			systems = append(systems, text)
			continue
		case roleTool:
			x.Messages = append(x.Messages, Message{Role: roleTool, Results: []Result{{CallID: m.ToolCallID, Text: text}}})
			continue
		}
		message := Message{Role: m.Role, Text: text, Images: images, Thinking: m.ReasoningContent + m.Reasoning}
		for _, c := range m.ToolCalls {
			message.Calls = append(message.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: *c.Function.Arguments})
		}
		x.Messages = append(x.Messages, message)
	}
	x.System = strings.Join(systems, "\n")
	return x, nil
}

// content reads what a message says.
func (m openAIMessage) content(i int) (text string, images []Image, e *apiError) {
	param := fmt.Sprintf("messages.[%d].content", i)
	raw := bytes.TrimSpace(m.Content)
	if len(raw) == 0 || string(raw) == "null" {
		if m.Role == roleAssistant && len(m.ToolCalls) > 0 {
			return "", nil, nil
		}
		return "", nil, badParam(param, "Invalid value for 'content': expected a string, got null.")
	}
	if err := json.Unmarshal(raw, &text); err == nil {
		return text, nil, nil
	}
	var parts []openAIPart
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", nil, badParam(param, "Invalid type for '%s': expected one of a string or array of objects.", param)
	}
	if len(parts) == 0 {
		return "", nil, badParam(param, "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", param)
	}
	for j, p := range parts {
		switch {
		case p.Type == "text" || p.Type == "refusal" && m.Role == roleAssistant:
			text += p.Text
		case p.Type == "image_url" && m.Role == roleUser && p.ImageURL != nil:
			image, err := dataURL(p.ImageURL.URL)
			if err != nil {
				bad := badParam(param, "%v", err)
				bad.code = "invalid_image_url"
				return "", nil, bad
			}
			images = append(images, image)
		case p.Type == "image_url" && p.ImageURL != nil:
			return "", nil, badParam(param, "Invalid 'messages[%d]'. Image URLs are only allowed for messages with role 'user', but this message with role '%s' contains an image URL.", i, m.Role)
		default:
			return "", nil, badParam(param, "Invalid value: '%s'. It is the type of messages[%d].content[%d].", p.Type, i, j)
		}
	}
	return text, images, nil
}

func badParam(param, format string, args ...any) *apiError {
	e := invalid(format, args...)
	e.param = param
	return e
}
