package backend

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Bounds of the files of one result.
const (
	maxResultFiles = 100
	maxResultBytes = 64 << 20
)

// form is one way in which code showed something.
type form struct {
	ext, mime string
	content   []byte
}

func formsOf(r cubby.Result) []form {
	return []form{
		{"png", "image/png", r.PNG},
		{"jpeg", "image/jpeg", r.JPEG},
		{"pdf", "application/pdf", r.PDF},
		{"svg", "image/svg+xml", []byte(r.SVG)},
		{"tex", "application/x-latex", []byte(r.LaTeX)},
		{"html", "text/html; charset=utf-8", []byte(r.HTML)},
		{"md", "text/markdown; charset=utf-8", []byte(r.Markdown)},
	}
}

// fileBudget is what is left of a result's bounds.
type fileBudget struct {
	files int
	bytes int64
}

// filesOf decodes what a result has beside text, under the names
// result_<block>_<n>.<ext>, n from first on. What is over the budget is dropped:
// then all is false.
func filesOf(r cubby.Result, block, first int, left *fileBudget) (files []codeexec.File, all bool) {
	all = true
	for _, f := range formsOf(r) {
		if len(f.content) == 0 {
			continue
		}
		if left.files <= 0 || int64(len(f.content)) > left.bytes {
			all = false
			continue
		}
		left.files--
		left.bytes -= int64(len(f.content))
		// A model's provider refuses a picture that is none, and with it the whole
		// conversation.
		if sniffed := http.DetectContentType(f.content); (f.ext == "png" || f.ext == "jpeg" || f.ext == "pdf") && sniffed != f.mime {
			f.ext, f.mime = "bin", "application/octet-stream"
		}
		files = append(files, codeexec.File{
			Name: fmt.Sprintf("result_%d_%d.%s", block, first+len(files), f.ext), Content: f.content, MIMEType: f.mime,
			SizeBytes: int64(len(f.content)),
		})
	}
	return files, all
}

// textOf returns what of a result is to be read as text. A figure's text says no
// more than that there is one.
func textOf(r cubby.Result) string {
	picture := len(r.PNG) > 0 || len(r.JPEG) > 0 || r.SVG != ""
	switch {
	case picture && strings.HasPrefix(r.Text, "<") && strings.HasSuffix(r.Text, ">"):
		return ""
	case r.Text != "":
		return r.Text
	case len(r.JSON) > 0 && len(r.JSON) <= codeexec.DefaultMaxChars:
		return string(r.JSON)
	}
	return ""
}

// errorOf turns an execution's error into ours; the line is where in the block
// it happened, as far as the traceback tells.
func errorOf(language string, e *cubby.ExecutionError) *codeexec.ExecutionError {
	if e == nil {
		return nil
	}
	out := &codeexec.ExecutionError{Type: clip.Head(e.Name, maxErrorType), Message: clip.Head(e.Value, maxErrorMsg), Traceback: codeexec.CleanText(e.Traceback)}
	if parsed := ParseError(language, e.Traceback); parsed != nil {
		out.Line = parsed.Line
	}
	return out
}
