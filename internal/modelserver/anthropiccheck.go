package modelserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// anthropicFields are the fields of a request that Messages knows.
var anthropicFields = strings.Fields(`model messages max_tokens metadata stop_sequences stream system temperature
	tool_choice tools top_k top_p thinking service_tier container context_management mcp_servers output_config
	cache_control inference_geo`)

// anthropicName is how a tool may be called.
var anthropicName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// at names a place in a request, as Messages does.
func at(path ...any) string {
	var b strings.Builder
	for i, p := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		fmt.Fprint(&b, p)
	}
	return b.String()
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}

func isList(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '['
}

// check refuses what Messages refuses, as far as it is known.
func (r anthropicRequest) check(body []byte) *apiError {
	if e := unknownFields(body, anthropicFields, "%s: Extra inputs are not permitted"); e != nil {
		return e
	}
	switch {
	case r.Model == "":
		return invalid("model: Field required")
	case r.MaxTokens == nil:
		return invalid("max_tokens: Field required")
	case *r.MaxTokens < 1:
		return invalid("max_tokens: Input should be greater than or equal to 1")
	case r.Messages == nil:
		return invalid("messages: Field required")
	case len(r.Messages) == 0:
		return invalid("messages: at least one message is required")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 1):
		return invalid("temperature: range: 0..1")
	case len(r.ToolChoice) > 0 && len(r.Tools) == 0:
		return invalid("tool_choice: may only be specified while providing tools")
	}
	if t := r.Thinking; t != nil && t.Type == "enabled" {
		switch {
		case t.BudgetTokens < 1024:
			return invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
		case t.BudgetTokens >= *r.MaxTokens:
			return invalid("`max_tokens` must be greater than `thinking.budget_tokens`")
		case r.Temperature != nil && *r.Temperature != 1:
			return invalid("`temperature` may only be set to 1 when thinking is enabled")
		}
	}
	for i, t := range r.Tools {
		if !anthropicName.MatchString(t.Name) {
			return invalid("tools.%d.custom.name: String should match pattern '%s'", i, anthropicName)
		}
		var schema struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object" {
			return invalid("tools.%d.custom.input_schema.type: Input should be 'object'", i)
		}
	}
	for i, m := range r.Messages {
		switch m.Role {
		case roleUser, roleAssistant:
		case "system":
			return invalid("messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.")
		default:
			return invalid("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if i == 0 && m.Role != roleUser {
			return invalid("messages: first message must use the \"user\" role")
		}
		// Anthropic joins turns of one role. Compatible endpoints refuse them, and
		// so did it once; a model that works with all sends none.
		if i > 0 && m.Role == r.Messages[i-1].Role {
			return invalid("messages: roles must alternate between \"user\" and \"assistant\", but found multiple %q roles in a row", m.Role)
		}
	}
	return nil
}

// checkTurns checks that calls and results are pairs, and how turns begin and end.
func (r anthropicRequest) checkTurns(turns [][]anthropicBlock) *apiError {
	var open []string
	for i, blocks := range turns {
		if len(blocks) == 0 {
			return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
		}
		if r.Messages[i].Role == roleAssistant {
			open = nil
			for _, b := range blocks {
				if b.Type == "tool_use" {
					open = append(open, b.ID)
				}
			}
			if kind := blocks[len(blocks)-1].Type; kind == "thinking" || kind == "redacted_thinking" {
				return invalid("messages.%d: The final block in an assistant message cannot be `thinking`.", i)
			}
			continue
		}
		text := false
		for j, b := range blocks {
			if b.Type != "tool_result" {
				text = true
				continue
			}
			k := -1
			for n, id := range open {
				if id == b.ToolUseID {
					k = n
				}
			}
			if k < 0 {
				return invalid("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", at("messages", i, "content", j), b.ToolUseID)
			}
			if text {
				return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. In a message of the user, results come before text.", i-1, b.ToolUseID)
			}
			open = append(open[:k], open[k+1:]...)
		}
		if len(open) > 0 {
			return unansweredUse(i-1, open)
		}
	}
	last := len(turns) - 1
	if r.Messages[last].Role != roleAssistant {
		return nil
	}
	if len(open) > 0 {
		return unansweredUse(last, open)
	}
	// Newer models take no beginning of their reply from the caller, and older
	// ones none that ends in a space.
	return invalid("This model does not support assistant message prefill. The conversation must end with a user message.")
}

func unansweredUse(i int, ids []string) *apiError {
	return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, strings.Join(ids, ", "))
}
