package ownerconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

var example = Config{APIURL: "http://127.0.0.1:8080", SandboxURL: "http://127.0.0.1:8080/?a&b", APIKey: "e2b_" + strings.Repeat("ab", 20)}

func TestPath(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"home", map[string]string{"HOME": "/home/u"}, "/home/u/.config/cubby/config.json"},
		{"a configuration home", map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "/etc/u"}, "/etc/u/cubby/config.json"},
		{"a relative one", map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "etc"}, "/home/u/.config/cubby/config.json"},
		{"none", nil, ""},
		{"a relative home", map[string]string{"HOME": "."}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Path(func(k string) string { return test.env[k] })
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestSaveAndLoad(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "config", "cubby", "config.json")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before there is one: %v", err)
	}
	for _, want := range []Config{example, {APIURL: "https://example.com"}, {}} {
		if err := Save(path, want); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(path); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): fs.ModeDir | 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// TestSaveIsWhole: who reads while it is written gets one of the two.
func TestSaveIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	configs := []Config{example, {APIURL: "http://" + strings.Repeat("a", 200)}}
	if err := Save(path, configs[0]); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for _, c := range configs {
		group.Go(func() {
			for range 50 {
				if err := Save(path, c); err != nil {
					t.Error(err)
				}
				if got, err := Load(path); err != nil || got != configs[0] && got != configs[1] {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
	group.Wait()
}

func TestLoadRefuses(t *testing.T) {
	const good = `{"api_url":"http://h:1","sandbox_url":"http://h:1","api_key":"e2b_00"}`
	for _, test := range []struct {
		name, content string
		mode          fs.FileMode
		says          string
	}{
		{"nothing in it", "", 0o600, "not a JSON object"},
		{"a text", "hello", 0o600, "not a JSON object"},
		{"null", "null", 0o600, "not a JSON object"},
		{"a list", "[]", 0o600, "not a JSON object"},
		{"a cut object", good[:30], 0o600, "not valid"},
		{"something behind it", good + "x", 0o600, "not valid"},
		{"a number for a key", `{"api_key":1}`, 0o600, "not valid"},
		{"no scheme", `{"api_url":"127.0.0.1:8080"}`, 0o600, "api_url"},
		{"another scheme", `{"sandbox_url":"ftp://h"}`, 0o600, `sandbox_url: "ftp://h" is not an http or https URL`},
		{"no host", `{"api_url":"http://"}`, 0o600, "api_url"},
		{"a line break in the key", `{"api_key":"e2b_00\r\nX: y"}`, 0o600, "api_key: has characters"},
		{"much", `{"x":"` + strings.Repeat("x", maxSize) + `"}`, 0o600, "longer than"},
		{"the group may read it", good, 0o640, "other users may read or write it"},
		{"all may read it", good, 0o604, "other users may read or write it"},
		{"the group may write it", good, 0o620, "other users may read or write it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			if err := errors.Join(os.WriteFile(path, []byte(test.content), test.mode), os.Chmod(path, test.mode)); err != nil {
				t.Fatal(err)
			}
			c, err := Load(path)
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || !strings.Contains(e.Err.Error(), test.says) || !strings.Contains(e.Err.Error(), path) || e.Hint == "" {
				t.Fatalf("%+v, %v", c, err)
			}
			if c != (Config{}) || strings.Contains(err.Error(), "e2b_00") {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	for name, make := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "is not a file") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLoadOthers: a configuration of another user is not root's to follow.
func TestLoadOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"api_key":"e2b_00"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Skip(err) // a container's root may not
	}
	c, err := Load(path)
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || !strings.Contains(e.Error(), "another user (uid 12345)") || !strings.Contains(e.Hint, "chown 0 "+path) || c != (Config{}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestLoadIgnoresNews: a later version's file is read for what is known of it.
func TestLoadIgnoresNews(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte("\n"+`{"api_key":"e2b_00","team":{"id":1}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || c.APIKey != "e2b_00" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestSaveRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if err := Save(path, example); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"a bad URL":                     Save(path, Config{APIURL: "localhost"}),
		"a bad key":                     Save(path, Config{APIKey: "a b"}),
		"a file in place of the folder": Save(filepath.Join(path, "config.json"), example),
	} {
		if err == nil {
			t.Errorf("%s was saved", name)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, Config{}); err == nil || !strings.Contains(err.Error(), "other users may write this folder") {
		t.Errorf("%v", err)
	}
	if got, err := Load(path); err != nil || got != example {
		t.Errorf("after all that: %+v, %v", got, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

// FuzzParse: what is read can be written, and is then the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"api_url":"http://h"}`, `{"api_key":"\u0000"}`, `{"API_URL":"http://[::1]:80/"}`, `{"api_url":"http://h/\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := parse(content)
		if err != nil {
			return
		}
		written, err := format(c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if again, err := parse(written); len(written) <= maxSize && (err != nil || again != c) {
			t.Fatal(fmt.Sprintf("%+v", c), fmt.Sprintf("%+v", again), err)
		}
	})
}
