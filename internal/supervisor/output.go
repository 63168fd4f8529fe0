//go:build linux

package supervisor

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// Lines writes each line of what it is given to a log.
func Lines(log *slog.Logger) io.Writer { return lines{log} }

type lines struct{ log *slog.Logger }

func (l lines) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.log.Info("cubby", "line", string(bytes.TrimRight(line, "\n")))
	}
	return len(p), nil
}

// tail hands on what is written and keeps the last of it for an error message,
// and the line by which Go's runtime says why it ended the writer: stacks follow.
type tail struct {
	out io.Writer
	mu  sync.Mutex
	buf []byte

	line    []byte // the beginning of the last line, which has not ended
	crashed string
}

const (
	tailSize = 4 << 10
	lineSize = 400
)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out != nil {
		// A reader that is gone must not end the child.
		_, _ = t.out.Write(p)
	}
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailSize {
		t.buf = t.buf[len(t.buf)-tailSize:]
	}
	for part := range bytes.Lines(p) {
		t.line = append(t.line, part[:min(len(part), lineSize-min(len(t.line), lineSize))]...)
		if part[len(part)-1] == '\n' {
			if t.crashed == "" && isCrash(t.line) {
				t.crashed = strings.TrimSpace(string(t.line))
			}
			t.line = t.line[:0]
		}
	}
	return len(p), nil
}

// isCrash tells a line of Go's runtime from those of a log.
func isCrash(line []byte) bool {
	for _, mark := range []string{"panic: ", "fatal error: ", "runtime: failed", "SIGSEGV: ", "SIGABRT: ", "unexpected fault "} {
		if bytes.HasPrefix(line, []byte(mark)) {
			return true
		}
	}
	return false
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

func (t *tail) crash() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.crashed
}
