package modelserver

import (
	"net/http"
	"strings"
	"testing"
)

// What the real endpoints refuse is refused with their words.
func TestRefusedRequests(t *testing.T) {
	s := start(t, Config{Script: &Script{Steps: []Step{{Reply: Reply{Text: "x"}, Repeat: true}}}})
	const (
		chat     = "/v1/chat/completions"
		messages = "/v1/messages"
		user     = `{"role":"user","content":"hi"}`
		called   = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		used     = `{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{}}]}`
		result   = `{"type":"tool_result","tool_use_id":"t1","content":"1"}`
	)
	openAI := func(messages, more string) string { return `{"model":"m","messages":[` + messages + `]` + more + `}` }
	anthropic := func(messages, more string) string {
		return `{"model":"m","max_tokens":9000,"messages":[` + messages + `]` + more + `}`
	}
	for _, test := range []struct{ path, body, want string }{
		{chat, openAI(user, ""), ""},
		{chat, openAI(user+","+called+`,{"role":"tool","tool_call_id":"c1","content":"1"}`, ""), ""},
		{chat, "{", "could not parse the JSON"},
		{chat, `{"messages":[]}`, "you must provide a model"},
		{chat, `{"model":"m"}`, "Missing required parameter: 'messages'"},
		{chat, openAI("", ""), "empty array"},
		{chat, openAI(user, `,"betas":[]`), "Unrecognized request argument supplied: betas"},
		{chat, openAI(user, `,"stream_options":{"include_usage":true}`), "only allowed when 'stream' is enabled"},
		{chat, openAI(user, `,"max_tokens":1,"max_completion_tokens":1`), "at the same time"},
		{chat, strings.Replace(openAI(user, `,"max_tokens":1`), `"m"`, `"gpt-5"`, 1), "Use 'max_completion_tokens' instead"},
		{chat, openAI(user, `,"max_tokens":0`), "below minimum value"},
		{chat, openAI(user, `,"temperature":3`), "Invalid 'temperature'"},
		{chat, openAI(user, `,"tool_choice":"auto"`), "'tool_choice' is only allowed"},
		{chat, openAI(user, `,"tools":[]`), "Invalid 'tools': empty array"},
		{chat, openAI(user, `,"tools":[{"type":"function","function":{"name":"a b"}}]`), "does not match pattern"},
		{chat, openAI(user, `,"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"array"}}}]`), "Invalid schema for function 'a'"},
		{chat, openAI(`{"role":"robot","content":"x"}`, ""), "Invalid value: 'robot'"},
		{chat, openAI(`{"role":"user","content":null}`, ""), "got null"},
		{chat, openAI(`{"role":"user","content":[]}`, ""), "empty array"},
		{chat, openAI(user+","+called, ""), "did not have response messages: c1"},
		{chat, openAI(user+","+called+","+user, ""), "did not have response messages: c1"},
		{chat, openAI(user+","+called+`,{"role":"tool","tool_call_id":"c2","content":"1"}`, ""), "must be a response to a preceeding message"},
		{chat, openAI(user+`,{"role":"tool","tool_call_id":"c1","content":"1"}`, ""), "must be a response to a preceeding message"},
		{chat, openAI(user+","+called+`,{"role":"tool","tool_call_id":"c1","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+pixel+`"}}]}`, ""), "only allowed for messages with role 'user'"},
		{chat, openAI(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,`+pixel+`"}}]}`, ""), "appears to be a image/png"},
		{chat, openAI(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/svg+xml;base64,PHN2Zy8+"}}]}`, ""), "unsupported image"},
		{chat, openAI(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/x.png"}}]}`, ""), "expected a base64-encoded data URL"},

		{messages, anthropic(user, ""), ""},
		{messages, anthropic(user, `,"system":"x","thinking":{"type":"enabled","budget_tokens":1024}`), ""},
		{messages, anthropic(user+","+used+`,{"role":"user","content":[`+result+`,{"type":"text","text":"and?"}]}`, ""), ""},
		{messages, "[", "not valid JSON"},
		{messages, `{"model":"m","messages":[` + user + `]}`, "max_tokens: Field required"},
		{messages, `{"max_tokens":1,"messages":[` + user + `]}`, "model: Field required"},
		{messages, anthropic("", ""), "at least one message is required"},
		{messages, anthropic(user, `,"stream_options":{}`), "stream_options: Extra inputs are not permitted"},
		{messages, anthropic(user, `,"temperature":1.5`), "range: 0..1"},
		{messages, anthropic(user, `,"tool_choice":{"type":"auto"}`), "while providing tools"},
		{messages, anthropic(user, `,"tools":[{"name":"a","input_schema":{}}]`), "input_schema.type: Input should be 'object'"},
		{messages, anthropic(user, `,"tools":[{"name":"a.b","input_schema":{"type":"object"}}]`), "String should match pattern"},
		{messages, anthropic(user, `,"thinking":{"type":"enabled","budget_tokens":9000}`), "must be greater than `thinking.budget_tokens`"},
		{messages, anthropic(user, `,"thinking":{"type":"enabled","budget_tokens":10}`), "greater than or equal to 1024"},
		{messages, anthropic(user, `,"system":[{"type":"text","text":""}]`), "system: text content blocks must be non-empty"},
		{messages, anthropic(`{"role":"system","content":"x"}`, ""), "top-level `system` parameter"},
		{messages, anthropic(used, ""), `first message must use the \"user\" role`},
		{messages, anthropic(user+","+user, ""), "roles must alternate"},
		{messages, anthropic(`{"role":"user","content":""}`, ""), "text content blocks must be non-empty"},
		{messages, anthropic(`{"role":"user","content":[]}`, ""), "must have non-empty content"},
		{messages, anthropic(`{"role":"user","content":[{"type":"thinking","thinking":"x"}]}`, ""), "not allowed in a message of the user"},
		{messages, anthropic(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"`+pixel+`"}}]}`, ""), "appears to be a image/png"},
		{messages, anthropic(user+`,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"forged"}]},`+user, ""), "Invalid `signature`"},
		{messages, anthropic(user+`,{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":"{}"}]},`+user, ""), "valid dictionary"},
		{messages, anthropic(user+","+used+","+user, ""), "without `tool_result` blocks immediately after: t1"},
		{messages, anthropic(user+","+used, ""), "without `tool_result` blocks immediately after: t1"},
		{messages, anthropic(`{"role":"user","content":[`+result+`]}`, ""), "unexpected `tool_use_id` found"},
		{messages, anthropic(user+","+used+`,{"role":"user","content":[{"type":"text","text":"and?"},`+result+`]}`, ""), "results come before text"},
		{messages, anthropic(user+`,{"role":"assistant","content":"So"}`, ""), "prefill"},
	} {
		status, _, answer, err := post(t, s, test.path, test.body)
		want := http.StatusBadRequest
		if test.want == "" {
			want = http.StatusOK
		}
		if err != nil || status != want || !strings.Contains(answer, test.want) {
			t.Errorf("%s: got %d %v %s, want %q", test.body, status, err, answer, test.want)
		}
	}
	for path, body := range map[string]string{chat: openAI(user, ""), messages: anthropic(user, "")} {
		if status, _, answer, _ := post(t, s, path, body, "Content-Type", "text/plain"); status != 400 {
			t.Errorf("%s as text: %d %s", path, status, answer)
		}
	}
	if status, _, answer, _ := post(t, s, messages, anthropic(user, ""), "Anthropic-Version", ""); status != 400 || !strings.Contains(answer, "anthropic-version: header is required") {
		t.Errorf("without a version: %d %s", status, answer)
	}
}
