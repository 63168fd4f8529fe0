package transcript

import (
	"bytes"
	"html/template"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	goldrender "github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// maxMarkdown is up to how many bytes a text is taken for Markdown; longer ones
// are shown as they are.
const maxMarkdown = 40_000

// renderer turns a model's Markdown into HTML: elements and attributes are this
// package's or goldmark's, never the text's.
type renderer struct {
	md    goldmark.Markdown
	files *files
}

func newRenderer(f *files) *renderer {
	r := &renderer{files: f}
	r.md = goldmark.New(
		// No style attributes: the page's policy would drop them.
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough),
		goldmark.WithRendererOptions(goldrender.WithNodeRenderers(util.Prioritized(r, 100))),
	)
	return r
}

// segment is a piece of a reply: text, or code that runs.
type segment struct {
	html template.HTML
	code string
	runs bool
}

// plain renders a text none of which runs.
func (r *renderer) plain(s string) template.HTML {
	var all template.HTML
	for _, p := range r.split(s, nil) {
		all += p.html
	}
	return all
}

// split renders a reply, and takes out the fenced blocks of the code that runs,
// which must be in order.
func (r *renderer) split(s string, code []string) []segment {
	s = clean(s)
	if len(s) > maxMarkdown {
		return []segment{{html: verbatim(cut(s, maxText))}}
	}
	source := []byte(s)
	doc := r.md.Parser().Parse(text.NewReader(source))
	if tooDeep(doc) {
		return []segment{{html: verbatim(s)}}
	}
	var all []segment
	var out bytes.Buffer
	flush := func() {
		if strings.TrimSpace(out.String()) != "" {
			all = append(all, segment{html: template.HTML(out.String())})
		}
		out.Reset()
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if f, ok := n.(*ast.FencedCodeBlock); ok && len(code) > 0 && sameCode(linesOf(f, source), visible(code[0])) {
			flush()
			all = append(all, segment{code: code[0], runs: true})
			code = code[1:]
			continue
		}
		if err := r.md.Renderer().Render(&out, source, n); err != nil {
			return []segment{{html: verbatim(s)}}
		}
	}
	flush()
	return all
}

// tooDeep reports a text that nests as only one does that was made for it:
// browsers give up at some 500 elements.
func tooDeep(doc ast.Node) bool {
	const most = 100
	depth, deepest := 0, 0
	err := ast.Walk(doc, func(_ ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			depth--
			return ast.WalkContinue, nil
		}
		depth++
		deepest = max(deepest, depth)
		return ast.WalkContinue, nil
	})
	return err != nil || deepest > most
}

// sameCode compares as much as extracting code leaves as it was.
func sameCode(a, b string) bool {
	fields := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return fields(a) == fields(b)
}

func linesOf(n ast.Node, source []byte) string {
	var b strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		b.Write(line.Value(source))
	}
	return b.String()
}

// verbatim shows a text as it is.
func verbatim(s string) template.HTML {
	return template.HTML(`<pre class="plain">` + template.HTMLEscapeString(s) + "</pre>")
}

// RegisterFuncs replaces goldmark's rendering of what could do more than show
// text.
func (r *renderer) RegisterFuncs(reg goldrender.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindHTMLBlock, rawBlock)
	reg.Register(ast.KindRawHTML, rawInline)
	reg.Register(ast.KindFencedCodeBlock, r.fence)
	reg.Register(ast.KindLink, r.link)
	reg.Register(ast.KindAutoLink, autoLink)
	reg.Register(ast.KindImage, r.image)
}

// HTML in a text is shown, not obeyed.
func rawBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	s := linesOf(n, source)
	if b := n.(*ast.HTMLBlock); b.HasClosure() {
		s += string(b.ClosureLine.Value(source))
	}
	_, err := w.WriteString(string(verbatim(s)))
	return ast.WalkSkipChildren, err
}

func rawInline(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkSkipChildren, nil
	}
	segments := n.(*ast.RawHTML).Segments
	for i := range segments.Len() {
		at := segments.At(i)
		if _, err := w.WriteString(template.HTMLEscapeString(string(at.Value(source)))); err != nil {
			return ast.WalkStop, err
		}
	}
	return ast.WalkSkipChildren, nil
}

func (r *renderer) fence(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := string(n.(*ast.FencedCodeBlock).Language(source))
	if strings.EqualFold(language, "tool_output") {
		// It looks like a result and is none.
		if _, err := w.WriteString(`<p class="caption">Written by the model; no program printed this:</p>`); err != nil {
			return ast.WalkStop, err
		}
	}
	_, err := w.WriteString(`<pre class="code">` + string(highlighted(language, linesOf(n, source))) + "</pre>")
	return ast.WalkContinue, err
}

// link leads to a web page or to a file on this page, or nowhere.
func (r *renderer) link(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	target := r.target(string(n.(*ast.Link).Destination))
	if target == "" {
		return ast.WalkContinue, nil
	}
	return ast.WalkContinue, anchor(w, target, entering)
}

func autoLink(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	l := n.(*ast.AutoLink)
	label := template.HTMLEscapeString(string(l.Label(source)))
	target := webTarget(string(l.URL(source)))
	if target == "" {
		_, err := w.WriteString(label)
		return ast.WalkContinue, err
	}
	if err := anchor(w, target, true); err != nil {
		return ast.WalkStop, err
	}
	_, err := w.WriteString(label + "</a>")
	return ast.WalkContinue, err
}

// image never loads anything: what a text calls an image is a link to the
// picture of that name on this page, or its description.
func (r *renderer) image(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	target := r.target(string(n.(*ast.Image).Destination))
	if !strings.HasPrefix(target, "#") {
		word := "[image: "
		if !entering {
			word = "]"
		}
		_, err := w.WriteString(word)
		return ast.WalkContinue, err
	}
	return ast.WalkContinue, anchor(w, target, entering)
}

func anchor(w util.BufWriter, target string, entering bool) error {
	if !entering {
		_, err := w.WriteString("</a>")
		return err
	}
	// The title shows where a link leads before it is followed.
	target = template.HTMLEscapeString(target)
	s := `<a href="` + target + `">`
	if !strings.HasPrefix(target, "#") {
		s = `<a href="` + target + `" title="` + target + `" rel="noopener noreferrer nofollow">`
	}
	_, err := w.WriteString(s)
	return err
}

func (r *renderer) target(destination string) string {
	name := destination
	if plain, err := url.PathUnescape(destination); err == nil {
		name = plain
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "sandbox:"), "./")
	if a, ok := r.files.anchors[name]; ok {
		return "#" + a
	}
	return webTarget(destination)
}

// webTarget passes absolute addresses of the web and of mail.
func webTarget(destination string) string {
	u, err := url.Parse(destination)
	if err != nil || !utf8.ValidString(destination) {
		return ""
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		if u.Host != "" {
			return u.String()
		}
	case "mailto":
		return u.String()
	}
	return ""
}
