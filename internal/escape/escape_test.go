package escape_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/escape"
)

// read names what p finds in s: text as it is, and the rest as <what it is>.
func read(p *escape.Parser, s string) string {
	var b strings.Builder
	for _, r := range s {
		switch p.Next(r) {
		case escape.Text:
			b.WriteRune(r)
		case escape.Control:
			fmt.Fprintf(&b, "<%02x>", r)
		case escape.Escape:
			fmt.Fprintf(&b, "<ESC %c>", r)
		case escape.ControlSequence:
			parameters, ok := p.Parameters()
			if !ok {
				parameters = fmt.Appendf(nil, "more than %d bytes, ", len(parameters))
			}
			fmt.Fprintf(&b, "<CSI %s%c>", parameters, r)
		case escape.String:
			b.WriteString("<string>")
		}
	}
	return b.String()
}

func TestParser(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", "héllo 漢 🎉\u00a0\uFFFD", "héllo 漢 🎉\u00a0\uFFFD"},
		{"control characters", "a\nb\x00c\x7fd\u0085e\u009cf", "a<0a>b<00>c<7f>d<85>e<9c>f"},
		{"CAN and SUB in text", "a\x18b\x1ac", "a<18>b<1a>c"},

		{"reset", "\x1bca", "<ESC c>a"},
		{"private function", "\x1b7\x1b=a", "<ESC 7><ESC =>a"},
		{"character set", "\x1b(0a\x1b)Ba", "<ESC 0>a<ESC B>a"},
		{"character set of two characters", "\x1b(%5a", "<ESC 5>a"},
		{"character set of many bytes", "\x1b$(Ba", "<ESC B>a"},
		{"UTF-8 mode", "\x1b%Ga", "<ESC G>a"},
		{"brackets after an intermediate byte", "\x1b([a\x1b(]a", "<ESC [>a<ESC ]>a"},
		{"ESC and a control character", "\x1b\na\x1b(\na", "<0a>a<0a>a"},
		{"ESC and text that is no ASCII", "\x1béa\x1b(éa", "éaéa"},
		{"ESC and DEL", "\x1b\x7fa\x1b(\x7fa", "<7f>a<7f>a"},
		{"ESC and an introducer of the C1 set", "\x1b\u009b1ma\x1b(\u009dt\aa", "<CSI 1m>a<string>a"},
		{"ESC, CAN", "\x1b\x18a\x1b(\x18a", "<18>a<18>a"},
		{"ESC, ESC", "\x1b\x1b[1ma\x1b(\x1b[1ma", "<CSI 1m>a<CSI 1m>a"},
		{"ST without a string", "\x1b\\a", "<ESC \\>a"},

		{"colours", "\x1b[31ma\x1b[38;2;1;2;3mb\x1b[4:3mc\x1b[m", "<CSI 31m>a<CSI 38;2;1;2;3m>b<CSI 4:3m>c<CSI m>"},
		{"C1 in UTF-8", "\u009b31ma", "<CSI 31m>a"},
		{"private parameters", "\x1b[?1049h\x1b[>0qa", "<CSI ?1049h><CSI >0q>a"},
		{"intermediate bytes", "\x1b[2 q\x1b[!pa", "<CSI 2 q><CSI !p>a"},
		{"the last final bytes", "\x1b[3~\x1b[@a", "<CSI 3~><CSI @>a"},
		{"CSI broken off by a control character", "\x1b[12\na\x1b[1\x00b\x1b[1\x7fc\x1b[1\u0085d", "<0a>a<00>b<7f>c<85>d"},
		{"CSI broken off by text", "\x1b[12éa", "éa"},
		{"CSI broken off by CAN and SUB", "\x1b[12\x18a\x1b[12\x1aa", "<18>a<1a>a"},
		{"CSI broken off by another", "\x1b[12\x1b[1ma\x1b[1\u009b2mb", "<CSI 1m>a<CSI 2m>b"},
		{"parameters are forgotten", "\x1b[12\x1b[ma\x1b[1m\u009bm", "<CSI m>a<CSI 1m><CSI m>"},
		{"as many parameters as are kept", "\x1b[" + strings.Repeat("1", 62) + "m", "<CSI " + strings.Repeat("1", 62) + "m>"},
		{"one more", "\x1b[" + strings.Repeat("1", 63) + "ma\x1b[1m", "<CSI more than 62 bytes, m>a<CSI 1m>"},
		{"a million", "\x1b[" + strings.Repeat("1;", 1<<19) + "ma", "<CSI more than 62 bytes, m>a"},

		{"title", "a\x1b]0;evil\ab", "a<string>b"},
		{"ended by ST", "a\x1b]52;c;ZXZpbA==\x1b\\b\x1b]0;x\u009cc", "a<string>b<string>c"},
		{"each kind", "\x1bP1\x1b\\a\x1bX2\x1b\\b\x1b^3\x1b\\c\x1b_4\x1b\\d", "<string>a<string>b<string>c<string>d"},
		{"each kind in the C1 set", "\u00901\u009ca\u00982\u009cb\u009d3\u009cc\u009e4\u009cd\u009f5\u009ce",
			"<string>a<string>b<string>c<string>d<string>e"},
		{"each kind, ended by BEL", "\x1bP1\aa\x1bX2\ab\x1b^3\ac\x1b_4\ad", "<string>a<string>b<string>c<string>d"},
		{"hyperlink", "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "<string>text<string>"},
		{"no end", "\x1b]0;evil\nb", "<0a>b"},
		{"other characters in a string", "\x1b]0;é\t\r\x00\x7f\u0085\u009b1m\u009dx\aa", "<string>a"},
		{"CAN and SUB end a string", "\x1b]0;x\x18a\x1bPx\x1ab", "ab"},
		{"ESC ends a string", "\x1b]0;x\x1b[31ma\x1b]0;x\x1bcb", "<CSI 31m>a<ESC c>b"},
		{"ESC ESC in a string", "\x1bPtmux;\x1b\x1b]52;c;x\a\x1b\\a", "<string><ESC \\>a"},
		{"ESC CAN in a string", "\x1bPx\x1b\x18a", "<18>a"},
		{"a string in a string", "\x1b]0;x\x1b]1;y\aa", "<string>a"},

		{"the text ends after ESC", "a\x1b", "a"},
		{"the text ends in an escape sequence", "a\x1b(", "a"},
		{"the text ends after CSI", "a\x1b[", "a"},
		{"the text ends in parameters", "a\x1b[12", "a"},
		{"the text ends in a string", "a\x1b]0;x", "a"},
		{"the text ends before the end of ST", "a\x1b]0;x\x1b", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := read(new(escape.Parser), tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNothingIsAllocated(t *testing.T) {
	text := strings.Repeat("é\x1b[1m\x1b]0;"+strings.Repeat("title", 100)+"\a\x1b["+strings.Repeat("1;", 100)+"m\x1b(B\n", 100)
	var p escape.Parser
	if n := testing.AllocsPerRun(10, func() {
		for _, r := range text {
			p.Next(r)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParser: whatever came before, CAN ends it; a control sequence has no bytes that
// cannot be in one; and a character that a reader could see is never called something
// that a terminal obeys.
func FuzzParser(f *testing.F) {
	for _, s := range []string{"a", "\x1b", "\x1b(", "\x1b[1;", "\u009b1m", "\x1b]0;x", "\x1b]0;x\x1b", "\x1bP\x1b\x1b", "\u009f\u009c", "\xff\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var p escape.Parser
		for _, r := range in {
			kind := p.Next(r)
			control := r < 0x20 || r >= 0x7f && r < 0xa0
			switch kind {
			case escape.Text:
				if control {
					t.Fatalf("%q is text", r)
				}
			case escape.Control:
				if !control || r == 0x1b {
					t.Fatalf("%q is a control character", r)
				}
			case escape.Escape, escape.ControlSequence:
				if r < 0x30 || r > 0x7e {
					t.Fatalf("%q ends a sequence", r)
				}
			case escape.String:
				if r != 0x07 && r != '\\' && r != 0x9c {
					t.Fatalf("%q ends a string", r)
				}
			}
			if kind == escape.ControlSequence {
				if b, _ := p.Parameters(); slices.ContainsFunc(b, func(c byte) bool { return c < 0x20 || c > 0x3f }) {
					t.Fatalf("parameters %q", b)
				}
			}
		}
		p.Next(0x18)
		if got := read(&p, "a\x1b[1mb\x1b]0;x\x1b\\c"); got != "a<CSI 1m>b<string>c" {
			t.Errorf("after it, got %q", got)
		}
	})
}
