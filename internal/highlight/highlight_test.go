package highlight_test

import (
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/highlight"
)

// marks are how the tests write kinds.
var marks = map[highlight.Kind]string{
	highlight.Plain: "", highlight.Comment: "c", highlight.Keyword: "k", highlight.String: "s", highlight.Number: "n", highlight.Name: "d",
}

// marked scans code and writes each piece that is not plain as <kind:text>.
func marked(language, code string) string {
	s := highlight.New(language)
	var b strings.Builder
	for line := range strings.Lines(code) {
		for _, t := range s.Line(line) {
			if m := marks[t.Kind]; m != "" {
				b.WriteString("<" + m + ":" + t.Text + ">")
			} else {
				b.WriteString(t.Text)
			}
		}
	}
	return b.String()
}

func TestKinds(t *testing.T) {
	for _, test := range []struct{ name, language, code, want string }{
		{"words and numbers", "python", "if x1 in 3.5e4: x = 0x1F  # why\n", "<k:if> x1 <k:in> <n:3.5e4>: x = <n:0x1F>  <c:# why>\n"},
		{"definitions", "python", "@a.b\nasync def f(x):\n", "<d:@a.b>\n<k:async> <k:def> <d:f>(x):\n"},
		{"a string of two kinds of quotes", "python", `f"it's \"1\"" + 'a"b'`, `f<s:"it's \"1\""> + <s:'a"b'>`},
		{"a string of many lines", "python", "'''a # b\n1 '''.x\n", "<s:'''a # b\n><s:1 '''>.x\n"},
		{"a string without an end ends with its line", "python", "x = 'a\nif\n", "x = <s:'a\n><k:if>\n"},
		{"a string that goes on", "python", "x = 'a\\\nif'\n", "x = <s:'a\\\n><s:if'>\n"},
		{"no matrix product is a decorator", "python", "a @b\n", "a @b\n"},
		{"comments", "javascript", "/* a\n'b */ let x // c\n", "<c:/* a\n><c:'b */> <k:let> x <c:// c>\n"},
		{"templates", "javascript", "`a\n${b}` + 1\n", "<s:`a\n><s:${b}`> + <n:1>\n"},
		{"types", "typescript", "interface A { n: number }\n", "<k:interface> <d:A> { n: <k:number> }\n"},
		{"no types", "javascript", "interface\n", "interface\n"},
		{"generators", "javascript", "function* g() {}", "<k:function>* <d:g>() {}"},
		{"shell", "bash", "echo $# ${#a} 'a\\' \"b\\\"\" # c\n", "<k:echo> $# ${#a} <s:'a\\'> <s:\"b\\\"\"> <c:# c>\n"},
		{"any case", "sql", "SELECT a FROM t WHERE b = 'it''s' -- c\n", "<k:SELECT> a <k:FROM> t <k:WHERE> b = <s:'it''s'> <c:-- c>\n"},
		{"data", "json", `{"a": [1, true]}`, `{<s:"a">: [<n:1>, <k:true>]}`},
		{"letters", "python", "größe = 1\n", "größe = <n:1>\n"},
		{"unknown", "cobol", "if 1 'a'", "if 1 'a'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := marked(test.language, test.code); got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// FuzzLine: whatever the code is, nothing of it is lost or added.
func FuzzLine(f *testing.F) {
	for _, language := range []string{"python", "typescript", "bash", "json", "sql", ""} {
		f.Add(language, "a = 'b\\\n\"\"\"c\n/* d\n`e\r\n# f -- \xff\\")
	}
	f.Fuzz(func(t *testing.T, language, code string) {
		s := highlight.New(language)
		for line := range strings.Lines(code) {
			got := ""
			for _, token := range s.Line(line) {
				got += token.Text
			}
			if got != line {
				t.Fatalf("%q became %q", line, got)
			}
		}
	})
}
