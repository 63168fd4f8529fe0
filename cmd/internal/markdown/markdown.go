// Package markdown shows Markdown on a terminal: as text of the terminal's width, with
// its own colours. What the text says cannot become an escape sequence: every piece of it
// passes package terminal's filter, after entities were resolved.
package markdown

import (
	"fmt"
	"strings"

	"github.com/rivo/uniseg"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// Styles of what stands out; all end with reset.
const (
	bold, dim, italic, underline, strike = "\x1b[1m", "\x1b[2m", "\x1b[3m", "\x1b[4m", "\x1b[9m"
	code                                 = "\x1b[36m"
	reset                                = "\x1b[0m"
)

// Bounds of what is read as Markdown; what is more is shown as it is. The parser's time
// grows with the square of what is nested, and it makes each row of a table as wide as
// the first one.
const (
	maxSource = 20 << 10 // bytes
	maxCells  = 20000    // of a table
	maxDepth  = 30       // of blocks in blocks
	minWidth  = 20       // columns
)

// Render returns a text for a terminal of so many columns. It ends with a line end.
func Render(source string, width int) string {
	if len(source) > maxSource || cells(source) > maxCells {
		return leaf(source) + "\n"
	}
	r := renderer{source: []byte(source), width: max(width-1, minWidth)}
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough))
	r.blocks(md.Parser().Parse(text.NewReader(r.source)), "", "", 0)
	return r.out.String()
}

// cells is how many cells a table in the text has at the most.
func cells(source string) int {
	lines, widest := 0, 0
	for line := range strings.Lines(source) {
		lines, widest = lines+1, max(widest, strings.Count(line, "|"))
	}
	return lines * widest
}

type renderer struct {
	source []byte
	width  int
	out    strings.Builder
}

// leaf is a piece of the text as a terminal may be shown it.
func leaf(s string) string {
	var b strings.Builder
	_, _ = terminal.Strict(&b).Write([]byte(strings.ReplaceAll(s, "\r", ""))) // a builder takes all
	return b.String()
}

// blocks writes what is in a block. first begins its first line, rest the others.
func (r *renderer) blocks(parent ast.Node, first, rest string, depth int) {
	if depth > maxDepth {
		r.line(first, leaf("[…]"))
		return
	}
	list, _ := parent.(*ast.ListItem)
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if n != parent.FirstChild() && (list == nil || !list.Parent().(*ast.List).IsTight) {
			r.line(strings.TrimRight(rest, " "), "")
		}
		r.block(n, first, rest, depth)
		first = rest
	}
}

func (r *renderer) block(n ast.Node, first, rest string, depth int) {
	switch n := n.(type) {
	case *ast.Heading:
		r.wrap(r.inline(n, bold), first, rest)
	case *ast.Blockquote:
		bar := dim + "│" + reset + " "
		r.blocks(n, first+bar, rest+bar, depth+1)
	case *ast.List:
		number := n.Start
		for item := n.FirstChild(); item != nil; item = item.NextSibling() {
			marker := "• "
			if n.IsOrdered() {
				marker = fmt.Sprintf("%d. ", number)
				number++
			}
			if item != n.FirstChild() && !n.IsTight {
				r.line(strings.TrimRight(rest, " "), "")
			}
			r.blocks(item, first+marker, rest+strings.Repeat(" ", uniseg.StringWidth(marker)), depth+1)
			first = rest
		}
	case *ast.ThematicBreak:
		r.line(first, dim+strings.Repeat("─", min(r.width-columns(first), 40))+reset)
	case *east.Table:
		r.table(n, first, rest)
	case *ast.Paragraph, *ast.TextBlock:
		r.wrap(r.inline(n, ""), first, rest)
	default: // code and HTML: their lines as they are
		for i := range n.Lines().Len() {
			at := n.Lines().At(i)
			r.line(first+"  ", leaf(strings.TrimRight(string(at.Value(r.source)), "\n")))
			first = rest
		}
		if html, ok := n.(*ast.HTMLBlock); ok && html.HasClosure() {
			r.line(first+"  ", leaf(strings.TrimRight(string(html.ClosureLine.Value(r.source)), "\n")))
		}
	}
}

func (r *renderer) line(prefix, text string) { r.out.WriteString(prefix + text + "\n") }

// span is text in a style.
type span struct{ style, text string }

// and adds to a style, once: what is nested a thousand times in the same looks the same.
func and(style, mark string) string {
	if strings.Contains(style, mark) {
		return style
	}
	return style + mark
}

// inline returns the text in a block.
func (r *renderer) inline(parent ast.Node, style string) []span {
	var all []span
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Text:
			s := string(util.UnescapePunctuations(util.ResolveEntityNames(util.ResolveNumericReferences(n.Segment.Value(r.source)))))
			if n.IsRaw() {
				s = string(n.Segment.Value(r.source))
			}
			s = leaf(strings.ReplaceAll(s, "\n", " "))
			switch {
			case n.HardLineBreak():
				s += "\n"
			case n.SoftLineBreak():
				s += " "
			}
			all = append(all, span{style, s})
		case *ast.CodeSpan:
			all = append(all, r.inline(n, and(style, code))...)
		case *ast.Emphasis:
			mark := italic
			if n.Level > 1 {
				mark = bold
			}
			all = append(all, r.inline(n, and(style, mark))...)
		case *east.Strikethrough:
			all = append(all, r.inline(n, and(style, strike))...)
		case *ast.Link:
			label := r.inline(n, and(style, underline))
			all = append(all, label...)
			if target := leaf(string(n.Destination)); plain(label) != target {
				all = append(all, span{and(style, dim), " (" + target + ")"})
			}
		case *ast.Image:
			all = append(all, span{style, "[image: " + plain(r.inline(n, "")) + "]"})
		case *ast.AutoLink:
			all = append(all, span{and(style, underline), leaf(string(n.Label(r.source)))})
		case *ast.RawHTML:
			for i := range n.Segments.Len() {
				at := n.Segments.At(i)
				all = append(all, span{style, leaf(strings.ReplaceAll(string(at.Value(r.source)), "\n", " "))})
			}
		default:
			all = append(all, r.inline(n, style)...)
		}
	}
	return all
}

func plain(spans []span) string {
	s := ""
	for _, p := range spans {
		s += p.text
	}
	return s
}

// columns is how wide a prefix is, which has styles of this package.
func columns(s string) int {
	for _, style := range []string{bold, dim, reset} {
		s = strings.ReplaceAll(s, style, "")
	}
	return uniseg.StringWidth(s)
}

// wrap writes text in lines of the terminal's width, broken between words where it can
// be.
func (r *renderer) wrap(spans []span, first, rest string) {
	line, used := first, columns(first)
	begun := false // the line has a word
	next := func() {
		r.line(strings.TrimRight(line, " "), "")
		line, used, begun = rest, columns(rest), false
	}
	space := false // before the next word
	for _, s := range spans {
		for i, hard := range strings.Split(s.text, "\n") {
			if i > 0 {
				next()
				space = false
			}
			for j, word := range strings.Split(strings.ReplaceAll(hard, "\t", " "), " ") {
				space = space || j > 0
				if word == "" {
					continue
				}
				width := uniseg.StringWidth(word)
				if space && begun {
					if used+1+width > r.width {
						next()
					} else {
						line, used = line+" ", used+1
					}
				}
				for space = false; word != ""; {
					cut := fit(word, r.width-used)
					if cut == 0 || cut < len(word) && begun && width <= r.width-columns(rest) {
						next()
						continue
					}
					line += styled(s.style, word[:cut])
					used, begun = used+uniseg.StringWidth(word[:cut]), true
					if word = word[cut:]; word != "" {
						next()
					}
				}
			}
		}
	}
	if begun || line != rest {
		next()
	}
}

// fit is how many bytes of a word fit into so many columns, at least one character.
func fit(word string, width int) int {
	n := 0
	for n < len(word) {
		cluster, _, size, _ := uniseg.FirstGraphemeClusterInString(word[n:], -1)
		if width -= size; width < 0 && n > 0 {
			break
		}
		n += len(cluster)
	}
	return n
}

func styled(style, s string) string {
	if style == "" {
		return s
	}
	return style + s + reset
}

// table writes columns if they have room, else a line for each cell.
func (r *renderer) table(t *east.Table, first, rest string) {
	var rows [][][]span
	var widths []int
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells [][]span
		style := ""
		if _, ok := row.(*east.TableHeader); ok {
			style = bold
		}
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, r.inline(cell, style))
			if i := len(cells) - 1; i == len(widths) {
				widths = append(widths, 0)
			}
			i := len(cells) - 1
			widths[i] = max(widths[i], uniseg.StringWidth(plain(cells[i])))
		}
		rows = append(rows, cells)
	}
	total := columns(rest) + 3*(len(widths)-1)
	for _, w := range widths {
		total += w
	}
	if total > r.width {
		r.list(rows, first, rest)
		return
	}
	for i, cells := range rows {
		line := first
		first = rest
		for j, cell := range cells {
			if j > 0 {
				line += dim + " │ " + reset
			}
			room := strings.Repeat(" ", widths[j]-uniseg.StringWidth(plain(cell)))
			right := j < len(t.Alignments) && t.Alignments[j] == east.AlignRight
			if right {
				line += room
			}
			for _, s := range cell {
				line += styled(s.style, s.text)
			}
			if !right && j < len(cells)-1 {
				line += room
			}
		}
		r.line(line, "")
		if i == 0 {
			var rule []string
			for _, w := range widths {
				rule = append(rule, strings.Repeat("─", w))
			}
			r.line(rest, dim+strings.Join(rule, "─┼─")+reset)
		}
	}
}

// list writes a table that is too wide, cell by cell.
func (r *renderer) list(rows [][][]span, first, rest string) {
	if len(rows) == 1 {
		rows = append(rows, nil)
	}
	for _, cells := range rows[1:] {
		mark := "• "
		for i, head := range rows[0] {
			if i >= len(cells) {
				break
			}
			pair := append(append([]span{}, head...), span{"", ": "})
			r.wrap(append(pair, cells[i]...), first+mark, rest+"  ")
			first, mark = rest, "  "
		}
	}
}
