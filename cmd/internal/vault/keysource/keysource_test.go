//go:build linux

package keysource

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	raw := bytes.Repeat([]byte{0xfb, 0xff}, 16) // + and / in base64
	for _, text := range []string{
		hex.EncodeToString(raw), strings.ToUpper(hex.EncodeToString(raw)) + "\n", " " + base64.StdEncoding.EncodeToString(raw) + "\r\n",
		base64.URLEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw),
	} {
		key, err := Parse(text)
		if err != nil || !bytes.Equal(key.Bytes(), raw) {
			t.Errorf("%q: %v", text, err)
		} else if again, err := Parse(Text(key)); err != nil || !bytes.Equal(again.Bytes(), raw) {
			t.Errorf("%q and back: %v", text, err)
		}
	}
	for _, text := range []string{"", "hunter2hunter2", hex.EncodeToString(raw[:31]), hex.EncodeToString(append(raw, 1)), strings.Repeat("g", 64)} {
		if _, err := Parse(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := strings.Repeat("ab", 32) + "\n"
	for _, path := range []string{write("own", good, 0o600), write("group", good, 0o440)} {
		if _, err := File(path); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct{ path, says string }{
		{write("others", good, 0o644), "chmod 600"},
		{write("writable", good, 0o620), "chmod 600"},
		{write("short", "hunter2", 0o600), "it is no key"},
		{write("long", good+strings.Repeat("x", 1<<20), 0o600), "it is no key"},
		{dir, "is not a file"},
		{filepath.Join(dir, "none"), "no such file"},
	} {
		if _, err := File(test.path); err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", test.path, err)
		}
	}
}

func TestCommand(t *testing.T) {
	if _, err := Command(t.Context(), "echo abababababababababababababababababababababababababababababababab"); err != nil {
		t.Error(err)
	}
	for command, says := range map[string]string{
		"echo no permission >&2; echo hunter2; exit 3": "exit status 3: no permission",
		"echo hunter2":                   "what the command prints: it is no key",
		"yes hunter2 | head -c 10000000": "it is no key",
		"exec /nonexistent/program":      "the command failed",
	} {
		if _, err := Command(t.Context(), command); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", command, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := Command(ctx, "sleep 60 & sleep 60"); err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("given up after %v: %v", time.Since(began), err)
	}
}
