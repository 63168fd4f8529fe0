//go:build linux

package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// TestCreateAndUse: what was written is used, also by a later process, under modes of its
// user's alone, and is described without being read.
func TestCreateAndUse(t *testing.T) {
	for name, cfg := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			want := some(1)
			info := create(t, s, "i1", want)
			if info.Encrypted != (cfg.Cipher != nil) || info.Apparent < 6*chunkSize || info.Disk < info.Apparent ||
				time.Since(info.Created) > time.Minute {
				t.Errorf("%+v", info)
			}
			use(t, s, "i1", want)
			s = open(t, cfg)
			use(t, s, "i1", want)
			use(t, s, "i1", want) // verified before
			var about string
			got, err := s.Describe("i1", &about)
			if err != nil || about != "i1" || got != info {
				t.Errorf("%+v, %q, %v; not %+v", got, about, err, info)
			}
			if list := s.List(); len(list) != 1 || list[0] != info {
				t.Errorf("%+v", list)
			}
			err = filepath.WalkDir(cfg.Dir, func(path string, d fs.DirEntry, err error) error {
				info, _ := os.Lstat(path)
				if mode := info.Mode(); mode != 0o600 && mode != fs.ModeDir|0o700 {
					t.Errorf("%s: %s", path, mode)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if cfg.Plain != "" && len(names(t, cfg.Plain)) > 0 {
				t.Errorf("plaintext is left: %v", names(t, cfg.Plain))
			}
		})
	}
}

// TestNothingThere: ids that no image has, or none can have, are told apart from errors.
func TestNothingThere(t *testing.T) {
	s := open(t, Config{Dir: filepath.Join(t.TempDir(), "images")})
	for _, id := range []string{"i1", "", ".", "..", "../i1", "i1/x", "corrupt", "i1.image", strings.Repeat("x", 129)} {
		if _, err := s.Describe(id, nil); !errors.Is(err, ErrNotExist) {
			t.Errorf("Describe %q: %v", id, err)
		}
		if err := s.Use(t.Context(), id, func(string) error { return nil }); !errors.Is(err, ErrNotExist) {
			t.Errorf("Use %q: %v", id, err)
		}
		if has, err := s.Has(id); has || err != nil {
			t.Errorf("Has %q: %v, %v", id, has, err)
		}
		if err := errors.Join(s.Retire(id), s.Remove(id)); err != nil {
			t.Errorf("Remove %q: %v", id, err)
		}
		if id != "i1" {
			if _, err := s.Create(t.Context(), id, Options{}, some(1).write); err == nil {
				t.Errorf("Create %q", id)
			}
		}
	}
	if left := names(t, s.dir); len(left) > 0 {
		t.Error(left)
	}
}

// TestCreateFails: nothing is left, and an image that was there is still there.
func TestCreateFails(t *testing.T) {
	boom := errors.New("boom")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		name  string
		ctx   context.Context
		opts  Options
		write func(dir string) error
		want  error
	}{
		{name: "the writer fails", write: func(dir string) error { return errors.Join(some(2).write(dir), boom) }, want: boom},
		{name: "the caller gives up", ctx: cancelled, write: some(2).write, want: context.Canceled},
		{name: "a link", write: func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "x")) }},
		{name: "a pipe", write: func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "x"), 0o600) }},
		{name: "a folder without files", write: func(dir string) error { return os.Mkdir(filepath.Join(dir, "x"), 0o700) }},
		{name: "its folder is gone", write: os.RemoveAll, want: fs.ErrNotExist},
		{name: "too much is said", opts: Options{About: strings.Repeat("x", maxAbout)}, write: some(2).write},
		{name: "too deep", write: contents{"a/b/c/d/e/f": nil}.write},
	} {
		for kind, cfg := range kinds(t) {
			t.Run(kind+"/"+test.name, func(t *testing.T) {
				s := open(t, cfg)
				create(t, s, "old", some(1))
				before := names(t, s.dir)
				if test.ctx == nil {
					test.ctx = t.Context()
				}
				for _, id := range []string{"new", "old"} {
					_, err := s.Create(test.ctx, id, test.opts, test.write)
					if err == nil || test.want != nil && !errors.Is(err, test.want) {
						t.Errorf("%s: %v", id, err)
					}
				}
				if after := names(t, s.dir); !slices.Equal(before, after) {
					t.Errorf("%v, then %v", before, after)
				}
				use(t, s, "old", some(1))
				if usage, err := s.Usage(); err != nil || usage.Reserved != 0 {
					t.Errorf("%+v, %v", usage, err)
				}
			})
		}
	}
}

// TestSyncFails: an image that is not on disk is none, whichever step fails; one that was
// there stays, and a retired one has its name again.
func TestSyncFails(t *testing.T) {
	for name, cfg := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			create(t, s, "old", some(1))
			before := names(t, s.dir)
			failed := 0
			for _, id := range []string{"new", "old"} {
				for step := range 100 {
					left := step
					s.sync = func(*os.File) error {
						if left--; left < 0 {
							return unix.EIO
						}
						return nil
					}
					_, err := s.Create(t.Context(), id, Options{}, some(2).write)
					if err == nil {
						s.sync = (*os.File).Sync
						break
					}
					failed++
					if !errors.Is(err, unix.EIO) {
						t.Fatal(err)
					}
					if after := names(t, s.dir); !slices.Equal(before, after) {
						t.Fatalf("step %d: %v, then %v", step, before, after)
					}
					use(t, s, "old", some(1))
				}
				use(t, s, id, some(2))
				if id == "new" {
					if err := s.Remove(id); err != nil {
						t.Fatal(err)
					}
				}
			}
			if failed < 20 {
				t.Errorf("%d steps failed", failed)
			}
			s.sync = func(*os.File) error { return unix.EIO }
			if err := s.Retire("old"); !errors.Is(err, unix.EIO) {
				t.Error(err)
			}
			use(t, open(t, cfg), "old", some(2))
		})
	}
}

// TestReplace: a new image takes the place of an old one, which who uses it keeps.
func TestReplace(t *testing.T) {
	for name, cfg := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			create(t, s, "i1", some(1))
			err := s.Use(t.Context(), "i1", func(dir string) error {
				create(t, s, "i1", some(2))
				use(t, s, "i1", some(2))
				return some(1).check(dir)
			})
			if err != nil {
				t.Error(err)
			}
			if left := names(t, s.dir); len(left) != 2 {
				t.Errorf("left: %v", left)
			}
			use(t, open(t, cfg), "i1", some(2))
		})
	}
}

// TestRemove: a name that was taken is taken at once and for good; files stay for who
// uses them, and no longer.
func TestRemove(t *testing.T) {
	for name, cfg := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			create(t, s, "i1", some(1))
			err := s.Use(t.Context(), "i1", func(dir string) error {
				if err := s.Retire("i1"); err != nil {
					t.Error(err)
				}
				if has, err := s.Has("i1"); has || err != nil {
					t.Error(has, err)
				}
				if err := s.Use(t.Context(), "i1", some(1).check); !errors.Is(err, ErrNotExist) {
					t.Error(err)
				}
				if usage, _ := s.Usage(); usage.Images == 0 {
					t.Error("files that are there are not counted")
				}
				create(t, s, "i1", some(2)) // another of that name
				if err := s.Remove("i1"); err != nil {
					t.Error(err)
				}
				return some(1).check(dir)
			})
			if err != nil {
				t.Error(err)
			}
			if left := names(t, s.dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if usage, err := s.Usage(); err != nil || usage.Images != 0 {
				t.Errorf("%+v, %v", usage, err)
			}
		})
	}
}

// TestOpenCleans: a start removes what has no name, and nothing else.
func TestOpenCleans(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "images"), Key: secret.New()}
	s := open(t, cfg)
	for _, id := range []string{"kept", "retired", "damaged", "unknown"} {
		create(t, s, id, some(1))
	}
	if err := s.Retire("retired"); err != nil {
		t.Fatal(err)
	}
	flip(t, s.manifestPath("damaged"), headerSize)
	if err := errors.Join(
		os.Mkdir(filepath.Join(s.dir, "i1.0123456789abcdef"), 0o700),
		os.Mkdir(filepath.Join(s.dir, "kept.0123456789abcdef"), 0o700),
		os.WriteFile(filepath.Join(s.dir, ".i1.0123456789abcdef.new"), nil, 0o600),
		os.Mkdir(filepath.Join(s.dir, "lost+found"), 0o700),
		os.Mkdir(filepath.Join(s.dir, "older"), 0o700), // an image of the form before
	); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if left := names(t, s.dir); len(left) != 8 {
		t.Errorf("left: %v", left)
	}
	list := s.List()
	var corrupt *CorruptError
	if len(list) != 3 || list[0].ID != "damaged" || !errors.As(list[0].Err, &corrupt) || list[0].Disk < 6*chunkSize || list[1].Err != nil {
		t.Fatalf("%+v", list)
	}
	if _, err := s.SetApart("damaged", list[0].Err); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveBut(map[string]bool{"kept": true}); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.dir); len(left) != 4 { // kept, corrupt, lost+found
		t.Errorf("left: %v", left)
	}
	use(t, s, "kept", some(1))
}

// TestSetApart: an image that is damaged is kept, with why, is counted, and goes by name.
func TestSetApart(t *testing.T) {
	cfg := Config{Dir: filepath.Join(t.TempDir(), "images"), Key: secret.New()}
	s := open(t, cfg)
	create(t, s, "i1", some(1))
	if _, err := s.SetApart("i2", errors.New("why")); !errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
	name, err := s.SetApart("i1", errors.New("because"))
	if err != nil {
		t.Fatal(err)
	}
	if has, err := s.Has("i1"); has || err != nil {
		t.Error(has, err)
	}
	create(t, s, "i1", some(2))
	for _, s := range []*Store{s, open(t, cfg)} {
		apart, err := s.ListApart()
		if err != nil || len(apart) != 1 || apart[0].Name != name || apart[0].Why != "because" || apart[0].Disk < 6*chunkSize {
			t.Fatalf("%+v, %v", apart, err)
		}
		if usage, err := s.Usage(); err != nil || usage.Corrupt < 6*chunkSize {
			t.Errorf("%+v, %v", usage, err)
		}
	}
	for _, bad := range []string{"", "..", "../i1.image", "nothing"} {
		if err := s.RemoveApart(bad); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.RemoveApart(name); err != nil {
		t.Fatal(err)
	}
	if apart, err := s.ListApart(); len(apart) != 0 || err != nil {
		t.Errorf("%+v, %v", apart, err)
	}
	use(t, s, "i1", some(2))
}

// TestCopy: a copy takes no room, says something else, and outlives what it is of.
func TestCopy(t *testing.T) {
	for name, cfg := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			create(t, s, "from", some(1))
			before, _ := s.Usage()
			if _, err := s.Copy("from", "to", "a copy"); err != nil {
				t.Fatal(err)
			}
			if after, _ := s.Usage(); after.Images-before.Images > 64<<10 {
				t.Errorf("%d bytes, then %d", before.Images, after.Images)
			}
			if _, err := s.Copy("from", "to", nil); !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
			if _, err := s.Copy("none", "other", nil); !errors.Is(err, ErrNotExist) {
				t.Error(err)
			}
			if err := s.Remove("from"); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			var about string
			if _, err := s.Describe("to", &about); err != nil || about != "a copy" {
				t.Errorf("%q, %v", about, err)
			}
			use(t, s, "to", some(1))
		})
	}
}

// TestKeys: an image says which key it needs; what is not encrypted is read with one as
// well as without.
func TestKeys(t *testing.T) {
	dir, key, cipher, plain := filepath.Join(t.TempDir(), "images"), secret.New(), secret.New(), tmpfs(t, 0)
	create(t, open(t, Config{Dir: dir, Key: key}), "plain", some(1))
	s := open(t, Config{Dir: dir, Key: key, Cipher: cipher, Plain: plain})
	create(t, s, "secret", some(2))
	use(t, s, "plain", some(1))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "plain.") {
			return err
		}
		b, err := os.ReadFile(path)
		for name, part := range some(2) {
			if len(part) >= 100 && bytes.Contains(b, part[:100]) {
				t.Errorf("%s is to be read in %s", name, path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for name, cfg := range map[string]Config{
		"no key":      {Dir: dir, Key: key},
		"another key": {Dir: dir, Key: key, Cipher: secret.New(), Plain: plain},
	} {
		s := open(t, cfg)
		use(t, s, "plain", some(1))
		err := s.Use(t.Context(), "secret", func(string) error { t.Error(name); return nil })
		var wrong *KeyError
		if !errors.As(err, &wrong) || wrong.ID != "secret" {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := s.Describe("secret", nil); err != nil || !info.Encrypted {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	var corrupt *CorruptError
	s = open(t, Config{Dir: dir, Key: secret.New()})
	if _, err := s.Describe("plain", nil); !errors.As(err, &corrupt) {
		t.Errorf("another data folder's: %v", err)
	}
	use(t, open(t, Config{Dir: dir, Key: key}), "plain", some(1)) // nothing was removed
}

// TestCiphertext: what is the same twice, in one image or in two, does not look the same.
func TestCiphertext(t *testing.T) {
	cfg := kinds(t)["encrypted"]
	s := open(t, cfg)
	same := make([]byte, 2*chunkSize)
	seen := map[string]string{}
	for _, id := range []string{"i1", "i2"} {
		create(t, s, id, contents{"a": same, "b": same})
		for _, name := range []string{"a", "b"} {
			b, err := os.ReadFile(filepath.Join(s.dir, s.images[id].folder, name))
			if err != nil {
				t.Fatal(err)
			}
			for i, part := range [][]byte{b[:chunkSize], b[chunkSize:]} {
				where := fmt.Sprint(id, " ", name, " ", i)
				if was, ok := seen[string(part)]; ok {
					t.Errorf("%s and %s are encrypted alike", was, where)
				}
				seen[string(part)] = where
			}
		}
	}
}

// TestOpenRefuses: folders in which images would not be safe.
func TestOpenRefuses(t *testing.T) {
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "images")
	var st unix.Statfs_t
	if err := unix.Statfs(private, &st); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"others may enter it":                 {Dir: shared},
		"a link":                              {Dir: link},
		"no folder for it":                    {Dir: filepath.Join(dir, "x", "y")},
		"no folder for plaintext":             {Dir: dir, Cipher: secret.New()},
		"others may enter plaintext's folder": {Dir: dir, Cipher: secret.New(), Plain: shared},
		"plaintext on a disk":                 {Dir: dir, Cipher: secret.New(), Plain: private},
	} {
		if name == "plaintext on a disk" && st.Type == unix.TMPFS_MAGIC {
			continue
		}
		if _, err := Open(cfg); err == nil {
			t.Error(name)
		}
	}
}

// flip changes a byte of a file; an offset below zero counts from its end.
func flip(t testing.TB, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrent: whatever is done at once with one image, what is used is whole.
func TestConcurrent(t *testing.T) {
	for name, cfg := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, cfg)
			var group sync.WaitGroup
			var used atomic.Int64
			deadline := time.Now().Add(20 * time.Second)
			for worker := range 8 {
				group.Go(func() {
					for n := worker; used.Load() < 20 && time.Now().Before(deadline); n += 8 {
						var err error
						switch worker {
						case 0, 1:
							_, err = s.Create(t.Context(), "i1", Options{Reserve: 1, About: n}, small(n).write)
						case 2:
							time.Sleep(10 * time.Millisecond)
							err = s.Remove("i1")
						case 3:
							time.Sleep(10 * time.Millisecond)
							err = s.Shelve("i1")
						case 4:
							_, err = s.Copy("i1", fmt.Sprint("copy", n), n)
						case 5:
							_, err = s.Usage()
							s.List()
							time.Sleep(time.Millisecond)
						default:
							err = s.Use(t.Context(), "i1", func(dir string) error {
								b, err := os.ReadFile(filepath.Join(dir, "state"))
								if err == nil {
									err = small(int(b[0])).check(dir)
								}
								used.Add(1)
								return err
							})
						}
						if err != nil && !errors.Is(err, ErrNotExist) {
							t.Errorf("%d: %v", worker, err)
						}
					}
				})
			}
			group.Wait()
			if used.Load() < 20 {
				t.Errorf("%d uses", used.Load())
			}
			if err := errors.Join(s.Remove("i1"), s.RemoveBut(nil)); err != nil {
				t.Error(err)
			}
			if left := names(t, s.dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if usage, err := s.Usage(); err != nil || usage.Images != 0 || usage.Reserved != 0 {
				t.Errorf("%+v, %v", usage, err)
			}
		})
	}
}

// TestPassing: a store whose images need not outlive the process waits for no disk, and
// gives back what it was given.
func TestPassing(t *testing.T) {
	for _, passing := range []bool{false, true} {
		s, err := Open(Config{Dir: filepath.Join(t.TempDir(), "images"), Passing: passing})
		if err != nil {
			t.Fatal(err)
		}
		closed, err := os.Create(filepath.Join(t.TempDir(), "closed"))
		if err != nil {
			t.Fatal(err)
		}
		closed.Close()
		if err := s.sync(closed); (err == nil) != passing {
			t.Errorf("passing %v: a closed file is synced: %v", passing, err)
		}
		if _, err := s.Create(t.Context(), "one", Options{}, some(1).write); err != nil {
			t.Fatal(err)
		}
		if err := s.Use(t.Context(), "one", some(1).check); err != nil {
			t.Error(err)
		}
	}
}
