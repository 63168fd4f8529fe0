//go:build linux

package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// TestBudget: what does not fit is refused before anything is written, with what is there,
// in the making and set apart counted.
func TestBudget(t *testing.T) {
	const mb = 1 << 20
	s := open(t, Config{Dir: filepath.Join(t.TempDir(), "images"), Budget: 20 * mb})
	var no *RoomError
	refused := func(id string, reserve int64) {
		t.Helper()
		_, err := s.Create(t.Context(), id, Options{Reserve: reserve}, func(string) error { t.Error("it is written"); return nil })
		if !errors.As(err, &no) || no.Budget != 20*mb || no.Need != reserve || no.Free >= reserve {
			t.Errorf("%d bytes: %v", reserve, err)
		}
	}
	refused("i1", 20*mb+1)
	_, err := s.Create(t.Context(), "i1", Options{Reserve: 15 * mb}, func(dir string) error {
		if usage, err := s.Usage(); err != nil || usage.Reserved != 15*mb {
			t.Errorf("%+v, %v", usage, err)
		}
		refused("i2", 6*mb)
		return some(1).write(dir)
	})
	if err != nil {
		t.Fatal(err)
	}
	refused("i2", 14*mb) // 6 are taken
	if _, err := s.SetApart("i1", errors.New("why")); err != nil {
		t.Fatal(err)
	}
	refused("i2", 14*mb)
	create(t, s, "i2", some(2))
	create(t, s, "i3", some(3))
	// What turns out larger than was said is refused, too.
	if _, err := s.Create(t.Context(), "i4", Options{Reserve: 1}, some(4).write); !errors.As(err, &no) {
		t.Error(err)
	}
	if err := s.Remove("i2"); err != nil {
		t.Fatal(err)
	}
	create(t, s, "i4", some(4))
	if usage, err := s.Usage(); err != nil || usage.Reserved != 0 || usage.Images < 12*mb || usage.Corrupt < 6*mb || usage.Budget != 20*mb {
		t.Errorf("%+v, %v", usage, err)
	}
}

// TestDiskFull: a file system without room refuses at once, one that turns out full
// later, and nothing is left of the image on it.
func TestDiskFull(t *testing.T) {
	const mb = 1 << 20
	for _, where := range []string{"images", "plaintext"} {
		t.Run(where, func(t *testing.T) {
			cfg := Config{Dir: filepath.Join(t.TempDir(), "images"), Key: secret.New(), Cipher: secret.New(), Plain: tmpfs(t, 0)}
			small := tmpfs(t, 16*mb)
			if where == "images" {
				cfg.Dir = small
			} else {
				cfg.Plain = small
			}
			s := open(t, cfg)
			create(t, s, "i1", some(1))
			before, err := os.ReadDir(s.dir)
			if err != nil {
				t.Fatal(err)
			}
			var no *RoomError
			if _, err := s.Create(t.Context(), "i2", Options{Reserve: 17 * mb}, some(2).write); !errors.As(err, &no) || no.Where != small {
				t.Error(err)
			}
			huge := func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "huge"), make([]byte, 17*mb), 0o600)
			}
			for _, id := range []string{"i1", "i2"} {
				if _, err := s.Create(t.Context(), id, Options{}, huge); !errors.As(err, &no) || !errors.Is(err, unix.ENOSPC) {
					t.Errorf("%s: %v", id, err)
				}
			}
			if after := names(t, s.dir); len(after) != len(before) || len(names(t, cfg.Plain)) > 0 && where == "plaintext" {
				t.Errorf("%v, %v", after, names(t, cfg.Plain))
			}
			use(t, s, "i1", some(1))
			if where == "plaintext" {
				filler := filepath.Join(small, "filler")
				if err := os.WriteFile(filler, make([]byte, 10*mb), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := s.Use(t.Context(), "i1", some(1).check); !errors.As(err, &no) || no.Where != small {
					t.Error(err)
				}
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
				use(t, s, "i1", some(1))
			}
		})
	}
}

// TestReservedRoom: what one image in the making may still need on the file system, another
// does not get.
func TestReservedRoom(t *testing.T) {
	const mb = 1 << 20
	dir := tmpfs(t, 100*mb)
	s := open(t, Config{Dir: dir})
	_, err := s.Create(t.Context(), "i1", Options{Reserve: 60 * mb}, func(dir string) error {
		for written := range 3 {
			var no *RoomError
			_, err := s.Create(t.Context(), "i2", Options{Reserve: 40 * mb}, some(2).write)
			if !errors.As(err, &no) || no.Free < 34*mb || no.Free > 35*mb || no.Budget != 0 { // 100 less 5 for others and 60
				t.Errorf("after %d: %v", written, err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(written)), make([]byte, 20*mb), 0o600); err != nil {
				return err
			}
		}
		create(t, s, "i3", some(3))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
