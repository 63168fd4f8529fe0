package anthropic_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// pixel is a PNG of one pixel.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

type part = agent.Part

func assistant(parts ...part) agent.Message {
	return agent.Message{Role: agent.RoleAssistant, Parts: parts}
}

// said streams events and returns what Generate makes of them, and the request.
func said(t *testing.T, c anthropic.Config, req agent.Request, events ...string) (*agent.Reply, map[string]any, error) {
	t.Helper()
	var body map[string]any
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			var kind struct{ Type string }
			if err := json.Unmarshal([]byte(e), &kind); err != nil {
				t.Error(err)
			}
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind.Type, e)
		}
	}))
	defer srv.Close()
	c.APIKey, c.BaseURL, c.Model = "any", srv.URL, "m"
	reply, err := anthropic.New(c).Generate(t.Context(), req, nil)
	return reply, body, err
}

func message(stop, usage string, blocks ...string) []string {
	events := []string{`{"type":"message_start","message":{"model":"m","usage":` + usage + `}}`}
	events = append(events, blocks...)
	return append(events, `{"type":"message_delta","delta":{"stop_reason":"`+stop+`"},"usage":{"output_tokens":7}}`, `{"type":"message_stop"}`)
}

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
	_, body, err := said(t, anthropic.Config{}, agent.Request{
		System: "Be brief.", MaxTokens: 100, Temperature: &temperature,
		Tools: []agent.ToolSpec{{Name: "f", Description: "does", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`)}, {Name: "g"}},
		Messages: []agent.Message{
			{Role: agent.RoleUser, Parts: []part{agent.Text{Text: "hi"}, img}},
			assistant(agent.Thinking{Opaque: json.RawMessage(`{"thinking":"hm","signature":"s"}`)}, agent.ToolCall{ID: "t.1", Name: "f", Arguments: json.RawMessage(`{"a":"b"}`)}),
			{Role: agent.RoleUser, Parts: []part{agent.Text{Text: "and?"},
				agent.ToolResult{CallID: "t.1", Name: "f", IsError: true, Parts: []part{agent.Text{Text: "1"}, img}}}},
			assistant(),
		},
	}, message("end_turn", `{"input_tokens":1}`)...)
	if err != nil {
		t.Fatal(err)
	}
	picture := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}`
	same(t, body["messages"], `[
		{"role":"user","content":[{"type":"text","text":"hi"},`+picture+`]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"t_1","name":"f","input":{"a":"b"}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t_1","is_error":true,"content":[{"type":"text","text":"1"},`+picture+`]},{"type":"text","text":"and?"}]},
		{"role":"assistant","content":[{"type":"text","text":"(nothing)"}]}]`)
	same(t, body["tools"], `[{"name":"f","description":"does","input_schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}},{"name":"g","input_schema":{"type":"object"}}]`)
	same(t, body["system"], `[{"type":"text","text":"Be brief."}]`)
	same(t, []any{body["max_tokens"], body["temperature"], body["stream"]}, `[100,0.5,true]`)
}

// A reply that was cut while the model thought goes back with a text behind it.
func TestThinkingLast(t *testing.T) {
	srv, err := modelserver.Start(modelserver.Config{Reply: func(c modelserver.Conversation) modelserver.Reply {
		if c.Turn() <= 1 {
			return modelserver.Reply{Thinking: "hm", Stop: "length"}
		}
		return modelserver.Reply{Text: c.Messages[1].Thinking + c.Messages[1].Text}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	m := anthropic.New(anthropic.Config{APIKey: "k", BaseURL: srv.AnthropicURL(), Model: "scripted"})
	req := agent.Request{Messages: []agent.Message{agent.UserText("a")}}
	reply, err := m.Generate(t.Context(), req, nil)
	if err != nil || reply.Stop != agent.StopLength {
		t.Fatalf("%+v, %v", reply, err)
	}
	req.Messages = append(req.Messages, reply.Message, agent.UserText("b"))
	if reply, err = m.Generate(t.Context(), req, nil); err != nil || reply.Message.Text() != "hm(nothing)" {
		t.Errorf("%+v, %v", reply, err)
	}
	_, body, err := said(t, anthropic.Config{}, agent.Request{Messages: []agent.Message{agent.UserText("a"),
		assistant(agent.Text{Text: "x"}, agent.Thinking{Opaque: json.RawMessage(`{"redacted":"r"}`)}), agent.UserText("b")}}, message("end_turn", `{}`)...)
	if err != nil {
		t.Fatal(err)
	}
	same(t, body["messages"].([]any)[1], `{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"redacted_thinking","data":"r"},{"type":"text","text":"(nothing)"}]}`)

	// Without that text it is refused.
	sum := req.Messages[1].Parts[0].(agent.Thinking).Opaque
	bare := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		strings.Replace(string(sum), "{", `{"type":"thinking",`, 1) + `]},{"role":"user","content":"b"}]}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.AnthropicURL()+"/v1/messages", strings.NewReader(bare))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"X-Api-Key": {"k"}, "Anthropic-Version": {"2023-06-01"}, "Content-Type": {"application/json"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(answer), "final block") {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
}

// Thinking does not eat the reply.
func TestThinkingTokens(t *testing.T) {
	temperature := 0.5
	for _, test := range []struct {
		request, want int
	}{{100, 2148}, {0, 8192 + 2048}} {
		_, body, err := said(t, anthropic.Config{ThinkingTokens: 2048}, agent.Request{Messages: []agent.Message{agent.UserText("a")},
			MaxTokens: test.request, Temperature: &temperature}, message("end_turn", `{}`)...)
		if err != nil {
			t.Fatal(err)
		}
		same(t, []any{body["max_tokens"], body["thinking"], body["temperature"]}, fmt.Sprintf(`[%d,{"type":"enabled","budget_tokens":2048},null]`, test.want))
	}
}

func TestUsage(t *testing.T) {
	for usage, want := range map[string]agent.Usage{
		`{"input_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":5,"output_tokens":1}`:              {Input: 12, Output: 7},
		`{"input_tokens":-3,"cache_read_input_tokens":-4,"output_tokens":-1}`:                                           {Output: 7},
		`{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":4611686018}`: {Input: 1 << 30, Output: 1 << 30},
	} {
		reply, _, err := said(t, anthropic.Config{}, agent.Request{Messages: []agent.Message{agent.UserText("a")}}, message("end_turn", usage)...)
		if err != nil || reply.Usage != want {
			t.Errorf("%s: %+v, %v", usage, reply, err)
		}
	}
}

// A call that was cut keeps the stop that says so: nothing of it runs.
func TestCutCall(t *testing.T) {
	reply, _, err := said(t, anthropic.Config{}, agent.Request{Messages: []agent.Message{agent.UserText("a")}}, message("max_tokens", `{}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":\"b"}}`,
		`{"type":"content_block_stop","index":0}`)...)
	if err != nil || reply.Stop != agent.StopLength {
		t.Fatalf("%+v, %v", reply, err)
	}
}
