// Package typescript is what a guest and the program that makes JavaScript of TypeScript
// say to each other. The program reads sources from its standard input and answers each
// on its standard output: a frame is the length of what follows, in four bytes, the most
// significant first.
package typescript

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Program is the base name of argv[0] under which the program is started.
const Program = "cubby-typescript"

// Is reports whether arg0, an argv[0], names the program.
func Is(arg0 string) bool { return filepath.Base(arg0) == Program }

// MaxSource is the largest source, in bytes, and MaxAnswer the largest answer: beside
// the JavaScript it has a map of its positions, and short lines take several times
// their length there.
const (
	MaxSource = 64 << 20
	MaxAnswer = 256 << 20
)

// ErrTooLarge says that a frame is larger than it may be.
var ErrTooLarge = errors.New("too large")

// SyntaxError says where TypeScript could not be read.
type SyntaxError struct {
	// Line counts from 1, Column from 1 in bytes. Both are 0 if unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Text is the complaint, LineText the whole line it is about.
	Text     string `json:"text"`
	LineText string `json:"line_text,omitempty"`
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Text)
}

// Write writes one frame.
func Write(w io.Writer, b []byte, most int) error {
	if len(b) > most {
		return fmt.Errorf("%d bytes: %w", len(b), ErrTooLarge)
	}
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(b)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// Read reads one frame of at most that many bytes. It takes memory for what comes, and
// not for what is announced. The error is io.EOF where a frame would begin.
func Read(r io.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(most) {
		return nil, fmt.Errorf("%d bytes: %w", n, ErrTooLarge)
	}
	var b bytes.Buffer
	switch got, err := b.ReadFrom(io.LimitReader(r, n)); {
	case err != nil:
		return nil, err
	case got < n:
		return nil, io.ErrUnexpectedEOF
	}
	return b.Bytes(), nil
}

// An answer begins with one of these.
const (
	isJavaScript  = 'j'
	isSyntaxError = 'e'
)

// Answer is what the program answers: js, or err if it is not nil.
func Answer(js string, err *SyntaxError) ([]byte, error) {
	if err == nil {
		return append([]byte{isJavaScript}, js...), nil
	}
	b, jerr := json.Marshal(err)
	return append([]byte{isSyntaxError}, b...), jerr
}

// ParseAnswer is the reverse of Answer. An error that is no *SyntaxError says that b is
// no answer.
func ParseAnswer(b []byte) (js string, err error) {
	switch {
	case len(b) > 0 && b[0] == isJavaScript:
		return string(b[1:]), nil
	case len(b) > 0 && b[0] == isSyntaxError:
		var e SyntaxError
		if err := json.Unmarshal(b[1:], &e); err != nil {
			return "", fmt.Errorf("answer about a syntax error: %w", err)
		}
		return "", &e
	}
	return "", errors.New("an answer is neither JavaScript nor a syntax error")
}
