package typescript

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
)

func TestAnswer(t *testing.T) {
	for _, want := range []*SyntaxError{nil, {Text: "no place"}, {Line: 2, Column: 3, Text: "ä", LineText: "\x00\"'"}} {
		b, err := Answer("let x\n", want)
		if err != nil {
			t.Fatal(err)
		}
		var wire bytes.Buffer
		if err := Write(&wire, b, len(b)); err != nil {
			t.Fatal(err)
		}
		if b, err = Read(&wire, len(b)); err != nil {
			t.Fatal(err)
		}
		js, err := ParseAnswer(b)
		var got *SyntaxError
		errors.As(err, &got)
		if !reflect.DeepEqual(got, want) || want == nil && js != "let x\n" {
			t.Errorf("%q %v, want %v", js, err, want)
		}
	}
}

func TestFramesAreBounded(t *testing.T) {
	if err := Write(io.Discard, make([]byte, 3), 2); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := Read(bytes.NewReader([]byte{0, 0, 0, 3, 1, 2, 3}), 2); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 'j', 'x'})
	f.Add([]byte{0, 0, 0, 3, 'e', '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 'j'})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Read(bytes.NewReader(b), 1<<10)
		if err != nil {
			return
		}
		if len(got) > 1<<10 || !bytes.Equal(got, b[4:4+len(got)]) {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
		_, _ = ParseAnswer(got)
	})
}
