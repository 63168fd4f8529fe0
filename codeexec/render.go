package codeexec

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// DefaultMaxChars is how much of an output a model is shown, in characters.
const DefaultMaxChars = 10_000

// WholeOutputName is the file that keeps an output of which a part was shown.
const WholeOutputName = "output.txt"

// RenderOptions say how a result becomes text for a model.
type RenderOptions struct {
	// MaxChars cuts longer outputs in the middle; 0 means DefaultMaxChars, a
	// negative number does not cut.
	MaxChars int
	// KeptAs is how the note calls the place where the whole is kept; empty means
	// the file output.txt.
	KeptAs string
	// Delimiter is what ToolOutput puts around the output; the zero value is the
	// fence tool_output. If it is no fence, its End is taken out of the output.
	Delimiter CodeBlockDelimiter
}

// toolOutputFence is the delimiter of ToolOutput, as tRPC-Agent has it.
var toolOutputFence = CodeBlockDelimiter{Start: "```tool_output\n", End: "\n```"}

// maxLeftShown is how many files a model is told of that do not come back.
const maxLeftShown = 10

// Rendered is a result as a model reads it.
type Rendered struct {
	Text string
	// Files are the result's, and the whole output if Text has less.
	Files []File
}

// ToolOutput renders a result as the fence tool_output, which models were
// taught to read:
//
//	```tool_output
//	96
//	```
//
// The fence is longer than any in the output, so that what code prints cannot
// end it. Escape codes are removed. Pictures are named as [Generated image:
// NAME], other files as [Generated file: NAME]. What else there is to know (a
// timeout, an exit code, lost variables) stands in brackets after the output.
func (r CodeExecutionResult) ToolOutput(opts RenderOptions) Rendered {
	text, files := r.render(opts)
	d := opts.Delimiter
	if d == (CodeBlockDelimiter{}) {
		d = toolOutputFence
	}
	if f, ok := d.fence(); ok {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		fence := strings.Repeat(string(f.char), max(f.length, longestRun(text, f.char)+1))
		return Rendered{Text: fence + f.language + "\n" + text + fence, Files: files}
	}
	text = without(text, strings.TrimSpace(d.End))
	return Rendered{Text: d.Start + strings.TrimSuffix(text, "\n") + d.End, Files: files}
}

// without takes every word out of a text, also those that come about by that.
func without(text, word string) string {
	if word == "" || !strings.Contains(text, word) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		out = append(out, text[i])
		if n := len(out) - len(word); n >= 0 && string(out[n:]) == word {
			out = out[:n]
		}
	}
	return string(out)
}

// Report renders a result in tRPC-Agent's form: "Code execution result:" and the
// output, or "Code execution error:", "Code execution timed out".
func (r CodeExecutionResult) Report(opts RenderOptions) Rendered {
	text, files := r.render(opts)
	head := "Code execution result:\n"
	switch r.Outcome {
	case OutcomeFailed:
		head = "Code execution error:\n"
	case OutcomeDeadlineExceeded:
		head = "Code execution timed out\nCode execution result:\n"
	}
	if text == "" {
		if r.Outcome == OutcomeOK || r.Outcome == "" {
			return Rendered{Text: "Code execution result: No output or errors."}
		}
		return Rendered{Text: head, Files: files}
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if len(r.OutputFiles) > 0 {
		var names strings.Builder
		names.WriteString("Saved output files:\n")
		for _, f := range r.OutputFiles {
			names.WriteString(oneLine(f.Name) + "\n")
		}
		text += names.String()
	}
	return Rendered{Text: head + text, Files: files}
}

// String is the text of Report with its defaults.
func (r CodeExecutionResult) String() string { return r.Report(RenderOptions{}).Text }

// render returns the output as a model is to read it, and the files.
func (r CodeExecutionResult) render(opts RenderOptions) (string, []File) {
	clean := CleanText(r.Output)
	text, cut := cutMiddle(clean, cmp.Or(opts.MaxChars, DefaultMaxChars), cmp.Or(opts.KeptAs, WholeOutputName))
	files := r.OutputFiles
	if cut {
		files = append(files[:len(files):len(files)], File{
			Name: WholeOutputName, Content: []byte(clean), MIMEType: "text/plain; charset=utf-8", SizeBytes: int64(len(clean)),
		})
	}
	var b strings.Builder
	b.WriteString(text)
	note := func(format string, args ...any) {
		if b.Len() > 0 && !strings.HasSuffix(b.String()[b.Len()-1:], "\n") {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "["+format+"]\n", args...)
	}
	for _, f := range r.OutputFiles {
		if strings.HasPrefix(f.MIMEType, "image/") {
			note("Generated image: %s", oneLine(f.Name))
		} else {
			note("Generated file: %s", oneLine(f.Name))
		}
	}
	switch {
	case r.TimedOut:
		note("The code was stopped: its time was over")
	case r.Limit == "memory":
		note("The code was stopped: out of memory")
	case r.Outcome == OutcomeFailed && r.ExitCode != 0 && r.Error == nil:
		note("Exit code %d", r.ExitCode)
	}
	for i, f := range r.Left {
		if i == maxLeftShown {
			note("%d more files are left out", len(r.Left)-i)
			break
		}
		note("Left out: %s: %s", oneLine(f.Name), oneLine(f.Reason))
	}
	if r.Truncated {
		note("More was printed or shown than is kept")
	}
	switch {
	case r.FilesLost && r.Instance.Memory == 0 && r.Instance.Files > 0:
		note("Files of earlier code are gone")
	case r.FilesLost:
		note("Variables and files of earlier code are gone")
	case r.StateLost:
		note("Variables of earlier code are gone")
	}
	return b.String(), files
}

// oneLine makes a file's name safe to show.
func oneLine(s string) string {
	s = clip.Head(CleanText(s), 300)
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '[' || r == ']' {
			return '_'
		}
		return r
	}, s)
}

func longestRun(s string, c byte) int {
	longest, run := 0, 0
	for i := range len(s) {
		if s[i] != c {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// cutMiddle keeps most characters of a text, half of them from its beginning and
// half from its end, at line ends where that is not far.
func cutMiddle(s string, most int, keptAs string) (string, bool) {
	if most < 0 || len(s) <= most {
		return s, false
	}
	total := utf8.RuneCountInString(s)
	if total <= most {
		return s, false
	}
	head := s[:offsetOf(s, most-most/2)]
	tail := s[offsetFromEnd(s, most/2):]
	if at := strings.LastIndexByte(head, '\n'); at >= len(head)*3/4 {
		head = head[:at+1]
	}
	if at := strings.IndexByte(tail, '\n'); at >= 0 && at < len(tail)/4 {
		tail = tail[at+1:]
	}
	gone := total - utf8.RuneCountInString(head) - utf8.RuneCountInString(tail)
	newline := "\n"
	if head == "" || strings.HasSuffix(head, "\n") {
		newline = ""
	}
	return fmt.Sprintf("%s%s[... %d of %d characters are left out here; the whole output is in %s ...]\n%s", head, newline, gone, total, keptAs, tail), true
}

// offsetOf returns where the n-th character begins.
func offsetOf(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// offsetFromEnd returns where the last n characters begin.
func offsetFromEnd(s string, n int) int {
	at := len(s)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return at
}
