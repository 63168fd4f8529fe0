//go:build unix

package userstate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func environment(home string) func(string) string {
	return func(name string) string { return map[string]string{"HOME": home}[name] }
}

func TestLocate(t *testing.T) {
	for _, test := range []struct{ state, home, want string }{
		{"/s", "/h", "/s/cubby"},
		{"relative", "/h", "/h/.local/state/cubby"},
		{"", "/h", "/h/.local/state/cubby"},
		{"", "", ""},
	} {
		got, _, err := locate(func(name string) string {
			return map[string]string{"XDG_STATE_HOME": test.state, "HOME": test.home}[name]
		})
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
}

func TestFiles(t *testing.T) {
	home := t.TempDir()
	f, err := Open(environment(home))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read("a/b", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, content := range []string{"one", "two"} {
		if err := f.Write("a/b", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := f.Read("a/b", 3); err != nil || string(b) != content {
			t.Errorf("%q, %v", b, err)
		}
		if err := f.Append("log", []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := f.Read("log", 100); err != nil || string(b) != "onetwo" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := f.Read("log", 5); err == nil {
		t.Error("a file that is too large was read")
	}
	var found []string
	err = filepath.WalkDir(filepath.Join(home, ".local/state/cubby"), func(path string, d fs.DirEntry, _ error) error {
		info, err := d.Info()
		if err != nil {
			return err
		}
		found = append(found, info.Mode().Perm().String()+" "+filepath.Base(path))
		return nil
	})
	if want := "-rwx------ cubby -rwx------ a -rw------- b -rw------- log"; err != nil || strings.Join(found, " ") != want {
		t.Errorf("%v, %v", found, err)
	}
}

// TestRefuses: what cannot be kept private is not kept.
func TestRefuses(t *testing.T) {
	path := func(home string) string { return filepath.Join(home, ".local/state/cubby") }
	for _, test := range []struct {
		name    string
		prepare func(home string) error
		root    bool // only root can prepare it
		file    bool // the folder is fine, its file is not
	}{
		{"a folder that others read", func(home string) error {
			return errors.Join(os.MkdirAll(path(home), 0o755), os.Chmod(path(home), 0o755))
		}, false, false},
		{"a home of another user", func(home string) error { return os.Chown(home, 1234, 1234) }, true, false},
		{"a folder of another user", func(home string) error {
			return errors.Join(os.MkdirAll(path(home), 0o700), os.Chown(path(home), 1234, 1234))
		}, true, false},
		{"no home", func(home string) error { return os.Remove(home) }, false, false},
		{"a file in the way", func(home string) error { return os.WriteFile(filepath.Join(home, ".local"), nil, 0o600) }, false, false},
		{"a file that others read", func(home string) error {
			return errors.Join(os.MkdirAll(path(home), 0o700), os.WriteFile(filepath.Join(path(home), "x"), nil, 0o600),
				os.Chmod(filepath.Join(path(home), "x"), 0o644))
		}, false, true},
		{"a link out", func(home string) error {
			return errors.Join(os.MkdirAll(path(home), 0o700), os.Symlink("/etc/passwd", filepath.Join(path(home), "x")))
		}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Getuid() != 0 {
				t.Skip("needs root")
			}
			home := t.TempDir()
			if err := test.prepare(home); err != nil {
				t.Fatal(err)
			}
			f, err := Open(environment(home))
			if (err == nil) != test.file {
				t.Fatalf("opened: %v", err)
			}
			if !test.file {
				return
			}
			defer f.Close()
			if b, err := f.Read("x", 1<<20); err == nil {
				t.Errorf("read %q", b)
			}
			if err := f.Append("x", []byte("more")); err == nil {
				t.Error("appended")
			}
		})
	}
}
