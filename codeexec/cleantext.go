package codeexec

import (
	"strings"

	"github.com/cubby-sandbox/cubby/internal/escape"
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
	var p escape.Parser
	var c cleaner
	c.out.Grow(len(s))
	for _, r := range s {
		switch p.Next(r) {
		case escape.Text:
			c.add(r)
		case escape.Control:
			c.control(r)
		}
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

func (c *cleaner) control(r rune) {
	switch r {
	case '\n':
		c.flush()
		c.out.WriteByte('\n')
	case '\r':
		c.carriageReturn()
	case '\b':
		c.backspace()
	case '\t':
		c.add(r)
	}
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
