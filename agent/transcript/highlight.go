package transcript

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Bounds of highlighting, whose regular expressions code can be written against.
const (
	maxHighlight     = 50_000 // bytes
	maxHighlightTime = time.Second
)

func formatter() *html.Formatter {
	return html.New(html.WithClasses(true), html.PreventSurroundingPre(true), html.ClassPrefix("hl-"))
}

// highlight returns code as HTML: spans with classes, or the bare text where that
// cannot be done. It is not wrapped.
func (r *renderer) highlight(language, code string) template.HTML {
	code = clean(cut(code, maxText))
	bare := template.HTML(template.HTMLEscapeString(code))
	lexer := lexers.Get(codeexec.NormalizeLanguage(language))
	if lexer == nil || len(code) > maxHighlight {
		return bare
	}
	tokens, err := lexer.Tokenise(nil, code)
	if err != nil {
		return bare
	}
	deadline := time.Now().Add(maxHighlightTime)
	var all []chroma.Token
	for t := tokens(); t != chroma.EOF; t = tokens() {
		if time.Now().After(deadline) {
			return bare
		}
		all = append(all, t)
	}
	var out bytes.Buffer
	if err := formatter().Format(&out, styles.Get("github"), chroma.Literator(all...)); err != nil {
		return bare
	}
	return template.HTML(out.String())
}

// stylesheet is the page's style and the colours of code, light and dark.
func stylesheet() (string, error) {
	var light, dark strings.Builder
	if err := formatter().WriteCSS(&light, styles.Get("github")); err != nil {
		return "", fmt.Errorf("transcript: %w", err)
	}
	if err := formatter().WriteCSS(&dark, styles.Get("github-dark")); err != nil {
		return "", fmt.Errorf("transcript: %w", err)
	}
	// Each alone: what one leaves uncoloured is not to be the other's colour.
	return pageCSS + "@media not all and (prefers-color-scheme: dark) {\n" + light.String() + "}\n@media (prefers-color-scheme: dark) {\n" + dark.String() + "}\n", nil
}
