package anthropic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/anthropic"
)

// A reply is whole with its last event, also if the body stays open; arguments may
// come with the beginning of a call; a server that is not Anthropic's may want no
// key.
func TestStream(t *testing.T) {
	end := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"","name":"add","input":{"a":1}}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

`)
		_ = http.NewResponseController(w).Flush()
		<-end
	}))
	defer srv.Close()
	defer close(end)
	m := anthropic.New(anthropic.Config{Model: "x", BaseURL: srv.URL})
	type result struct {
		reply *agent.Reply
		err   error
	}
	done := make(chan result, 1)
	go func() {
		reply, err := m.Generate(t.Context(), agent.Request{Messages: []agent.Message{agent.UserText("1+1?")}}, nil)
		done <- result{reply, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			t.Fatal(r.err)
		}
		c, ok := r.reply.Message.Parts[0].(agent.ToolCall)
		if !ok || c.ID == "" || string(c.Arguments) != `{"a":1}` || r.reply.Stop != agent.StopTools || r.reply.Usage != (agent.Usage{Input: 3, Output: 9}) {
			t.Errorf("%+v", r.reply)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the body's end")
	}
}
