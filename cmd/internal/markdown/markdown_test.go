package markdown_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/cubby-sandbox/cubby/cmd/internal/markdown"
)

var style = regexp.MustCompile(`\x1b\[[0-9]m|\x1b\[36m`)

func TestRender(t *testing.T) {
	for _, test := range []struct{ name, source, want string }{
		{"a heading", "# One *two*", "One two\n"},
		{"words", "The quick *brown fox* jumps over the **lazy** dog and on.", "The quick brown fox jumps over the lazy\ndog and on.\n"},
		{"a word that is too long", strings.Repeat("x", 50), strings.Repeat("x", 39) + "\n" + strings.Repeat("x", 11) + "\n"},
		{"wide characters", strings.Repeat("日本", 11), strings.Repeat("日本", 9) + "日\n本" + "日本\n"},
		{"line ends", "a\nb  \nc\\\nd", "a b\nc\nd\n"},
		{"a list", "- a\n- b c\n  1. d\n  2. e\n- f", "• a\n• b c\n  1. d\n  2. e\n• f\n"},
		{"a list that goes on", "3. a\n\n   more\n\n4. b", "3. a\n\n   more\n\n4. b\n"},
		{"a long item", "- " + strings.Repeat("word ", 9), "• word word word word word word word\n  word word\n"},
		{"a quotation", "> a\n> b\n\nc", "│ a b\n\nc\n"},
		{"code", "use `a  b` now\n\n    x = 1\n\n<b>c</b>", "use a b now\n\n  x = 1\n\n<b>c</b>\n"},
		{"HTML", "<pre>\na\n</pre> b\n\n<!-- c\nd\n--> e", "  <pre>\n  a\n  </pre> b\n\n  <!-- c\n  d\n  --> e\n"},
		{"links", "[a](http://b.c) <http://d.e> ![f](g.png) [http://h.i](http://h.i)", "a (http://b.c) http://d.e [image: f]\nhttp://h.i\n"},
		{"a table", "| a | b |\n|---|--:|\n| one | 2 |\n| x | 1000 |", "a   │    b\n────┼─────\none │    2\nx   │ 1000\n"},
		{"a table that is too wide", "| name | says |\n|---|---|\n| a | " + strings.Repeat("word ", 9) + "|", "• name: a\n  says: word word word word word word\n  word word word\n"},
		{"entities", "a &amp; b &lt;c&gt; \\*d\\*", "a & b <c> *d*\n"},
		{"a rule", "---", strings.Repeat("─", 39) + "\n"},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := style.ReplaceAllString(markdown.Render(test.source, 40), "")
			if got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	if got, want := markdown.Render("# a\n\n**b** `c`", 40), "\x1b[1ma\x1b[0m\n\n\x1b[1mb\x1b[0m \x1b[36mc\x1b[0m\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzRender: whatever a model writes, a terminal gets no sequence but our styles, and
// no line that is too long.
func FuzzRender(f *testing.F) {
	f.Add("# \x1b[2Ja &#27;[2J &#x9b;1m [\x1b]8;;x](\x1b[1m) `\x07` <\x1b> | \x1b |\n|-|-|\n", 40)
	f.Add("> - 1. > - # x\n\n| a |\n|---|\n| b | c |\n\n[a](b 'c') ~~d~~ ![e](f)\n", 20)
	f.Add("\u202e&#x202e; \\\x1b[0m", 5)
	f.Fuzz(func(t *testing.T, source string, width int) {
		width = 21 + width&63
		text := markdown.Render(source, width)
		for _, r := range style.ReplaceAllString(text, "") {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e {
				t.Fatalf("%q in %q", r, text)
			}
		}
		if strings.ContainsAny(source, "\t`<~ ") { // code is not broken
			return
		}
		for line := range strings.Lines(style.ReplaceAllString(text, "")) {
			if uniseg.StringWidth(strings.TrimRight(line, "\n")) > width {
				t.Errorf("a line of more than %d columns: %q", width, line)
			}
		}
	})
}

// TestBounds: what a model writes to keep a terminal busy takes little time and room.
func TestBounds(t *testing.T) {
	for name, source := range map[string]string{
		"a table":    strings.Repeat("|a", 500) + "\n" + strings.Repeat("|-", 500) + "\n" + strings.Repeat("|\n", 2000),
		"emphasis":   strings.Repeat("*a _b ", 1200) + "x" + strings.Repeat(" b_ a*", 1200),
		"links":      strings.Repeat("[a](", 15000),
		"quotations": strings.Repeat(">", 60000),
		"lists":      strings.Repeat("- ", 30000) + "x",
	} {
		began := time.Now()
		shown := markdown.Render(source, 80)
		if took := time.Since(began); took > 2*time.Second || len(shown) > 50*len(source) {
			t.Errorf("%s: %d bytes of %d, in %v", name, len(shown), len(source), took)
		}
	}
}
