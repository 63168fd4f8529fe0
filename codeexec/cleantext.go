package codeexec

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// CleanText makes what a program printed readable without a terminal: escape
// codes are gone (colours, titles, links), a line that was written over and over
// with carriage returns or backspaces is as it was in the end, other control
// characters are gone, and bytes that are no UTF-8 are U+FFFD. Its time is
// linear.
func CleanText(s string) string {
	if plain(s) {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	var c cleaner
	c.out.Grow(len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\x1b':
			i += escapeLength(s[i:])
			continue
		case r == '\u009b': // CSI
			i += size + csiLength(s[i+size:])
			continue
		case r == '\u0090' || r == '\u0098' || r == '\u009d' || r == '\u009e' || r == '\u009f':
			i += size + stringLength(s[i+size:])
			continue
		case r == '\n':
			c.newline()
		case r == '\r':
			c.carriageReturn()
		case r == '\b':
			c.backspace()
		case r == '\t' || !unicode.IsControl(r):
			c.add(r)
		}
		i += size
	}
	c.flush()
	return c.out.String()
}

// plain reports whether there is nothing to do.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 && s[i] != '\n' && s[i] != '\t' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// cleaner holds the line that is being written.
type cleaner struct {
	out  strings.Builder
	line []rune
	// over says that the next character starts the line anew.
	over bool
}

func (c *cleaner) add(r rune) {
	if c.over {
		c.line, c.over = c.line[:0], false
	}
	c.line = append(c.line, r)
}

func (c *cleaner) newline() {
	c.flush()
	c.out.WriteByte('\n')
}

func (c *cleaner) flush() {
	for _, r := range c.line {
		c.out.WriteRune(r)
	}
	c.line, c.over = c.line[:0], false
}

// carriageReturn leaves the line as it is until something is written over it.
func (c *cleaner) carriageReturn() { c.over = len(c.line) > 0 }

func (c *cleaner) backspace() {
	if !c.over && len(c.line) > 0 {
		c.line = c.line[:len(c.line)-1]
	}
}

// escapeLength returns the length of the escape sequence that s begins with.
func escapeLength(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		return 2 + csiLength(s[2:])
	case ']', 'P', 'X', '^', '_':
		return 2 + stringLength(s[2:])
	}
	n := 1
	for n < len(s) && s[n] >= 0x20 && s[n] <= 0x2f {
		n++
	}
	if n < len(s) && s[n] >= 0x30 && s[n] <= 0x7e {
		n++
	}
	return n
}

// csiLength is the length of what follows a control sequence introducer.
func csiLength(s string) int {
	n := 0
	for n < len(s) && s[n] >= 0x20 && s[n] <= 0x3f {
		n++
	}
	if n < len(s) && s[n] >= 0x40 && s[n] <= 0x7e {
		n++
	}
	return n
}

// stringLength is the length of a string for the terminal and its end: BEL, or
// ST in either form. One that does not end, ends with its line.
func stringLength(s string) int {
	for n := 0; n < len(s); n++ {
		switch {
		case s[n] == '\a':
			return n + 1
		case s[n] == '\x1b' && n+1 < len(s) && s[n+1] == '\\', strings.HasPrefix(s[n:], "\u009c"):
			return n + 2
		case s[n] == '\n':
			return n
		}
	}
	return len(s)
}
