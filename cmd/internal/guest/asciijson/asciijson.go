//go:build linux

// Package asciijson writes JSON in ASCII.
package asciijson

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// Encode appends v as one line of JSON in ASCII to buf: whatever is not is
// \u-escaped, so that a reader may cut the line anywhere.
func Encode(buf *bytes.Buffer, v any) error {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b := plain.Bytes()
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] < utf8.RuneSelf && b[i] != 0x7f {
			i++
		}
		buf.Write(b[:i])
		if b = b[i:]; len(b) == 0 {
			break
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		if r1, r2 := utf16.EncodeRune(r); r1 != utf8.RuneError {
			writeEscape(buf, r1)
			writeEscape(buf, r2)
		} else {
			writeEscape(buf, r)
		}
	}
	return nil
}

func writeEscape(buf *bytes.Buffer, r rune) {
	const hex = "0123456789abcdef"
	buf.Write([]byte{'\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15]})
}
