package template

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFontKey: another matplotlib, interpreter or folder of fonts is another key.
func TestFontKey(t *testing.T) {
	prefix := t.TempDir()
	tc := Toolchain{Python: Interpreter{Path: filepath.Join(prefix, "bin/python3")}}
	module := filepath.Join(prefix, "lib/python3.99/site-packages/matplotlib/__init__.py")
	before := FontKey(tc)
	if err := os.MkdirAll(filepath.Dir(module), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(module, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	installed := FontKey(tc)
	if err := os.Chtimes(module, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	upgraded := FontKey(tc)
	if installed == "" || installed == before || upgraded == installed || upgraded != FontKey(tc) {
		t.Errorf("keys: %q without, %q with, %q after an upgrade", before, installed, upgraded)
	}
	if key := FontKey(Toolchain{}); key != "" {
		t.Errorf("without Python: %q", key)
	}
}

func TestReadFontList(t *testing.T) {
	list, err := ReadFontList(strings.NewReader(`{"name":"fontlist-v330.json","content":"{\"a\":1}"}`))
	if err != nil || list.Name != "fontlist-v330.json" || list.Content != `{"a":1}` {
		t.Errorf("%+v, %v", list, err)
	}
	// Another Python's matplotlib was found: there is nothing to put, and it is no failure.
	none, err := ReadFontList(strings.NewReader(`{"none": true}`))
	if err != nil || !none.None {
		t.Errorf("without matplotlib: %+v, %v", none, err)
	}
	if err := (Root{Dir: "/nonexistent"}).PutFontList(none); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"", "{}", "[]", `{"name":"../fontlist-v1.json","content":"{}"}`, `{"name":"fontlist-v1.json","content":"{"}`,
		`{"name":"fontlist-v1.json/../x","content":"{}"}`, `{"name":"fontlist-v1.json","content":"\"` + strings.Repeat("a", maxFontList) + `\""}`,
	} {
		if list, err := ReadFontList(strings.NewReader(bad)); err == nil {
			t.Errorf("%.60q is %.60v", bad, list)
		}
	}
}

func BenchmarkFontKey(b *testing.B) {
	for b.Loop() {
		FontKey(Toolchain{Python: Interpreter{Path: "/usr/bin/python3"}})
	}
}
