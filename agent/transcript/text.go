package transcript

import (
	"fmt"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// clean makes text from anywhere fit to be read: see [codeexec.CleanText] and
// visible.
func clean(s string) string { return visible(codeexec.CleanText(s)) }

// visible spells out the characters that make text read in another order than it
// is, or that cannot be seen: code could look harmless with them.
func visible(s string) string {
	if strings.IndexFunc(s, deceptive) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if deceptive(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// deceptive: marks, embeddings, overrides and isolates of direction; characters
// without width (but not the joiners, which scripts need).
func deceptive(r rune) bool {
	return r == 0x200b || r == 0x200e || r == 0x200f || r == 0x061c || r >= 0x202a && r <= 0x202e ||
		r >= 0x2060 && r <= 0x2069 || r == 0xfeff
}

// cut leaves out the middle of a text that is longer than most bytes.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail, gone := clip.Middle(s, most*2/3, most/3)
	return head + fmt.Sprintf("\n[… %d bytes are left out here …]\n", gone) + tail
}

// shortLine makes a text one line of so many characters at most.
func shortLine(s string, most int) string {
	return clip.Chars(clean(strings.Join(strings.Fields(s), " ")), most)
}
