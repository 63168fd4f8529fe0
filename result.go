package cubby

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cubby-sandbox/cubby/internal/rawjson"
)

// Result is one thing that the code showed: the value of its last expression or
// a call to display. It carries the same thing in several forms; a form that
// the code did not give is empty.
type Result struct {
	Text       string
	HTML       string
	Markdown   string
	SVG        string
	LaTeX      string
	JavaScript string
	PNG        []byte // decoded
	JPEG       []byte // decoded
	PDF        []byte // decoded
	// JSON, Data (a table as columns) and Chart (what a plot shows, as data) are
	// as the kernel wrote them, with every digit of their numbers. They may be
	// large, but are valid JSON in UTF-8, nested at most 256 deep; a form that is
	// not is left out.
	JSON  json.RawMessage
	Data  json.RawMessage
	Chart json.RawMessage
	// Extra holds the forms that have no field of their own, by MIME type.
	Extra map[string]json.RawMessage
	// LeftOut names the forms that are missing because they were too large, as the
	// result's JSON names its fields: "json" above 1 MiB, "data" above 200,000 cells,
	// "chart" above 200,000 points, others above 32 MiB. It is known at the end of the
	// execution: OnResult does not see it. Other servers do not tell.
	LeftOut []string
	// IsMain marks the value of the last expression.
	IsMain bool
}

// wireResult has E2B's names. It differs from protocol.ResultData in leaving
// structured data undecoded: decoding `[[],[],…` takes twenty times its size.
type wireResult struct {
	Text       string          `json:"text,omitempty"`
	HTML       string          `json:"html,omitempty"`
	Markdown   string          `json:"markdown,omitempty"`
	SVG        string          `json:"svg,omitempty"`
	PNG        string          `json:"png,omitempty"`
	JPEG       string          `json:"jpeg,omitempty"`
	PDF        string          `json:"pdf,omitempty"`
	LaTeX      string          `json:"latex,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
	JavaScript string          `json:"javascript,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Chart      json.RawMessage `json:"chart,omitempty"`
	IsMain     bool            `json:"is_main_result"`
	Extra      extra           `json:"extra"`
	LeftOut    names           `json:"left_out,omitempty"`
}

// extra is a map that takes at most maxExtra entries from the wire: a map of
// empty ones takes ten times the size of its JSON.
type extra map[string]json.RawMessage

const maxExtra = 256

// UnmarshalJSON keeps the first maxExtra entries.
func (x *extra) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return err // null, or no object: no entries
	}
	*x = extra{}
	for dec.More() && len(*x) < maxExtra {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if name, ok := key.(string); ok {
			(*x)[name] = value
		}
	}
	return nil
}

// names is a list that takes at most maxNames entries from the wire.
type names []string

const maxNames = 16

// UnmarshalJSON keeps the first maxNames entries.
func (n *names) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return err // null, or no list: no entries
	}
	for *n = nil; dec.More() && len(*n) < maxNames; {
		var name string
		if err := dec.Decode(&name); err != nil {
			return err
		}
		*n = append(*n, name)
	}
	return nil
}

// MarshalJSON writes the result under E2B's names, pictures in base64, and what is
// JSON as it is.
func (r Result) MarshalJSON() ([]byte, error) {
	w := wireResult{
		Text: r.Text, HTML: r.HTML, Markdown: r.Markdown, SVG: r.SVG, LaTeX: r.LaTeX, JavaScript: r.JavaScript,
		PNG:  base64.StdEncoding.EncodeToString(r.PNG),
		JPEG: base64.StdEncoding.EncodeToString(r.JPEG),
		PDF:  base64.StdEncoding.EncodeToString(r.PDF),
		JSON: r.JSON, Data: r.Data, Chart: r.Chart, IsMain: r.IsMain, Extra: r.Extra, LeftOut: r.LeftOut,
	}
	if w.Extra == nil {
		w.Extra = extra{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(w)
	return b.Bytes(), err
}

// UnmarshalJSON reads what MarshalJSON writes, which is also a result line of
// the wire. A picture that is not base64, and JSON that is nested too deep, is left
// out with an error.
func (r *Result) UnmarshalJSON(b []byte) error {
	var w wireResult
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*r = Result{
		Text: w.Text, HTML: w.HTML, Markdown: w.Markdown, SVG: w.SVG, LaTeX: w.LaTeX,
		JavaScript: w.JavaScript, IsMain: w.IsMain, LeftOut: w.LeftOut,
	}
	var errs []error
	for _, form := range []struct {
		name string
		from json.RawMessage
		to   *json.RawMessage
	}{{"json", w.JSON, &r.JSON}, {"data", w.Data, &r.Data}, {"chart", w.Chart, &r.Chart}} {
		if len(form.from) == 0 || string(form.from) == "null" {
			continue
		}
		clean, err := rawjson.Clean(form.from)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", form.name, err))
		}
		*form.to = clean
	}
	for name, value := range w.Extra {
		clean, err := rawjson.Clean(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%.100q: %w", name, err))
			continue
		}
		if r.Extra == nil {
			r.Extra = make(map[string]json.RawMessage, len(w.Extra))
		}
		r.Extra[name] = clean
	}
	for _, p := range []struct {
		name string
		from string
		to   *[]byte
	}{{"png", w.PNG, &r.PNG}, {"jpeg", w.JPEG, &r.JPEG}, {"pdf", w.PDF, &r.PDF}} {
		if p.from == "" {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(p.from)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is not base64: %w", p.name, err))
			continue
		}
		*p.to = data
	}
	return errors.Join(errs...)
}

// ExecutionError is an uncaught error of the code that ran.
type ExecutionError struct {
	Name      string `json:"name"` // such as "ZeroDivisionError"
	Value     string `json:"value"`
	Traceback string `json:"traceback"` // without escape codes
}

// Error returns name and value.
func (e *ExecutionError) Error() string {
	if e.Value == "" {
		return e.Name
	}
	return e.Name + ": " + e.Value
}
