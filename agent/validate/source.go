package validate

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// source is code with an index of its lines.
type source struct {
	text  string
	lines []int // where they begin, in bytes
}

func newSource(text string) *source {
	s := &source{text: text, lines: []int{0}}
	for i := range len(text) {
		if text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// line returns a line, which counts from 1, without its end.
func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	line, _, _ := strings.Cut(s.text[s.lines[n-1]:], "\n")
	return strings.TrimSuffix(line, "\r")
}

// position returns line and column, in characters, of a byte.
func (s *source) position(offset int) (line, column int) {
	offset = min(max(offset, 0), len(s.text))
	line = sort.SearchInts(s.lines, offset+1)
	return line, utf8.RuneCountInString(s.text[s.lines[line-1]:offset]) + 1
}

// column returns the column, in characters from 1, of a byte of a line, from 0.
func (s *source) column(line, offset int) int {
	text := s.line(line)
	return utf8.RuneCountInString(text[:min(max(offset, 0), len(text))]) + 1
}

// evidence returns what of a line is to be seen, around a column in characters.
func (s *source) evidence(line, column int) string {
	runes := []rune(strings.TrimRight(s.line(line), " \t"))
	indent := 0
	for indent < len(runes) && (runes[indent] == ' ' || runes[indent] == '\t') {
		indent++
	}
	from, to := indent, len(runes)
	if to-from > maxEvidence {
		from = max(from, min(column-1-maxEvidence/4, to-maxEvidence))
		to = min(to, from+maxEvidence)
	}
	return visible(string(runes[from:to]))
}

// visible makes a line of code safe to show: what a terminal or a page would obey,
// or show in another order, is replaced and not removed, so that it is seen that
// there was something.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			return '\uFFFD'
		}
		return r
	}, s)
}

// maxNesting bounds open brackets. The parsers of this process recurse, and take
// up to 5 KiB of stack a bracket; a stack that is too large ends the process.
const maxNesting = 500

// nested finds the place where too many brackets are open. Those in strings count,
// which is nothing that code comes near.
func (s *source) nested() (Finding, bool) {
	depth := 0
	for i := range len(s.text) {
		switch s.text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		if depth > maxNesting {
			f := Finding{Message: "the code is nested too deeply", Remedy: "write it in smaller pieces"}
			f.Line, f.Column = s.position(i)
			f.Evidence = s.evidence(f.Line, f.Column)
			return f, true
		}
	}
	return Finding{}, false
}

// clamp makes a position that somebody told one of the source's, or none.
func (s *source) clamp(line, column int) (int, int) {
	if line < 1 || line > len(s.lines) {
		return 0, 0
	}
	return line, min(max(column, 0), utf8.RuneCountInString(s.line(line))+1)
}

// clip cuts a text to so many bytes.
func clip(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}
