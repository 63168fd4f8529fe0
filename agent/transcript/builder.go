package transcript

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/rawjson"
)

// block is a piece of the page. Kind says which fields are set.
type block struct {
	Kind string // question, thinking, text, broken, run, tool, notice, answer, end

	Text template.HTML // question, text, broken, answer: Markdown, rendered
	Raw  string        // thinking, notice; of text and answer: where Text came from

	// Of a run, and partly of a tool.
	Run      int
	Language string
	Code     template.HTML
	Decision string
	Findings []validate.Finding
	Refusal  string
	Output   string
	Error    string
	Notes    []string // how it ended, if not well
	Took     string
	Failed   bool
	Open     bool // it has not ended

	Tool, Arguments, Answer string

	Pictures []picture
	Files    []file

	Facts []string // question, end: counts
}

// builder turns events into blocks.
type builder struct {
	blocks   []*block
	title    string
	renderer *renderer
	files    *files

	thinking, text strings.Builder // of a reply that is not whole yet
	waiting        []*block        // runs whose place is known, by their code
	waitingCode    []string
	run            *block // the one that goes on
	ran            bool   // code, since the last call of a tool

	asked time.Time // of the question
	last  time.Time
	turns int
	runs  int
	usage agent.Usage
}

func newBuilder() *builder {
	f := &files{left: maxPictures, anchors: map[string]string{}}
	return &builder{renderer: newRenderer(f), files: f}
}

func (b *builder) push(k *block) *block {
	b.blocks = append(b.blocks, k)
	return k
}

// add takes the i-th event.
func (b *builder) add(events []agent.Event, i int) {
	e := events[i]
	if !e.Time.IsZero() {
		b.last = e.Time
	}
	switch e.Type {
	case agent.EventQuestion:
		b.question(e)
	case agent.EventThinking:
		b.thinking.WriteString(e.Text)
	case agent.EventText:
		b.text.WriteString(e.Text)
	case agent.EventReply:
		b.reply(e, codeOf(events[i+1:]))
	case agent.EventCode:
		b.code(e)
	case agent.EventOutput:
		if b.run != nil && len(b.run.Output) < 2*maxOutput {
			b.run.Output += e.Text
		}
	case agent.EventResult:
		b.result(e)
	case agent.EventToolCall:
		b.ran = false
		if !runsCode(e.Tool) {
			b.push(&block{Kind: "tool", Tool: clean(e.Tool), Arguments: visible(cut(pretty(e.Arguments), maxOutput))})
		}
	case agent.EventToolResult:
		b.toolResult(e)
	case agent.EventNotice:
		b.broken()
		b.push(&block{Kind: "notice", Raw: clean(e.Text)})
	case agent.EventAnswer:
		b.answer(e)
	}
}

// runsCode reports the tools that are shown as the runs that they make.
func runsCode(tool string) bool { return tool == "execute_code" || tool == "execute_python" }

// codeOf returns the code that runs because of a reply, up to the next one.
func codeOf(events []agent.Event) []string {
	var code []string
	for _, e := range events {
		switch e.Type {
		case agent.EventCode:
			if e.Tool == "" {
				code = append(code, e.Code)
			}
		case agent.EventReply, agent.EventQuestion, agent.EventAnswer:
			return code
		}
	}
	return code
}

func (b *builder) question(e agent.Event) {
	b.flush()
	b.asked, b.turns, b.runs, b.usage = e.Time, 0, 0, agent.Usage{}
	if b.title == "" {
		b.title = e.Text
	}
	pictures, others := b.files.show(e.Files)
	k := b.push(&block{Kind: "question", Text: b.renderer.plain(e.Text), Pictures: pictures, Files: others})
	if !e.Time.IsZero() {
		k.Facts = []string{e.Time.UTC().Format("2 January 2006, 15:04 UTC")}
	}
}

func (b *builder) thoughts() {
	if t := strings.TrimSpace(b.thinking.String()); t != "" {
		b.push(&block{Kind: "thinking", Raw: clean(cut(t, maxText))})
	}
	b.thinking.Reset()
}

// broken shows what came of a reply that did not become whole.
func (b *builder) broken() {
	b.thoughts()
	if t := strings.TrimSpace(b.text.String()); t != "" {
		b.push(&block{Kind: "broken", Text: b.renderer.plain(t)})
	}
	b.text.Reset()
}

// reply shows a reply; the code in it that runs gets its place there.
func (b *builder) reply(e agent.Event, code []string) {
	b.thoughts()
	b.text.Reset()
	b.turns++
	if e.Usage != nil {
		b.usage = b.usage.Add(*e.Usage)
	}
	b.waiting, b.waitingCode = nil, nil
	for _, s := range b.renderer.split(e.Text, code) {
		if s.runs {
			b.waiting = append(b.waiting, b.push(&block{Kind: "run", Open: true}))
			b.waitingCode = append(b.waitingCode, s.code)
			continue
		}
		b.push(&block{Kind: "text", Text: s.html, Raw: e.Text})
	}
}

func (b *builder) code(e agent.Event) {
	b.ran = true
	var k *block
	for i, code := range b.waitingCode {
		if e.Tool == "" && sameCode(code, e.Code) && b.waiting[i] != nil {
			k, b.waiting[i] = b.waiting[i], nil
			break
		}
	}
	if k == nil {
		k = b.push(&block{Kind: "run"})
	}
	k.Run, k.Language, k.Open = e.Run, clean(e.Language), true
	k.Code = highlighted(e.Language, e.Code)
	k.Findings = nil
	for _, f := range e.Findings {
		f.Message, f.Remedy, f.Rule, f.Decision = clean(f.Message), clean(f.Remedy), clean(f.Rule), validate.Decision(clean(string(f.Decision)))
		k.Findings = append(k.Findings, f)
	}
	b.run = k
	switch e.Decision {
	case "refused":
		k.Run, k.Open, k.Failed, b.run = 0, false, true, nil
		k.Decision, k.Refusal = "not run", clean(e.Text)
	case "approved":
		k.Decision = "approved"
	}
}

func (b *builder) result(e agent.Event) {
	k := b.run
	if k == nil || k.Run != e.Run {
		k = b.push(&block{Kind: "run", Run: e.Run})
	}
	b.run = nil
	b.runs++
	k.Open, k.Failed = false, e.IsError
	r := e.Result
	if r == nil { // the sandbox was lost
		k.Output = clean(cut(k.Output, maxOutput))
		k.Error = clean(e.Text)
		return
	}
	k.Output = visible(cut(strings.TrimRight(codeexec.CleanText(r.Output), "\n"), maxOutput))
	if r.Error != nil {
		k.Error = shortLine(r.Error.Error(), 500)
		if r.Error.Line > 0 {
			k.Error += fmt.Sprintf(" (line %d)", r.Error.Line)
		}
	}
	if r.Duration > 0 {
		k.Took = duration(r.Duration)
	}
	k.Notes = notes(r)
	k.Pictures, k.Files = b.files.show(filesOf(e, r))
}

// filesOf are the event's, which may be more than the result's.
func filesOf(e agent.Event, r *codeexec.CodeExecutionResult) []codeexec.File {
	if len(e.Files) > 0 {
		return e.Files
	}
	return r.OutputFiles
}

// notes say how a run ended, where the output does not.
func notes(r *codeexec.CodeExecutionResult) []string {
	var n []string
	switch {
	case r.TimedOut:
		n = append(n, "its time was over")
	case r.Limit != "" && r.Limit != "output":
		n = append(n, "limit reached: "+clean(r.Limit))
	case r.ExitCode != 0:
		n = append(n, fmt.Sprintf("exit code %d", r.ExitCode))
	}
	if r.Truncated {
		n = append(n, "output or files were cut")
	}
	switch {
	case r.FilesLost:
		n = append(n, "variables and files of earlier runs are gone")
	case r.StateLost:
		n = append(n, "variables of earlier runs are gone")
	}
	return n
}

func (b *builder) toolResult(e agent.Event) {
	if runsCode(e.Tool) && (b.ran || !e.IsError) {
		return // the run has said it
	}
	var k *block
	for i := len(b.blocks) - 1; i >= 0 && b.blocks[i].Kind != "question"; i-- {
		if c := b.blocks[i]; c.Kind == "tool" && c.Tool == clean(e.Tool) && c.Answer == "" {
			k = c
			break
		}
	}
	if k == nil {
		k = b.push(&block{Kind: "tool", Tool: clean(e.Tool)})
	}
	k.Failed = e.IsError
	k.Answer = cmp.Or(clean(cut(e.Text, maxOutput)), "(nothing)")
}

func (b *builder) answer(e agent.Event) {
	b.broken()
	var k *block
	if n := len(b.blocks); n > 0 && b.blocks[n-1].Kind == "text" && strings.TrimSpace(b.blocks[n-1].Raw) == strings.TrimSpace(e.Text) {
		k = b.blocks[n-1]
	} else {
		k = b.push(&block{Text: b.renderer.plain(e.Text)})
	}
	k.Kind = "answer"
	if e.Usage != nil {
		b.usage = *e.Usage
	}
	b.end()
}

// end says what the question cost.
func (b *builder) end() {
	if b.turns == 0 {
		return
	}
	facts := []string{count(b.turns, "reply", "replies"), count(b.runs, "run", "runs")}
	if n := b.usage.Total(); n > 0 {
		facts = append(facts, fmt.Sprintf("%d tokens (%d in, %d out)", n, b.usage.Input, b.usage.Output))
	}
	if took := b.last.Sub(b.asked); !b.asked.IsZero() && took > 0 {
		facts = append(facts, duration(took))
	}
	b.push(&block{Kind: "end", Facts: facts})
	b.turns = 0
}

// flush ends a question that has no answer.
func (b *builder) flush() {
	b.broken()
	b.run = nil
	if b.turns > 0 {
		b.push(&block{Kind: "notice", Raw: "There is no answer: the work was stopped."})
		b.end()
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// pretty indents JSON, whose numbers keep their digits.
func pretty(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil { // what was no JSON comes as a string
		return codeexec.CleanText(s)
	}
	var v any
	if rawjson.Decode(raw, &v) != nil {
		return codeexec.CleanText(string(raw))
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if enc.Encode(v) != nil {
		return codeexec.CleanText(string(raw))
	}
	return codeexec.CleanText(strings.TrimSpace(b.String()))
}
