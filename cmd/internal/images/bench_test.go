//go:build linux

package images

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkGigabyte is what sealing and verifying a gibibyte costs beside writing it.
func BenchmarkGigabyte(b *testing.B) {
	const n = 1 << 30
	for name, cfg := range kinds(b) {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			b.Fatal(err)
		}
		s := open(b, cfg)
		write := func(dir string) error {
			f, err := os.Create(filepath.Join(dir, "pages.img"))
			if err != nil {
				return err
			}
			defer f.Close()
			block := make([]byte, 1<<20)
			rand.Read(block)
			for range n / len(block) {
				if _, err := f.Write(block); err != nil {
					return err
				}
			}
			return nil
		}
		b.Run(name+"/create", func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				if _, err := s.Create(b.Context(), "i1", Options{Reserve: n}, write); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/use", func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				s.images["i1"].stamps = nil
				if err := s.Use(b.Context(), "i1", func(string) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
