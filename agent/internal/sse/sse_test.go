package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// all returns the events as texts, and the error at the end.
func all(r io.Reader, max int) ([]string, error) {
	var out []string
	for s := NewReader(r, max); ; {
		e, err := s.Next()
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%s|%s", e.Name, e.Data))
	}
}

func TestEvents(t *testing.T) {
	for _, test := range []struct {
		name, stream string
		want         []string
	}{
		{"nothing", "", nil},
		{"one", "data: a\n\n", []string{"|a"}},
		{"a name", "event: x\ndata: a\n\ndata: b\n\n", []string{"x|a", "|b"}},
		{"CRLF", "event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []string{"x|a", "|b"}},
		{"CR", "event: x\rdata: a\r\rdata: b\r\r", []string{"x|a", "|b"}},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", []string{"|a", "|b", "|c"}},
		{"lines of data", "data: a\ndata:\ndata: b\n\n", []string{"|a\n\nb"}},
		{"one space is cut", "data:  a \n\ndata:b\n\n", []string{"| a ", "|b"}},
		{"comments", ": keep alive\n\ndata: a\n: b\n\n", []string{"|a"}},
		{"no data", "event: x\n\nevent: y\ndata:\n\ndata\n\ndata: a\n\n", []string{"|a"}},
		{"other fields", "id: 7\nretry: 9\nnonsense\ndata: a\nDATA: b\n data: c\n\n", []string{"|a"}},
		{"a colon in a value", "data: {\"a\": 1}\n\n", []string{`|{"a": 1}`}},
		{"a byte order mark", "\ufeffdata: a\n\n\ufeffdata: b\n\n", []string{"|a"}},
		{"cut in an event", "data: a\n\ndata: b\n", []string{"|a"}},
		{"cut in a line", "data: a\n\ndata: b", []string{"|a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(test.stream), iotest.OneByteReader(strings.NewReader(test.stream)),
				iotest.DataErrReader(strings.NewReader(test.stream))} {
				if got, err := all(r, 1000); !slices.Equal(got, test.want) || err != io.EOF {
					t.Errorf("got %q, %v, want %q", got, err, test.want)
				}
			}
		})
	}
}

func TestBound(t *testing.T) {
	const max = 10_000
	short := "data: " + strings.Repeat("x", max-8) + "\n\n"
	for _, test := range []struct {
		name, stream string
		events       int
		err          error
	}{
		{"events at the bound", short + short, 2, io.EOF},
		{"one line", short + "data: " + strings.Repeat("x", max) + "\n\n", 1, ErrTooLong},
		{"a line that does not end", short + strings.Repeat("x", 10*max), 1, ErrTooLong},
		{"many lines", short + strings.Repeat("data: x\n", max), 1, ErrTooLong},
		{"comments", short + strings.Repeat(":\n", max), 1, ErrTooLong},
		{"empty events are none", strings.Repeat("\n", 10*max) + short, 1, io.EOF},
	} {
		if got, err := all(strings.NewReader(test.stream), max); len(got) != test.events || err != test.err {
			t.Errorf("%s: %d events, %v", test.name, len(got), err)
		}
	}
}

func TestErrorOfTheReader(t *testing.T) {
	broken := errors.New("broken")
	got, err := all(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), 100)
	if !slices.Equal(got, []string{"|a"}) || err != broken {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEventIsKnownAtOnce: no event waits for the one that follows it, whatever
// its lines end in.
func TestEventIsKnownAtOnce(t *testing.T) {
	for _, stream := range []string{"data: a\n\n", "data: a\r\n\r\n", "data: a\r\r"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, stream) }()
		known := make(chan string, 1)
		go func() {
			e, err := NewReader(r, 100).Next()
			known <- fmt.Sprintf("%s %v", e.Data, err)
		}()
		select {
		case got := <-known:
			if got != "a <nil>" {
				t.Errorf("%q: %s", stream, got)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%q: it waits for more", stream)
		}
		w.Close()
	}
}

// model reads events in the plainest way: it has the whole stream.
func model(stream []byte) []string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(stream))
	var out, data []string
	name := ""
	lines := strings.Split(text, "\n")
	lines[0] = strings.TrimPrefix(lines[0], "\ufeff")
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if joined := strings.Join(data, "\n"); joined != "" {
				out = append(out, name+"|"+joined)
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	return out
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: x\r\ndata: a\r\ndata: b\r\n\r\n: c\n\ndata\rdata:\r\r"))
	f.Add([]byte("\ufeffdata: {\"a\":1}\n\nid: 1\n\ndata: [DONE]\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		want := model(stream)
		for _, r := range []io.Reader{bytes.NewReader(stream), iotest.HalfReader(bytes.NewReader(stream)),
			iotest.OneByteReader(bytes.NewReader(stream))} {
			if got, err := all(r, len(stream)+1); !slices.Equal(got, want) || err != io.EOF {
				t.Fatalf("%q: got %q, %v, want %q", stream, got, err, want)
			}
		}
		const max = 16
		got, err := all(bytes.NewReader(stream), max)
		if err != io.EOF && err != ErrTooLong || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("%q, bounded: got %q, %v, want %q", stream, got, err, want)
		}
		for _, e := range got {
			if len(e) > max+1 {
				t.Fatalf("%q: an event of %d bytes", stream, len(e))
			}
		}
	})
}
