package parsers

import (
	"encoding/json"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenPunct tokenKind = iota
	tokenName
	tokenString // its text is its value; also templates without parts
	tokenNumber
	tokenRegExp
	tokenTemplate // a piece of a template with parts
)

// token is a token of JavaScript. line counts from 0, column in UTF-16 units from
// 0, as source maps count.
type token struct {
	kind         tokenKind
	text         string
	line, column int
}

// lexer reads what esbuild prints, which is valid JavaScript without comments of
// the source's. Where a slash is ambiguous it goes by the token before.
type lexer struct {
	js           string
	at           int
	line, column int
	tokens       []token
	braces       []bool // open braces: whether a template goes on after it
}

func tokenize(js string) []token {
	l := &lexer{js: js}
	for l.at < len(l.js) {
		l.next()
	}
	return l.tokens
}

// advance moves over n bytes.
func (l *lexer) advance(n int) {
	for _, r := range l.js[l.at:min(l.at+n, len(l.js))] {
		switch {
		case r == '\n':
			l.line, l.column = l.line+1, 0
		case r > 0xFFFF:
			l.column += 2
		default:
			l.column++
		}
	}
	l.at += n
}

func (l *lexer) emit(kind tokenKind, text string, length int) {
	l.tokens = append(l.tokens, token{kind, text, l.line, l.column})
	l.advance(length)
}

func (l *lexer) next() {
	rest := l.js[l.at:]
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case unicode.IsSpace(r) || r == '\uFEFF':
		l.advance(size)
	case strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "#!"):
		end := strings.IndexByte(rest, '\n')
		if end < 0 {
			end = len(rest)
		}
		l.advance(end)
	case strings.HasPrefix(rest, "/*"):
		end := strings.Index(rest[2:], "*/")
		if end < 0 {
			end = len(rest) - 4
		}
		l.advance(end + 4)
	case r == '"' || r == '\'':
		n := quotedLength(rest)
		l.emit(tokenString, unquote(rest[1:max(n-1, 1)]), n)
	case r == '`':
		l.template(1)
	case r == '}' && len(l.braces) > 0 && l.braces[len(l.braces)-1]:
		l.braces = l.braces[:len(l.braces)-1]
		l.template(1)
	case r == '/' && l.regExpHere():
		l.emit(tokenRegExp, "", regExpLength(rest))
	case isNameRune(r) || r == '#' || r == '\\':
		n := 0
		for n < len(rest) {
			r, size := utf8.DecodeRuneInString(rest[n:])
			if !isNameRune(r) && !unicode.IsDigit(r) && !(n == 0 && r == '#') && r != '\\' {
				break
			}
			n += size
		}
		l.emit(tokenName, rest[:n], n)
	case r >= '0' && r <= '9':
		n := 0
		for n < len(rest) && (isNameRune(rune(rest[n])) || rest[n] >= '0' && rest[n] <= '9' || rest[n] == '.') {
			n++
		}
		l.emit(tokenNumber, rest[:n], n)
	default:
		n := size
		for _, p := range []string{"...", "?.", "=>", "++", "--"} {
			if strings.HasPrefix(rest, p) {
				n = len(p)
				break
			}
		}
		switch r {
		case '{':
			l.braces = append(l.braces, false)
		case '}':
			if len(l.braces) > 0 {
				l.braces = l.braces[:len(l.braces)-1]
			}
		}
		l.emit(tokenPunct, rest[:n], n)
	}
}

// template reads a piece of a template, up to its end or its next part.
func (l *lexer) template(skip int) {
	rest := l.js[l.at:]
	whole := rest[0] == '`'
	for i := skip; i < len(rest); i++ {
		switch {
		case rest[i] == '\\':
			i++
		case rest[i] == '`':
			kind := tokenTemplate
			if whole {
				kind = tokenString
			}
			l.emit(kind, unquote(rest[skip:i]), i+1)
			return
		case rest[i] == '$' && i+1 < len(rest) && rest[i+1] == '{':
			l.emit(tokenTemplate, "", i+2)
			l.braces = append(l.braces, true)
			return
		}
	}
	l.emit(tokenTemplate, "", len(rest))
}

// regExpHere reports whether a slash begins a regular expression.
func (l *lexer) regExpHere() bool {
	if len(l.tokens) == 0 {
		return true
	}
	switch t := l.tokens[len(l.tokens)-1]; t.kind {
	case tokenName:
		switch t.text {
		case "return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "instanceof", "yield", "await":
			return true
		}
		return false
	case tokenPunct:
		return t.text != ")" && t.text != "]" && t.text != "}" && t.text != "++" && t.text != "--"
	case tokenTemplate:
		return strings.HasSuffix(l.js[:l.at], "${")
	}
	return false
}

func regExpLength(s string) int {
	class := false
	for i := 1; i < len(s) && s[i] != '\n'; i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			class = true
		case ']':
			class = false
		case '/':
			if !class {
				return i + 1
			}
		}
	}
	return 1
}

func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}

// unquote returns the value of a string that esbuild printed: what it escapes is
// never part of a module's name.
func unquote(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\"`, `"`, `\'`, `'`, "\\`", "`").Replace(s)
}

func isNameRune(r rune) bool {
	return r == '$' || r == '_' || unicode.IsLetter(r) || r == '\u200c' || r == '\u200d' || unicode.Is(unicode.Mn, r)
}

// sourceMap leads from what the compiler printed back to the source.
type sourceMap struct{ lines [][]segment }

// segment says that what is printed from column on comes from line and from;
// all count from 0, in UTF-16 units.
type segment struct{ column, line, from int }

func readSourceMap(data []byte) *sourceMap {
	var raw struct {
		Mappings string `json:"mappings"`
	}
	m := &sourceMap{}
	if json.Unmarshal(data, &raw) != nil {
		return m
	}
	line, from := 0, 0
	for row := range strings.SplitSeq(raw.Mappings, ";") {
		var segments []segment
		column := 0
		for field := range strings.SplitSeq(row, ",") {
			v := readVLQ(field)
			if len(v) < 4 {
				continue
			}
			column, line, from = column+v[0], line+v[2], from+v[3]
			segments = append(segments, segment{column, line, from})
		}
		m.lines = append(m.lines, segments)
	}
	return m
}

// readVLQ reads numbers of source maps: base64 digits of five bits, the least
// first, with a sixth bit that says that there are more.
func readVLQ(s string) []int {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var out []int
	value, shift := 0, 0
	for i := range len(s) {
		d := strings.IndexByte(digits, s[i])
		if d < 0 || shift > 30 {
			return nil
		}
		value |= d & 31 << shift
		shift += 5
		if d&32 == 0 {
			if value&1 != 0 {
				out = append(out, -(value >> 1))
			} else {
				out = append(out, value>>1)
			}
			value, shift = 0, 0
		}
	}
	return out
}

// original returns the line of the source, from 1, and the column, in UTF-16 units
// from 0, that a place in the output comes from; 0, 0 if that is not known.
func (m *sourceMap) original(line, column int) (int, int) {
	for ; line >= 0 && line < len(m.lines); line, column = line-1, int(^uint(0)>>1) {
		segments := m.lines[line]
		i := sort.Search(len(segments), func(i int) bool { return segments[i].column > column })
		if i > 0 {
			return segments[i-1].line + 1, segments[i-1].from
		}
	}
	return 0, 0
}
