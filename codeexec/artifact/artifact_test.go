package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
)

var ada = artifact.SessionInfo{AppName: "app", UserID: "ada", SessionID: "one"}

// services are the implementations; each test runs on both.
func services(t *testing.T, test func(t *testing.T, s artifact.Service)) {
	t.Run("Memory", func(t *testing.T) { test(t, &artifact.Memory{}) })
	t.Run("Dir", func(t *testing.T) { test(t, newDir(t, t.TempDir())) })
}

func newDir(t *testing.T, folder string) *artifact.Dir {
	t.Helper()
	d, err := artifact.NewDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func save(t *testing.T, s artifact.Service, info artifact.SessionInfo, name, data string) int {
	t.Helper()
	version, err := s.Save(t.Context(), info, name, &artifact.Artifact{Data: []byte(data), MIMEType: "text/plain"})
	if err != nil {
		t.Fatalf("Save(%.40q): %v", name, err)
	}
	return version
}

func load(t *testing.T, s artifact.Service, info artifact.SessionInfo, name string, version *int) string {
	t.Helper()
	a, err := s.Load(t.Context(), info, name, version)
	if err != nil {
		t.Fatalf("Load(%.40q): %v", name, err)
	}
	if a.Name != name || a.MIMEType != "text/plain" {
		t.Errorf("got %q, %q", a.Name, a.MIMEType)
	}
	return string(a.Data)
}

func TestVersions(t *testing.T) {
	services(t, func(t *testing.T, s artifact.Service) {
		for want := range 3 {
			if got := save(t, s, ada, "plot.png", fmt.Sprint("v", want)); got != want {
				t.Errorf("version %d, want %d", got, want)
			}
		}
		if got := load(t, s, ada, "plot.png", nil); got != "v2" {
			t.Errorf("the newest is %s", got)
		}
		zero := 0
		if got := load(t, s, ada, "plot.png", &zero); got != "v0" {
			t.Errorf("the first is %s", got)
		}
		if versions, err := s.ListVersions(t.Context(), ada, "plot.png"); err != nil || !slices.Equal(versions, []int{0, 1, 2}) {
			t.Errorf("got %v, %v", versions, err)
		}
		save(t, s, ada, "empty", "")
		if keys, err := s.ListKeys(t.Context(), ada); err != nil || !slices.Equal(keys, []string{"empty", "plot.png"}) {
			t.Errorf("got %v, %v", keys, err)
		}
		if err := errors.Join(s.Delete(t.Context(), ada, "plot.png"), s.Delete(t.Context(), ada, "plot.png")); err != nil {
			t.Error(err)
		}
		if got := save(t, s, ada, "plot.png", "again"); got != 0 {
			t.Errorf("after Delete the version is %d", got)
		}
	})
}

func TestWhatIsNotThere(t *testing.T) {
	services(t, func(t *testing.T, s artifact.Service) {
		save(t, s, ada, "a", "x")
		for _, version := range []*int{new(-1), new(1), new(1 << 30)} {
			if _, err := s.Load(t.Context(), ada, "a", version); cubby.CodeOf(err) != cubby.CodeNotFound || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("version %d: %v", *version, err)
			}
		}
		_, err1 := s.Load(t.Context(), ada, "b", nil)
		_, err2 := s.ListVersions(t.Context(), ada, "b")
		if cubby.CodeOf(err1) != cubby.CodeNotFound || cubby.CodeOf(err2) != cubby.CodeNotFound {
			t.Errorf("got %v, %v", err1, err2)
		}
		if keys, err := s.ListKeys(t.Context(), artifact.SessionInfo{AppName: "other"}); err != nil || len(keys) != 0 {
			t.Errorf("got %v, %v", keys, err)
		}
	})
}

// Sessions, users and applications are apart, also where their names are made to
// look alike; what begins with "user:" is all of a user's sessions'.
func TestScopes(t *testing.T) {
	services(t, func(t *testing.T, s artifact.Service) {
		others := []artifact.SessionInfo{
			{AppName: "app", UserID: "ada", SessionID: "two"}, {AppName: "app", UserID: "bob", SessionID: "one"},
			{AppName: "app", UserID: "ada/session", SessionID: ""}, {AppName: "app", UserID: "ada", SessionID: "../one"},
			{AppName: "app/ada", UserID: "", SessionID: "one"}, {AppName: "APP", UserID: "ada", SessionID: "one"}, {},
		}
		save(t, s, ada, "mine", "ada")
		save(t, s, ada, "user:shared", "all")
		for i, other := range others {
			if _, err := s.Load(t.Context(), other, "mine", nil); cubby.CodeOf(err) != cubby.CodeNotFound {
				t.Errorf("%+v can load it: %v", other, err)
			}
			keys, err := s.ListKeys(t.Context(), other)
			shared := other.AppName == "app" && other.UserID == "ada"
			if err != nil || slices.Contains(keys, "user:shared") != shared || slices.Contains(keys, "mine") {
				t.Errorf("%+v lists %v, %v", other, keys, err)
			}
			save(t, s, other, "mine", fmt.Sprint(i))
		}
		if got := load(t, s, ada, "mine", nil); got != "ada" {
			t.Errorf("another one's is %s", got)
		}
	})
}

var hostileNames = []string{
	"../../etc/passwd", "/abs", "a/b/c", "a//b", ".", "..", "...", "CON", "NUL.txt", "a:b", `back\slash`, "ÄÖÜ", "漢字 🎉", "sp ace", "UPPER", "upper",
	"%2e%2e", "name@3", "-rf", "*", strings.Repeat("long/", 200), ".hidden", "shared", "session", "dot.",
}

func TestHostileNames(t *testing.T) {
	services(t, func(t *testing.T, s artifact.Service) {
		for i, name := range hostileNames {
			save(t, s, ada, name, fmt.Sprint(i))
		}
		for i, name := range hostileNames {
			if got := load(t, s, ada, name, nil); got != fmt.Sprint(i) {
				t.Errorf("%.40q holds %s", name, got)
			}
		}
		keys, err := s.ListKeys(t.Context(), ada)
		want := slices.Sorted(slices.Values(hostileNames))
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("got %q, want %q, %v", keys, want, err)
		}
		for _, bad := range []string{"", "user:", "a\x00", "a\nb", "\x1b[31m", "\xff", strings.Repeat("x", 2000)} {
			_, err := s.Save(t.Context(), ada, bad, &artifact.Artifact{})
			if cubby.CodeOf(err) != cubby.CodeInvalidArgument {
				t.Errorf("Save(%.20q): %v", bad, err)
			}
		}
		if _, err := s.Save(t.Context(), ada, "nil", nil); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("no artifact: %v", err)
		}
		long := artifact.SessionInfo{AppName: strings.Repeat("x", 1000)}
		if _, err := s.Save(t.Context(), long, "a", &artifact.Artifact{}); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("a long application: %v", err)
		}
	})
}

// Nothing of what is saved is outside the folder, and each element of a path is
// a name that every system takes.
func TestDirStaysInItsFolder(t *testing.T) {
	parent := t.TempDir()
	folder := filepath.Join(parent, "store")
	d := newDir(t, folder)
	for _, name := range hostileNames {
		part := name[:min(len(name), 500)]
		save(t, d, artifact.SessionInfo{AppName: part, UserID: part, SessionID: part}, name, "x")
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the folder: %v, %v", entries, err)
	}
	err = filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err == nil && path != folder && strings.Trim(e.Name(), "abcdefghijklmnopqrstuvwxyz0123456789-_.%") != "" {
			t.Errorf("a name of %q", e.Name())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Versions are given once, also to processes that share a folder.
func TestSavedAtTheSameTime(t *testing.T) {
	const each = 25
	test := func(t *testing.T, all ...artifact.Service) {
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			seen = map[int]bool{}
		)
		for _, s := range all {
			for range 4 {
				wg.Go(func() {
					for range each {
						v, err := s.Save(t.Context(), ada, "same", &artifact.Artifact{Data: []byte("x")})
						mu.Lock()
						if err != nil || seen[v] {
							t.Errorf("version %d twice, or %v", v, err)
						}
						seen[v] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		versions, err := all[0].ListVersions(t.Context(), ada, "same")
		if err != nil || len(versions) != 4*each*len(all) {
			t.Errorf("%d versions, %v", len(versions), err)
		}
	}
	t.Run("Memory", func(t *testing.T) { test(t, &artifact.Memory{}) })
	t.Run("Dir", func(t *testing.T) {
		folder := t.TempDir()
		test(t, newDir(t, folder), newDir(t, folder))
	})
}

func TestMemoryIsBounded(t *testing.T) {
	m := &artifact.Memory{MaxBytes: 10_000}
	data := make([]byte, 4000)
	for range 2 {
		if _, err := m.Save(t.Context(), ada, "a", &artifact.Artifact{Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Save(t.Context(), ada, "a", &artifact.Artifact{Data: data}); cubby.CodeOf(err) != cubby.CodeNoSpace {
		t.Errorf("got %v", err)
	}
	if err := m.Delete(t.Context(), ada, "a"); err != nil {
		t.Error(err)
	}
	if _, err := m.Save(t.Context(), ada, "a", &artifact.Artifact{Data: data}); err != nil {
		t.Errorf("after Delete: %v", err)
	}
}

func TestDataIsNotShared(t *testing.T) {
	services(t, func(t *testing.T, s artifact.Service) {
		data := []byte("original")
		if _, err := s.Save(t.Context(), ada, "a", &artifact.Artifact{Data: data, MIMEType: "text/plain"}); err != nil {
			t.Fatal(err)
		}
		data[0] = 'X'
		a, err := s.Load(t.Context(), ada, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Data[1] = 'X'
		if got := load(t, s, ada, "a", nil); got != "original" {
			t.Errorf("got %s", got)
		}
	})
}

// A file that was damaged, or put there by someone else, is an error and not a
// wrong artifact.
func TestDirDamaged(t *testing.T) {
	folder := t.TempDir()
	d := newDir(t, folder)
	save(t, d, ada, "a", "content")
	files, err := filepath.Glob(filepath.Join(folder, "*", "*", "session", "*", "*", "0"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", "no header", "{}\nmore than it says", `{"size":-1}` + "\n", `{"size":99999999999999}` + "\n", string(good[:len(good)-1]), string(good) + "x",
		strings.Repeat(" ", 100<<10) + "\n",
	} {
		if err := os.WriteFile(files[0], []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := d.Load(t.Context(), ada, "a", nil); cubby.CodeOf(err) != cubby.CodeInternal {
			t.Errorf("%.40q gave %+v, %v", bad, a, err)
		}
	}
}

func TestGivingUp(t *testing.T) {
	services(t, func(t *testing.T, s artifact.Service) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Save(ctx, ada, "a", &artifact.Artifact{}); cubby.CodeOf(err) != cubby.CodeCanceled {
			t.Errorf("got %v", err)
		}
	})
}

func TestParseRef(t *testing.T) {
	for ref, want := range map[string]string{
		"name": "name", "name@3": "name 3", "a/b.csv@0": "a/b.csv 0", "name@": "name@", "me@example.org": "me@example.org", "@3": "@3",
		"a@1@2": "a@1 2", "user:x@7": "user:x 7", "name@-1": "name@-1",
	} {
		name, version, err := artifact.ParseRef(ref)
		got := name
		if version != nil {
			got += fmt.Sprint(" ", *version)
		}
		if err != nil || got != want {
			t.Errorf("ParseRef(%q) = %q, %v; want %q", ref, got, err, want)
		}
	}
	for _, bad := range []string{"", "a\x00@1", "name@99999999999999999999", "user:"} {
		if _, _, err := artifact.ParseRef(bad); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("ParseRef(%q): %v", bad, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("name@3")
	f.Add("@@0")
	f.Fuzz(func(t *testing.T, ref string) {
		name, version, err := artifact.ParseRef(ref)
		if err != nil {
			return
		}
		if name == "" || version != nil && (*version < 0 || !strings.HasPrefix(ref, name+"@")) || version == nil && name != ref {
			t.Errorf("ParseRef(%q) = %q, %v", ref, name, version)
		}
	})
}

// What is saved and deleted at once is there or not, and nothing else is left.
func TestDirSavedAndDeletedAtOnce(t *testing.T) {
	folder := t.TempDir()
	d, err := artifact.NewDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	info := artifact.SessionInfo{AppName: "app", UserID: "user", SessionID: "session"}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				var err error
				if i == 0 {
					err = d.Delete(context.Background(), info, "name")
				} else {
					_, err = d.Save(context.Background(), info, "name", &artifact.Artifact{Data: []byte("data")})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	err = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), ".") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
