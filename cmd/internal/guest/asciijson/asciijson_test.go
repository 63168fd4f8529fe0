//go:build linux

package asciijson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func FuzzASCII(f *testing.F) {
	f.Add("plain \u00e9 \u20ac \U0001F600 \x7f \x00 <&> \xff")
	f.Fuzz(func(t *testing.T, s string) {
		var buf bytes.Buffer
		if err := Encode(&buf, map[string]string{"k": s}); err != nil {
			t.Fatal(err)
		}
		if i := bytes.IndexFunc(buf.Bytes(), func(r rune) bool { return r >= 0x7f }); i >= 0 || bytes.Count(buf.Bytes(), []byte("\n")) != 1 {
			t.Fatalf("%q", buf.Bytes())
		}
		var back map[string]string
		if err := json.Unmarshal(buf.Bytes(), &back); err != nil || back["k"] != strings.ToValidUTF8(s, "\uFFFD") &&
			!strings.Contains(s, "\uFFFD") && len(back["k"]) < len(s) {
			t.Fatalf("%q became %q: %v", s, back["k"], err)
		}
	})
}
