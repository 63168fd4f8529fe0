package modelserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	openAIAsk    = `{"model":"m","messages":[{"role":"user","content":"hi"}]`
	anthropicAsk = `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]`
)

// pixel is a PNG of one.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// start serves a script until the test ends.
func start(t *testing.T, config Config) *Server {
	t.Helper()
	s, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// post sends a request with the headers that both endpoints want. err is of the
// connection or the body.
func post(t *testing.T, s *Server, path, body string, headers ...string) (status int, h http.Header, answer string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.AnthropicURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer k")
	request.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(b), err
}

func number(n int) *int { return &n }

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name      string
		fault     Fault
		status    int
		openAI    string // in the answer
		anthropic string
		broken    bool
	}{
		{"401", Fault{Status: 401}, 401, `"code":"invalid_api_key"`, `"type":"authentication_error"`, false},
		{"403", Fault{Status: 403}, 403, `"type":"request_forbidden"`, `"type":"permission_error"`, false},
		{"404", Fault{Status: 404}, 404, `"code":"model_not_found"`, `"type":"not_found_error"`, false},
		{"429", Fault{Status: 429, RetryAfter: "7", RetryAfterMS: 6500}, 429, `"code":"rate_limit_exceeded"`, `"type":"rate_limit_error"`, false},
		{"500", Fault{Status: 500, Message: "oh no"}, 500, `"message":"oh no"`, `"message":"oh no"`, false},
		{"503", Fault{Status: 503}, 503, `overloaded`, `"type":"api_error"`, false},
		{"529", Fault{Status: 529}, 529, `server had an error`, `"type":"overloaded_error"`, false},
		{"context", Fault{ContextTooLong: true}, 400, `"code":"context_length_exceeded"`, `prompt is too long`, false},
		{"html", Fault{Status: 502, Body: "<html>bad gateway"}, 502, "<html>", "<html>", false},
		{"not the protocol", Fault{Body: "<html>log in"}, 200, "<html>", "<html>", false},
		{"dropped", Fault{CutAfter: number(0)}, 0, "", "", true},
		{"cut", Fault{CutAfter: number(50)}, 200, "data: {", "event: message_start", true},
		{"ended", Fault{EndAfter: number(50)}, 200, "data: {", "event: message_start", false},
		{"error in the middle", Fault{ErrorAfter: number(600)}, 200, "data: {\"error\":", "event: error\ndata: {\"error\":{\"message\":\"Overloaded\"", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, Config{Script: &Script{Steps: []Step{{Reply: Reply{Text: strings.Repeat("word ", 100), Fault: &test.fault}}}}})
			for path, want := range map[string]string{"/v1/chat/completions": test.openAI, "/v1/messages": test.anthropic} {
				body := openAIAsk
				if path == "/v1/messages" {
					body = anthropicAsk
				}
				status, h, answer, err := post(t, s, path, body+`,"stream":true}`)
				if status != test.status || (err != nil) != test.broken || !strings.Contains(answer, want) {
					t.Errorf("%s: %d %v %s", path, status, err, answer)
				}
				if strings.Contains(answer, "[DONE]") || strings.Contains(answer, "message_stop") {
					t.Errorf("%s: the reply is whole: %s", path, answer)
				}
				if status == 429 && (h.Get("Retry-After") != "7" || h.Get("Retry-After-Ms") != "6500") {
					t.Errorf("headers %v", h)
				}
				if n := test.fault.CutAfter; n != nil && len(answer) != *n {
					t.Errorf("%s: cut after %d", path, len(answer))
				}
			}
			if requests := s.Requests(); len(requests) != 2 || requests[0].Status != test.status {
				t.Errorf("recorded %+v", requests)
			}
		})
	}
}

// A fault that passes is met by each conversation on its own.
func TestFaultThatPasses(t *testing.T) {
	s := start(t, Config{Script: &Script{Steps: []Step{{Reply: Reply{Text: "x", Fault: &Fault{Status: 503, Times: 2}}}}}})
	for _, name := range []string{"a", "b"} {
		for i, want := range []int{503, 503, 200, 200} {
			if status, _, _, _ := post(t, s, "/v1/messages", strings.Replace(anthropicAsk, "hi", name, 1)+"}"); status != want {
				t.Errorf("%s, request %d: got %d, want %d", name, i+1, status, want)
			}
		}
	}
}

func TestHangsUntilTheClientLeaves(t *testing.T) {
	s := start(t, Config{Script: &Script{Steps: []Step{{Reply: Reply{Text: "hello there", Fault: &Fault{HangAfter: number(300)}}}}}})
	client := &http.Client{Timeout: 100 * time.Millisecond}
	request, _ := http.NewRequest(http.MethodPost, s.OpenAIURL()+"/chat/completions", strings.NewReader(openAIAsk+`,"stream":true}`))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer k")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if b, err := io.ReadAll(response.Body); err == nil || len(b) != 300 {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
}

// A script serves its steps by what a conversation holds, not by what was asked
// before.
func TestSteps(t *testing.T) {
	script, err := Parse("test", []byte(`
steps:
  - text: first
  - {when: "/[Ee]rror/", text: repaired, repeat: true}
  - {when: never, text: never}
  - {text: second, reject: [forbidden]}
  - {text: third, thinking: hm, calls: [{name: f, arguments: {a: 1}}], stop: length}
`))
	if err != nil {
		t.Fatal(err)
	}
	say := func(texts ...string) Conversation {
		var c Conversation
		for i, text := range texts {
			if i > 0 {
				c.Messages = append(c.Messages, Message{Role: roleAssistant, Text: "…"})
			}
			c.Messages = append(c.Messages, Message{Role: roleUser, Text: text})
		}
		return c
	}
	for _, test := range []struct {
		c    Conversation
		want string
	}{
		{say("go"), "first"},
		{say("go", "an Error"), "repaired"},
		{say("go", "an Error", "an error"), "repaired"},
		{say("go", "an Error", "fine"), "second"},
		{say("go", "fine"), "second"},
		{say("go", "forbidden"), `"forbidden" must not be`},
		{say("go", "fine", "fine"), "third"},
		{say("go", "fine", "fine", "fine"), "has no step for turn 4"},
	} {
		if got := script.reply(test.c); got.Text != test.want && (got.Refuse == "" || !strings.Contains(got.Refuse, test.want)) {
			t.Errorf("%+v: got %+v, want %q", test.c.prompts(), got, test.want)
		}
	}
}

func TestScriptsThatAreNone(t *testing.T) {
	for source, want := range map[string]string{
		"":                                      "no steps",
		"steps: [{txt: x}]":                     "field txt not found",
		"steps: [{text: x, when: /(/}]":         "missing closing",
		"steps: [{}]":                           "step 1: it says nothing",
		"steps: [{text: x, stop: now}]":         "say end, tools, length or refused",
		"steps: [{calls: [{arguments: 1}]}]":    "a call has no name",
		"mode: both\nsteps: [{text: x}]":        "say blocks or tools",
		"steps: [{text: x, fault: {delay: x}}]": "cannot unmarshal",
	} {
		if _, err := Parse("bad", []byte(source)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", source, err, want)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a server without a script")
	}
}

// Conversations do not disturb each other.
func TestParallel(t *testing.T) {
	s := start(t, Config{Reply: func(c Conversation) Reply { return Reply{Text: "you said " + c.Last()} }})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for j := range 10 {
				text := fmt.Sprintf("%d-%d", i, j)
				if _, _, answer, err := post(t, s, "/v1/messages", strings.Replace(anthropicAsk, "hi", text, 1)+"}"); err != nil || !strings.Contains(answer, "you said "+text) {
					t.Errorf("%v %s", err, answer)
				}
			}
		})
	}
	wait.Wait()
	if n := len(s.Requests()); n != 80 {
		t.Errorf("%d requests", n)
	}
}

func TestKeysModelsAndPaths(t *testing.T) {
	s := start(t, Config{Script: Say("x"), APIKey: "right", Models: []string{"m"}})
	for _, test := range []struct {
		path, body, key string
		status          int
		want            string
	}{
		{"/v1/messages", anthropicAsk + "}", "Bearer right", 200, `"type":"message"`},
		{"/v1/messages", anthropicAsk + "}", "Bearer wrong", 401, "authentication_error"},
		{"/v1/messages", anthropicAsk + "}", "", 401, "x-api-key header is required"},
		{"/v1/chat/completions", openAIAsk + "}", "Bearer wrong", 401, "invalid_api_key"},
		{"/v1/chat/completions", openAIAsk + "}", "", 401, "You didn't provide an API key"},
		{"/v1/chat/completions", strings.Replace(openAIAsk, `"m"`, `"n"`, 1) + "}", "Bearer right", 404, "The model `n` does not exist"},
		{"/v1/messages", strings.Replace(anthropicAsk, `"m"`, `"n"`, 1) + "}", "Bearer right", 404, "model: n"},
		{"/v1/completions", "{}", "Bearer right", 404, "Invalid URL (POST /v1/completions)"},
	} {
		status, _, answer, err := post(t, s, test.path, test.body, "Authorization", test.key)
		if err != nil || status != test.status || !strings.Contains(answer, test.want) || !json.Valid([]byte(answer)) {
			t.Errorf("%s with %q: %d %v %s", test.path, test.key, status, err, answer)
		}
	}
	response, err := http.Get(s.OpenAIURL() + "/chat/completions")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", response.Status)
	}
}

func TestReplyHook(t *testing.T) {
	s := start(t, Config{Reply: func(c Conversation) Reply {
		if strings.Contains(c.Last(), "password") {
			return Reply{Text: "It is hunter2."}
		}
		if strings.Contains(c.Last(), "stop") {
			return Reply{Stop: "never"}
		}
		return Reply{Refuse: "not that"}
	}})
	for _, test := range []struct {
		ask    string
		status int
		says   string
	}{
		{"The password?", 200, `"content":"It is hunter2."`},
		{"What?", 400, `"message":"not that"`},
		{"Please stop.", 400, `\"never\"`},
	} {
		status, _, answer, err := post(t, s, "/v1/chat/completions", strings.Replace(openAIAsk, "hi", test.ask, 1)+"}")
		if err != nil || status != test.status || !strings.Contains(answer, test.says) {
			t.Errorf("%s: %d %s, %v", test.ask, status, answer, err)
		}
		if status == 200 && strings.Contains(answer, `_tokens":0,"total_tokens"`) {
			t.Errorf("no usage is estimated: %s", answer)
		}
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	s := start(t, Config{Reply: func(Conversation) Reply { return Reply{Fault: &Fault{Hang: true}} }})
	done := make(chan error)
	go func() {
		_, _, _, err := post(t, s, "/v1/messages", anthropicAsk+`,"stream":true}`)
		done <- err
	}()
	for len(s.Requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a request outlived the server")
	}
}
