package steps

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Bounds of what is shown of hostile texts, in bytes.
const (
	maxMessage = 1000
	maxLine    = 200
)

// Explanation is an error as a person, or a model that is to fix it, reads it.
type Explanation struct {
	Type    string // such as "ZeroDivisionError"
	Line    int    // of the code, from 1; 0 if that cannot be told
	Column  int    // in characters, from 1; 0 likewise
	Message string
	// Context is the line with one before and one after, numbered, and a caret
	// below the line; empty without a line.
	Context string
	// Plain says in a sentence what that means and where to look; empty for
	// errors that are not common.
	Plain string
}

// String puts it together, some lines of text.
func (x *Explanation) String() string {
	var b strings.Builder
	b.WriteString(x.Type)
	if x.Line > 0 {
		fmt.Fprintf(&b, " in line %d", x.Line)
	}
	if x.Message != "" {
		b.WriteString(": " + x.Message)
	}
	if x.Context != "" {
		b.WriteString("\n" + x.Context)
	}
	if x.Plain != "" {
		b.WriteString("\n" + x.Plain)
	}
	return b.String()
}

// Explain explains an error of code, as an executor's result has it. It returns
// nil for nil.
func Explain(e *codeexec.ExecutionError, code string) *Explanation {
	if e == nil {
		return nil
	}
	x := &Explanation{
		Type:    clip.Ellipsis(codeexec.CleanText(e.Type), maxLine),
		Message: clip.Ellipsis(strings.TrimSpace(codeexec.CleanText(e.Message)), maxMessage), Line: e.Line,
	}
	lines := strings.Split(strings.ReplaceAll(code, "\r\n", "\n"), "\n")
	if x.Line < 1 || x.Line > len(lines) {
		x.Line = 0
	} else {
		x.Column = column(e.Traceback, x.Line, lines[x.Line-1])
		x.Context = around(lines, x.Line, x.Column)
	}
	x.Plain = plain(x.Type, x.Message)
	return x
}

// ExplainResult explains why an execution did not go well: its error, its time or
// memory, its exit code. It returns nil for one that did. code is that of the
// block that failed, if there were several.
func ExplainResult(r codeexec.CodeExecutionResult, code string) *Explanation {
	switch {
	case r.Outcome == codeexec.OutcomeOK:
		return nil
	case r.TimedOut || r.Outcome == codeexec.OutcomeDeadlineExceeded:
		return &Explanation{Type: "Timeout", Message: "the code was stopped: its time was over",
			Plain: "It takes too long: look for a loop that never ends, for waiting, or do less work."}
	case r.Limit == "memory" || r.ExitCode == codeexec.ExitOutOfMemory:
		return &Explanation{Type: "OutOfMemory", Message: "the code was stopped: out of memory",
			Plain: "It keeps too much at once: work through the data in pieces."}
	case r.Error != nil:
		return Explain(r.Error, code)
	}
	x := &Explanation{Type: "ExitCode", Message: fmt.Sprintf("the program ended with exit code %d", r.ExitCode)}
	if said := strings.TrimSpace(codeexec.CleanText(r.Output)); said != "" {
		if len(said) > maxMessage {
			said = "…" + clip.Tail(said, maxMessage)
		}
		x.Message += ", after printing: " + said
	}
	return x
}

// around shows a line and its neighbours.
func around(lines []string, line, column int) string {
	var b strings.Builder
	width := len(fmt.Sprint(min(line+1, len(lines))))
	for n := max(1, line-1); n <= min(line+1, len(lines)); n++ {
		text := shown(lines[n-1])
		mark := " "
		if n == line {
			mark = ">"
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%s %*d | %s", mark, width, n, text), " ") + "\n")
		if n != line {
			continue
		}
		at := cmp.Or(column, indent(text)+1)
		length := 1
		if column == 0 {
			length = max(1, utf8.RuneCountInString(strings.TrimSpace(text)))
		}
		if at <= maxLine {
			fmt.Fprintf(&b, "  %s | %s%s\n", strings.Repeat(" ", width), strings.Repeat(" ", at-1), strings.Repeat("^", min(length, maxLine)))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shown is a line of code on which a caret can stand below its character.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return clip.Ellipsis(s, maxLine)
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }

// column finds the caret that a traceback has below the line of code, as Python
// draws it.
func column(traceback string, line int, code string) int {
	lines := strings.Split(traceback, "\n")
	want := fmt.Sprintf(", line %d", line)
	bare := strings.TrimSpace(code)
	found := 0
	for i := 0; i+2 < len(lines) && bare != ""; i++ {
		if !strings.Contains(lines[i], want) || strings.TrimSpace(lines[i+1]) != bare {
			continue
		}
		carets := lines[i+2]
		at := strings.IndexByte(carets, '^')
		if at < 0 || strings.Trim(carets, " ~^") != "" {
			continue
		}
		at -= indent(lines[i+1])
		if leading := len(code) - len(strings.TrimLeft(code, " \t")); at >= 0 && at <= utf8.RuneCountInString(bare) {
			found = leading + at + 1
		}
	}
	return found
}
