package codeexec

import "strings"

const (
	// maxUnmatched bounds how often the search for the end of a nested fence may
	// run to the end of the reply in vain, and maxFence how many lengths of
	// fences are told apart. Both keep the whole linear.
	maxUnmatched = 32
	maxFence     = 64
)

// fenceLine is a line that is a fence: it opens a block, or closes one if it
// has no info string.
type fenceLine struct {
	char   byte // '`' or '~'
	length int
	indent int    // bytes before the fence: blanks and list markers
	marker bool   // a list marker is among them
	info   string // the language, cleaned
	// bare says that nothing but blanks follows the fence.
	bare bool
}

// fence is a block of the reply.
type fence struct {
	char     byte
	length   int
	indent   int
	language string
	lines    []string // with their ends
}

// code returns the lines without the fence's indentation and with LF.
func (f fence) code() string {
	strip := f.indent
	for _, line := range f.lines {
		if strings.TrimSpace(line) != "" {
			// Code that stands further left than its fence is not indented by it.
			strip = min(strip, len(line)-len(strings.TrimLeft(line, " \t")))
			break
		}
	}
	var b strings.Builder
	for _, line := range f.lines {
		n := 0
		for n < strip && n < len(line) && (line[n] == ' ' || line[n] == '\t') {
			n++
		}
		line = line[n:]
		if text, ok := strings.CutSuffix(line, "\r\n"); ok {
			b.WriteString(text)
			b.WriteByte('\n')
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// findFences returns the blocks of a reply in order.
func findFences(reply string) []fence {
	var (
		lines  []string
		parsed []fenceLine // of the lines that are fences
		where  []int       // their lines
	)
	for line := range strings.Lines(reply) {
		f, ok := parseFenceLine(line)
		if !ok {
			f, ok = parseFenceAfterText(line)
		}
		if ok {
			parsed = append(parsed, f)
			where = append(where, len(lines))
		}
		lines = append(lines, line)
	}
	var found []fence
	m := matcher{parsed: parsed, closers: map[closerKey]int{}}
	for i := 0; i < len(parsed); {
		open := parsed[i]
		end, closed := m.end(i)
		last := len(lines)
		if end < len(parsed) {
			last = where[end]
		}
		f := fence{open.char, open.length, open.indent, open.info, lines[where[i]+1 : last]}
		if closed {
			end++
		} else if at := f.cutAtLineEnd(); at >= 0 {
			// Fences after that are not in it.
			for end = i + 1; end < len(parsed) && where[end] <= where[i]+1+at; end++ {
			}
		}
		found = append(found, f)
		i = end
	}
	return found
}

// cutAtLineEnd ends a block that no line of its own closes at the first line
// whose end is a fence, and returns that line's number, -1 if there is none.
func (f *fence) cutAtLineEnd() int {
	mark := strings.Repeat(string(f.char), f.length)
	for i, line := range f.lines {
		text := strings.TrimRight(line, " \t\r\n")
		if code := strings.TrimRight(text, string(f.char)); code != "" && strings.HasSuffix(text, mark) {
			f.lines = append(f.lines[:i:i], code)
			return i
		}
	}
	return -1
}

// matcher finds where blocks end. It is asked in the order of the lines.
type matcher struct {
	parsed    []fenceLine
	closers   map[closerKey]int // the next line that can close such a fence
	unmatched int
}

type closerKey struct {
	char   byte
	length int
}

func (f fenceLine) closes(open fenceLine) bool {
	return f.bare && !f.marker && f.char == open.char && f.length >= open.length
}

func (f fenceLine) nests(open fenceLine) bool {
	return f.info != "" && f.char == open.char && f.length >= open.length
}

// end returns the fence line at which the block that line i opens ends, and
// whether that line belongs to it; the number of lines if nothing ends it.
//
// Inside a block, a fence with an info string may be text of it that is closed
// by its own fence (a model that writes Markdown, or a program that does). So
// pairs are skipped first. If no end is left over then, the model forgot to
// close the block before it opened the next.
func (m *matcher) end(i int) (end int, closed bool) {
	open := m.parsed[i]
	first := m.nextCloser(i)
	inner := i + 1
	for inner < first && !m.parsed[inner].nests(open) {
		inner++
	}
	if inner >= first {
		return first, first < len(m.parsed)
	}
	if first == len(m.parsed) || m.unmatched >= maxUnmatched {
		return inner, false
	}
	depth := 1
	for j := inner; j < len(m.parsed); j++ {
		switch f := m.parsed[j]; {
		case f.closes(open):
			depth--
		case f.nests(open):
			depth++
		}
		if depth == 0 {
			return j, true
		}
	}
	m.unmatched++
	return inner, false
}

// nextCloser returns the first line after i that can close the block which line
// i opens.
func (m *matcher) nextCloser(i int) int {
	open := m.parsed[i]
	key := closerKey{open.char, open.length}
	at, ok := m.closers[key]
	if !ok || at <= i {
		for at = i + 1; at < len(m.parsed) && !m.parsed[at].closes(open); at++ {
		}
		m.closers[key] = at
	}
	return at
}

// parseFenceLine reads a line that is a fence.
func parseFenceLine(line string) (fenceLine, bool) {
	text := strings.TrimRight(line, " \t\r\n")
	rest := strings.TrimLeft(text, " \t")
	marker := false
	if after, ok := cutMarker(rest); ok {
		rest, marker = strings.TrimLeft(after, " \t"), true
	}
	if rest == "" || rest[0] != '`' && rest[0] != '~' {
		return fenceLine{}, false
	}
	char := rest[0]
	info := strings.TrimLeft(rest, string(char))
	length := len(rest) - len(info)
	if length < 3 || char == '`' && strings.Contains(info, "`") {
		return fenceLine{}, false // text in backticks
	}
	return fenceLine{
		char: char, length: min(length, maxFence), indent: len(text) - len(rest), marker: marker,
		info: infoLanguage(info), bare: info == "",
	}, true
}

// parseFenceAfterText reads a line of text that ends in a fence with the name of
// a language: "Let me try: ```python".
func parseFenceAfterText(line string) (fenceLine, bool) {
	text := strings.TrimRight(line, " \t\r\n")
	at := strings.IndexByte(text, '`')
	if at < 0 {
		return fenceLine{}, false
	}
	info := strings.TrimLeft(text[at:], "`")
	length := len(text) - at - len(info)
	name := strings.ToLower(info)
	_, known := aliases[name]
	if length < 3 || info == "" || !known && !dataLanguages[name] {
		return fenceLine{}, false
	}
	return fenceLine{char: '`', length: min(length, maxFence), info: info}, true
}

// cutMarker takes a list marker off: "- ", "* ", "+ ", "12. ", "12) ".
func cutMarker(s string) (string, bool) {
	if len(s) > 1 && strings.IndexByte("-*+", s[0]) >= 0 && (s[1] == ' ' || s[1] == '\t') {
		return s[2:], true
	}
	n := 0
	for n < len(s) && n < 9 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	if n > 0 && len(s) > n+1 && (s[n] == '.' || s[n] == ')') && (s[n+1] == ' ' || s[n+1] == '\t') {
		return s[n+2:], true
	}
	return "", false
}

// infoLanguage finds the language in an info string: `python title="x" {1,2}`,
// `{.python .numberLines}`, `python:main.py`, `language-python`.
func infoLanguage(info string) string {
	word := strings.TrimSpace(info)
	word = strings.TrimLeft(word, "{.= \t")
	if at := strings.IndexAny(word, " \t,;:{}()[]=\"'<>|"); at >= 0 {
		word = word[:at]
	}
	return strings.TrimPrefix(strings.TrimPrefix(word, "language-"), "lang-")
}
