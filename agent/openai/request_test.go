package openai_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/openai"
)

// pixel is a PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

type part = agent.Part

// said streams chunks and returns what Generate makes of them, and the request.
func said(t *testing.T, req agent.Request, chunks ...string) (*agent.Reply, map[string]any, error) {
	t.Helper()
	var body map[string]any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, c := range append(chunks, "[DONE]") {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", c)
		}
	}))
	defer srv.Close()
	reply, err := openai.New(openai.Config{Model: "m", BaseURL: srv.URL}).Generate(t.Context(), req, nil)
	return reply, body, err
}

func chunk(delta, finish string) string {
	return `{"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

func ask(messages ...agent.Message) agent.Request { return agent.Request{Messages: messages} }

func same(t *testing.T, got any, want string) {
	t.Helper()
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal([]byte(want), &v); err != nil {
		t.Fatal(err)
	}
	if w, _ := json.Marshal(v); string(b) != string(w) {
		t.Errorf("got  %s\nwant %s", b, w)
	}
}

func TestRequest(t *testing.T) {
	data, err := base64.StdEncoding.DecodeString(pixel)
	if err != nil {
		t.Fatal(err)
	}
	img := agent.Image{Name: "p.png", Data: data}
	temperature := 0.5
	req := ask(
		agent.UserText("hi"),
		agent.Message{Role: agent.RoleAssistant, Parts: []part{agent.Text{Text: "so"},
			agent.ToolCall{ID: "c1", Name: "f", Arguments: json.RawMessage(`{"a":"b"}`)}, agent.ToolCall{ID: "c2", Name: "g", Arguments: json.RawMessage(`{"cut`)}}},
		agent.Message{Role: agent.RoleUser, Parts: []part{agent.ToolResult{CallID: "c1", Name: "f", Parts: []part{agent.Text{Text: "1"}, img}},
			agent.ToolResult{CallID: "c2", Name: "g", IsError: true, Parts: []part{agent.Text{Text: "2"}}}}},
		agent.Message{Role: agent.RoleAssistant, Parts: []part{agent.Text{Text: "ok"}}},
		agent.Message{Role: agent.RoleUser, Parts: []part{agent.Text{Text: "and this?"}, img}},
	)
	req.System, req.MaxTokens, req.Temperature = "Be brief.", 100, &temperature
	req.Tools = []agent.ToolSpec{{Name: "f", Description: "does", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`)}, {Name: "g"}}
	_, body, err := said(t, req, chunk(`{"content":"x"}`, `"stop"`))
	if err != nil {
		t.Fatal(err)
	}
	picture := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pixel + `"}}`
	same(t, body["messages"], `[
		{"role":"system","content":"Be brief."},
		{"role":"user","content":"hi"},
		{"role":"assistant","content":"so","tool_calls":[
			{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}},
			{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"invalid_arguments\":\"{\\\"cut\"}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"1"},
		{"role":"tool","tool_call_id":"c2","content":"Error: 2"},
		{"role":"user","content":[{"type":"text","text":"Pictures of the call of f:"},`+picture+`]},
		{"role":"assistant","content":"ok"},
		{"role":"user","content":[{"type":"text","text":"and this?"},`+picture+`]}]`)
	same(t, body["tools"], `[
		{"type":"function","function":{"name":"f","description":"does","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}},
		{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]`)
	same(t, []any{body["max_tokens"], body["max_completion_tokens"], body["temperature"], body["stream"]}, `[100,null,0.5,true]`)
}

// A call that was cut keeps the stop that says so: nothing of it runs.
func TestCutCall(t *testing.T) {
	reply, _, err := said(t, ask(agent.UserText("a")),
		chunk(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":\"b"}}]}`, "null"), chunk(`{}`, `"length"`))
	if err != nil || reply.Stop != agent.StopLength {
		t.Fatalf("%+v, %v", reply, err)
	}
}

// "error": null is none, whatever else a chunk says; any other is one.
func TestNullError(t *testing.T) {
	null := func(c string) string { return strings.Replace(c, "{", `{"error": null, `, 1) }
	long := strings.Repeat(`\"error\":null `, 10000)
	reply, _, err := said(t, ask(agent.UserText("a")), null(chunk(`{"content":"`+long+`"}`, "null")), null(chunk(`{"content":"."}`, `"stop"`)))
	if err != nil || reply.Message.Text() != strings.ReplaceAll(long, `\`, "")+"." || reply.Stop != agent.StopEnd {
		t.Fatalf("%v", err)
	}
	_, _, err = said(t, ask(agent.UserText("a")), chunk(`{"content":"x"}`, "null"), `{"error":{"message":"slow down","type":"rate_limit_error"}}`)
	if agent.KindOf(err) != agent.KindRateLimited {
		t.Errorf("%v", err)
	}
}
