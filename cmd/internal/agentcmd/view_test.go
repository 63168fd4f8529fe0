package agentcmd

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// onTerminal is a view on a terminal that is a buffer, without its spinner.
func onTerminal(colour bool) (*view, *bytes.Buffer) {
	var out bytes.Buffer
	v := &view{w: &out, notes: &out, tty: true, moves: true, colour: colour, silent: true, shown: map[string]bool{}}
	v.clean = terminal.Strict(&prefixer{v: v})
	v.reply = &replyView{v: v}
	return v, &out
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")

const reply = "I *sum*.\n\n```python\nfor x in [1]:  # c\n    print('a', x)\n```\nSo `there`.\n``not a fence\n"

func run1(text string) []agent.Event {
	events := []agent.Event{{Type: agent.EventThinking, Text: "Hmm, "}, {Type: agent.EventThinking, Text: "yes."}}
	for _, r := range text { // as it comes: a character at a time
		events = append(events, agent.Event{Type: agent.EventText, Text: string(r)})
	}
	return append(events,
		agent.Event{Type: agent.EventReply, Text: text},
		agent.Event{Type: agent.EventCode, Run: 1, Language: "python", Code: "for x in [1]:  # c\n    print('a', x)", Decision: "allow",
			Findings: []validate.Finding{{Rule: "python.x", Decision: validate.Review, Message: "look", Line: 2}}},
		agent.Event{Type: agent.EventOutput, Run: 1, Stream: "stdout", Text: "a 1\n10%"}, agent.Event{Type: agent.EventOutput, Run: 1, Stream: "stdout", Text: "\r20%"},
		agent.Event{Type: agent.EventResult, Run: 1, IsError: true, Result: &codeexec.CodeExecutionResult{ExitCode: 1,
			Duration: time.Second, Error: &codeexec.ExecutionError{Type: "E", Message: "m", Line: 2}}, Files: []codeexec.File{{Name: "c.png"}}},
	)
}

func TestView(t *testing.T) {
	for _, colour := range []bool{false, true} {
		v, out := onTerminal(colour)
		for _, e := range run1(reply) {
			v.event(e)
		}
		v.endTurn()
		want := "Hmm, yes.\nI *sum*.\n\n```python\nfor x in [1]:  # c\n    print('a', x)\n```\nSo `there`.\n``not a fence\n" +
			"review: line 2: look (python.x)\n  a 1\n  10%\r  20%\nE: m (line 2)\n[run 1: exit code 1, 1s, c.png]\n"
		want = strings.Replace(want, "\nE: m", "\n  E: m", 1)
		if colour { // which is Markdown, shown
			want = strings.NewReplacer("*sum*", "sum", "```\nSo `there`.\n", "```\n\nSo there. ").Replace(want)
		}
		if got := escape.ReplaceAllString(out.String(), ""); got != want {
			t.Errorf("got\n%q, want\n%q", got, want)
		}
		if colour != strings.Contains(out.String(), "\x1b[35mfor\x1b[0m") {
			t.Errorf("colour %v: %q", colour, out.String())
		}
	}
}

// TestViewMarkdown: blocks are shown when they are whole, each apart; lists stay whole.
func TestViewMarkdown(t *testing.T) {
	v, out := onTerminal(true)
	show := func(s string) string {
		out.Reset()
		for _, r := range s {
			v.event(agent.Event{Type: agent.EventText, Text: string(r)})
		}
		return escape.ReplaceAllString(out.String(), "")
	}
	for _, step := range []struct{ text, want string }{
		{"# Head", ""},
		{"ing\n", ""},
		{"\n", "Heading\n"},
		{"Some **text**\nof two lines\n\n", "\nSome text of two lines\n"},
		{"1. one\n\n   more\n\n2. two\n\n", ""},
		{"After.\n", "\n1. one\n\n   more\n\n2. two\n"},
		{"```python\nprint(1)\n", "\nAfter.\n\n```python\nprint(1)\n"},
		{"```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "```\n"},
	} {
		if got := show(step.text); got != step.want {
			t.Errorf("%q shows %q, want %q", step.text, got, step.want)
		}
	}
	out.Reset()
	v.endTurn()
	if got, want := escape.ReplaceAllString(out.String(), ""), "\na │ b\n──┼──\n1 │ 2\n"; got != want {
		t.Errorf("at the end %q, want %q", got, want)
	}
}

// Only the view's own escape codes come through, wherever others stand and
// however they are cut.
func TestViewHostile(t *testing.T) {
	evil := "a\x1b]0;t\x07b\x1b[2J\x1b[31mc\u009b5md\x1b[8m\x9d0;x\x07\u202e\x1b"
	v, out := onTerminal(true)
	var events []agent.Event
	for i := range len(evil) {
		for _, kind := range []agent.EventType{agent.EventThinking, agent.EventText, agent.EventOutput} {
			events = append(events, agent.Event{Type: kind, Text: evil[:i]}, agent.Event{Type: kind, Text: evil[i:]})
		}
	}
	events = append(events, run1("```py"+evil+"\n"+evil+"\n```\n")...)
	events = append(events,
		agent.Event{Type: agent.EventCode, Language: evil, Code: evil, Decision: "refused", Text: evil},
		agent.Event{Type: agent.EventCode, Language: "python", Code: "x = '" + evil + "'", Findings: []validate.Finding{{Message: evil, Rule: evil, Decision: "deny"}}},
		agent.Event{Type: agent.EventResult, Result: &codeexec.CodeExecutionResult{Blocks: []codeexec.BlockResult{{Text: evil}},
			Error: &codeexec.ExecutionError{Type: evil}}, Files: []codeexec.File{{Name: evil}}},
		agent.Event{Type: agent.EventResult, Text: evil}, agent.Event{Type: agent.EventNotice, Text: evil},
		agent.Event{Type: agent.EventToolCall, Tool: evil, Arguments: []byte(evil)},
		agent.Event{Type: agent.EventToolResult, Tool: evil, Text: evil},
	)
	for _, e := range events {
		v.event(e)
	}
	v.note("%s", evil)
	v.saved([]saved{{path: evil, left: evil}, {name: evil, left: evil}, {path: evil}})
	own := regexp.MustCompile("\x1b\\[([0-49]|3[1-6])?[mK]")
	if left := own.ReplaceAllString(out.String(), ""); strings.ContainsAny(left, "\x1b\x07\u009b\u009d\u202e") {
		t.Errorf("%q", left)
	}
	// Colours that the view itself uses are the view's: it ends what it begins.
	if opened, closed := len(regexp.MustCompile("\x1b\\[([1-49]|3[1-6])m").FindAllString(out.String(), -1)), strings.Count(out.String(), reset); opened > closed {
		t.Errorf("%d styles begin, %d end", opened, closed)
	}
}

// Code of tools is not in the reply, and is shown once.
func TestViewCodeOnce(t *testing.T) {
	v, out := onTerminal(false)
	v.code("python", "print(1)") // for approval
	v.event(agent.Event{Type: agent.EventCode, Run: 1, Language: "python", Code: "print(1)\n", Decision: "approved"})
	if out.String() != "print(1)\n" {
		t.Errorf("%q", out.String())
	}
	v.event(agent.Event{Type: agent.EventText, Text: "```bash\n# never: rm -r x\n```\n"})
	out.Reset()
	v.code("bash", "# never:\nrm -r x")
	if !strings.Contains(out.String(), "# never:\nrm -r x\n") {
		t.Errorf("other code is taken for what was shown: %q", out.String())
	}
	v.event(agent.Event{Type: agent.EventText, Text: "1. So:\n   ```python\n   for a in b:\n     c()\n   ```\n"})
	out.Reset()
	if v.code("python", "for a in b:\n  c()\n"); out.Len() > 0 {
		t.Errorf("shown again: %q", out.String())
	}
}

// Names come from the sandbox: none leads out of the folder, nor through a link.
func TestSave(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "out")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(top, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var files []codeexec.File
	for _, name := range []string{"../a", "/tmp/h7-a", "x/../../a", "link/a", "", ".", "a\x00b", "ok.txt", "sub/ok.txt"} {
		files = append(files, codeexec.File{Name: name, Content: []byte("x"), SizeBytes: 9, Truncated: name == "ok.txt"})
	}
	written := save(dir, files)
	for i, s := range written {
		if refused := s.path == "" && strings.HasPrefix(s.left, "not saved: "); refused != (i < 7) {
			t.Errorf("%q: %q %q", files[i].Name, s.path, s.left)
		}
	}
	if written[7].left != "cut: 1 of 9 bytes" || written[8].path != filepath.Join(dir, "sub", "ok.txt") {
		t.Errorf("%+v", written[7:])
	}
	if entries, _ := os.ReadDir(top); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}

// TestHiddenCode: what a carriage return would write over is shown.
func TestHiddenCode(t *testing.T) {
	const hidden = "evil()\rprint(1)\r\n"
	for name, events := range map[string][]agent.Event{
		"in a reply": {{Type: agent.EventText, Text: "```python\n" + hidden + "```\n"}},
		"in a call":  {{Type: agent.EventCode, Run: 1, Language: "python", Code: hidden, Decision: "allow"}},
	} {
		v, out := onTerminal(false)
		for _, e := range events {
			v.event(e)
		}
		v.endTurn()
		if !strings.Contains(out.String(), `evil()\rprint(1)`) {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}

// Folders go in whole, but for what is no file of theirs.
func TestReadInputs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.csv", "sub/b.csv"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "passwd")); err != nil {
		t.Fatal(err)
	}
	files, err := readInputs([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "data/a.csv data/sub/b.csv" {
		t.Error(got)
	}
}
