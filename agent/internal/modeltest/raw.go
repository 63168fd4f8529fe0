package modeltest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
)

// Raw is a stream as a server may send it, and what Generate makes of it.
type Raw struct {
	Name   string
	Stream string
	Want   string // as [Outcome.String] writes it; only its beginning counts for errors
	SDK    string // what an adapter of an SDK makes of it, if that differs
}

// RunRaw tests an implementation with the streams, each sent at once and in small
// pieces. open returns a model at a base URL.
func RunRaw(t *testing.T, streams []Raw, sdk bool, open func(url string) agent.Model) {
	for _, raw := range streams {
		t.Run(raw.Name, func(t *testing.T) {
			want := raw.Want
			if sdk {
				want = cmp.Or(raw.SDK, raw.Want)
			}
			for _, size := range []int{len(raw.Stream), 7} {
				if size < len(raw.Stream) && len(raw.Stream) > 4000 {
					continue
				}
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for rest := raw.Stream; rest != ""; {
						n := min(size, len(rest))
						if _, err := w.Write([]byte(rest[:n])); err != nil {
							return
						}
						_ = http.NewResponseController(w).Flush()
						rest = rest[n:]
					}
				}))
				out := Ask(t.Context(), open(srv.URL), Question("Go."))
				srv.Close()
				got := out.String()
				if got != want && !(out.Err != nil && strings.HasPrefix(got, want)) {
					t.Errorf("in pieces of %d bytes:\ngot  %.500s\nwant %.500s", size, got, want)
				}
				if streamed := out.streamed(); out.Err == nil && streamed != out.whole() {
					t.Errorf("in pieces of %d bytes: streamed %.500s, returned %.500s", size, streamed, out.whole())
				}
			}
		})
	}
}

// String is the outcome on one line: parts, stop, tokens and model of a reply, or
// kind and message of an error. Ids that were made up are "new".
func (o Outcome) String() string {
	var e *agent.ModelError
	switch {
	case errors.As(o.Err, &e):
		return fmt.Sprintf("%s: %s", e.Kind, e.Message)
	case o.Err != nil:
		return o.Err.Error()
	}
	var b strings.Builder
	for _, part := range o.Reply.Message.Parts {
		switch p := part.(type) {
		case agent.Text:
			fmt.Fprintf(&b, "text %q, ", p.Text)
		case agent.Thinking:
			fmt.Fprintf(&b, "thinking %q %s, ", p.Text, p.Opaque)
		case agent.ToolCall:
			id := p.ID
			if len(id) == len("call_")+26 {
				id = "new"
			}
			fmt.Fprintf(&b, "call %s %s(%s), ", id, p.Name, p.Arguments)
		}
	}
	fmt.Fprintf(&b, "%s, %d+%d", o.Reply.Stop, o.Reply.Usage.Input, o.Reply.Usage.Output)
	if o.Reply.Model != "" {
		b.WriteString(", " + o.Reply.Model)
	}
	return b.String()
}

// streamed is what was streamed of texts and thinking; whole is what was returned.
func (o Outcome) streamed() string {
	return o.join(func(d agent.Delta) string { return d.Thinking }) + "|" + o.Text()
}

func (o Outcome) whole() string {
	var thinking, text string
	for _, part := range o.Reply.Message.Parts {
		switch p := part.(type) {
		case agent.Text:
			text += p.Text
		case agent.Thinking:
			thinking += p.Text
		}
	}
	return thinking + "|" + text
}

// events makes a stream of datas.
func events(datas ...string) string {
	var b strings.Builder
	for _, d := range datas {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// chunk is a chunk of Chat Completions.
func chunk(delta, finish string) string {
	return `{"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

// piece is a chunk with a piece of a call.
func piece(call string) string { return chunk(`{"tool_calls":[`+call+`]}`, "null") }

// Completions are streams of Chat Completions.
func Completions() []Raw {
	const done = "[DONE]"
	hi := chunk(`{"role":"assistant","content":"Hi"}`, "null")
	end := chunk(`{}`, `"stop"`)
	usage := `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	const hiEnd = `text "Hi", end, 0+0`
	long := strings.Repeat("x", 5<<20)
	calls := make([]string, 129)
	for i := range calls {
		calls[i] = piece(fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"f"}}`, i, i))
	}
	many := make([]string, 18)
	for i := range many {
		many[i] = chunk(`{"content":"`+strings.Repeat("x", 1<<20)+`"}`, "null")
	}
	return []Raw{
		{Name: "plain", Stream: events(hi, end, usage, done), Want: `text "Hi", end, 3+4`},
		{Name: "a model", Stream: events(`{"model":"m-1","choices":[]}`, hi, end, done), Want: hiEnd + ", m-1"},
		{Name: "no [DONE]", Stream: events(hi, end, usage), Want: `text "Hi", end, 3+4`},
		{Name: "[DONE] and no end", Stream: events(hi, done), Want: "stream_cut: "},
		{Name: "after [DONE]", Stream: events(hi, end, done, chunk(`{"content":"?"}`, "null"), "nonsense"), Want: hiEnd},
		{Name: "no end", Stream: events(hi), Want: "stream_cut: "},
		{Name: "an end without its empty line", Stream: strings.TrimSuffix(events(hi, end), "\n"), Want: "stream_cut: "},
		{Name: "[DONE] without its empty line", Stream: strings.TrimSuffix(events(hi, end, done), "\n"), Want: hiEnd},
		{Name: "CRLF", Stream: strings.ReplaceAll(events(hi, end, done), "\n", "\r\n"), Want: hiEnd},
		{Name: "CR", Stream: strings.ReplaceAll(events(hi, end, done), "\n", "\r"), Want: hiEnd,
			SDK: "stream_cut: "}, // it knows no such line ends
		{Name: "a byte order mark", Stream: "\ufeff" + events(hi, end, done), Want: hiEnd,
			SDK: `end, 0+0`}, // it knows no such mark and loses the first event
		{Name: "comments and other fields", Stream: ": hello\n\nid: 1\nretry: 5\nevent: chunk\n" + events(hi) + ": ping\n\n" + events(end, done), Want: hiEnd},
		{Name: "no spaces", Stream: strings.ReplaceAll(events(hi, end, done), "data: ", "data:"), Want: hiEnd},
		{Name: "data of two lines", Stream: events(strings.Replace(hi, `{"role"`, "\ndata: {\"role\"", 1), end, done), Want: hiEnd},
		{Name: "empty data", Stream: events(hi, "", end, done), Want: hiEnd,
			SDK: "invalid_response: "}, // to it an empty event is broken JSON
		{Name: "null wherever it may be", Want: hiEnd,
			Stream: events(`{"model":null,"usage":null,"choices":null}`, `{"usage":null,"choices":[{"index":null,"finish_reason":null,"delta":{"content":null,"refusal":null,"reasoning":null,"tool_calls":null}}]}`,
				`{"choices":[{"delta":null}]}`, hi, end, done)},
		{Name: "another choice", Stream: events(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`, hi, end, done), Want: hiEnd},
		{Name: "unknown fields", Stream: events(`{"x":{"y":[1,{}]},"choices":[{"index":0,"z":1,"delta":{"content":"Hi","w":[]}}],"obfuscation":"abc"}`, end, done), Want: hiEnd},
		{Name: "a refusal", Stream: events(chunk(`{"refusal":"I "}`, "null"), chunk(`{"refusal":"won't"}`, "null"), end, done), Want: `text "I won't", refused, 0+0`},
		{Name: "a filter", Stream: events(hi, chunk(`{}`, `"content_filter"`), done), Want: `text "Hi", refused, 0+0`},
		{Name: "reasoning_content", Stream: events(chunk(`{"reasoning_content":"hm"}`, "null"), hi, end, done), Want: `thinking "hm" {"openai_field":"reasoning_content"}, ` + hiEnd},
		{Name: "reasoning", Stream: events(chunk(`{"reasoning":"hm"}`, "null"), hi, end, done), Want: `thinking "hm" {"openai_field":"reasoning"}, ` + hiEnd},
		{Name: "both, of which one counts", Stream: events(chunk(`{"reasoning_content":"hm","reasoning":"hm"}`, "null"), hi, end, done), Want: `thinking "hm" {"openai_field":"reasoning_content"}, ` + hiEnd},
		{Name: "reasoning that is no text", Stream: events(chunk(`{"reasoning":{"a":1}}`, "null"), hi, end, done), Want: hiEnd},
		{Name: "a call in pieces", Stream: events(piece(`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}`), piece(`{"index":0,"function":{"arguments":"{\"a\""}}`), piece(`{"index":0,"function":{"arguments":":1}"}}`), chunk(`{}`, `"tool_calls"`), done),
			Want: `call c1 f({"a":1}), tools, 0+0`},
		{Name: "two calls, woven", Stream: events(piece(`{"index":0,"id":"c1","function":{"name":"f"}},{"index":1,"id":"c2","function":{"name":"g"}}`), piece(`{"index":1,"function":{"arguments":"{\"b\":2}"}}`), piece(`{"index":0,"function":{"arguments":"{\"a\":1}"}}`), chunk(`{}`, `"tool_calls"`), done),
			Want: `call c1 f({"a":1}), call c2 g({"b":2}), tools, 0+0`},
		{Name: "calls that are all 0", Stream: events(piece(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}`), piece(`{"index":0,"id":"c2","function":{"name":"f","arguments":"{}"}}`), end, done),
			Want: `call c1 f({}), call c2 f({}), tools, 0+0`},
		{Name: "calls without ids or index", Stream: events(piece(`{"function":{"name":"f","arguments":"{}"}}`), piece(`{"index":1,"function":{"name":"g"}}`), end, done),
			Want: `call new f({}), call new g({}), tools, 0+0`},
		{Name: "ids that are the same", Stream: events(piece(`{"index":0,"id":"c","function":{"name":"f"}}`), piece(`{"index":1,"id":"c","function":{"name":"g"}}`), end, done),
			Want: `call c f({}), call new g({}), tools, 0+0`},
		{Name: "an id in each piece", Stream: events(piece(`{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}`), piece(`{"index":0,"id":"c","function":{"name":"f","arguments":"}"}}`), end, done),
			Want: `call c f({}), tools, 0+0`},
		{Name: "arguments that are an object", Stream: events(piece(`{"index":0,"id":"c","function":{"name":"f","arguments":{"a":1}}}`), end, done), Want: `call c f({"a":1}), tools, 0+0`},
		{Name: "arguments that were cut", Stream: events(piece(`{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a"}}`), chunk(`{}`, `"length"`), done), Want: `call c f({"a), length, 0+0`},
		{Name: "calls and stop", Stream: events(piece(`{"index":0,"id":"c","function":{"name":"f"}}`), end, done), Want: `call c f({}), tools, 0+0`},
		{Name: "a finish that nobody knows", Stream: events(hi, chunk(`{}`, `"eos"`), done), Want: hiEnd},
		{Name: "usage with every chunk", Stream: events(`{"choices":[{"index":0,"delta":{"content":"Hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`, end, usage, done), Want: `text "Hi", end, 3+4`},
		{Name: "usage that is absurd", Stream: events(hi, end, `{"choices":[],"usage":{"prompt_tokens":-3,"completion_tokens":9223372036854775807}}`, done), Want: `text "Hi", end, 0+1073741824`},
		{Name: "usage that is written otherwise", Stream: events(hi, end, `{"choices":[],"usage":{"prompt_tokens":3.0,"completion_tokens":"4"}}`, done), Want: `text "Hi", end, 3+4`},
		{Name: "content that is a list", Stream: events(chunk(`{"content":[{"type":"text","text":"Hi"}]}`, "null"), end, done), Want: `text "[{\"type\":\"text\",\"text\":\"Hi\"}]", end, 0+0`},
		{Name: "invalid UTF-8", Stream: events(chunk("{\"content\":\"a\xffb\"}", "null"), end, done), Want: "text \"a\ufffdb\", end, 0+0"},
		{Name: "escapes", Stream: events(chunk(`{"content":"\ud83c\udf89\u0000\n\u003c"}`, "null"), end, done), Want: `text "🎉\x00\n<", end, 0+0`},
		{Name: "error: null", Stream: events(`{"error":null,`+hi[1:], end, done), Want: hiEnd,
			SDK: "overloaded: "}, // to it any error is one
		{Name: "an error", Stream: events(hi, `{"error":{"message":"slow down","type":"rate_limit_error"}}`), Want: "rate_limited: slow down"},
		{Name: "an error that is a text", Stream: events(hi, `{"error":"out of memory"}`), Want: "overloaded: out of memory"},
		{Name: "an error with a number", Stream: events(hi, `{"error":{"message":"no such key","code":401}}`), Want: "unauthorized: no such key"},
		{Name: "an error after the end", Stream: events(hi, end, `{"error":{"message":"oh no"}}`), Want: "overloaded: oh no"},
		{Name: "no JSON", Stream: events(hi, `{"choices":`), Want: "invalid_response: "},
		{Name: "words", Stream: events("hello"), Want: "invalid_response: "},
		{Name: "JSON of another form", Stream: events(`[1]`, hi, end, done), Want: "invalid_response: "},
		{Name: "choices of another form", Stream: events(`{"choices":"x"}`, hi, end, done), Want: "invalid_response: "},
		{Name: "an event of 5 MiB", Stream: events(chunk(`{"content":"`+long+`"}`, "null"), end, done), Want: "invalid_response: the reply has an event of more than 4 MiB",
			SDK: fmt.Sprintf("text %q, end, 0+0", long)}, // its bound is 32 MiB
		{Name: "a reply of 18 MiB", Stream: events(many...), Want: "invalid_response: the reply is larger than 16 MiB"},
		{Name: "129 calls", Stream: events(append(calls, end, done)...), Want: "invalid_response: the reply calls more than 128 tools"},
	}
}

// named makes a stream of events that are named by their types.
func named(datas ...string) string {
	var b strings.Builder
	for _, d := range datas {
		_, rest, _ := strings.Cut(d, `"type":"`)
		name, _, _ := strings.Cut(rest, `"`)
		b.WriteString("event: " + name + "\ndata: " + d + "\n\n")
	}
	return b.String()
}

// Messages are streams of Anthropic's Messages.
func Messages() []Raw {
	start := `{"type":"message_start","message":{"model":"m-1","usage":{"input_tokens":3,"output_tokens":1}}}`
	begin := func(i int, block string) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, block)
	}
	delta := func(i int, d string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, i, d)
	}
	words := func(i int, s string) string { return delta(i, `{"type":"text_delta","text":"`+s+`"}`) }
	arguments := func(i int, s string) string {
		return delta(i, `{"type":"input_json_delta","partial_json":"`+s+`"}`)
	}
	last := func(stop string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + stop + `"},"usage":{"output_tokens":4}}`
	}
	const blank = `{"type":"text","text":""}`
	const stop = `{"type":"message_stop"}`
	hi := []string{start, begin(0, blank), words(0, "Hi"), `{"type":"content_block_stop","index":0}`}
	with := func(more ...string) string { return named(append(hi[:len(hi):len(hi)], more...)...) }
	const hiEnd = `text "Hi", end, 3+4, m-1`
	long := strings.Repeat("x", 5<<20)
	many := []string{start, begin(0, blank)}
	for range 18 {
		many = append(many, words(0, strings.Repeat("x", 1<<20)))
	}
	return []Raw{
		{Name: "plain", Stream: with(last("end_turn"), stop), Want: hiEnd},
		{Name: "after the end", Stream: with(last("end_turn"), stop, words(0, "?"), "{"), Want: hiEnd},
		{Name: "no end", Stream: with(last("end_turn")), Want: "stream_cut: "},
		{Name: "an end without its empty line", Stream: strings.TrimSuffix(with(last("end_turn"), stop), "\n"), Want: "stream_cut: "},
		{Name: "CRLF", Stream: strings.ReplaceAll(with(last("end_turn"), stop), "\n", "\r\n"), Want: hiEnd},
		{Name: "pings and comments", Stream: named(start, `{"type":"ping"}`) + ": ping\n\n" + named(begin(0, blank), words(0, "Hi"), last("end_turn"), stop), Want: hiEnd},
		{Name: "events that nobody knows", Stream: named(start, `{"type":"news","a":[1]}`, begin(0, blank), delta(0, `{"type":"citations_delta","citation":{"a":1}}`), words(0, "Hi"), last("end_turn"), stop), Want: hiEnd},
		{Name: "events without names", Stream: events(append(hi[:len(hi):len(hi)], last("end_turn"), stop)...), Want: hiEnd,
			SDK: "stream_cut: "}, // it goes by the names
		{Name: "thinking", Stream: named(start, begin(0, `{"type":"thinking","thinking":"","signature":""}`), delta(0, `{"type":"thinking_delta","thinking":"hm"}`), delta(0, `{"type":"signature_delta","signature":"s1"}`), begin(1, blank), words(1, "Hi"), last("end_turn"), stop),
			Want: `thinking "hm" {"thinking":"hm","signature":"s1"}, ` + hiEnd},
		{Name: "thinking that is hidden", Stream: named(start, begin(0, `{"type":"redacted_thinking","data":"xyz"}`), begin(1, blank), words(1, "Hi"), last("end_turn"), stop), Want: `thinking "" {"redacted":"xyz"}, ` + hiEnd},
		{Name: "a call in pieces", Stream: with(begin(1, `{"type":"tool_use","id":"t1","name":"f","input":{}}`), arguments(1, `{\"a\"`), arguments(1, `:1}`), last("tool_use"), stop), Want: `text "Hi", call t1 f({"a":1}), tools, 3+4, m-1`},
		{Name: "a call that came whole", Stream: with(begin(1, `{"type":"tool_use","id":"","name":"f","input":{"a": 9007199254740993}}`), last("tool_use"), stop), Want: `text "Hi", call new f({"a":9007199254740993}), tools, 3+4, m-1`},
		{Name: "a call without arguments", Stream: with(begin(1, `{"type":"tool_use","id":"t1","name":"f","input":null}`), last("tool_use"), stop), Want: `text "Hi", call t1 f({}), tools, 3+4, m-1`},
		{Name: "two calls, woven", Stream: named(start, begin(0, `{"type":"tool_use","id":"t1","name":"f"}`), begin(1, `{"type":"tool_use","id":"t2","name":"g"}`), arguments(1, `{}`), arguments(0, `{\"a\":1}`), last("tool_use"), stop), Want: `call t1 f({"a":1}), call t2 g({}), tools, 3+4, m-1`},
		{Name: "a tool of the provider's own", Stream: with(begin(1, `{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}`), last("end_turn"), stop), Want: hiEnd},
		{Name: "length", Stream: with(last("max_tokens"), stop), Want: `text "Hi", length, 3+4, m-1`},
		{Name: "the context's end", Stream: with(last("model_context_window_exceeded"), stop), Want: `text "Hi", length, 3+4, m-1`},
		{Name: "refusal", Stream: with(last("refusal"), stop), Want: `text "Hi", refused, 3+4, m-1`},
		{Name: "a stop that nobody knows", Stream: with(last("pause_turn"), stop), Want: hiEnd},
		{Name: "tokens of a cache", Stream: named(`{"type":"message_start","message":{"usage":{"input_tokens":1,"cache_creation_input_tokens":2,"cache_read_input_tokens":4,"output_tokens":9}}}`, last("end_turn"), stop), Want: `end, 7+9`},
		{Name: "usage that is absurd", Stream: named(`{"type":"message_start","message":{"usage":{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":-1}}}`, last("end_turn"), stop), Want: `end, 1073741824+4`},
		{Name: "null wherever it may be", Stream: named(`{"type":"message_start","message":{"model":null,"usage":null}}`, begin(0, `{"type":"text","text":null,"citations":null}`), words(0, "Hi"), `{"type":"message_delta","delta":{"stop_reason":null},"usage":null}`, last("end_turn"), stop), Want: `text "Hi", end, 0+4`},
		{Name: "invalid UTF-8", Stream: named(start, begin(0, blank), words(0, "a\xffb"), last("end_turn"), stop), Want: "text \"a\ufffdb\", end, 3+4, m-1"},
		{Name: "an error", Stream: with(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), Want: "overloaded: Overloaded"},
		{Name: "an error of the rate", Stream: named(`{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`), Want: "rate_limited: slow down"},
		{Name: "a block out of order", Stream: named(start, begin(1, blank)), Want: "invalid_response: a content block out of order"},
		{Name: "a piece of no block", Stream: named(start, words(0, "x")), Want: "invalid_response: a piece of a content block that did not begin"},
		{Name: "a piece of a block below 0", Stream: named(start, words(-1, "x")), Want: "invalid_response: a piece of a content block that did not begin"},
		{Name: "no JSON", Stream: with(`{"type":"message_stop"`), Want: "invalid_response: "},
		{Name: "an event of 5 MiB", Stream: named(start, begin(0, blank), words(0, long), last("end_turn"), stop), Want: "invalid_response: the reply has an event of more than 4 MiB",
			SDK: fmt.Sprintf("text %q, end, 3+4, m-1", long)}, // its bound is 32 MiB
		{Name: "a reply of 18 MiB", Stream: named(many...), Want: "invalid_response: the reply is larger than any model's"},
	}
}
