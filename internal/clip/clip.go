// Package clip shortens texts without cutting a character in two. What it is
// given may be hostile: every function takes time and memory for the text once.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Head returns the beginning of s, at most n bytes of whole characters. Bytes that
// are no UTF-8 are left out of a text that is cut, and stay in one that is not.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(n, 0)], "")
}

// Tail returns the end of s, as [Head] does the beginning.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-max(n, 0):], "")
}

// Ellipsis returns [Head], with "…" behind it if there is more of s. Its three bytes
// are not among the n.
func Ellipsis(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Head(s, n) + "…"
}

// Chars returns the first n characters of s. If there is more of s, "…" is put behind
// them, in the place of blanks at their end. A byte that is no UTF-8 counts as a
// character.
func Chars(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return strings.TrimRight(s[:i], " ") + "…"
		}
		n--
	}
	return s
}

// Middle returns what is left of s when its middle goes: at most head bytes of its
// beginning and tail bytes of its end, of whole characters, and how many bytes lie
// between them. If s is no longer than both, it is all in first.
func Middle(s string, head, tail int) (first, last string, gone int) {
	head, tail = max(head, 0), max(tail, 0)
	if len(s) <= head || len(s)-head <= tail {
		return s, "", 0
	}
	first, last = s[:head], s[len(s)-tail:]
	first = first[:len(first)-Incomplete(first)]
	for n := 1; n < utf8.UTFMax && last != "" && !utf8.RuneStart(last[0]); n++ {
		last = last[1:]
	}
	return first, last, len(s) - len(first) - len(last)
}

// Incomplete returns how many bytes at the end of s begin a character that is not
// whole: from 0 to 3.
func Incomplete[T ~string | ~[]byte](s T) int {
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if utf8.RuneStart(s[len(s)-n]) {
			if !utf8.FullRuneInString(string(s[len(s)-n:])) {
				return n
			}
			return 0
		}
	}
	return 0
}
