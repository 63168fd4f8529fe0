//go:build linux

package interpreter

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
	"github.com/cubby-sandbox/cubby/internal/rawjson"
)

// resultLine is the line of a result. A text that is empty is said, too.
func resultLine(e kernel.Event) any {
	out := resultEvent(e)
	if _, ok := textOf(e.Data["text/plain"]); ok {
		return struct {
			protocol.Event
			Text string `json:"text"`
		}{out, out.Text}
	}
	return out
}

// fields are E2B's names of MIME types.
var fields = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
	"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
	"application/javascript": "javascript", "application/json": "json", "e2b/data": "data", "e2b/chart": "chart",
}

// leftOut names the forms that a result would have if they were smaller. The kernel
// is the code's: a MIME type of its own stays out.
func leftOut(e kernel.Event) []string {
	var names []string
	for _, mime := range e.LeftOut {
		if name := fields[mime]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// resultEvent sorts MIME types into E2B's fields. A form that is nested deeper than
// clients can read is left out.
func resultEvent(e kernel.Event) protocol.Event {
	data := &protocol.ResultData{IsMainResult: e.Main, Extra: map[string]json.RawMessage{}}
	out := protocol.Event{Type: protocol.EventResult, ResultData: data}
	text := map[string]*string{
		"text/plain": &out.Text, "text/html": &data.HTML, "text/markdown": &data.Markdown, "image/svg+xml": &data.SVG,
		"image/png": &data.PNG, "image/jpeg": &data.JPEG, "application/pdf": &data.PDF, "text/latex": &data.LaTeX,
		"application/javascript": &data.JavaScript,
	}
	raw := map[string]*json.RawMessage{"application/json": &data.JSON, "e2b/data": &data.Data, "e2b/chart": &data.Chart}
	for mime, v := range e.Data {
		if field, ok := text[mime]; ok {
			if s, isText := textOf(v); isText {
				*field = s
				continue
			}
		}
		clean, err := rawjson.Clean(v)
		if err != nil {
			continue
		}
		if field, ok := raw[mime]; !ok {
			data.Extra[mime] = clean
		} else if string(clean) != "null" {
			*field = clean
		}
	}
	// The text of a string is the string, without the quotes of its literal.
	if n := len(out.Text); n >= 2 && out.Text[0] == out.Text[n-1] && (out.Text[0] == '\'' || out.Text[0] == '"') {
		out.Text = out.Text[1 : n-1]
	}
	return out
}

// textOf returns the text of JSON that is a string.
func textOf(raw json.RawMessage) (string, bool) {
	n := len(raw)
	if n < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 { // a picture, which may be large
		return string(raw[1 : n-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
