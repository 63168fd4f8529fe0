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
// result_<block>_<n>.<ext>, n from first on. What is over the budget is left.
func filesOf(r cubby.Result, block, first int, room *fileBudget) (files []codeexec.File, left []codeexec.LeftFile) {
	for _, f := range formsOf(r) {
		if len(f.content) == 0 {
			continue
		}
		why := ""
		if room.files <= 0 {
			why = fmt.Sprintf("more than %d files", maxResultFiles)
		} else if int64(len(f.content)) > room.bytes {
			why = fmt.Sprintf("more than %d bytes in all", maxResultBytes)
		}
		if why != "" {
			left = append(left, codeexec.LeftFile{Name: shownName(block, f.ext), Reason: why})
			continue
		}
		room.files--
		room.bytes -= int64(len(f.content))
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
	return files, left
}

// shownName is how something is called that the code showed and that is no file.
func shownName(block int, form string) string { return fmt.Sprintf("result_%d.%s", block, form) }

// tooLarge says what a server left out of an execution's results.
func tooLarge(ex *cubby.Execution, block int) (left []codeexec.LeftFile) {
	for _, r := range ex.Results {
		for _, form := range r.LeftOut {
			left = append(left, codeexec.LeftFile{Name: shownName(block, form), Reason: "it is too large to be shown"})
		}
	}
	return left
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
	out := &codeexec.ExecutionError{Type: clip.Head(e.Name, maxErrorType), Message: clip.Head(e.Value, maxErrorMsg),
		Traceback: codeexec.CleanText(e.Traceback)}
	if parsed := ParseError(language, e.Traceback); parsed != nil {
		out.Line = parsed.Line
	}
	return out
}
