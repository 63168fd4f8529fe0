package agentcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/cmd/internal/markdown"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Styles of the terminal.
const (
	dim    = "\x1b[2m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// view shows for people what happens: on standard output if that is a terminal,
// else on standard error, so that a pipe gets the answer and nothing else. Where
// both are one file, the answer is there already, as the last reply. What
// comes from the model or the sandbox passes a filter on its way; only this file
// writes escape codes. It is for one goroutine at a time.
type view struct {
	w        io.Writer
	clean    *terminal.Filter // to w
	answerTo io.Writer        // a pipe that gets the answer; nil if there is none
	tty      bool
	moves    bool // the terminal obeys escape sequences
	colour   bool
	silent   bool // with --json: notes only
	notes    io.Writer

	spin    *terminal.Spinner
	kind    agent.EventType // of the text that is being shown
	midLine bool
	prefix  string // of each line
	reply   *replyView
	// shownBlock says that a block of the reply is above: the next one is to stand apart.
	shownBlock bool
	shown      map[string]bool // code that was, in this turn
	ran        bool            // code, since the last call of a tool
	began      time.Time
}

func newView(std Streams, silent bool) *view {
	v := &view{w: std.Out, notes: std.Err, silent: silent, shown: map[string]bool{}}
	if silent || !terminal.Is(std.Out) {
		v.w = std.Err
		if !sameFile(std.Out, std.Err) {
			v.answerTo = std.Out
		}
	}
	v.tty = terminal.Is(v.w)
	v.moves = v.tty && movesCursor()
	v.colour = v.moves && os.Getenv("NO_COLOR") == ""
	v.clean = terminal.Strict(&prefixer{v: v})
	v.reply = &replyView{v: v}
	return v
}

// sameFile reports whether two writers are one file, pipe or device, as after
// `2>&1`.
func sameFile(a, b io.Writer) bool {
	ia, ib := fileOf(a), fileOf(b)
	return ia != nil && ib != nil && os.SameFile(ia, ib)
}

// fileOf is what w writes to; nil if that is no file.
func fileOf(w io.Writer) os.FileInfo {
	if s, ok := w.(*output.Stream); ok {
		w = s.Unwrap()
	}
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	return info
}

// failure is why something could not be shown, nil if all was.
func (v *view) failure() error {
	if s, ok := v.w.(*output.Stream); ok {
		return s.Failure()
	}
	return nil
}

// prefixer puts the prefix before each line, also before one that is written
// over.
type prefixer struct{ v *view }

func (p *prefixer) Write(b []byte) (int, error) {
	v := p.v
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r == '\n':
			out.WriteByte('\n')
			v.midLine = false
			continue
		case r == '\r':
			if v.midLine && v.moves {
				out.WriteString("\r\x1b[K")
				v.midLine = false
			}
			continue
		case !v.midLine:
			out.WriteString(v.prefix)
		}
		v.midLine = true
		out.WriteRune(r)
	}
	_, err := io.WriteString(v.w, out.String())
	return len(b), err
}

// raw writes what this program says itself; text shows what others say.
func (v *view) raw(s string) {
	v.quiet()
	_, _ = io.WriteString(v.w, s) // the work goes on without its reader
}

func (v *view) text(s string) {
	v.quiet()
	_, _ = io.WriteString(v.clean, s)
}

func (v *view) style(s string) {
	if v.colour {
		v.raw(s)
	}
}

// markdown shows a block of Markdown.
func (v *view) markdown(s string) {
	v.apart()
	width := 80
	if f, ok := v.w.(terminal.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			width = columns
		}
	}
	v.raw(markdown.Render(s, width))
	v.shownBlock = true
	v.holdBack()
}

// holdBack shows that a reply goes on of which nothing is shown for now.
func (v *view) holdBack() {
	if v.colour {
		v.wait("the model writes")
	}
}

// apart leaves a line free below a block that was shown.
func (v *view) apart() {
	if v.shownBlock {
		v.raw("\n")
	}
	v.shownBlock = false
}

// styled shows a text in a style.
func (v *view) styled(style, s string) {
	v.style(style)
	v.text(s)
	v.style(reset)
}

func (v *view) endLine() {
	if v.midLine {
		v.raw("\n")
		v.midLine = false
	}
}

// wait shows on a terminal that something goes on, until the func is called or
// something is shown.
func (v *view) wait(message string) (stop func()) {
	v.quiet()
	var w io.Writer
	if v.moves && !v.silent {
		w = v.w
	}
	v.spin = terminal.NewSpinner(w, message)
	return v.quiet
}

func (v *view) quiet() {
	if v.spin != nil {
		v.spin.Stop()
		v.spin = nil
	}
}

func (v *view) close() { v.endTurn() }

// echoed goes on below, or in place of, the ^C that a terminal has shown itself.
func (v *view) echoed() {
	switch v.quiet(); {
	case !v.tty || v.midLine: // what comes begins a line of its own
	case v.moves:
		v.raw("\r\x1b[K")
	default:
		v.raw("\n")
	}
}

// endTurn leaves the cursor at the start of a line.
func (v *view) endTurn() {
	v.quiet()
	v.reply.end()
	v.begin("")
}

// begin begins text of another kind.
func (v *view) begin(kind agent.EventType) {
	v.quiet()
	if kind == v.kind {
		return
	}
	if v.kind == agent.EventThinking {
		v.style(reset)
	}
	v.endLine()
	v.kind, v.prefix = kind, ""
	// A sequence that its writer left open must not swallow the next one's text.
	v.clean = terminal.Strict(&prefixer{v: v})
}

// note says something of the program's own on standard error.
func (v *view) note(format string, args ...any) {
	v.begin("note")
	fmt.Fprintf(terminal.Strict(v.notes), format+"\n", args...)
}

// say and prompt write to a person who chats or is asked.
func (v *view) say(s string) {
	v.begin("say")
	v.text(s)
}

func (v *view) prompt(s string) {
	v.begin("prompt")
	v.styled(bold, s)
	v.midLine = false // the answer ends the line
	v.kind = ""
}

// event shows one event.
func (v *view) event(e agent.Event) {
	switch e.Type {
	case agent.EventQuestion:
		v.began = time.Now()
		v.wait("waiting for the model")
	case agent.EventThinking:
		if v.kind != agent.EventThinking {
			v.begin(e.Type)
			v.style(dim)
		}
		v.text(e.Text)
	case agent.EventText:
		if v.kind != e.Type {
			v.begin(e.Type)
			v.holdBack()
		}
		v.reply.write(e.Text)
	case agent.EventReply:
		v.reply.end()
	case agent.EventCode:
		v.code(e.Language, e.Code)
		if e.Decision == "refused" {
			v.begin(e.Type)
			v.styled(red, e.Text+"\n")
			return
		}
		v.findings(e.Findings)
		v.ran = true
		v.wait("running")
	case agent.EventOutput:
		v.begin(e.Type)
		v.prefix = "  "
		v.text(e.Text)
	case agent.EventResult:
		v.result(e)
		v.shown = map[string]bool{}
		v.wait("waiting for the model")
	case agent.EventToolCall:
		v.ran = false
		if !runsCode(e.Tool) {
			v.begin(e.Type)
			v.styled(dim, fmt.Sprintf("calls %s %s\n", e.Tool, short(string(e.Arguments))))
		}
	case agent.EventToolResult:
		if runsCode(e.Tool) && (v.ran || !e.IsError) {
			return
		}
		v.begin(e.Type)
		style := dim
		if e.IsError {
			style = red
		}
		v.prefix = "  "
		v.styled(style, short(e.Text)+"\n")
		v.wait("waiting for the model")
	case agent.EventNotice:
		v.reply.end()
		v.begin(e.Type)
		v.styled(yellow, e.Text+"\n")
		v.wait("waiting for the model")
	}
}

// runsCode reports the tools that are shown as the runs that they make.
func runsCode(tool string) bool { return tool == "execute_code" || tool == "execute_python" }

// short is a line of a text.
func short(s string) string {
	return clip.Chars(strings.Join(strings.Fields(s), " "), 300)
}

// code shows code that was not part of the reply that was shown.
func (v *view) code(language, code string) {
	if key := shownKey(code); !v.shown[key] {
		v.shown[key] = true
		v.begin(agent.EventCode)
		h := highlighter{language: language, colour: v.colour}
		for line := range strings.Lines(strings.TrimRight(code, "\n") + "\n") {
			v.codeLine(h.line(line))
		}
	}
}

// codeLine shows pieces of one line of code, which is whole. Python takes a carriage
// return for the end of a line, a terminal would write over what stands before it,
// and somebody may be about to approve it: it is shown as what it is.
func (v *view) codeLine(pieces []piece) {
	for _, p := range pieces {
		v.style(p.style)
		v.text(strings.ReplaceAll(strings.ReplaceAll(p.text, "\r\n", "\n"), "\r", `\r`))
		if p.style != "" {
			v.style(reset)
		}
	}
}

// shownKey tells code from other code. Blanks count, which can make of a comment a
// command, but for those that each line of a block in a list begins with, and those at
// the ends of lines.
func shownKey(code string) string {
	lines := strings.Split(strings.Trim(code, "\r\n"), "\n")
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " \t"))]
	for i, line := range lines {
		lines[i] = strings.TrimRight(strings.TrimPrefix(line, indent), " \t\r")
	}
	return strings.Join(lines, "\n")
}

func (v *view) findings(all []validate.Finding) {
	for _, f := range all {
		if f.Decision == validate.Allow {
			continue
		}
		v.begin("finding")
		at := ""
		if f.Line > 0 {
			at = fmt.Sprintf("line %d: ", f.Line)
		}
		v.styled(yellow, fmt.Sprintf("%s: %s%s (%s)\n", f.Decision, at, f.Message, f.Rule))
	}
}

// result says how a run ended: its output was shown as it came, but for what it
// showed as a value, and its error.
func (v *view) result(e agent.Event) {
	v.begin(e.Type)
	if e.Result == nil {
		v.styled(red, e.Text+"\n")
		return
	}
	v.prefix = "  "
	said := false // the error: a program writes its own
	for _, b := range e.Result.Blocks {
		said = said || e.Result.Error != nil && strings.Contains(b.Stderr, e.Result.Error.Error())
		if b.Text != "" {
			v.text(strings.TrimRight(b.Text, "\n") + "\n")
		}
	}
	if err := e.Result.Error; err != nil && !said {
		text := err.Error()
		if err.Line > 0 {
			text += fmt.Sprintf(" (line %d)", err.Line)
		}
		v.styled(red, strings.TrimRight(text, "\n")+"\n")
	}
	v.prefix = ""
	var facts []string
	switch {
	case e.Result.TimedOut:
		facts = append(facts, "timed out")
	case e.Result.Limit == "memory":
		facts = append(facts, "out of memory")
	case e.IsError:
		facts = append(facts, fmt.Sprintf("exit code %d", e.Result.ExitCode))
	default:
		facts = append(facts, "ok")
	}
	facts = append(facts, e.Result.Duration.Round(time.Millisecond).String())
	if e.Result.Truncated {
		facts = append(facts, "output was cut")
	}
	for _, f := range e.Files {
		facts = append(facts, f.Name)
	}
	v.styled(dim, fmt.Sprintf("[run %d: %s]\n", e.Run, strings.Join(facts, ", ")))
}

// finish says what came of a question.
func (v *view) finish(a *agent.Answer, written []saved, err error) {
	v.begin("finish")
	if v.answerTo != nil && err == nil {
		answerText(v.answerTo, a.Text)
	}
	v.saved(written)
	if a.Turns == 0 {
		return
	}
	v.styled(dim, fmt.Sprintf("[%s, %s, %d tokens, %s]\n", count(a.Turns, "reply", "replies"), count(a.Runs, "run", "runs"),
		a.Usage.Total(), time.Since(v.began).Round(100*time.Millisecond)))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (v *view) saved(written []saved) {
	v.begin("saved")
	for _, s := range written {
		if s.left == "" {
			v.text("wrote " + s.path + "\n")
		} else {
			v.text(cmp.Or(s.path, s.name) + ": " + s.left + "\n")
		}
	}
}

// jsonWriter prints events as lines.
type jsonWriter struct{ w io.Writer }

func (j *jsonWriter) write(value any) {
	b, err := json.Marshal(value)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"type": "notice", "text": "an event is no JSON: " + err.Error()})
	}
	// What JSON does not escape, a terminal may obey.
	var line strings.Builder
	for _, r := range string(b) {
		if r >= 0x7f && r < 0xa0 {
			fmt.Fprintf(&line, `\u%04x`, r)
		} else {
			line.WriteRune(r)
		}
	}
	_, _ = io.WriteString(j.w, line.String()+"\n") // the work goes on without its reader
}

// leftFile is a file of the sandbox that is not here as it is there.
type leftFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// answer is the last line: the answer, and what went wrong.
func (j *jsonWriter) answer(a *agent.Answer, written []saved, err error) {
	last := struct {
		Type string `json:"type"`
		*agent.Answer
		Files []codeexec.File `json:"files,omitempty"` // they are in the events
		Saved []string        `json:"saved"`
		Left  []leftFile      `json:"left"` // files that were not saved, or not whole
		Error string          `json:"error,omitempty"`
	}{Type: "done", Answer: a, Saved: []string{}, Left: []leftFile{}}
	for _, s := range written {
		if s.path != "" {
			last.Saved = append(last.Saved, s.path)
		}
		if s.left != "" {
			last.Left = append(last.Left, leftFile{s.name, s.left})
		}
	}
	if err != nil {
		last.Error = err.Error()
	}
	j.write(last)
}
