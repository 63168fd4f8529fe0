package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cubby-sandbox/cubby"
)

// maxDepth bounds how deep JSON may be nested.
const maxDepth = 100

// JSON describes a JSON document, or several, one after the other, as in JSON
// lines: what is at which place, of which type. The place a.b[] is every element
// of the array b of a.
func JSON(name string, content []byte) (Source, error) {
	s, err := newSource(name, content)
	if err != nil {
		return s, err
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	w := walker{d: d, at: map[string]*column{}, seen: map[string]int{}}
	documents := 0
	for ; ; documents++ {
		token, err := d.Token()
		if err == io.EOF && documents > 0 {
			break
		}
		if err == nil {
			err = w.value(token, "", 0)
		}
		if err != nil {
			return s, &cubby.Error{Op: "describe data", Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%s is no JSON: %w", name, err)}
		}
	}
	head := fmt.Sprintf("The file %s is JSON.", quoted(name))
	if documents > 1 {
		head = fmt.Sprintf("The file %s is %d JSON documents, one after the other.", quoted(name), documents)
	}
	var shapes strings.Builder
	for _, place := range w.places {
		fmt.Fprintf(&shapes, "place %s: %d %s\n", quoted(place.name), w.seen[place.key], place.kind)
	}
	shapes.WriteString(linesOf(w.columns, len(w.columns)))
	if w.more > 0 {
		fmt.Fprintf(&shapes, "and %d values at further places\n", w.more)
	}
	s.Description = described(head, shapes.String())
	return s, nil
}

// Rows describes a slice, best of structs: it becomes a JSON file, with the names
// of the json tags.
func Rows[T any](name string, rows []T) (Source, error) {
	if rows == nil {
		rows = []T{}
	}
	content, err := json.Marshal(rows)
	if err != nil {
		return Source{}, &cubby.Error{Op: "describe data", Code: cubby.CodeInvalidArgument, Err: err}
	}
	return JSON(name, content)
}

// walker reads JSON without keeping it.
type walker struct {
	d       *json.Decoder
	at      map[string]*column // by place
	columns []*column
	more    int // values at places that are not told
	places  []place
	seen    map[string]int
}

// place is where objects or arrays are.
type place struct{ key, name, kind string }

func (w *walker) column(path string) *column {
	c := w.at[path]
	if c == nil && len(w.columns) < MaxColumns {
		c = &column{name: path}
		w.at[path], w.columns = c, append(w.columns, c)
	}
	if c == nil {
		w.more++
		return &column{}
	}
	return c
}

func (w *walker) note(path, kind string) {
	key := kind + path
	if w.seen[key] == 0 {
		if len(w.places) == MaxColumns {
			return
		}
		w.places = append(w.places, place{key, path, kind})
	}
	w.seen[key]++
}

func (w *walker) value(token json.Token, path string, depth int) error {
	if depth > maxDepth {
		return errors.New("it is nested too deep")
	}
	// Places that nest names without end would take memory without end.
	if len(path) > 1000 {
		path = path[:1000]
	}
	switch v := token.(type) {
	case json.Delim:
		kind := "arrays"
		if v == '{' {
			kind = "objects"
		}
		w.note(path, kind)
		for w.d.More() {
			inner := path + "[]"
			if v == '{' {
				name, err := w.d.Token()
				if err != nil {
					return err
				}
				inner = strings.TrimPrefix(path+"."+clipBytes(fmt.Sprint(name)), ".")
			}
			token, err := w.d.Token()
			if err == nil {
				err = w.value(token, inner, depth+1)
			}
			if err != nil {
				return unexpected(err)
			}
		}
		_, err := w.d.Token()
		return unexpected(err)
	case nil:
		w.column(path).missing++
	case bool:
		c := w.column(path)
		c.values++
		c.booleans++
	case json.Number:
		if n, err := v.Float64(); err == nil {
			w.column(path).number(v.String(), n)
		} else {
			w.column(path).add(v.String(), true)
		}
	case string:
		w.column(path).add(v, true)
	}
	return nil
}

// unexpected tells an end in the middle from the end.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
