// Package sse reads server-sent events, in which models' endpoints stream their
// replies, as the HTML standard defines them.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLong is the error of an event that is larger than the reader's bound.
var ErrTooLong = errors.New("sse: an event is too long")

// Event is one event. Of its fields only these two are read; id and retry serve
// clients that connect again.
type Event struct {
	Name string // of "event:"; empty if there was none
	Data []byte // the lines of "data:", joined by "\n"; valid until the next event is read
}

// Reader reads events one by one. It is not safe for concurrent use.
type Reader struct {
	r       *bufio.Reader
	max     int
	started bool
	afterCR bool // a "\n" that comes next belongs to the line that has ended
	line    []byte
	data    []byte
}

// NewReader returns a reader of events of at most max bytes each, names of fields,
// comments and line ends included.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{r: bufio.NewReader(r), max: max}
}

// Next returns the next event that has data. Its error is [io.EOF] at the end of
// the stream, where an event without its empty line is dropped, [ErrTooLong], or
// what the underlying reader says. After an error there are no more events.
func (r *Reader) Next() (Event, error) {
	name, lines, left := "", 0, r.max
	r.data = r.data[:0]
	for {
		line, err := r.readLine(&left)
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if len(r.data) > 0 {
				return Event{Name: name, Data: r.data}, nil
			}
			name, lines, left = "", 0, r.max
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) { // "" is a comment
		case "event":
			name = string(value)
		case "data":
			if lines > 0 {
				r.data = append(r.data, '\n')
			}
			r.data = append(r.data, value...)
			lines++
		}
	}
}

// readLine returns a line without its end: CR, LF or both. It does not wait for
// what follows a CR, so that an event is known as soon as it is whole. What it
// reads is taken off left.
func (r *Reader) readLine(left *int) ([]byte, error) {
	r.line = r.line[:0]
	for {
		if _, err := r.r.Peek(1); err != nil {
			return nil, err
		}
		p, err := r.r.Peek(r.r.Buffered())
		if err != nil {
			return nil, err
		}
		if r.afterCR {
			r.afterCR = false
			if p[0] == '\n' {
				if _, err := r.r.Discard(1); err != nil {
					return nil, err
				}
				continue
			}
		}
		end := bytes.IndexAny(p, "\r\n")
		n := end + 1
		if end < 0 {
			end, n = len(p), len(p)
		} else {
			r.afterCR = p[end] == '\r'
		}
		if *left -= n; *left < 0 {
			return nil, ErrTooLong
		}
		r.line = append(r.line, p[:end]...)
		if _, err := r.r.Discard(n); err != nil {
			return nil, err
		}
		if n > end { // the line's end was found
			if !r.started {
				r.started = true
				r.line = bytes.TrimPrefix(r.line, []byte("\ufeff"))
			}
			return r.line, nil
		}
	}
}
