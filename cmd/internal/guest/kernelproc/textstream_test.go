//go:build linux

package kernelproc

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzTextStream(f *testing.F) {
	f.Add([]byte("h\u00e9llo\nw\xe2\x82\xacrld\xff"), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		var s textStream
		var got strings.Builder
		for rest := b; len(rest) > 0; {
			n := min(len(rest), int(step%7)+1)
			got.WriteString(s.add(rest[:n]))
			if rest = rest[n:]; len(rest)%3 == 0 {
				got.WriteString(s.flush(false))
			}
		}
		got.WriteString(s.flush(true))
		if valid := string(bytes.ToValidUTF8(b, nil)); strings.ReplaceAll(got.String(), "\uFFFD", "") != strings.ReplaceAll(valid, "\uFFFD", "") {
			t.Fatalf("%q became %q", b, got.String())
		}
	})
}
