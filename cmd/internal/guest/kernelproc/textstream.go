//go:build linux

package kernelproc

import (
	"bytes"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// textStream turns the bytes that a process writes into text to forward: whole
// lines at once, the start of a line when flushed, and never half a character.
type textStream struct {
	held []byte
}

// maxHeld bounds the start of a line that is kept back.
const maxHeld = 16 << 10

// add takes b and returns the text that is ready, which may be empty.
func (t *textStream) add(b []byte) string {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		text := string(bytes.ToValidUTF8(append(t.held, b[:i+1]...), []byte("\uFFFD")))
		t.held = append(t.held[:0], b[i+1:]...)
		if len(t.held) > maxHeld {
			text += t.flush(false)
		}
		return text
	}
	t.held = append(t.held, b...)
	if len(t.held) > maxHeld {
		return t.flush(false)
	}
	return ""
}

// flush returns what is held, except for a character that is not complete yet
// unless all is true.
func (t *textStream) flush(all bool) string {
	n := len(t.held)
	if !all {
		n -= clip.Incomplete(t.held)
	}
	text := string(bytes.ToValidUTF8(t.held[:n], []byte("\uFFFD")))
	t.held = append(t.held[:0], t.held[n:]...)
	return text
}
