package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// Open returns the implementation under test, which asks the server for a model of
// that name with a key.
type Open func(s *modelserver.Server, name, key string) agent.Model

// Outcome is what Generate did.
type Outcome struct {
	Reply  *agent.Reply
	Deltas []agent.Delta
	Err    error
}

// Ask asks once.
func Ask(ctx context.Context, m agent.Model, req agent.Request) Outcome {
	var out Outcome
	out.Reply, out.Err = m.Generate(ctx, req, func(d agent.Delta) { out.Deltas = append(out.Deltas, d) })
	return out
}

// Text returns what was streamed of a reply's text.
func (o Outcome) Text() string { return o.join(func(d agent.Delta) string { return d.Text }) }

func (o Outcome) join(field func(agent.Delta) string) string {
	var b strings.Builder
	for _, d := range o.Deltas {
		b.WriteString(field(d))
	}
	return b.String()
}

// Question is a request of one message.
func Question(text string) agent.Request {
	return agent.Request{Messages: []agent.Message{agent.UserText(text)}}
}

// Run tests an implementation.
func Run(t *testing.T, open Open) {
	t.Run("conversation", func(t *testing.T) { conversation(t, open) })
	t.Run("stops", func(t *testing.T) { stops(t, open) })
	t.Run("faults", func(t *testing.T) { faults(t, open) })
	t.Run("contexts", func(t *testing.T) { contexts(t, open) })
	t.Run("requests", func(t *testing.T) { requests(t, open) })
	t.Run("secrets", func(t *testing.T) { secrets(t, open) })
}

// conversation has all kinds of parts go there and back.
func conversation(t *testing.T, open Open) {
	m := open(Serve(t, modelserver.Config{Script: TwoTurns(), Piece: 3}), "scripted", "k")
	req := Question("How much is it?")
	req.System = "Be brief."
	req.Tools = []agent.ToolSpec{{Name: "add", Description: "adds", Schema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`)}, {Name: "now"}}
	first := Ask(t.Context(), m, req)
	if first.Err != nil {
		t.Fatal(first.Err)
	}
	var thought, text string
	var calls []agent.ToolCall
	for _, p := range first.Reply.Message.Parts {
		switch p := p.(type) {
		case agent.Thinking:
			thought += p.Text
		case agent.Text:
			text += p.Text
		case agent.ToolCall:
			calls = append(calls, p)
		}
	}
	if thought != "Two sums, I think." || first.join(func(d agent.Delta) string { return d.Thinking }) != thought {
		t.Errorf("thought %q, streamed %+v", thought, first.Deltas)
	}
	if text != "Let me see: äöü 🎉." || first.Text() != text {
		t.Errorf("text %q, streamed %q", text, first.Text())
	}
	if len(calls) != 2 || calls[0].Name != "add" || string(calls[0].Arguments) != `{"a":1,"b":[2,3]}` || calls[0].ID == "" ||
		calls[1].Name != "now" || string(calls[1].Arguments) != "{}" || calls[1].ID != "second" {
		t.Fatalf("calls %+v", calls)
	}
	if got := first.join(func(d agent.Delta) string { return d.ToolName + d.ToolArguments }); got != `add{"a":1,"b":[2,3]}now{}` {
		t.Errorf("streamed of the calls: %s", got)
	}
	if r := first.Reply; r.Stop != agent.StopTools || r.Usage != (agent.Usage{Input: 11, Output: 22}) || r.Model != "scripted" {
		t.Errorf("%+v", r)
	}
	req.Messages = append(req.Messages, first.Reply.Message, agent.Message{Role: agent.RoleUser, Parts: []agent.Part{
		agent.ToolResult{CallID: calls[0].ID, Name: "add", Parts: []agent.Part{agent.Text{Text: "six"}, agent.Image{Name: "p.png", Data: Pixel()}}},
		agent.ToolResult{CallID: calls[1].ID, Name: "now", Parts: []agent.Part{agent.Text{Text: "noon"}}},
	}})
	reply, err := m.Generate(t.Context(), req, nil) // nobody listens
	if err != nil || reply.Message.Text() != "Six, at noon." || reply.Stop != agent.StopEnd || reply.Usage != (agent.Usage{Input: 33, Output: 44}) {
		t.Fatalf("%+v, %v", reply, err)
	}
}

func stops(t *testing.T, open Open) {
	call := modelserver.Call{Name: "f", Arguments: `{"cut`}
	for _, test := range []struct {
		name  string
		reply modelserver.Reply
		want  agent.StopReason
	}{
		{"end", modelserver.Reply{Text: "x"}, agent.StopEnd},
		{"nothing at all", modelserver.Reply{Stop: "end"}, agent.StopEnd},
		{"length", modelserver.Reply{Text: "x", Stop: "length"}, agent.StopLength},
		{"refused", modelserver.Reply{Text: "x", Stop: "refused"}, agent.StopRefused},
		{"tools", modelserver.Reply{Calls: []modelserver.Call{{Name: "f"}}}, agent.StopTools},
		{"a call that was cut", modelserver.Reply{Calls: []modelserver.Call{call}, Stop: "length"}, agent.StopLength},
	} {
		m := open(Serve(t, modelserver.Config{Reply: func(modelserver.Conversation) modelserver.Reply { return test.reply }}), "scripted", "k")
		if got := Ask(t.Context(), m, Question("Go.")); got.Err != nil || got.Reply.Stop != test.want {
			t.Errorf("%s: %+v, %v", test.name, got.Reply, got.Err)
		}
	}
}

// Fault is what befalls a reply, and what Generate is to say of it.
type Fault struct {
	Name       string
	Fault      modelserver.Fault
	Kind       agent.ModelErrorKind // "" is a whole reply
	Status     int
	RetryAfter time.Duration
	Says       string // in the error's text
}

// Faults are misfortunes of all kinds.
func Faults() []Fault {
	at := func(n int) *int { return &n }
	return []Fault{
		{Name: "401", Fault: modelserver.Fault{Status: 401}, Kind: agent.KindUnauthorized, Status: 401},
		{Name: "403", Fault: modelserver.Fault{Status: 403}, Kind: agent.KindUnauthorized, Status: 403},
		{Name: "404", Fault: modelserver.Fault{Status: 404}, Kind: agent.KindUnknownModel, Status: 404},
		{Name: "408", Fault: modelserver.Fault{Status: 408, Message: "too slow"}, Kind: agent.KindOverloaded, Status: 408, Says: "too slow"},
		{Name: "409", Fault: modelserver.Fault{Status: 409, Message: "oh no"}, Kind: agent.KindInvalidRequest, Status: 409, Says: "oh no"},
		{Name: "413", Fault: modelserver.Fault{Status: 413}, Kind: agent.KindContextTooLong, Status: 413},
		{Name: "429, seconds", Fault: modelserver.Fault{Status: 429, RetryAfter: "7"}, Kind: agent.KindRateLimited, Status: 429, RetryAfter: 7 * time.Second},
		{Name: "429, milliseconds", Fault: modelserver.Fault{Status: 429, RetryAfter: "7", RetryAfterMS: 6500}, Kind: agent.KindRateLimited,
			Status: 429, RetryAfter: 6500 * time.Millisecond},
		{Name: "500", Fault: modelserver.Fault{Status: 500, Message: "oh no"}, Kind: agent.KindOverloaded, Status: 500, Says: "oh no"},
		{Name: "502, a page", Fault: modelserver.Fault{Status: 502, Body: "<html>bad gateway"}, Kind: agent.KindOverloaded, Status: 502, Says: "a web page"},
		{Name: "503", Fault: modelserver.Fault{Status: 503}, Kind: agent.KindOverloaded, Status: 503},
		{Name: "529", Fault: modelserver.Fault{Status: 529}, Kind: agent.KindOverloaded, Status: 529},
		{Name: "a redirect that goes nowhere", Fault: modelserver.Fault{Status: 304}, Kind: agent.KindInvalidResponse, Status: 304},
		{Name: "too long", Fault: modelserver.Fault{ContextTooLong: true}, Kind: agent.KindContextTooLong, Status: 400},
		{Name: "a page in place of a stream", Fault: modelserver.Fault{Body: "<html>log in"}, Kind: agent.KindInvalidResponse, Status: 200, Says: "no stream"},
		{Name: "JSON in place of a stream", Fault: modelserver.Fault{Body: `{"error":"nope"}`}, Kind: agent.KindInvalidResponse, Status: 200, Says: "nope"},
		{Name: "words in place of a stream", Fault: modelserver.Fault{Body: "hello\n\nworld\n\n"}, Kind: agent.KindStreamCut},
		{Name: "no answer", Fault: modelserver.Fault{CutAfter: at(0)}, Kind: agent.KindUnreachable},
		{Name: "cut in the first event", Fault: modelserver.Fault{CutAfter: at(20)}, Kind: agent.KindStreamCut},
		{Name: "cut in the middle", Fault: modelserver.Fault{CutAfter: at(1500)}, Kind: agent.KindStreamCut},
		{Name: "an empty stream", Fault: modelserver.Fault{EndAfter: at(0)}, Kind: agent.KindStreamCut},
		{Name: "ended in the first event", Fault: modelserver.Fault{EndAfter: at(20)}, Kind: agent.KindStreamCut},
		{Name: "ended in the middle", Fault: modelserver.Fault{EndAfter: at(1500)}, Kind: agent.KindStreamCut},
		{Name: "an error at once", Fault: modelserver.Fault{ErrorAfter: at(0)}, Kind: agent.KindOverloaded, Says: "verloaded"},
		{Name: "an error in the middle", Fault: modelserver.Fault{ErrorAfter: at(1500)}, Kind: agent.KindOverloaded, Says: "verloaded"},
		{Name: "a slow beginning", Fault: modelserver.Fault{Delay: 50 * time.Millisecond}},
		{Name: "none"},
	}
}

// FaultyText is the reply that a [Fault] befalls.
var FaultyText = strings.Repeat("word ", 100)

// ServeFault serves a reply that the fault befalls.
func ServeFault(t *testing.T, f Fault) *modelserver.Server {
	step := modelserver.Step{Reply: modelserver.Reply{Text: FaultyText, Fault: &f.Fault}}
	return Serve(t, modelserver.Config{Script: &modelserver.Script{Steps: []modelserver.Step{step}}})
}

func faults(t *testing.T, open Open) {
	for _, test := range Faults() {
		t.Run(test.Name, func(t *testing.T) {
			s := ServeFault(t, test)
			got := Ask(t.Context(), open(s, "scripted", "k"), Question("Go."))
			if n := len(s.Requests()); n != 1 {
				t.Errorf("it asked %d times", n)
			}
			if test.Kind == "" {
				if got.Err != nil || got.Reply.Message.Text() != FaultyText || got.Text() != FaultyText {
					t.Fatalf("%+v", got)
				}
				return
			}
			var e *agent.ModelError
			if !errors.As(got.Err, &e) || got.Reply != nil {
				t.Fatalf("%+v", got)
			}
			if e.Kind != test.Kind || e.Status != test.Status || e.RetryAfter != test.RetryAfter || !strings.Contains(e.Error(), test.Says) {
				t.Errorf("%+v", e)
			}
			if !strings.HasPrefix(FaultyText, got.Text()) {
				t.Errorf("streamed %q", got.Text())
			}
		})
	}
}

func contexts(t *testing.T, open Open) {
	hang := func(f modelserver.Fault) agent.Model { return open(ServeFault(t, Fault{Fault: f}), "scripted", "k") }
	at := 1500
	for name, fault := range map[string]modelserver.Fault{"never answers": {Hang: true}, "falls silent": {HangAfter: &at}} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		got := Ask(ctx, hang(fault), Question("Go."))
		cancel()
		if got.Err != context.DeadlineExceeded {
			t.Errorf("one that %s: %v", name, got.Err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := open(Serve(t, modelserver.Config{Script: modelserver.Say(FaultyText), Delay: time.Millisecond}), "scripted", "k")
	pieces := 0
	_, err := m.Generate(ctx, Question("Go."), func(agent.Delta) {
		if pieces++; pieces == 3 {
			cancel()
		}
	})
	if err != context.Canceled || pieces != 3 {
		t.Errorf("cancelled at the third piece: %d pieces, %v", pieces, err)
	}
	if got := Ask(ctx, m, Question("Go.")); got.Err != context.Canceled {
		t.Errorf("with a context that has ended: %v", got.Err)
	}
}

func requests(t *testing.T, open Open) {
	s := Serve(t, modelserver.Config{Reply: func(modelserver.Conversation) modelserver.Reply { return modelserver.Reply{Text: "ok"} }})
	m := open(s, "some-model", "k")
	if info := m.Info(); info.Name != "some-model" || !info.Images || !info.Tools || info.Provider == "" {
		t.Errorf("%+v", info)
	}
	zero := 0.0
	req := Question("a < b & c")
	req.MaxTokens, req.Temperature = 77, &zero
	req.Tools = []agent.ToolSpec{{Name: "f", Schema: json.RawMessage(`{"properties":{"n":{"maximum":9223372036854775807}}}`)}}
	if got := Ask(t.Context(), m, req); got.Err != nil {
		t.Fatal(got.Err)
	}
	asked := s.Requests()[0]
	c := asked.Conversation
	if c.Model != "some-model" || c.MaxTokens != 77 || !c.Stream || c.Last() != "a < b & c" || len(c.Tools) != 1 {
		t.Errorf("%+v", c)
	}
	var schema, want any
	if err := json.Unmarshal(c.Tools[0].Schema, &schema); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"type":"object","properties":{"n":{"maximum":9223372036854775807}}}`), &want)
	if !reflect.DeepEqual(schema, want) || !strings.Contains(string(asked.Body), "9223372036854775807") || !strings.Contains(string(asked.Body), `"temperature":0`) {
		t.Errorf("%s", asked.Body)
	}
	req.Tools = []agent.ToolSpec{{Name: "f", Schema: json.RawMessage(`[]`)}}
	if got := Ask(t.Context(), m, req); agent.KindOf(got.Err) != agent.KindInvalidRequest || !strings.Contains(got.Err.Error(), `"f"`) {
		t.Errorf("a schema that is none: %v", got.Err)
	}
	if got := Ask(t.Context(), open(s, "", "k"), Question("Go.")); agent.KindOf(got.Err) != agent.KindInvalidRequest {
		t.Errorf("no model: %v", got.Err)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}

// secrets has an endpoint repeat the key.
func secrets(t *testing.T, open Open) {
	const key = "sk-abcdefgh"
	s := ServeFault(t, Fault{Fault: modelserver.Fault{Status: 401, Message: "Incorrect API key provided: " + key}})
	got := Ask(t.Context(), open(s, "scripted", key), Question("Go."))
	if got.Err == nil || strings.Contains(got.Err.Error(), key) || !strings.Contains(got.Err.Error(), "[secret]") {
		t.Errorf("%v", got.Err)
	}
}
