//go:build linux

package images

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// TestTampered: an image that differs in anything from what was written is refused, with a
// reason, also by the process that wrote it.
func TestTampered(t *testing.T) {
	replace := func(t *testing.T, path string, do func(path string) error) {
		if err := errors.Join(os.RemoveAll(path), do(path)); err != nil {
			t.Fatal(err)
		}
	}
	resize := func(t *testing.T, path string, by int64) {
		info, err := os.Stat(path)
		if err == nil {
			err = os.Truncate(path, info.Size()+by)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	swap := func(t *testing.T, a, b string) {
		if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	pages := "pages.img"
	for name, tamper := range map[string]func(t *testing.T, s *Store, dir string){
		"a byte of a file":          func(t *testing.T, _ *Store, dir string) { flip(t, filepath.Join(dir, pages), chunkSize+5) },
		"the first byte":            func(t *testing.T, _ *Store, dir string) { flip(t, filepath.Join(dir, pages), 0) },
		"the last byte":             func(t *testing.T, _ *Store, dir string) { flip(t, filepath.Join(dir, pages), -1) },
		"a small file":              func(t *testing.T, _ *Store, dir string) { flip(t, filepath.Join(dir, "one"), 0) },
		"a file below a folder":     func(t *testing.T, _ *Store, dir string) { flip(t, filepath.Join(dir, "files/b"), 50) },
		"a shorter file":            func(t *testing.T, _ *Store, dir string) { resize(t, filepath.Join(dir, pages), -1) },
		"a longer file":             func(t *testing.T, _ *Store, dir string) { resize(t, filepath.Join(dir, pages), 1) },
		"an empty file with a byte": func(t *testing.T, _ *Store, dir string) { resize(t, filepath.Join(dir, "empty"), 1) },
		"magic":                     func(t *testing.T, s *Store, _ string) { flip(t, s.manifestPath("i1"), 0) },
		"length":                    func(t *testing.T, s *Store, _ string) { flip(t, s.manifestPath("i1"), len(magic)+7) },
		"salt":                      func(t *testing.T, s *Store, _ string) { flip(t, s.manifestPath("i1"), len(magic)+8) },
		"mac":                       func(t *testing.T, s *Store, _ string) { flip(t, s.manifestPath("i1"), macAt) },
		"body":                      func(t *testing.T, s *Store, _ string) { flip(t, s.manifestPath("i1"), headerSize+20) },
		"tags":                      func(t *testing.T, s *Store, _ string) { flip(t, s.manifestPath("i1"), -1) },
		"a shorter manifest":        func(t *testing.T, s *Store, _ string) { resize(t, s.manifestPath("i1"), -1) },
		"a longer manifest":         func(t *testing.T, s *Store, _ string) { resize(t, s.manifestPath("i1"), 1) },
		"no tags":                   func(t *testing.T, s *Store, _ string) { resize(t, s.manifestPath("i1"), -9*tagSize) },
		"half a header":             func(t *testing.T, s *Store, _ string) { replaceFile(t, s.manifestPath("i1"), []byte(magic)) },
		"no manifest":               func(t *testing.T, s *Store, _ string) { replaceFile(t, s.manifestPath("i1"), nil) },
		"a missing file": func(t *testing.T, _ *Store, dir string) {
			replace(t, filepath.Join(dir, "empty"), func(string) error { return nil })
		},
		"an extra file": func(t *testing.T, _ *Store, dir string) { replaceFile(t, filepath.Join(dir, "files/x"), nil) },
		"an extra folder": func(t *testing.T, _ *Store, dir string) {
			replace(t, filepath.Join(dir, "x"), func(p string) error { return os.Mkdir(p, 0o700) })
		},
		"no folder": func(t *testing.T, _ *Store, dir string) { replace(t, dir, func(string) error { return nil }) },
		"a link to what was there": func(t *testing.T, _ *Store, dir string) {
			path, away := filepath.Join(dir, pages), filepath.Join(t.TempDir(), pages)
			if err := errors.Join(os.Rename(path, away), os.Symlink(away, path)); err != nil {
				t.Fatal(err)
			}
		},
		"a link in place of the folder": func(t *testing.T, _ *Store, dir string) {
			away := filepath.Join(t.TempDir(), "away")
			if err := errors.Join(os.Rename(dir, away), os.Symlink(away, dir)); err != nil {
				t.Fatal(err)
			}
		},
		"a link in place of the manifest": func(t *testing.T, s *Store, _ string) {
			path, away := s.manifestPath("i1"), filepath.Join(t.TempDir(), "away")
			if err := errors.Join(os.Rename(path, away), os.Symlink(away, path)); err != nil {
				t.Fatal(err)
			}
		},
		"a pipe": func(t *testing.T, _ *Store, dir string) {
			replace(t, filepath.Join(dir, "empty"), func(p string) error { return unix.Mkfifo(p, 0o600) })
		},
		"a pipe in place of the manifest": func(t *testing.T, s *Store, _ string) {
			replace(t, s.manifestPath("i1"), func(p string) error { return unix.Mkfifo(p, 0o600) })
		},
		"a folder in place of a file": func(t *testing.T, _ *Store, dir string) {
			replace(t, filepath.Join(dir, "empty"), func(p string) error { return os.Mkdir(p, 0o700) })
		},
		"others may read a file": func(t *testing.T, _ *Store, dir string) {
			if err := os.Chmod(filepath.Join(dir, pages), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"others may enter the folder": func(t *testing.T, _ *Store, dir string) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"two images' manifests": func(t *testing.T, s *Store, _ string) { swap(t, s.manifestPath("i1"), s.manifestPath("i2")) },
		"two images' folders": func(t *testing.T, s *Store, dir string) {
			swap(t, dir, filepath.Join(s.dir, s.images["i2"].folder))
		},
		"two images' files": func(t *testing.T, s *Store, dir string) {
			swap(t, filepath.Join(dir, pages), filepath.Join(s.dir, s.images["i2"].folder, pages))
		},
		"two files": func(t *testing.T, _ *Store, dir string) {
			swap(t, filepath.Join(dir, pages), filepath.Join(dir, "one"))
		},
		"two files of one size": func(t *testing.T, _ *Store, dir string) {
			swap(t, filepath.Join(dir, "files/b"), filepath.Join(dir, "files/c"))
		},
		"two chunks": func(t *testing.T, _ *Store, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, pages))
			if err != nil {
				t.Fatal(err)
			}
			b = append(append(append([]byte{}, b[chunkSize:2*chunkSize]...), b[:chunkSize]...), b[2*chunkSize:]...)
			replaceFile(t, filepath.Join(dir, pages), b)
		},
	} {
		for kind, cfg := range kinds(t) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				s := open(t, cfg)
				create(t, s, "i1", some(1))
				create(t, s, "i2", some(2))
				if kind == "plain" {
					use(t, s, "i1", some(1)) // which trusts it
				}
				tamper(t, s, filepath.Join(s.dir, s.images["i1"].folder))
				for _, later := range []bool{false, true} {
					if later {
						s = open(t, cfg)
					}
					err := s.Use(t.Context(), "i1", func(string) error { t.Error("it was used"); return nil })
					var corrupt *CorruptError
					if !errors.As(err, &corrupt) || corrupt.ID != "i1" || corrupt.Reason == "" {
						t.Error(err)
					}
				}
			})
		}
	}
}

func replaceFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOthersImage: an image of another user is not used.
func TestOthersImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	s := open(t, Config{Dir: filepath.Join(t.TempDir(), "images")})
	create(t, s, "i1", some(1))
	if err := os.Chown(filepath.Join(s.dir, s.images["i1"].folder, "one"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if err := s.Use(t.Context(), "i1", some(1).check); !errors.As(err, &corrupt) {
		t.Error(err)
	}
}

// TestVersion: an image of another form is told from a damaged one, and is not removed.
func TestVersion(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "images"), Key: secret.New()}
	s := open(t, cfg)
	create(t, s, "i1", some(1))
	flip(t, s.manifestPath("i1"), len(magic)+2)
	s = open(t, cfg)
	var other *VersionError
	if _, err := s.Describe("i1", nil); !errors.As(err, &other) || other.Version != formVersion^1<<8 {
		t.Error(err)
	}
	if list := s.List(); len(list) != 1 || !errors.As(list[0].Err, &other) {
		t.Errorf("%+v", list)
	}
	flip(t, s.manifestPath("i1"), len(magic)+2)
	use(t, open(t, cfg), "i1", some(1))
}

// FuzzManifest: whatever is in a manifest, sealed or not, what is read of it stays within
// bounds and within its folder.
func FuzzManifest(f *testing.F) {
	k := newKeys(secret.New(), nil)
	m := &manifest{ID: "i1", Folder: "i1.0123456789abcdef", Files: []file{{"a", 5}, {"b/c", chunkSize + 1}},
		Tags: make([]byte, 32), salt: make([]byte, saltSize)}
	whole, err := k.seal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:headerSize])
	f.Add([]byte(`{"id":"i1","folder":"i1.0123456789abcdef","files":[{"name":"../x","size":-1}]}`))
	f.Add([]byte(`{"id":"i1","folder":"../i1","files":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := k.open("i1", bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, whole) {
			t.Errorf("forged: %+v", m)
		}
		if len(b) > maxBody {
			return
		}
		header := bytes.Clone(whole[:headerSize])
		header[len(magic)+4], header[len(magic)+5] = byte(len(b)>>24), byte(len(b)>>16)
		header[len(magic)+6], header[len(magic)+7] = byte(len(b)>>8), byte(len(b))
		copy(header[macAt:], k.mac(header, b))
		m, err := k.open("i1", io.MultiReader(bytes.NewReader(header), bytes.NewReader(b)))
		if err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Error(err)
			}
			return
		}
		if !json.Valid(b) || m.ID != "i1" || filepath.Base(m.Folder) != m.Folder || m.chunks() > maxSize/chunkSize+maxFiles {
			t.Errorf("%+v", m)
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Name) || file.Size < 0 {
				t.Errorf("%+v", file)
			}
		}
	})
}
