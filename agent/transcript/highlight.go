package transcript

import (
	"html/template"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/highlight"
)

// classes are those of page.css.
var classes = map[highlight.Kind]string{
	highlight.Comment: "hl-c", highlight.Keyword: "hl-k", highlight.String: "hl-s", highlight.Number: "hl-n", highlight.Name: "hl-d",
}

// maxHighlight is how many bytes of code are highlighted at most: a span makes a short
// word several times as long.
const maxHighlight = 50_000

// highlighted returns code as HTML: spans with classes, or the bare text where it is
// long. It is not wrapped.
func highlighted(language, code string) template.HTML {
	code = clean(cut(code, maxText))
	if len(code) > maxHighlight {
		return template.HTML(template.HTMLEscapeString(code))
	}
	s := highlight.New(codeexec.NormalizeLanguage(language))
	var out strings.Builder
	for line := range strings.Lines(code) {
		for _, t := range s.Line(line) {
			text := template.HTMLEscapeString(t.Text)
			if class := classes[t.Kind]; class != "" {
				text = `<span class="` + class + `">` + text + "</span>"
			}
			out.WriteString(text)
		}
	}
	return template.HTML(out.String())
}
