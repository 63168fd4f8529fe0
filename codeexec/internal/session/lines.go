// Package session follows a running program for whoever started it: it keeps the last
// lines and the beginning of its output, and ends it when it is told to or its time is over.
package session

import (
	"bytes"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Bounds of what is kept of a session's output.
const (
	MaxLines = 20_000
	maxKept  = 8 << 20  // bytes of all lines
	maxLine  = 64 << 10 // bytes; a longer line is several
)

// Lines keeps the last lines that were written to it, and how far its reader has come.
// Lines are numbered from 0, those that are not kept any more included. It is safe for
// concurrent use.
type Lines struct {
	mu       sync.Mutex
	lines    []string // complete, with their ends
	first    int      // number of lines[0]
	bytes    int
	partial  []byte // the line that has not ended
	readLine int    // where Next goes on: the number of a line, and a byte in it
	readByte int
	closed   bool
}

// Write implements io.Writer. It never fails.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end+1]
		}
		if room := maxLine - len(l.partial); len(part) > room {
			part = part[:room]
			end = -1
		}
		p = p[len(part):]
		l.partial = append(l.partial, part...)
		if len(l.partial) > 0 && l.partial[len(l.partial)-1] == '\n' {
			l.endLine()
		} else if len(l.partial) >= maxLine {
			// Not in the middle of a character.
			keep := clip.Incomplete(l.partial)
			tail := bytes.Clone(l.partial[len(l.partial)-keep:])
			l.partial = l.partial[:len(l.partial)-keep]
			l.endLine()
			l.partial = append(l.partial, tail...)
		}
	}
	return n, nil
}

// endLine makes the partial line one of the lines.
func (l *Lines) endLine() {
	line := string(l.partial)
	if text, ok := strings.CutSuffix(line, "\r\n"); ok {
		line = text + "\n"
	}
	l.partial = l.partial[:0]
	l.lines = append(l.lines, line)
	l.bytes += len(line)
	drop := 0
	for len(l.lines)-drop > MaxLines || l.bytes > maxKept {
		l.bytes -= len(l.lines[drop])
		drop++
	}
	if drop > 0 {
		clear(l.lines[:drop])
		l.lines = l.lines[drop:]
		l.first += drop
	}
}

// Close says that nothing more will be written.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// Next returns what was written since the last Next, the beginning of an unfinished line
// included, but at most limit lines unless limit is negative. offset is the number of the
// line in which text begins, and next that of the line in which the next call goes on.
func (l *Lines) Next(limit int) (text string, offset, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readLine < l.first {
		l.readLine, l.readByte = l.first, 0
	}
	offset = l.readLine
	var b strings.Builder
	for ; l.readLine-l.first < len(l.lines) && limit != 0; limit-- {
		line := l.lines[l.readLine-l.first]
		b.WriteString(line[min(l.readByte, len(line)):])
		l.readLine++
		l.readByte = 0
	}
	if l.readLine-l.first == len(l.lines) && limit != 0 {
		end := len(l.partial)
		if !l.closed {
			end -= clip.Incomplete(l.partial)
		}
		if l.readByte < end {
			b.Write(l.partial[l.readByte:end])
			l.readByte = end
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), offset, l.readLine
}

// From returns at most limit lines, all if it is negative, from the line with the number
// offset on, or from the first that is kept. It returns the numbers of the first line of
// text and of the line after the last, and does not change where Next goes on.
func (l *Lines) From(offset, limit int) (text string, from, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = max(offset, l.first)
	end := l.first + len(l.lines)
	if len(l.partial) > 0 {
		end++
	}
	from = min(from, end)
	if limit >= 0 {
		end = min(end, from+min(limit, MaxLines+1))
	}
	var b strings.Builder
	for n := from; n < end; n++ {
		if n-l.first < len(l.lines) {
			b.WriteString(l.lines[n-l.first])
		} else {
			b.Write(l.partial)
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), from, end
}

// Head keeps the first bytes that were written to it. It is safe for concurrent use.
type Head struct {
	mu        sync.Mutex
	limit     int
	b         []byte
	truncated bool
}

// NewHead returns a Head of at most that many bytes.
func NewHead(most int) *Head { return &Head{limit: most} }

// Write implements io.Writer. It never fails.
func (h *Head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := h.limit - len(h.b)
	if len(p) > room {
		h.truncated = true
		h.b = append(h.b, p[:max(room, 0)]...)
		return len(p), nil
	}
	h.b = append(h.b, p...)
	return len(p), nil
}

// Bytes returns a copy of what was kept.
func (h *Head) Bytes() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.b)
}

// Text returns what was kept as UTF-8, and whether more was written than that.
func (h *Head) Text() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.b
	if h.truncated {
		b = b[:len(b)-clip.Incomplete(b)]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), h.truncated
}
