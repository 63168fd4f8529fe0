// Package highlight finds in source code what is shown in colours: comments, strings,
// numbers, keywords and the names that are defined. It reads line by line, as code
// comes from a model, in time that is linear in the code's length. It looks at
// characters and not at syntax, and so colours wrongly what only a parser can tell,
// such as a regular expression of JavaScript with a quote in it, up to the end of that
// line.
package highlight

import (
	"slices"
	"strings"
)

// Kind is what a piece of code is.
type Kind uint8

// Kinds of pieces.
const (
	Plain Kind = iota
	Comment
	Keyword
	String
	Number
	Name // what is being defined, and decorators
)

// Token is a piece of code.
type Token struct {
	Kind Kind
	Text string
}

// language is what the scanner has to know of one.
type language struct {
	comment  string      // to the end of the line
	block    [2]string   // a comment's begin and end
	strings  []delimiter // longer ones first
	keywords []string    // sorted
	defining []string    // words before a name that is defined
	upper    bool        // keywords may be written in any case
	words    bool        // a comment begins at the beginning of a word only
}

// delimiter begins and ends a string.
type delimiter struct {
	text  string
	lines bool // the string may have more than one line
	raw   bool // a backslash is an ordinary character
}

// Scanner reads code of one language. It is for one goroutine at a time.
type Scanner struct {
	lang   *language // nil: all of it is plain
	inside *delimiter
	block  bool // inside a comment
	out    []Token
}

// New returns a scanner for a language by its usual name in lower case, such as
// "python". Code in a language that is not known is plain.
func New(name string) *Scanner {
	s := &Scanner{}
	if l, ok := languageOf(name); ok {
		s.lang = &l
	}
	return s
}

// Line returns the next line in pieces, which together are the line as it was. The
// line's end may be part of it.
func (s *Scanner) Line(line string) []Token {
	s.out = nil
	if s.lang == nil {
		s.add(Plain, line)
		return s.out
	}
	defined := false // the next word is a name
	for rest := line; rest != ""; {
		var n int
		kind := Plain
		switch before := line[:len(line)-len(rest)]; {
		case s.block:
			kind, n = Comment, s.endOfBlock(rest)
		case s.inside != nil:
			kind, n = String, s.endOfString(rest, 0)
		case s.comments(before, rest):
			kind, n = Comment, len(strings.TrimRight(rest, "\r\n"))
		case s.lang.block[0] != "" && strings.HasPrefix(rest, s.lang.block[0]):
			s.block = true
			skip := len(s.lang.block[0])
			kind, n = Comment, skip+s.endOfBlock(rest[skip:])
		case s.begins(rest):
			kind, n = String, s.endOfString(rest, len(s.inside.text))
		case isDigit(rest[0]):
			kind, n = Number, span(rest, func(c byte) bool { return isWord(c) || c == '.' })
		case isWord(rest[0]):
			n = span(rest, isWord)
			kind = s.word(rest[:n], &defined)
		case rest[0] == '@' && len(rest) > 1 && isWord(rest[1]) && strings.TrimSpace(before) == "":
			kind, n = Name, 1+span(rest[1:], func(c byte) bool { return isWord(c) || c == '.' })
		default:
			n = 1
			defined = defined && (rest[0] == ' ' || rest[0] == '*')
		}
		s.add(kind, rest[:n])
		rest = rest[n:]
	}
	if s.inside != nil && !s.inside.lines && !strings.HasSuffix(strings.TrimRight(line, "\r\n"), `\`) {
		s.inside = nil
	}
	return s.out
}

// add adds a piece, to the last one if that is of the same kind.
func (s *Scanner) add(k Kind, text string) {
	if n := len(s.out); n > 0 && s.out[n-1].Kind == k {
		s.out[n-1].Text += text
	} else if text != "" {
		s.out = append(s.out, Token{k, text})
	}
}

// word returns the kind of a word, and whether the next one is a name.
func (s *Scanner) word(w string, defined *bool) Kind {
	if *defined {
		*defined = false
		return Name
	}
	if s.lang.upper {
		w = strings.ToLower(w)
	}
	if _, ok := slices.BinarySearch(s.lang.keywords, w); !ok {
		return Plain
	}
	*defined = slices.Contains(s.lang.defining, w)
	return Keyword
}

// comments reports whether the rest of the line is a comment.
func (s *Scanner) comments(before, rest string) bool {
	if s.lang.comment == "" || !strings.HasPrefix(rest, s.lang.comment) {
		return false
	}
	return !s.lang.words || before == "" || strings.ContainsRune(" \t;&|()", rune(before[len(before)-1]))
}

// begins reports whether a string begins, and is then inside it.
func (s *Scanner) begins(rest string) bool {
	for i := range s.lang.strings {
		if strings.HasPrefix(rest, s.lang.strings[i].text) {
			s.inside = &s.lang.strings[i]
			return true
		}
	}
	return false
}

// endOfString returns how much of the text belongs to the string, of which the first
// bytes are known to.
func (s *Scanner) endOfString(text string, known int) int {
	for i := known; i < len(text); i++ {
		if text[i] == '\\' && !s.inside.raw {
			i++
		} else if strings.HasPrefix(text[i:], s.inside.text) {
			n := i + len(s.inside.text)
			s.inside = nil
			return n
		}
	}
	return len(text)
}

func (s *Scanner) endOfBlock(text string) int {
	end := s.lang.block[1]
	i := strings.Index(text, end)
	if i < 0 {
		return len(text)
	}
	s.block = false
	return i + len(end)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWord takes every letter that is not ASCII for one of a word.
func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z'
}

func span(s string, f func(byte) bool) int {
	n := 0
	for n < len(s) && f(s[n]) {
		n++
	}
	return n
}
