package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// nullErrors takes "error": null out of chunks: some servers send it with every
// one, and to the SDK any "error" is an error.
func nullErrors(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	resp, err := next(r)
	if err == nil && resp != nil && resp.Body != nil {
		resp.Body = &lines{Closer: resp.Body, r: bufio.NewReader(resp.Body)}
	}
	return resp, err
}

// lines reads a stream line by line.
type lines struct {
	io.Closer
	r    *bufio.Reader
	rest []byte
	err  error // after rest
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.rest, l.err = l.r.ReadBytes('\n')
		l.rest = withoutNullError(l.rest)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func withoutNullError(line []byte) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || !bytes.Contains(data, []byte(`"error"`)) {
		return line
	}
	var chunk map[string]json.RawMessage
	if json.Unmarshal(data, &chunk) != nil || string(chunk["error"]) != "null" {
		return line
	}
	delete(chunk, "error")
	out, err := json.Marshal(chunk)
	if err != nil {
		return line
	}
	return append(append([]byte("data: "), out...), '\n')
}
