package codeexec

import (
	"slices"
	"strings"
)

// CodeBlockDelimiter is how a block of code begins and ends in a reply. If both
// are fences (such as "```python\n" and "\n```", or "```" and "```"), fences of
// that character, at least that long and of exactly that language (any, for a
// Start without one) are meant, with all that models do to fences. Else the
// texts are searched as they are, and a name of a language that follows Start on
// its line is the language.
type CodeBlockDelimiter struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// ExtractOptions say what of a reply is code. The zero value takes every fence
// in one of the four languages that this package names.
type ExtractOptions struct {
	// Delimiters, if any, are exactly what is taken.
	Delimiters []CodeBlockDelimiter
	// Languages are those that can run, normalised; none means the four. They do
	// not matter to Delimiters.
	Languages []string
	// AllBare takes every fence that names no language as Python. Without it one
	// is only where no fence of the reply names a language that can run: beside
	// such fences models write in bare ones what they think the code prints.
	AllBare bool
	// WholeReply takes a reply that has no fence at all as one block of
	// WholeLanguage (empty means Python).
	WholeReply    bool
	WholeLanguage string
	// Ignore leaves out blocks whose first line is one of these, such as a mark by
	// which a model was told to show code that is not to be run.
	Ignore []string
}

// ExtractCodeBlocks finds the code in a model's reply. It knows fences of three
// and more backticks or tildes, indented ones and those in lists (their
// indentation is taken off the code), info strings with attributes, a last
// fence that is not closed, fences inside fences, and CRLF. Languages are as the
// reply has them. Blocks of nothing but blanks are left out, and fences of data
// (see [IsDataLanguage]) never count. The time it takes is linear.
func ExtractCodeBlocks(reply string, opts ExtractOptions) []CodeBlock {
	return slices.DeleteFunc(notBlank(extract(reply, opts)), func(b CodeBlock) bool {
		first, _, _ := strings.Cut(b.Code, "\n")
		return len(opts.Ignore) > 0 && slices.Contains(opts.Ignore, strings.TrimSpace(first))
	})
}

func extract(reply string, opts ExtractOptions) []CodeBlock {
	if len(opts.Delimiters) > 0 {
		return byDelimiters(reply, opts.Delimiters)
	}
	languages := opts.Languages
	if len(languages) == 0 {
		languages = []string{Python, JavaScript, TypeScript, Bash}
	}
	fences := findFences(reply)
	if len(fences) == 0 && opts.WholeReply {
		return []CodeBlock{{Code: strings.ReplaceAll(reply, "\r\n", "\n"), Language: opts.WholeLanguage}}
	}
	named := slices.ContainsFunc(fences, func(f fence) bool { return f.language != "" && supports(languages, f.language) })
	var blocks []CodeBlock
	for _, f := range fences {
		if !supports(languages, f.language) || f.language == "" && named && !opts.AllBare {
			continue
		}
		blocks = append(blocks, CodeBlock{Code: f.code(), Language: f.language})
	}
	return blocks
}

func notBlank(blocks []CodeBlock) []CodeBlock {
	return slices.DeleteFunc(blocks, func(b CodeBlock) bool { return strings.TrimSpace(b.Code) == "" })
}

// fenceDelimiter is a delimiter that is a fence.
type fenceDelimiter struct {
	char        byte
	length      int
	language    string // empty: any
	trimNewline bool   // End begins with it
}

func (d CodeBlockDelimiter) fence() (fenceDelimiter, bool) {
	start := strings.TrimRight(d.Start, " \r\n")
	end := strings.Trim(d.End, " \r\n")
	open, ok := parseFenceLine(start)
	if !ok || open.indent > 0 {
		return fenceDelimiter{}, false
	}
	shut, ok := parseFenceLine(end)
	if !ok || shut.info != "" || shut.char != open.char || shut.length > open.length {
		return fenceDelimiter{}, false
	}
	return fenceDelimiter{open.char, open.length, open.info, strings.HasPrefix(strings.TrimLeft(d.End, "\r"), "\n")}, true
}

func (d fenceDelimiter) matches(f fence) bool {
	return d.char == f.char && d.length <= f.length && (d.language == "" || strings.EqualFold(d.language, f.language))
}

func byDelimiters(reply string, delimiters []CodeBlockDelimiter) []CodeBlock {
	var asFences []fenceDelimiter
	for _, d := range delimiters {
		f, ok := d.fence()
		if !ok {
			return byText(reply, delimiters)
		}
		asFences = append(asFences, f)
	}
	var blocks []CodeBlock
	for _, f := range findFences(reply) {
		for _, d := range asFences {
			if !d.matches(f) {
				continue
			}
			code := f.code()
			if d.trimNewline {
				code = strings.TrimSuffix(code, "\n")
			}
			blocks = append(blocks, CodeBlock{Code: code, Language: f.language})
			break
		}
	}
	return blocks
}

// byText searches the delimiters as they are. Where two begin at the same
// place, the longer one counts.
func byText(reply string, delimiters []CodeBlockDelimiter) []CodeBlock {
	reply = strings.ReplaceAll(reply, "\r\n", "\n")
	var blocks []CodeBlock
	// next[i] is where delimiter i begins next, so that each is searched for
	// once; exhausted ones are beyond the end.
	next := make([]int, len(delimiters))
	find := func(i, from int) int {
		if start := delimiters[i].Start; start != "" && delimiters[i].End != "" {
			if at := strings.Index(reply[from:], start); at >= 0 {
				return from + at
			}
		}
		return len(reply) + 1
	}
	for i := range next {
		next[i] = find(i, 0)
	}
	for pos := 0; ; {
		best := -1
		for i := range delimiters {
			if next[i] < pos {
				next[i] = find(i, pos)
			}
			if next[i] > len(reply) {
				continue
			}
			if best < 0 || next[i] < next[best] ||
				next[i] == next[best] && len(delimiters[i].Start) > len(delimiters[best].Start) {
				best = i
			}
		}
		if best < 0 {
			return blocks
		}
		d := delimiters[best]
		pos = next[best] + len(d.Start)
		code, _, closed := strings.Cut(reply[pos:], d.End)
		pos += len(code)
		if closed {
			pos += len(d.End)
		}
		language := languageOfStart(d.Start)
		if line, rest, ok := strings.Cut(code, "\n"); ok && !strings.HasSuffix(d.Start, "\n") {
			if word := strings.TrimSpace(line); word == "" {
				code = rest
			} else if _, known := aliases[strings.ToLower(word)]; known {
				code, language = rest, word
			}
		}
		blocks = append(blocks, CodeBlock{Code: code, Language: language})
	}
}

// languageOfStart finds "python" in "<code lang=python>\n" no more than in
// "BEGIN": only a fence names its language.
func languageOfStart(start string) string {
	if f, ok := parseFenceLine(strings.TrimRight(start, " \r\n")); ok {
		return f.info
	}
	return ""
}
