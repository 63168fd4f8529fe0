// Package source is code by lines and columns, and what of it may be shown.
package source

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// MaxEvidence bounds what [Source.Evidence] returns, in characters.
const MaxEvidence = 160

// MaxName bounds what [Label] returns, in bytes.
const MaxName = 100

// MaxNesting bounds open brackets. The parsers of this process recurse, and take
// up to 5 KiB of stack a bracket; a stack that is too large ends the process.
const MaxNesting = 500

// Source is code with an index of its lines.
type Source struct {
	Text  string
	lines []int // where they begin, in bytes
}

// New indexes the lines of a text.
func New(text string) *Source {
	s := &Source{Text: text, lines: []int{0}}
	for i := range len(text) {
		if text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// Line returns a line, which counts from 1, without its end.
func (s *Source) Line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	line, _, _ := strings.Cut(s.Text[s.lines[n-1]:], "\n")
	return strings.TrimSuffix(line, "\r")
}

// Position returns line and column, in characters, of a byte.
func (s *Source) Position(offset int) (line, column int) {
	offset = min(max(offset, 0), len(s.Text))
	line = sort.SearchInts(s.lines, offset+1)
	return line, utf8.RuneCountInString(s.Text[s.lines[line-1]:offset]) + 1
}

// Column returns the column, in characters from 1, of a byte of a line, from 0.
func (s *Source) Column(line, offset int) int {
	text := s.Line(line)
	return utf8.RuneCountInString(text[:min(max(offset, 0), len(text))]) + 1
}

// Evidence returns what of a line is to be seen, around a column in characters.
func (s *Source) Evidence(line, column int) string {
	runes := []rune(strings.TrimRight(s.Line(line), " \t"))
	indent := 0
	for indent < len(runes) && (runes[indent] == ' ' || runes[indent] == '\t') {
		indent++
	}
	from, to := indent, len(runes)
	if to-from > MaxEvidence {
		from = max(from, min(column-1-MaxEvidence/4, to-MaxEvidence))
		to = min(to, from+MaxEvidence)
	}
	return Visible(string(runes[from:to]))
}

// TooDeep finds the byte at which more than [MaxNesting] brackets are open. Those
// in strings count, which is nothing that code comes near.
func (s *Source) TooDeep() (offset int, deep bool) {
	depth := 0
	for i := range len(s.Text) {
		switch s.Text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		if depth > MaxNesting {
			return i, true
		}
	}
	return 0, false
}

// Clamp makes a position that somebody told one of the source's, or none.
func (s *Source) Clamp(line, column int) (int, int) {
	if line < 1 || line > len(s.lines) {
		return 0, 0
	}
	return line, min(max(column, 0), utf8.RuneCountInString(s.Line(line))+1)
}

// Visible makes a line of code safe to show: what a terminal or a page would obey,
// or show in another order, is replaced and not removed, so that it is seen that
// there was something.
func Visible(s string) string {
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

// Label makes a name out of code fit to be a word of a rule: printable, short,
// without blanks and stars.
func Label(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r == '*' {
			return '_'
		}
		return r
	}, Visible(name))
	return clip.Head(name, MaxName)
}
