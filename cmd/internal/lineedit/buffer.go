package lineedit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// buffer is a text and a place in it, in bytes, which is always between two
// characters as people see them (grapheme clusters).
type buffer struct {
	text string
	at   int
	cut  string // for yank
}

func (b *buffer) set(text string) { b.text, b.at = text, len(text) }

func (b *buffer) insert(text string) {
	b.text = b.text[:b.at] + text + b.text[b.at:]
	b.at += len(text)
	b.at += b.inside()
}

// inside is how far the place is from the end of the character that it is in: what was
// inserted may have become one with what follows.
func (b *buffer) inside() int {
	start := b.startOfLine()
	for at := start; at < len(b.text); {
		cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(b.text[at:], -1)
		if at >= b.at {
			return at - b.at
		}
		at += len(cluster)
		if at >= b.at {
			return at - b.at
		}
	}
	return 0
}

// deleteTo removes what is between the place and another one.
func (b *buffer) deleteTo(at int, keep bool) {
	from, to := min(at, b.at), max(at, b.at)
	if keep && from < to {
		b.cut = b.text[from:to]
	}
	b.text, b.at = b.text[:from]+b.text[to:], from
}

// before is the place one character to the left, after one to the right.
func (b *buffer) before() int {
	start := b.startOfLine()
	if start == b.at {
		return max(b.at-1, 0) // the line's end of the one above
	}
	last := start
	for at := start; at < b.at; {
		cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(b.text[at:], -1)
		last = at
		at += len(cluster)
	}
	return last
}

func (b *buffer) after() int {
	cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(b.text[b.at:], -1)
	return b.at + len(cluster)
}

func (b *buffer) startOfLine() int { return strings.LastIndexByte(b.text[:b.at], '\n') + 1 }

func (b *buffer) endOfLine() int {
	if i := strings.IndexByte(b.text[b.at:], '\n'); i >= 0 {
		return b.at + i
	}
	return len(b.text)
}

func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_'
}

// wordBefore is where the word to the left begins, wordAfter where the one to the right
// ends.
func (b *buffer) wordBefore() int {
	left := strings.TrimRightFunc(b.text[:b.at], func(r rune) bool { return !isWord(r) })
	return len(strings.TrimRightFunc(left, isWord))
}

func (b *buffer) wordAfter() int {
	right := strings.TrimLeftFunc(b.text[b.at:], func(r rune) bool { return !isWord(r) })
	return len(b.text) - len(strings.TrimLeftFunc(right, isWord))
}

// blankBefore is where what is not blank to the left begins, for Ctrl-W.
func (b *buffer) blankBefore() int {
	left := strings.TrimRightFunc(b.text[:b.at], unicode.IsSpace)
	return len(strings.TrimRightFunc(left, func(r rune) bool { return !unicode.IsSpace(r) }))
}

// vertical moves by lines and keeps the column where it can, counted in characters. It
// reports whether there was such a line.
func (b *buffer) vertical(lines int) bool {
	start := b.startOfLine()
	column := utf8.RuneCountInString(b.text[start:b.at])
	if lines < 0 {
		if start == 0 {
			return false
		}
		b.at = start - 1
		b.at = b.startOfLine()
	} else {
		end := b.endOfLine()
		if end == len(b.text) {
			return false
		}
		b.at = end + 1
	}
	for end := b.endOfLine(); column > 0 && b.at < end; column-- {
		b.at = b.after()
	}
	return true
}

// tab is how a tab is shown.
const tab = "    "

// layout breaks a text into the rows of a screen, and returns the row and the column
// of a place in it. The first row begins with the prompt, or the first ones do, the others
// begin with the indent.
func layout(prompt, indent, text string, at, width int) (rows []string, row, column int) {
	// The last column stays free: terminals differ in where the cursor is behind it.
	width--
	line, used, begin := "", 0, 0 // begin is where text of the row begins
	row, column = -1, 0
	next := func() {
		rows = append(rows, line)
		line, used, begin = indent, uniseg.StringWidth(indent), uniseg.StringWidth(indent)
	}
	put := func(text string, at int) {
		for pos := 0; pos < len(text); {
			cluster, _, size, _ := uniseg.FirstGraphemeClusterInString(text[pos:], -1)
			shown := cluster
			if cluster == "\t" {
				shown, size = tab, len(tab)
			}
			if cluster != "\n" && used+size > width && used > begin {
				next()
			}
			if pos == at {
				row, column = len(rows), used
			}
			pos += len(cluster)
			if cluster == "\n" {
				next()
				continue
			}
			line += shown
			used += size
		}
	}
	put(prompt, -1)
	begin = uniseg.StringWidth(indent)
	put(text, at)
	if row < 0 {
		if used >= width && used > begin && width > 0 {
			next() // room for what will be typed
		}
		row, column = len(rows), used
	}
	return append(rows, line), row, column
}
