package agentcmd

import (
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/highlight"
)

// replyView shows a reply as it comes: text at once, the code in its fences line
// by line and in colour. On a terminal with colours text is Markdown, and is shown block
// by block: a line can be told to be a heading, or a row of a table, only once it, or the
// block, is whole.
type replyView struct {
	v     *view
	line  strings.Builder // the one that has not ended, as far as it is held back
	plain bool            // the rest of the line is shown as it comes

	block strings.Builder // of Markdown, not shown yet
	blank bool            // its last line is empty

	fence string // that opened the block of code; empty outside
	high  highlighter
	code  strings.Builder
}

// write takes a piece of the reply.
func (r *replyView) write(s string) {
	for s != "" {
		i := strings.IndexByte(s, '\n')
		if i < 0 {
			r.part(s)
			return
		}
		r.part(s[:i])
		r.endLine()
		s = s[i+1:]
	}
}

// part takes a piece of a line.
func (r *replyView) part(s string) {
	if r.plain {
		r.v.text(s)
		return
	}
	r.line.WriteString(s)
	if text := r.line.String(); r.fence == "" && !r.v.colour && !mayBeFence(text) {
		r.v.text(text)
		r.line.Reset()
		r.plain = true
	}
}

// maxBlock bounds the Markdown that is held back, in bytes.
const maxBlock = 16 << 10

// markdown takes a line of text outside of code. A block ends with an empty line, unless
// what follows belongs to the same list.
func (r *replyView) markdown(line string) {
	empty := strings.TrimSpace(line) == ""
	if !empty && r.blank && !continues(r.block.String(), line) || r.block.Len() > maxBlock {
		r.endBlock()
	}
	if empty && r.block.Len() == 0 {
		return
	}
	r.block.WriteString(line + "\n")
	r.blank = empty
	if empty && !isItem(r.block.String()) {
		r.endBlock()
	}
}

// continues reports a line that goes on with a list after an empty one.
func continues(block, line string) bool {
	return isItem(block) && (strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t") || isItem(line))
}

// isItem reports a text that begins with a list's marker.
func isItem(s string) bool {
	s = strings.TrimLeft(s, " ")
	if rest := strings.TrimLeft(s, "0123456789"); len(rest) < len(s) {
		return strings.HasPrefix(rest, ". ") || strings.HasPrefix(rest, ") ")
	}
	return strings.HasPrefix(s, "- ") || strings.HasPrefix(s, "* ") || strings.HasPrefix(s, "+ ")
}

// endBlock shows what was held back.
func (r *replyView) endBlock() {
	text := r.block.String()
	r.block.Reset()
	r.blank = false
	if strings.TrimSpace(text) != "" {
		r.v.markdown(text)
	}
}

// mayBeFence reports the beginning of a line that may go on to be a fence.
func mayBeFence(s string) bool {
	s = strings.TrimLeft(s, " ")
	return s == "" || s == "`" || s == "``" || s == "~" || s == "~~" || strings.HasPrefix(s, "```") || strings.HasPrefix(s, "~~~")
}

func (r *replyView) endLine() {
	text := r.line.String()
	r.line.Reset()
	if r.plain {
		r.plain = false
		r.v.text("\n")
		return
	}
	trimmed := strings.TrimSpace(text)
	run := 0
	for run < len(trimmed) && trimmed[run] == trimmed[0] && (trimmed[0] == '`' || trimmed[0] == '~') {
		run++
	}
	switch {
	case r.fence == "" && run >= 3:
		r.endBlock()
		r.v.apart()
		r.fence = trimmed[:run]
		language, _, _ := strings.Cut(strings.TrimLeft(trimmed[run:], " {."), " ")
		r.high = highlighter{language: language, colour: r.v.colour}
		r.code.Reset()
		r.v.styled(dim, text+"\n")
	case r.fence != "" && run >= len(r.fence) && run == len(trimmed) && trimmed[0] == r.fence[0]:
		r.endFence()
		r.v.styled(dim, text+"\n")
		r.v.shownBlock = r.v.colour
	case r.fence != "":
		r.code.WriteString(text + "\n")
		r.v.codeLine(r.high.line(text + "\n"))
	case r.v.colour:
		r.markdown(text)
	default:
		r.v.text(text + "\n")
	}
}

func (r *replyView) endFence() {
	r.v.shown[shownKey(r.code.String())] = true
	r.fence = ""
}

// end ends the reply, whatever it left open.
func (r *replyView) end() {
	if r.line.Len() > 0 || r.plain {
		r.endLine()
	}
	r.endBlock()
	if r.fence != "" {
		r.endFence()
	}
	r.v.shownBlock = false
}

// piece is text in a style.
type piece struct{ style, text string }

// highlighter colours a block of code line by line, as it comes.
type highlighter struct {
	language string
	colour   bool
	scanner  *highlight.Scanner
}

// line returns the next line of the block, in pieces.
func (h *highlighter) line(text string) []piece {
	if !h.colour {
		return []piece{{"", text}}
	}
	if h.scanner == nil {
		h.scanner = highlight.New(codeexec.NormalizeLanguage(h.language))
	}
	var pieces []piece
	for _, t := range h.scanner.Line(text) {
		pieces = append(pieces, piece{styleOf(t.Kind), t.Text})
	}
	return pieces
}

// styleOf maps kinds of tokens to the terminal's own colours, which are readable
// on light and on dark.
func styleOf(k highlight.Kind) string {
	switch k {
	case highlight.Comment:
		return "\x1b[2m"
	case highlight.Keyword:
		return "\x1b[35m"
	case highlight.String:
		return "\x1b[32m"
	case highlight.Number:
		return "\x1b[36m"
	case highlight.Name:
		return "\x1b[34m"
	default:
		return ""
	}
}
