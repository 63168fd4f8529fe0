// Package rawjson checks JSON that is handed on as it was written: numbers keep
// every digit, and nothing is decoded.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may be nested in each other. Decoders
// that call themselves for each level fail at some depth: Python's at less than
// a thousand.
const MaxDepth = 256

// ErrDepth is the error of JSON that is nested deeper than MaxDepth.
var ErrDepth = fmt.Errorf("JSON is nested deeper than %d levels", MaxDepth)

// Clean returns one JSON value of a source that is not trusted as it may be handed
// on: nested at most MaxDepth deep, and in valid UTF-8, in which what is not, and
// an escaped half of a surrogate pair, is replaced by U+FFFD. The result shares
// raw's memory unless something was replaced. Its errors say that raw is no JSON,
// or ErrDepth.
func Clean(raw []byte) (json.RawMessage, error) {
	if !json.Valid(raw) {
		return nil, errors.New("this is no JSON")
	}
	if Depth(raw) > MaxDepth {
		return nil, ErrDepth
	}
	return repair(raw), nil
}

// Decode decodes one JSON value, as json.Unmarshal does, with numbers as json.Number
// where into does not say what they are.
func Decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// Depth says how deep valid JSON is nested; a number or a string is 0 deep.
func Depth(raw []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// repair replaces what is not UTF-8, and the halves of surrogate pairs that are
// escaped without the other half.
func repair(raw []byte) []byte {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	copied := false
	for i := 0; i < len(raw); i++ {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			break
		}
		i += next
		r := escaped(raw[i:])
		switch {
		case !utf16.IsSurrogate(r):
			i++ // past what is escaped, which may be a backslash
		case utf16.DecodeRune(r, escaped(raw[i+len(`\uXXXX`):])) != utf8.RuneError:
			i += len(`\uXXXX\uXXXX`) - 1
		default:
			if !copied {
				raw, copied = bytes.Clone(raw), true
			}
			i += copy(raw[i:], `\ufffd`) - 1
		}
	}
	return raw
}

// escaped returns the code unit whose escape, \uXXXX, b begins with; 0 if it
// begins with none.
func escaped(b []byte) rune {
	if len(b) < len(`\uXXXX`) || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
