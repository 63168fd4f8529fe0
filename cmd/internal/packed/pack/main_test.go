package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestPack: the same program gives the same files, and they are of it.
func TestPack(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	parts, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(parts, "inner.modules"), []byte("go\tgo1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{first, second} {
		if err := pack([]string{"-parts", parts, dir, program}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir, suffix string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, filepath.Base(program)+suffix))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, suffix := range []string{".zst", ".sum", ".modules"} {
		if !bytes.Equal(read(first, suffix), read(second, suffix)) {
			t.Errorf("%s differs", suffix)
		}
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if got, err := dec.DecodeAll(read(first, ".zst"), nil); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("unpacked: %d bytes of %d, %v", len(got), len(raw), err)
	}
	if got, want := string(read(first, ".sum")), fmt.Sprintf("%x %d\n", sha256.Sum256(raw), len(raw)); got != want {
		t.Errorf("sum %q, want %q", got, want)
	}
	if text := string(read(first, ".modules")); !strings.Contains(text, "github.com/klauspost/compress") {
		t.Errorf("modules %q", text)
	}
	if _, err := os.Stat(filepath.Join(first, "inner.modules")); err != nil {
		t.Error(err)
	}
	if err := pack([]string{first}); err == nil {
		t.Error("packed nothing")
	}
	if err := pack([]string{first, filepath.Join(parts, "inner.modules")}); err == nil {
		t.Error("packed what is no program")
	}
}
