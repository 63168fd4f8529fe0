package modelserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// errCut asks for the connection to be broken; errEnded says that no more is to
// be written.
var (
	errCut   = errors.New("cut")
	errEnded = errors.New("ended")
)

// writer writes an answer, and is where faults befall it.
type writer struct {
	w     http.ResponseWriter
	r     *http.Request
	d     dialect
	fault *Fault
	delay time.Duration
	n     int // bytes of the body so far
}

func (w *writer) json(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.w.Header().Set("Content-Type", "application/json")
	if w.fault.CutAfter != nil && *w.fault.CutAfter == 0 {
		return errCut
	}
	w.w.WriteHeader(status)
	return w.write(append(b, '\n'))
}

// begin sends the headers of a stream, so that a client sees that it began.
func (w *writer) begin() error {
	if w.fault.CutAfter != nil && *w.fault.CutAfter == 0 {
		return errCut
	}
	w.w.WriteHeader(http.StatusOK)
	return w.flush()
}

// event sends an event of a stream; name may be empty.
func (w *writer) event(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.raw(name, b)
}

func (w *writer) raw(name string, data []byte) error {
	var b []byte
	if name != "" {
		b = append(b, "event: "+name+"\n"...)
	}
	b = append(b, "data: "...)
	b = append(b, data...)
	return w.write(append(b, "\n\n"...))
}

// rest waits between two pieces.
func (w *writer) rest() error {
	if !pause(w.r, w.delay) {
		return errCut
	}
	return nil
}

// write sends bytes up to where a fault is to come, and then that.
func (w *writer) write(b []byte) error {
	limit, after := -1, error(nil)
	f := w.fault
	for _, at := range []*int{f.CutAfter, f.EndAfter, f.ErrorAfter, f.HangAfter} {
		if at == nil || limit >= 0 && *at >= limit {
			continue
		}
		limit, after = *at, errEnded
		if at == f.CutAfter {
			after = errCut
		}
	}
	if limit < 0 || w.n+len(b) <= limit {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
		w.n += len(b)
		return w.flush()
	}
	if f.ErrorAfter == nil || limit != *f.ErrorAfter { // an event of an error comes after a whole one
		if _, err := w.w.Write(b[:limit-w.n]); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	switch {
	case after == errCut:
	case f.HangAfter != nil && limit == *f.HangAfter:
		<-w.r.Context().Done()
		return errCut
	case f.ErrorAfter != nil && limit == *f.ErrorAfter:
		name, event := w.d.failureEvent(w.d.ofStatus(http.StatusServiceUnavailable))
		w.fault = &Fault{}
		if err := w.event(name, event); err != nil {
			return err
		}
	}
	return after
}

func (w *writer) flush() error { return http.NewResponseController(w.w).Flush() }

// pieces cuts a text into pieces of n characters.
func pieces(text string, n int) []string {
	var out []string
	for text != "" {
		count := 0
		end := len(text)
		for i := range text {
			if count == n {
				end = i
				break
			}
			count++
		}
		out = append(out, text[:end])
		text = text[end:]
	}
	return out
}
