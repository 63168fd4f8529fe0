//go:build linux

package packed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// roleVar says what this test binary is to be when it is not the tests: the program that
// was packed, or one that has it packed.
const roleVar = "CUBBY_PACKED_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(play(role))
	}
	testenv.RunNamespaced(m)
}

// What the payload does beside saying who it is.
const (
	inodeVar = "CUBBY_PACKED_TEST_INODE" // it says which file it is
	waitVar  = "CUBBY_PACKED_TEST_WAIT"  // it waits for the end of its standard input
)

func play(role string) int {
	act := map[string]func() error{"payload": payload, "front": front, "inside": inside}[role]
	if err := act(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func payload() error {
	ready.Adopt()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	fmt.Printf("payload %x", sha256.Sum256(self))
	if os.Getenv(inodeVar) != "" {
		var st syscall.Stat_t
		if err := syscall.Stat("/proc/self/exe", &st); err != nil {
			return err
		}
		fmt.Printf(" %d", st.Ino)
	}
	fmt.Println()
	if os.Getenv(waitVar) != "" {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	return err
}

// program packs this test binary with some bytes behind it: each tag is a build.
func program(t testing.TB, tag string) Program {
	t.Helper()
	p, err := build(tag)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var self = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("/proc/self/exe") })

func content(tag string) ([]byte, error) {
	raw, err := self()
	return append(bytes.Clone(raw), tag...), err
}

var built sync.Map // of tags to programs

func build(tag string) (Program, error) {
	if p, ok := built.Load(tag); ok {
		return p.(Program), nil
	}
	raw, err := content(tag)
	if err != nil {
		return Program{}, err
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return Program{}, err
	}
	sum := sha256.Sum256(raw)
	p := Program{Name: "cubby-engine", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(raw)), Zstd: enc.EncodeAll(raw, nil), Variable: "CUBBY_ENGINE"}
	built.Store(tag, p)
	return p, nil
}

// places are those of a program in dir/bin whose user has the cache dir/cache/cubby.
func places(dir string) *ready.Place {
	return &ready.Place{Beside: ready.Beside(filepath.Join(dir, "bin", "cubby")), Cache: filepath.Join(dir, "cache", "cubby")}
}

// folder is one that nobody else may write, as tests' own are not where umask allows it.
func folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"bin", "lib", "lib/cubby", "cache"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runs fails the test unless the program runs by its descriptor, and is what it should be.
func runs(t testing.TB, l *Located, p Program) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{l.File}
	cmd.Env = append(os.Environ(), roleVar+"=payload")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "payload "+p.SHA256+"\n" {
		t.Errorf("%s: %v: %s, want %s", l.Path, err, out, p.SHA256)
	}
}

func open(t testing.TB, p Program, o Options) *Located {
	t.Helper()
	l, err := Open(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// found reports whether package ready finds the program without a hash.
func found(p Program, place *ready.Place) bool {
	fd, ok := ready.Find(p.Want(), *place)
	if ok {
		os.NewFile(uintptr(fd), "").Close()
	}
	return ok
}

// files lists the names in a folder.
func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// put writes a build beside the program or elsewhere.
func put(t testing.TB, path, tag string, mode os.FileMode) {
	t.Helper()
	raw, err := content(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestPlaces: the first place that has the right content is taken.
func TestPlaces(t *testing.T) {
	p := program(t, "one")
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, dir string, o *Options)
		want    From
		passed  string // what is said of a place before it
	}{
		{"nothing is there", func(*testing.T, string, *Options) {}, FromCache, ""},
		{"beside", func(t *testing.T, dir string, _ *Options) { put(t, dir+"/bin/cubby-engine", "one", 0o755) }, FromBeside, ""},
		{"in lib", func(t *testing.T, dir string, _ *Options) { put(t, dir+"/lib/cubby/cubby-engine", "one", 0o555) }, FromBeside, ""},
		{"another build beside", func(t *testing.T, dir string, _ *Options) {
			put(t, dir+"/bin/cubby-engine", "two!", 0o755)
			put(t, dir+"/lib/cubby/cubby-engine", "two", 0o755) // of the same length
		}, FromCache, "another build"},
		{"beside, writable by others", func(t *testing.T, dir string, _ *Options) { put(t, dir+"/bin/cubby-engine", "one", 0o775) }, FromCache, "others may write"},
		{"beside, in a folder that others may write", func(t *testing.T, dir string, _ *Options) {
			put(t, dir+"/bin/cubby-engine", "one", 0o755)
			os.Chmod(dir+"/bin", 0o777)
		}, FromCache, "others may write"},
		{"beside, not executable", func(t *testing.T, dir string, _ *Options) { put(t, dir+"/bin/cubby-engine", "one", 0o644) }, FromCache, "not executable"},
		{"named", func(t *testing.T, dir string, o *Options) {
			put(t, dir+"/mine", "one", 0o755)
			o.place.Explicit = dir + "/mine"
		}, FromVariable, ""},
		{"no cache", func(t *testing.T, dir string, o *Options) {
			o.place.Cache = ""
			o.RunDir = dir + "/cache"
		}, FromRunDir, "there is none"},
		{"no folder but that for temporary files", func(t *testing.T, dir string, o *Options) {
			o.place.Cache, o.TempDir = "", "/tmp" // which others may write
		}, FromTemporary, "there is none"},
		{"no folder at all", func(t *testing.T, dir string, o *Options) { o.place.Cache = "" }, FromMemory, "there is none"},
		{"cache that others may write", func(t *testing.T, dir string, o *Options) { os.Chmod(dir+"/cache", 0o775) }, FromMemory, "others may write"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t)
			o := Options{place: places(dir)}
			tt.prepare(t, dir, &o)
			for range 2 { // the second time it is there
				l := open(t, p, o)
				if l.From != tt.want {
					t.Errorf("from %q, want %q: %+v", l.From, tt.want, l)
				}
				if told := fmt.Sprint(l.Passed); !strings.Contains(told, tt.passed) || tt.passed == "" && len(l.Passed) > 0 {
					t.Errorf("passed over: %s", told)
				}
				runs(t, l, p)
			}
			quick := tt.want == FromCache || tt.want == FromVariable || tt.want == FromBeside
			if got := found(p, o.place); got != quick {
				t.Errorf("ready without a hash: %v", got)
			}
		})
	}
}

// TestVariable: a file that is named and does not fit is an error.
func TestVariable(t *testing.T) {
	p := program(t, "one")
	dir := folder(t)
	put(t, dir+"/bin/cubby-engine", "one", 0o755)
	put(t, dir+"/other", "two", 0o755)
	for path, want := range map[string]string{
		dir + "/other":  "another build",
		dir + "/absent": "no such file",
		dir:             "folder",
		"other":         "absolute",
	} {
		o := Options{place: places(dir)}
		o.place.Explicit = path
		l, err := Open(t.Context(), p, o)
		if err == nil {
			t.Errorf("%s: taken from %s", path, l.From)
			continue
		}
		e, ok := err.(*fault.Error)
		if !ok || !strings.Contains(err.Error(), want) || !strings.Contains(e.Hint, "unset CUBBY_ENGINE") {
			t.Errorf("%s: %v", path, err)
		}
		if found(p, o.place) {
			t.Errorf("%s: ready", path)
		}
	}
}

// TestAnew: neither what is named nor what is there is looked at, and nothing is kept.
func TestAnew(t *testing.T) {
	p := program(t, "one")
	o := Options{place: places(folder(t)), TempDir: t.TempDir(), Anew: true}
	put(t, o.place.Beside[0]+"/cubby-engine", "one", 0o755)
	o.place.Explicit = "/bin/sh"
	for _, from := range []From{FromTemporary, FromMemory} {
		l := open(t, p, o)
		if l.From != from {
			t.Errorf("taken from %s, not %s", l.From, from)
		}
		runs(t, l, p)
		if ready.Exists(o.place.Cache) {
			t.Error("the cache was made")
		}
		o.TempDir = ""
	}
}

// TestCache: what a folder has after programs were unpacked there.
func TestCache(t *testing.T) {
	dir := folder(t)
	o := Options{place: places(dir)}
	one, two := program(t, "one"), program(t, "two")
	first := open(t, one, o)
	want := []string{lockName, ready.NotesName, one.Want().FileName()}
	slices.Sort(want)
	if got := files(t, o.place.Cache); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	info, err := first.File.Stat()
	if err != nil || info.Mode() != ready.Mode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// In use: it stays.
	second := open(t, two, o)
	if names := files(t, o.place.Cache); !slices.Contains(names, one.Want().FileName()) {
		t.Errorf("removed while it was in use: %q", names)
	}
	runs(t, second, two)
	first.Close()
	second.Close()
	// Not in use: it is removed when a third one comes.
	open(t, program(t, "three"), o)
	if names := files(t, o.place.Cache); slices.Contains(names, one.Want().FileName()) || slices.Contains(names, two.Want().FileName()) {
		t.Errorf("left: %q", names)
	}
}

func BenchmarkReady(b *testing.B) {
	p := program(b, "one")
	o := Options{place: places(folder(b))}
	l, err := Open(context.Background(), p, o)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		if !found(p, o.place) {
			b.Fatal("not ready")
		}
	}
}
