package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	bufferSize   = 8 << 10  // of readers: each connection has one for each side
	writerSize   = 8 << 10  // for heads and what is small
	copySize     = 32 << 10 // twice a record of TLS; what is large is written as it was read
	maxChunkLine = 1 << 10  // bytes of a chunk's size and its extensions
	maxExtension = 16 << 10 // bytes of extensions that a body may have beyond a few for each chunk
	maxDigits    = 15       // of a chunk's size
	// releaseAfter is how long the beginning of a value is held back if nothing follows.
	releaseAfter = 100 * time.Millisecond
)

// pools of what a message needs while it passes; idle connections have none of it.
type pools struct{ writers, copies, redacted sync.Pool }

var buffers = pools{
	writers: sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writerSize) }},
	copies:  sync.Pool{New: func() any { b := make([]byte, copySize); return &b }},
	// What is held back stands before what is read.
	redacted: sync.Pool{New: func() any { b := make([]byte, maxRedacted+copySize); return &b }},
}

func (p *pools) writer(w io.Writer) *bufio.Writer {
	b := p.writers.Get().(*bufio.Writer)
	b.Reset(w)
	return b
}

func (p *pools) putWriter(b *bufio.Writer) {
	b.Reset(nil)
	p.writers.Put(b)
}

// sized is a body of known length.
type sized struct {
	r    *bufio.Reader
	left int64
}

func (b *sized) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunked is a body in chunks. Extensions are dropped; the trailers are in fields
// after io.EOF.
type chunked struct {
	r      *bufio.Reader
	strict bool // as of lineReader
	fields []field

	left   int64
	inside bool // the end of a chunk has to be read
	excess int  // bytes of extensions
	err    error
}

func (b *chunked) Read(p []byte) (int, error) {
	if b.err == nil && b.left == 0 {
		b.err = b.next()
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// next reads up to a chunk's data, or to the end.
func (b *chunked) next() error {
	if b.inside {
		line, err := b.line(len("\r\n"))
		var refused *Refused
		if errors.As(err, &refused) || line != "" {
			return badRequest("a chunk is longer than its size")
		}
		if err != nil {
			return err
		}
	}
	line, err := b.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, extension, _ := strings.Cut(line, ";")
	if !b.strict {
		size = strings.TrimRight(size, " \t")
	}
	if size == "" || len(size) > maxDigits {
		return badRequest("a malformed size of a chunk")
	}
	b.left = 0
	for i := range len(size) {
		digit := strings.IndexByte("0123456789abcdef", size[i]|0x20)
		if digit < 0 || size[i] < '0' {
			return badRequest("a malformed size of a chunk")
		}
		b.left = b.left<<4 | int64(digit)
	}
	if !isValue(extension) {
		return badRequest("a chunk's extension has a control character")
	}
	if b.excess = max(b.excess+len(extension)-16, 0); b.excess > maxExtension {
		return tooLarge("too many extensions of chunks")
	}
	if b.inside = b.left > 0; b.inside {
		return nil
	}
	b.fields, err = (&lineReader{r: b.r, strict: b.strict, left: maxHead}).fields()
	if err == errLineTooLong {
		return tooLarge("the trailers are too large or too many")
	}
	if err == nil {
		err = io.EOF
	}
	return err
}

func (b *chunked) line(limit int) (string, error) {
	line, err := (&lineReader{r: b.r, strict: b.strict, left: limit}).line()
	switch err {
	case errLineTooLong:
		err = tooLarge("a chunk's size or extension is too long")
	case io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return line, err
}

// sink is where a body goes.
type sink struct {
	w       *bufio.Writer
	chunked bool
}

func (s sink) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if s.chunked {
		fmt.Fprintf(s.w, "%x\r\n", len(p))
	}
	_, err := s.w.Write(p)
	if s.chunked {
		_, err = s.w.WriteString("\r\n")
	}
	return err
}

// pass copies a body up to its end. With hide, values are redacted; from is then
// the connection that body is read from: if nothing comes for a while, the beginning
// of a value is passed on.
func pass(to sink, body io.Reader, hide *redactor, from *stream) (readErr, writeErr error) {
	pool := &buffers.copies
	if hide != nil {
		pool = &buffers.redacted
	}
	pooled := pool.Get().(*[]byte)
	defer pool.Put(pooled)
	buf, held := *pooled, 0
	if hide != nil {
		from.held = func() bool { return held > 0 && hide.mayRelease() }
		from.release = func() error {
			err := to.write(buf[:held])
			held = 0
			if err != nil {
				return err
			}
			return to.w.Flush()
		}
		defer func() { from.held, from.release = nil, nil }()
	}
	for {
		at := held
		n, err := body.Read(buf[at : at+copySize])
		window := buf[at-held : at+n] // without what was released meanwhile
		final := len(window)
		if hide != nil {
			if final = hide.scan(window, n); err == io.EOF {
				final = len(window)
			}
		}
		if writeErr = to.write(window[:final]); writeErr != nil {
			return nil, writeErr
		}
		if held = copy(buf, window[final:]); err != nil {
			if err == io.EOF {
				err = nil
			}
			return err, nil
		}
	}
}
