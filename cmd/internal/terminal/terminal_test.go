package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSanitizer(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", "héllo\tworld\r\n", "héllo\tworld\r\n"},
		{"colours stay", "\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		{"erase line stays", "50%\r\x1b[2K100%", "50%\r\x1b[2K100%"},
		{"title", "a\x1b]0;evil\x07b", "ab"},
		{"clipboard, ended by ST", "a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"},
		{"hyperlink", "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"device string", "a\x1bP1$r0m\x1b\\b", "ab"},
		{"unended title costs its line only", "a\x1b]0;evil\nb", "a\nb"},
		{"cursor and screen", "\x1b[2J\x1b[H\x1b[10Aa", "a"},
		{"queries", "\x1b[6n\x1b[c\x1b[>0qa", "a"},
		{"private parameters", "\x1b[?1049h\x1b[>4;2ma", "a"},
		{"C1 in UTF-8", "a\u009b2Jb\u009d0;x\u009cc", "abc"},
		{"reset and charset", "\x1bca\x1b(0b", "ab"},
		{"character sets of many bytes", "\x1b$(Ba\x1b(%5b", "ab"},
		{"no character set", "\x1b(\na\x1b(éb\x1b(\x1b[2Jc", "\naébc"},
		{"no sequence", "\x1b\na\x1béb\x1b\u009b2Jc", "\naébc"},
		{"bell and others", "a\x07\x00\x0e\x7fb", "ab"},
		{"escape in escape", "\x1b\x1b[2Ja", "a"},
		{"a newline ends a broken sequence", "\x1b[12\na", "\na"},
		{"long sequence", "\x1b[" + strings.Repeat("1;", 500) + "ma", "a"},
		{"turned text", "a\u202eb\u2066c\u200fd\u200be", `a\u202eb\u2066c\u200fd\u200be`},
		{"invisible letters", "a\U000e0041", `a\U000e0041`},
		{"joined emoji and letters", "👩‍🔬 می‌خواهم", "👩‍🔬 می‌خواهم"},
		{"progress", "10%\r20%\b\b\b30%\n", "10%\r20%\b\b\b30%\n"},
		{"raw bytes", "a\x9b2J\xffb", "a\uFFFD2J\uFFFDb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var whole, split bytes.Buffer
			w := &Filter{w: &whole, colour: true}
			_, _ = w.Write([]byte(tt.in))
			if whole.String() != tt.want {
				t.Errorf("got %q, want %q", whole.String(), tt.want)
			}
			w = &Filter{w: &split, colour: true}
			for i := range len(tt.in) {
				_, _ = w.Write([]byte{tt.in[i]})
			}
			if split.String() != tt.want {
				t.Errorf("a byte at a time: got %q, want %q", split.String(), tt.want)
			}
		})
	}
}

// TestEnd: what a program leaves behind does not reach what is written next.
func TestEnd(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"a\n", ""},
		{"a", "\n"},
		{"a\r", "\n"},
		{"a\n\r", "\n"},
		{"\x1b[31ma\n", "\x1b[0m"},
		{"\x1b[31ma\x1b[m\n", ""},
		{"\x1b[31ma\x1b[0m\n", ""},
		{"\x1b[0;31ma", "\x1b[0m\n"},
		{"a\n\x1b]0;title", ""},
		{"a\n\x1b[3", ""},
		{"a\n\xe2\x82", ""},
	} {
		var out bytes.Buffer
		w := &Filter{w: &out, colour: true}
		_, _ = w.Write([]byte(tt.in))
		before := out.Len()
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("note\n"))
		if got := out.String()[before:]; got != tt.want+"note\n" {
			t.Errorf("%q: got %q, want %q", tt.in, got, tt.want+"note\n")
		}
	}
}

func TestNoColourMeansNoColour(t *testing.T) {
	var out bytes.Buffer
	w := &Filter{w: &out}
	_, _ = w.Write([]byte("\x1b[31mred\x1b[0m"))
	if out.String() != "red" {
		t.Errorf("got %q", out.String())
	}
}

func FuzzSanitizer(f *testing.F) {
	f.Add([]byte("\x1b]0;x\x07\x1b[31m\u009b"), 3)
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		var out bytes.Buffer
		w := &Filter{w: &out, colour: true}
		at = max(0, min(at, len(in)))
		_, _ = w.Write(in[:at])
		_, _ = w.Write(in[at:])
		var whole bytes.Buffer
		_, _ = (&Filter{w: &whole, colour: true}).Write(in)
		if !bytes.Equal(out.Bytes(), whole.Bytes()) {
			t.Errorf("cut at %d: got %q, want %q", at, out.Bytes(), whole.Bytes())
		}
		if !utf8.Valid(out.Bytes()) {
			t.Errorf("not UTF-8: %q", out.Bytes())
		}
		for i, r := range out.String() {
			rest := out.String()[i:]
			if r == 0x1b && !strings.HasPrefix(rest, "\x1b[") || r >= 0x80 && r < 0xa0 || r < 0x08 {
				t.Fatalf("%q passed", rest)
			}
			if r == 0x1b && strings.IndexFunc(rest[2:], func(r rune) bool {
				return r == 'm' ||
					r == 'K'
			}) != len(rest[2:])-len(strings.TrimLeft(rest[2:], "0123456789;:")) {
				t.Fatalf("%q passed", rest)
			}
		}
		if len(w.partial) >= utf8.UTFMax {
			t.Errorf("%d bytes are held back", len(w.partial))
		}
	})
}

func TestSpinnerClearsItself(t *testing.T) {
	var out bytes.Buffer // read after Stop, which waits
	s := NewSpinner(&out, "working")
	time.Sleep(spinnerDelay + spinnerStep)
	s.Stop()
	s.Stop()
	if !strings.Contains(out.String(), "working") || !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("got %q", out.String())
	}
	NewSpinner(nil, "unseen").Stop()
}

func TestStrict(t *testing.T) {
	var out bytes.Buffer
	w := Strict(&out)
	for _, b := range []byte("\x1b[31mred\x1b[0m\x1b[K\r\n50%\r100%\b\tx\u202ey\x1b]0;t\x07") {
		_, _ = w.Write([]byte{b})
	}
	if want := "red\r\n50%\r100%\tx\\u202ey"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
