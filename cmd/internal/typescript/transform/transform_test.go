package transform

import (
	"strings"
	"testing"
)

func TestStripTypes(t *testing.T) {
	for _, c := range []struct{ name, src, want, not string }{
		{"annotations", "const x: number = 1 as any", "const x = 1", "number"},
		{"unused import stays", "import { a } from 'm'", `import { a } from "m"`, ""},
		{"type import goes", "import type { A } from 'm'", "", "import"},
		{"enum", "enum E { A }", `E2["A"] = 0`, ""},
		{"namespace", "namespace N { export const x = 1 }", "N2.x = 1", ""},
		{"generic arrow", "const f = <T>(x: T) => x", "const f = (x) => x", "T"},
		{"jsx only if nothing else", "const e = <b>x</b>", "React.createElement", ""},
		{"top-level await", "const r: number = await f()", "await f()", ""},
		{"last expression stays", "let a: number = 1\na", "\na;", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			js, err := StripTypes(c.src)
			js, _, _ = strings.Cut(js, "//# sourceMappingURL")
			if err != nil || !strings.Contains(js, c.want) || c.not != "" && strings.Contains(js, c.not) {
				t.Errorf("got %q, %v", js, err)
			}
		})
	}
}

func TestStripTypesSyntaxError(t *testing.T) {
	_, se := StripTypes("let a = 1\nlet b: = 2\n")
	if se == nil {
		t.Fatal("no error")
	}
	if se.Line != 2 || se.Column != 8 || se.LineText != "let b: = 2" || se.Text == "" {
		t.Errorf("got %+v", se)
	}
}
