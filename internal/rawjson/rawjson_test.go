package rawjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/rawjson"
)

func TestClean(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ name, raw, want string }{
		{"numbers keep their digits", `{"a":1.0,"b":1152921504606846977,"c":-0.10,"d":1E400}`, ""},
		{"as deep as may be", deep(rawjson.MaxDepth), ""},
		{"brackets in strings count for nothing", `"` + strings.Repeat(`[\"`, 300) + `"`, ""},
		{"escapes", `"\\ud800 \" é \ud83d\ude00 \u00e9 \\"`, ""},
		{"halves of pairs", `["\ud800","\udc00x","\ud800\ud800\udc00","\\\udfff"]`, `["\ufffd","\ufffdx","\ufffd\ud800\udc00","\\\ufffd"]`},
		{"at the end", `"\ud83d"`, `"\ufffd"`},
		{"no UTF-8", "\"a\xff\xfeb\"", "\"a\uFFFDb\""},
	} {
		before := c.raw
		got, err := rawjson.Clean([]byte(c.raw))
		if want := c.want; err != nil || string(got) != want && (want != "" || string(got) != c.raw) {
			t.Errorf("%s: %s is %s, %v", c.name, c.raw, got, err)
		}
		var value any
		if c.raw != before || !json.Valid(got) || !strings.Contains(c.raw, "1E400") && json.Unmarshal(got, &value) != nil {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if _, err := rawjson.Clean([]byte(deep(rawjson.MaxDepth + 1))); !errors.Is(err, rawjson.ErrDepth) {
		t.Errorf("too deep: %v", err)
	}
	for _, raw := range []string{"", "NaN", "[1,]", "{", `{"a":Infinity}`, "1 2", "'a'", "\"\n\""} {
		if got, err := rawjson.Clean([]byte(raw)); err == nil {
			t.Errorf("%q is %s", raw, got)
		}
	}
}

func TestDecode(t *testing.T) {
	var v any
	if err := rawjson.Decode([]byte(` {"id":1152921504606846977,"x":1.0} `), &v); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(v); string(b) != `{"id":1152921504606846977,"x":1.0}` || err != nil {
		t.Errorf("%s, %v", b, err)
	}
	for _, raw := range []string{"", "1 2", "[1", "{} x"} {
		if rawjson.Decode([]byte(raw), &v) == nil {
			t.Errorf("%q was decoded", raw)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{`{"a":["\ud800\\"]}`, `"\ud83d\ude00"`, "\"\xff\"", `[[[1]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := rawjson.Clean(raw)
		if err == nil && !json.Valid(got) {
			t.Errorf("%q became %q", raw, got)
		}
		if again, err2 := rawjson.Clean(got); err == nil && (err2 != nil || string(again) != string(got)) {
			t.Errorf("%q, cleaned twice: %q, %v", got, again, err2)
		}
	})
}
