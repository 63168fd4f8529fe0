package modelserver

import (
	"encoding/json"
	"regexp"
	"strings"
)

// openAIFields are the fields of a request that Chat Completions knows.
var openAIFields = strings.Fields(`messages model audio frequency_penalty function_call functions logit_bias logprobs
	max_completion_tokens max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty
	prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop
	store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options`)

// openAIName is how a tool may be called.
var openAIName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// check refuses what Chat Completions refuses, as far as it is known.
func (r openAIRequest) check(body []byte) *apiError {
	if e := unknownFields(body, openAIFields, "Unrecognized request argument supplied: %s"); e != nil {
		return e
	}
	switch {
	case r.Model == "":
		return invalid("you must provide a model parameter")
	case r.Messages == nil:
		return badParam("messages", "Missing required parameter: 'messages'.")
	case len(r.Messages) == 0:
		return badParam("messages", "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	case r.StreamOptions != nil && !r.Stream:
		return badParam("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case r.MaxTokens != nil && r.MaxCompletionTokens != nil:
		return invalid("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case r.MaxTokens != nil && reasons(r.Model):
		e := badParam("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
		e.code = "unsupported_parameter"
		return e
	case r.MaxTokens != nil && *r.MaxTokens < 1, r.MaxCompletionTokens != nil && *r.MaxCompletionTokens < 1:
		return badParam("max_tokens", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1.")
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 2):
		return badParam("temperature", "Invalid 'temperature': decimal out of range. Expected a value between 0 and 2.")
	case r.N != nil && *r.N != 1:
		return badParam("n", "the scripted model makes one choice: leave n out")
	case len(r.ToolChoice) > 0 && r.Tools == nil:
		return badParam("tool_choice", "'tool_choice' is only allowed when 'tools' are specified.")
	}
	if r.Tools != nil {
		if len(*r.Tools) == 0 {
			return badParam("tools", "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.")
		}
		for i, t := range *r.Tools {
			if e := t.check(i); e != nil {
				return e
			}
		}
	}
	return checkOpenAIMessages(r.Messages)
}

// reasons tells the models that do not take max_tokens.
func reasons(model string) bool {
	for _, prefix := range []string{"o1", "o3", "o4", "gpt-5"} {
		if strings.HasPrefix(model, prefix) {
			return true
		}
	}
	return false
}

func (t openAITool) check(i int) *apiError {
	switch {
	case t.Type != "function":
		return badParam("tools", "Invalid value: '%s'. Supported values are: 'function' and 'custom'.", t.Type)
	case !openAIName.MatchString(t.Function.Name):
		return badParam("tools", "Invalid 'tools[%d].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", i)
	}
	var schema struct {
		Type string `json:"type"`
	}
	if len(t.Function.Parameters) > 0 && (json.Unmarshal(t.Function.Parameters, &schema) != nil || schema.Type != "object") {
		e := badParam("tools", "Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"%s\"'.", t.Function.Name, schema.Type)
		e.code = "invalid_function_parameters"
		return e
	}
	return nil
}

// checkOpenAIMessages checks roles, and that calls and results are pairs.
func checkOpenAIMessages(messages []openAIMessage) *apiError {
	var open []string // calls of the last assistant's message without results
	known := map[string]bool{}
	for i, m := range messages {
		if m.Role != roleTool && len(open) > 0 {
			return unanswered(open)
		}
		switch m.Role {
		case "system", "developer", roleUser:
		case roleAssistant:
			clear(known)
			for j, c := range m.ToolCalls {
				switch {
				case c.ID == "":
					return badParam("messages", "Missing required parameter: 'messages[%d].tool_calls[%d].id'.", i, j)
				case c.Type != "function":
					return badParam("messages", "Invalid value: '%s'. Supported values are: 'function' and 'custom'.", c.Type)
				case !openAIName.MatchString(c.Function.Name):
					return badParam("messages", "Invalid 'messages[%d].tool_calls[%d].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.", i, j)
				case c.Function.Arguments == nil:
					return badParam("messages", "Missing required parameter: 'messages[%d].tool_calls[%d].function.arguments'.", i, j)
				case known[c.ID]:
					return badParam("messages", "Duplicate value for 'tool_call_id' of '%s'", c.ID)
				}
				open = append(open, c.ID)
				known[c.ID] = true
			}
		case roleTool:
			at := -1
			for j, id := range open {
				if id == m.ToolCallID {
					at = j
				}
			}
			if at < 0 {
				return badParam("messages", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
			}
			open = append(open[:at], open[at+1:]...)
		default:
			return badParam("messages", "Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.", m.Role)
		}
	}
	if len(open) > 0 {
		return unanswered(open)
	}
	return nil
}

func unanswered(ids []string) *apiError {
	return badParam("messages", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: %s", strings.Join(ids, ", "))
}
