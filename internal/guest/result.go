//go:build linux

package guest

import (
	"github.com/cubby-sandbox/cubby/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// resultLine is the line of a result. A text that is empty is said, too.
func resultLine(e kernel.Event) any {
	out := resultEvent(e)
	if _, ok := e.Data["text/plain"].(string); ok {
		return struct {
			protocol.Event
			Text string `json:"text"`
		}{out, out.Text}
	}
	return out
}

// resultEvent sorts MIME types into E2B's fields.
func resultEvent(e kernel.Event) protocol.Event {
	data := &protocol.ResultData{IsMainResult: e.Main, Extra: map[string]any{}}
	out := protocol.Event{Type: protocol.EventResult, ResultData: data}
	text := map[string]*string{
		"text/plain": &out.Text, "text/html": &data.HTML, "text/markdown": &data.Markdown, "image/svg+xml": &data.SVG,
		"image/png": &data.PNG, "image/jpeg": &data.JPEG, "application/pdf": &data.PDF, "text/latex": &data.LaTeX,
		"application/javascript": &data.JavaScript,
	}
	for mime, v := range e.Data {
		if field, ok := text[mime]; ok {
			if s, isText := v.(string); isText {
				*field = s
				continue
			}
		}
		switch mime {
		case "application/json":
			data.JSON = v
		case "e2b/data":
			data.Data = v
		case "e2b/chart":
			data.Chart = v
		default:
			data.Extra[mime] = v
		}
	}
	// The text of a string is the string, without the quotes of its literal.
	if n := len(out.Text); n >= 2 && out.Text[0] == out.Text[n-1] && (out.Text[0] == '\'' || out.Text[0] == '"') {
		out.Text = out.Text[1 : n-1]
	}
	return out
}
