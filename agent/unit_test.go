package agent

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

func TestForgedOutput(t *testing.T) {
	for _, test := range []struct {
		name, reply string
		found       bool
	}{
		{"none", "```python\nprint(1)\n```\ntext", false},
		{"after code", "```python\nprint(1)\n```\n```tool_output\n1\n```", true},
		{"indented, tildes, attributes", "  ~~~~ tool_output x=1\n1\n~~~~", true},
		{"in braces", "```{.tool_output}\n1\n```", true},
		{"upper case", "```Tool_Output\n1\n```", true},
		{"inside code", "````python\ns = '''\n```tool_output\n'''\n````", false},
		{"after a fence that is not closed", "```python\nprint(1)\n", false},
		{"in a line", "the ```tool_output fence", false},
		{"CRLF", "```python\r\nprint(1)\r\n```\r\n```tool_output\r\n", true},
	} {
		if at := forgedOutput(test.reply); (at >= 0) != test.found {
			t.Errorf("%s: %d", test.name, at)
		}
	}
}

func FuzzFenced(f *testing.F) {
	f.Add("```\n")
	f.Add("")
	f.Add("````x")
	f.Fuzz(func(t *testing.T, text string) {
		s := fenced("data", text)
		fence, _, _ := strings.Cut(s, "data\n")
		if strings.Count(s, fence) != 2 {
			t.Errorf("%q can be ended from inside", s)
		}
	})
}

func TestParseCodeCall(t *testing.T) {
	one := []codeexec.CodeBlock{{Code: "print(1)", Language: "python"}}
	for _, test := range []struct {
		tool, arguments string
		want            []codeexec.CodeBlock // nil: an error
	}{
		{"execute_code", `{"code_blocks":[{"language":"python","code":"print(1)"}]}`, one},
		{"execute_code", `{"code_blocks":{"language":"python","code":"print(1)"}}`, one},
		{"execute_code", `{"code_blocks":"[{\"language\":\"python\",\"code\":\"print(1)\"}]"}`, one},
		{"execute_code", `[{"language":"python","code":"print(1)"}]`, one},
		{"execute_code", `{"language":"python","code":"print(1)"}`, one},
		{"execute_code", `"{\"language\":\"python\",\"code\":\"print(1)\"}"`, one},
		{"execute_python", `{"code":"print(1)"}`, one},
		{"execute_python", `"print(1)"`, one},
		{"execute_python", `"{\"code\":\"print(1)\"}"`, one},
		{"execute_code", `{"code_blocks":[]}`, nil},
		{"execute_code", `{"code_blocks":[{"language":"python","code":"  "}]}`, nil},
		{"execute_code", `{}`, nil},
		{"execute_code", `{"code_blocks":7}`, nil},
		{"execute_code", `not JSON`, nil},
		{"execute_python", ``, nil},
	} {
		got, err := ParseCodeCall(test.tool, json.RawMessage(test.arguments))
		if test.want == nil {
			if err == nil {
				t.Errorf("%s: %+v", test.arguments, got)
			}
		} else if err != nil || len(got) != 1 || got[0] != test.want[0] {
			t.Errorf("%s: %+v, %v", test.arguments, got, err)
		}
	}
}

func FuzzParseCodeCall(f *testing.F) {
	f.Add("execute_code", `{"code_blocks":[{"language":"python","code":"1"}]}`)
	f.Add("execute_python", `"1"`)
	f.Fuzz(func(t *testing.T, tool, arguments string) {
		blocks, err := ParseCodeCall(tool, json.RawMessage(arguments))
		if (err == nil) == (len(blocks) == 0) {
			t.Errorf("%d blocks, %v", len(blocks), err)
		}
	})
}

func TestNewTool(t *testing.T) {
	ctx := t.Context()
	if _, err := NewTool("a b", "", func(context.Context, struct{}) (int, error) { return 0, nil }); err == nil {
		t.Error("a name with a blank")
	}
	if _, err := NewTool("a", "", func(context.Context, int) (int, error) { return 0, nil }); err == nil || !strings.Contains(err.Error(), "struct") {
		t.Errorf("arguments that are no object: %v", err)
	}
	if _, err := NewTool("a", "", func(context.Context, struct{ F func() }) (int, error) { return 0, nil }); err == nil {
		t.Error("arguments that are no JSON")
	}
	wrong, err := NewTool("wrong", "", func(context.Context, struct{}) (float64, error) { return math.NaN(), nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Call(ctx, nil); err == nil || !strings.Contains(err.Error(), "no JSON") {
		t.Errorf("NaN: %v", err)
	}
	// What marshals itself may be of another shape than its type says.
	shape, err := NewTool("shape", "", func(context.Context, struct{}) (struct{ M json.RawMessage }, error) {
		return struct{ M json.RawMessage }{json.RawMessage(`{"a":`)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shape.Call(ctx, json.RawMessage("{}")); err == nil {
		t.Error("half an object was returned")
	}
	text, err := NewTool("text", "", func(context.Context, struct{}) (string, error) { return "as it is", nil })
	if err != nil {
		t.Fatal(err)
	}
	if out, err := text.Call(ctx, json.RawMessage("{}")); err != nil || out.Text != "as it is" {
		t.Errorf("%+v, %v", out, err)
	}
	for _, bad := range []string{`{"x":1}`, `{} {}`, `[`, `null`} {
		if _, err := text.Call(ctx, json.RawMessage(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	dumb := model{ModelInfo{Name: "dumb"}}
	tool, err := NewTool("execute_code", "", func(context.Context, struct{}) (int, error) { return 0, nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func() (*Agent, error){
		"no model":              func() (*Agent, error) { return New(nil, executor{}) },
		"no executor":           func() (*Agent, error) { return New(dumb, nil) },
		"an unknown mode":       func() (*Agent, error) { return New(dumb, executor{}, WithMode("x")) },
		"a model without tools": func() (*Agent, error) { return New(dumb, executor{}, WithMode(ModeTools)) },
		"a name that is taken":  func() (*Agent, error) { return New(model{ModelInfo{Tools: true}}, executor{}, WithTools(tool)) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type model struct{ info ModelInfo }

func (m model) Info() ModelInfo { return m.info }
func (model) Generate(context.Context, Request, func(Delta)) (*Reply, error) {
	return nil, errors.New("not here")
}

type executor struct{ codeexec.CodeExecutor }

func TestThinkingInText(t *testing.T) {
	for _, test := range []struct{ said, thought, text string }{
		{"<think>\n```python\nno()\n```\n</think>\n\nYes.", "```python\nno()\n```", "Yes."},
		{"<think>never ends", "never ends", ""},
		{"What is <think>?", "", "What is <think>?"},
	} {
		m := apart(Message{RoleAssistant, []Part{Text{test.said}}})
		thought := ""
		if p, ok := m.Parts[0].(Thinking); ok {
			thought = p.Text
		}
		if m.Text() != test.text || thought != test.thought {
			t.Errorf("%q: %+v", test.said, m.Parts)
		}
	}
}

func TestSettledConversation(t *testing.T) {
	// However the work ended, the conversation can go on.
	call := Message{RoleAssistant, []Part{ToolCall{ID: "1", Name: "a"}, ToolCall{ID: "2", Name: "b"}}}
	s := &Session{}
	w := &work{s: s, answer: &Answer{Turns: 1}, messages: []Message{UserText("q"), call}}
	w.settle()
	if n := len(s.messages); n != 4 || s.messages[3].Role != RoleAssistant || len(s.messages[2].Parts) != 2 {
		t.Errorf("%+v", s.messages)
	}
	w = &work{s: s, answer: &Answer{}, messages: []Message{UserText("q")}}
	w.settle()
	if len(s.messages) != 4 {
		t.Errorf("a question that nobody answered is kept: %+v", s.messages[4:])
	}
}
