//go:build unix

package workdir_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

func TestNames(t *testing.T) {
	now := time.Unix(1, 5)
	for id, want := range map[string]string{
		"demo-1": "ws_demo-1_1000000005", "": "ws__1000000005", "a/b c": "ws_a_b_c_1000000005", "../..": "ws_______1000000005", "ü": "ws___1000000005",
		strings.Repeat("x", 100): "ws_" + strings.Repeat("x", 40) + "_1000000005",
	} {
		if got := workdir.Name(id, now); got != want {
			t.Errorf("Name(%q) = %s, want %s", id, got, want)
		}
	}
	a, b := workdir.PersistentName("a/b"), workdir.PersistentName("a_b")
	if a == b || a != workdir.PersistentName("a/b") || !strings.HasPrefix(a, "ws_a_b_") {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "a//b/./c": "a/b/c", "": ".", ".": ".", "a/..": ".", "./x": "x", "..x": "..x", "ü/-rf *": "ü/-rf *"} {
		if got, err := workdir.Clean(in); err != nil || got != want {
			t.Errorf("Clean(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"..", "../x", "a/../../x", "/x", "a\x00", "a\nb", "a\\b", "\xff", "\u202e", strings.Repeat("x", 2000)} {
		if got, err := workdir.Clean(bad); !errors.Is(err, codeexec.ErrBadPath) {
			t.Errorf("Clean(%.20q) = %q, %v", bad, got, err)
		}
	}
	if _, err := workdir.CleanFile("a/.."); !errors.Is(err, codeexec.ErrBadPath) {
		t.Errorf("the workspace itself: %v", err)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a/../..", "/x", "a\\b", "./", "..//a", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := workdir.Clean(p)
		if err != nil {
			return
		}
		if clean != path.Clean(clean) || clean != "." && !filepath.IsLocal(clean) || !utf8.ValidString(clean) {
			t.Errorf("Clean(%q) = %q", p, clean)
		}
		if clean != "." && workdir.CheckName(clean) != nil {
			t.Errorf("CheckName(%q): %v", clean, workdir.CheckName(clean))
		}
	})
}

func TestPatterns(t *testing.T) {
	for glob, tc := range map[string]struct {
		base    string
		yes, no []string
	}{
		"out/*.txt":              {"out", []string{"out/a.txt"}, []string{"out/b/a.txt", "a.txt", "out/a.csv"}},
		"**/*.py":                {".", []string{"a.py", "work/b/c.py"}, []string{"a.pyc"}},
		"out/**":                 {"out", []string{"out/a", "out/b/.c"}, []string{"outer/a"}},
		"$OUTPUT_DIR/r{1,2}.csv": {"out", []string{"out/r1.csv", "out/r2.csv"}, []string{"out/r3.csv"}},
		"${WORK_DIR}":            {"work", []string{"work/a", "work/b/c"}, []string{"out/a"}},
		"$WORKSPACE_DIR":         {".", []string{"a", "out/b"}, []string{"metadata.json", ".metadata.1.tmp"}},
		"$SKILLS_DIR/s/":         {"skills/s", []string{"skills/s/x"}, []string{"skills/t"}},
		"out/plain":              {"out/plain", []string{"out/plain"}, []string{"out/plain2"}},
		"./out//a":               {"out/a", []string{"out/a"}, nil},
		"out/[a-c]?":             {"out", []string{"out/bx"}, []string{"out/dx"}},
	} {
		p, err := workdir.ParsePatterns([]string{glob})
		if err != nil {
			t.Errorf("%s: %v", glob, err)
			continue
		}
		if got := p.Bases(); len(got) != 1 || got[0] != tc.base {
			t.Errorf("%s: below %v, want %s", glob, got, tc.base)
		}
		for _, name := range tc.yes {
			if !p.Match(name) {
				t.Errorf("%s does not match %s", glob, name)
			}
		}
		for _, name := range tc.no {
			if p.Match(name) {
				t.Errorf("%s matches %s", glob, name)
			}
		}
	}
	p, err := workdir.ParsePatterns([]string{"out/a/*", "out/*", "work/x", "out/a/b", "work/x"})
	if got := strings.Join(p.Bases(), " "); err != nil || got != "out work/x" {
		t.Errorf("got %s, %v", got, err)
	}
}

// Models write patterns: matching a hostile one takes no time to speak of, and
// what matches lies below the bases.
func FuzzPatterns(f *testing.F) {
	f.Add("out/**/*.{a,b}", "out/x/y.a")
	f.Add("${OUTPUT_DIR}/[!a]?", "out/bc")
	f.Add(strings.Repeat("**/", 8)+"z", strings.Repeat("a/", 60)+"b")
	f.Add(strings.Repeat("{a,{b,c}}", 2)+strings.Repeat("*a", 10), strings.Repeat("a", 200))
	f.Fuzz(func(t *testing.T, glob, name string) {
		p, err := workdir.ParsePatterns([]string{glob})
		if err != nil {
			if !errors.Is(err, codeexec.ErrBadPath) {
				t.Errorf("%q: %v", glob, err)
			}
			return
		}
		if workdir.CheckName(name) != nil {
			return
		}
		began := time.Now()
		match := p.Match(name)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%q on %q took %v", glob, name, took)
		}
		if !match {
			return
		}
		for _, base := range p.Bases() {
			if base == "." || name == base || strings.HasPrefix(name, base+"/") {
				return
			}
		}
		if !strings.ContainsAny(glob, `\`) {
			t.Errorf("%q matches %q, which is not below %q", glob, name, p.Bases())
		}
	})
}

func FuzzParseInput(f *testing.F) {
	for _, s := range []string{"artifact://a@1", "host:///etc/x", "workspace://a/../b", "skill://s", "x://", "artifact://.."} {
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, from, to string) {
		in, err := workdir.ParseInput(codeexec.InputSpec{From: from, To: to})
		if err != nil {
			if !errors.Is(err, codeexec.ErrBadPath) {
				t.Errorf("%q: %v", from, err)
			}
			return
		}
		if workdir.CheckName(in.To) != nil {
			t.Errorf("%q to %q goes to %q", from, to, in.To)
		}
		if (in.Scheme == workdir.SchemeWorkspace || in.Scheme == workdir.SchemeSkill) && workdir.CheckName(in.Path) != nil {
			t.Errorf("%q is at %q", from, in.Path)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	r := workdir.NewRecord("id", time.Unix(1, 0))
	r.AddInput(workdir.Input{Scheme: workdir.SchemeArtifact, Path: "a", InputSpec: codeexec.InputSpec{Pin: true}}, new(3), time.Unix(2, 0))
	f.Add(r.JSON())
	f.Add([]byte(`{"inputs":[{"name":"a","pinned":true,"artifact_version":-5}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := workdir.ParseRecord(b)
		if err != nil {
			return
		}
		for _, in := range r.Inputs {
			if v := r.Pinned(in.Name); v != nil && *v < 0 {
				t.Errorf("pinned at %d", *v)
			}
		}
		if len(r.JSON()) > workdir.MaxRecord+1 {
			t.Error("it became too long to read")
		}
	})
}

func TestRecordKeepsPins(t *testing.T) {
	r := workdir.NewRecord("id", time.Unix(1, 0))
	pin := workdir.Input{Scheme: workdir.SchemeArtifact, Path: "pinned", InputSpec: codeexec.InputSpec{Pin: true}}
	r.AddInput(pin, new(7), time.Unix(2, 0))
	for range 2000 {
		r.AddInput(workdir.Input{Scheme: workdir.SchemeArtifact, Path: "x"}, new(1), time.Unix(3, 0))
	}
	again, err := workdir.ParseRecord(r.JSON())
	if err != nil || len(again.Inputs) > 500 {
		t.Fatal(len(again.Inputs), err)
	}
	if v := again.Pinned("pinned"); v == nil || *v != 7 {
		t.Errorf("pinned at %v", v)
	}
	if v := again.Pinned("x"); v != nil {
		t.Errorf("x is pinned at %d", *v)
	}
}

func TestAddArtifact(t *testing.T) {
	store, who := new(artifact.Memory), artifact.SessionInfo{AppName: "app", UserID: "user", SessionID: "session"}
	ctx := artifactctx.WithSession(artifactctx.WithService(t.Context(), store), who)
	for i := range 3 {
		if _, err := artifactctx.Save(ctx, "x", fmt.Appendf(nil, "version %d", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	pins := workdir.NewRecord("id", time.Now())
	pins.AddInput(workdir.Input{Scheme: workdir.SchemeArtifact, Path: "x", InputSpec: codeexec.InputSpec{Pin: true}}, new(1), time.Now())
	pin, readOnly := codeexec.InputSpec{Pin: true}, codeexec.InputSpec{ReadOnly: true}
	for _, tc := range []struct {
		name    string
		rec     *workdir.Record
		in      workdir.Input
		version int
		mode    int64
	}{
		{"the newest", pins, workdir.Input{Path: "x"}, 2, 0o644},
		{"the one that is asked for", pins, workdir.Input{Path: "x", Version: new(0), InputSpec: pin}, 0, 0o644},
		{"the pinned one", pins, workdir.Input{Path: "x", InputSpec: pin}, 1, 0o644},
		{"the newest, to be pinned", workdir.NewRecord("id", time.Now()), workdir.Input{Path: "x", InputSpec: pin}, 2, 0o644},
		{"read-only", pins, workdir.Input{Path: "x", InputSpec: readOnly}, 2, 0o444},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p workdir.Packer
			defer p.Close()
			tc.in.To = "work/inputs/x"
			got, err := p.AddArtifact(ctx, tc.rec, tc.in)
			if err != nil || got == nil || *got != tc.version {
				t.Fatalf("got version %v, %v, want %d", got, err, tc.version)
			}
			stream := p.Reader()
			defer stream.Close()
			archive := tar.NewReader(stream)
			for {
				h, err := archive.Next()
				if err != nil {
					t.Fatal(err)
				}
				if h.Typeflag == tar.TypeDir {
					continue
				}
				content, err := io.ReadAll(archive)
				want := fmt.Sprintf("version %d", tc.version)
				if err != nil || h.Name != tc.in.To || h.Mode != tc.mode || string(content) != want {
					t.Errorf("got %s, mode %o: %q, %v", h.Name, h.Mode, content, err)
				}
				return
			}
		})
	}
	var p workdir.Packer
	defer p.Close()
	if _, err := p.AddArtifact(ctx, pins, workdir.Input{Path: "missing", To: "x"}); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestCheckArgs(t *testing.T) {
	many := func(n, bytes int) []string { return slices.Repeat([]string{strings.Repeat("x", bytes)}, n) }
	for _, tc := range []struct {
		name  string
		lists [][]string
		want  string // in the error, "" for none
	}{
		{"nothing", nil, ""},
		{"some", [][]string{{"sh", "-c", "echo ü"}, {"A=b"}}, ""},
		{"the longest", [][]string{many(1, 120<<10)}, ""},
		{"a longer one", [][]string{{"x"}, many(1, 120<<10+1)}, "an argument or variable of 122881 bytes: at most 122880 (put it into a file or on stdin)"},
		{"a NUL", [][]string{{"a"}, {"a\x00b"}}, "an argument holds a NUL"},
		{"as many as may be", [][]string{many(8, 100<<10), many(2, 114643)}, ""},
		{"too many", [][]string{many(8, 100<<10), many(2, 114644)}, "arguments and variables of 1048578 bytes: at most 1048576 (put them into a file or on stdin)"},
		{"too many empty ones", [][]string{many(1<<20/9+1, 0)}, "arguments and variables of 1048581 bytes"},
	} {
		err := workdir.CheckArgs(tc.lists...)
		if tc.want == "" && err == nil {
			continue
		}
		if err == nil || tc.want == "" || !strings.HasPrefix(err.Error(), tc.want) || cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestMIMEType(t *testing.T) {
	for name, tc := range map[string][2]string{
		"a.png": {"\x89PNG\r\n\x1a\n", "image/png"}, "fake.png": {"text", "text/plain; charset=utf-8"}, "a.csv": {"a,b\n1,2\n", "text/csv"},
		"a.json": {"{}", "application/json"}, "a.md": {"# x\n", "text/markdown"}, "a.svg": {"<svg xmlns='x'/>", "image/svg+xml"},
		"a.html": {"<html></html>", "text/html; charset=utf-8"}, "a.txt": {"<html></html>", "text/html; charset=utf-8"},
		"a.xlsx": {"PK\x03\x04", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"}, "a.csv2": {"\x00\x01", "application/octet-stream"},
		"b.csv": {"\x00\x01\x02", "application/octet-stream"}, "none": {"", "text/plain; charset=utf-8"}, "A.PY": {"pass\n", "text/x-python"},
		"a.parquet": {"PAR1\x15\x00\x01", "application/vnd.apache.parquet"}, "a.pdf": {"%PDF-1.4", "application/pdf"},
	} {
		if got := workdir.MIMEType(name, []byte(tc[0])); got != tc[1] {
			t.Errorf("%s: %s, want %s", name, got, tc[1])
		}
	}
}

// A folder goes into an archive and out of it into another folder.
func TestPackAndUnpack(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(src, "a", "empty"), 0o755), os.WriteFile(filepath.Join(src, "a", "run.sh"), []byte("#!"), 0o755),
		os.WriteFile(filepath.Join(src, "b"), nil, 0o640), os.Symlink("a/run.sh", filepath.Join(src, "link")), os.Symlink("a", filepath.Join(src, "dir")),
	); err != nil {
		t.Fatal(err)
	}
	var p workdir.Packer
	defer p.Close()
	if err := errors.Join(p.AddHost(src, "skills/x", false), p.AddFile("work/y", []byte("y"), 0)); err != nil {
		t.Fatal(err)
	}
	root := openRoot(t, dst)
	left, err := workdir.Unpack(p.Reader(), root, workdir.Limits{})
	if err != nil || len(left) != 0 {
		t.Fatalf("left %v, %v", left, err)
	}
	var got []string
	err = filepath.Walk(dst, func(name string, info os.FileInfo, err error) error {
		rel, _ := filepath.Rel(dst, name)
		got = append(got, fmt.Sprintf("%s %v", rel, info.Mode()))
		return err
	})
	want := []string{
		". drwxr-xr-x", "skills drwxr-xr-x", "skills/x drwxr-xr-x", "skills/x/a drwxr-xr-x", "skills/x/a/empty drwxr-xr-x", "skills/x/a/run.sh -rwxr-xr-x",
		"skills/x/b -rw-r-----", "skills/x/dir drwxr-xr-x", "skills/x/dir/empty drwxr-xr-x", "skills/x/dir/run.sh -rwxr-xr-x", "skills/x/link -rwxr-xr-x",
		"work drwxr-xr-x", "work/y -rw-r--r--",
	}
	if err != nil || !slices.Equal(got[1:], want[1:]) {
		t.Errorf("got %q, want %q, %v", got, want, err)
	}
}

func TestPackerRefuses(t *testing.T) {
	var p workdir.Packer
	defer p.Close()
	if err := p.AddFile("a/b", nil, 0); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a file that is a folder": p.AddFile("a", nil, 0), "a folder that is a file": p.AddFile("a/b/c", nil, 0), "outside": p.AddFile("../x", nil, 0),
		"the workspace": p.AddFile(".", nil, 0), "a file without a name": p.AddHost("/etc/hostname", ".", false),
	} {
		if !errors.Is(err, codeexec.ErrBadPath) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := p.AddHost("/dev/null", "x", false); err == nil || !strings.Contains(err.Error(), "a device") {
		t.Errorf("a device: %v", err)
	}
}

// A file that changes while it is sent is an error, not a broken archive.
func TestPackerFileThatChanges(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for what, change := range map[string]func() error{
		"gone": func() error { return os.Remove(name) },
		"pipe": func() error { return errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)) },
		"link": func() error { return errors.Join(os.Remove(name), os.Symlink("/etc/hostname", name)) },
	} {
		os.Remove(name)
		if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		var p workdir.Packer
		if err := errors.Join(p.AddHost(dir, "x", false), change()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.WriteTo(io.Discard); err == nil {
			t.Errorf("%s: no error", what)
		}
		p.Close()
	}
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// archive makes a tar stream of headers; files hold their own names.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Close()
	return b.Bytes()
}

// An archive from a sandbox makes files and folders below the root, and nothing
// else anywhere.
func TestUnpackHostile(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "root")
	outside := filepath.Join(parent, "outside")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(outside, 0o755), os.Symlink(outside, filepath.Join(dir, "away")),
		os.Symlink(filepath.Join(outside, "target"), filepath.Join(dir, "file")), os.Symlink("..", filepath.Join(dir, "up"))); err != nil {
		t.Fatal(err)
	}
	left, err := workdir.Unpack(bytes.NewReader(archive(t,
		tar.Header{Name: "good"}, tar.Header{Name: "../escape"}, tar.Header{Name: "/abs"}, tar.Header{Name: "a/../../escape"},
		tar.Header{Name: "away/through"}, tar.Header{Name: "up/through"}, tar.Header{Name: "file"},
		tar.Header{Name: "sym", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		tar.Header{Name: "dev", Typeflag: tar.TypeChar}, tar.Header{Name: "fifo", Typeflag: tar.TypeFifo}, tar.Header{Name: "new\nline"},
		tar.Header{Name: "su", Mode: 0o6777}, tar.Header{Name: "ro/", Typeflag: tar.TypeDir, Mode: 0o555}, tar.Header{Name: "ro/f", Mode: 0o444},
	)), openRoot(t, dir), workdir.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 2 {
		t.Errorf("above: %v, %v", entries, err)
	}
	for name, mode := range map[string]os.FileMode{"good": 0o644, "file": 0o644, "su": 0o755, "ro": os.ModeDir | 0o555, "ro/f": 0o444} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	var names []string
	for _, l := range left {
		names = append(names, l.Name)
		if l.Reason == "" {
			t.Errorf("%s: no reason", l.Name)
		}
	}
	if got := strings.Join(names, " "); got != "../escape /abs a/../../escape away/through up/through sym hard dev fifo new\uFFFDline" {
		t.Errorf("left %s", got)
	}
	if err := os.Chmod(filepath.Join(dir, "ro"), 0o755); err != nil {
		t.Error(err)
	}
}

func TestUnpackLimits(t *testing.T) {
	stream := archive(t, tar.Header{Name: "a"}, tar.Header{Name: "bb"}, tar.Header{Name: "long-name"}, tar.Header{Name: "c"}, tar.Header{Name: "d"})
	for what, tc := range map[string]struct {
		limits workdir.Limits
		want   string
	}{
		"files": {workdir.Limits{Files: 2}, "a bb"}, "bytes of one": {workdir.Limits{FileBytes: 1}, "a c d"}, "bytes of all": {workdir.Limits{TotalBytes: 3}, "a bb"},
		"none": {workdir.Limits{Files: -1}, ""},
	} {
		dir := t.TempDir()
		left, err := workdir.Unpack(bytes.NewReader(stream), openRoot(t, dir), tc.limits)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		entries, _ := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != tc.want || len(left)+len(names) != 5 {
			t.Errorf("%s: %s, left %v", what, got, left)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, tar.Header{Name: "a/b"}, tar.Header{Name: "../x"}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}))
	f.Add(archive(f, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o500}, tar.Header{Name: "d/f"})[:700])
	f.Fuzz(func(t *testing.T, stream []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		left, _ := workdir.Unpack(bytes.NewReader(stream), openRoot(t, dir), workdir.Limits{Files: 20, FileBytes: 1 << 16, TotalBytes: 1 << 18})
		if len(left) > 100 {
			t.Errorf("a report of %d", len(left))
		}
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
			t.Errorf("beside the root: %v, %v", entries, err)
		}
		filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !e.Type().IsRegular() {
				t.Errorf("%s is %v", name, e.Type())
			}
			os.Chmod(name, 0o755)
			return nil
		})
	})
}

func TestCheckHostBase(t *testing.T) {
	base, other := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(base, "in"), nil, 0o600), os.WriteFile(filepath.Join(other, "out"), nil, 0o600),
		os.Symlink(filepath.Join(other, "out"), filepath.Join(base, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(workdir.CheckHostBase(base, filepath.Join(base, "in")), workdir.CheckHostBase("", "/etc/passwd")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{filepath.Join(other, "out"), filepath.Join(base, "link"), filepath.Join(base, "..", filepath.Base(other), "out")} {
		if err := workdir.CheckHostBase(base, bad); !errors.Is(err, codeexec.ErrBadPath) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestChanges(t *testing.T) {
	for _, bad := range []string{"", "/a", "../a", "$WORK_DIR/a", "["} {
		if _, err := workdir.NewChanges([]string{bad}); cubby.CodeOf(err) != cubby.CodeInvalidArgument || !errors.Is(err, codeexec.ErrBadPath) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	c, err := workdir.NewChanges(nil)
	if c != nil || err != nil {
		t.Errorf("got %v, %v", c, err)
	}
	if c, err = workdir.NewChanges([]string{"out/*.csv", "*.txt", "deep/.x/*"}); err != nil || c.Depth() != 3 {
		t.Fatalf("got %+v, %v", c, err)
	}
	c.Begin([]workdir.Seen{{"a.txt", 1, "t1"}, {"b.txt", 1, "t1"}, {"c.txt", 1, "t1"}}, true)
	got, all := c.Since([]workdir.Seen{
		{"out/z.csv", 1, ""}, {"c.txt", 1, "t2"}, {"b.txt", 2, "t1"}, {"a.txt", 1, "t1"}, {"n.txt", 0, ""}, {".n.txt", 0, ""}, {"deep/.x/y", 0, ""}, {"n.md", 0, ""},
		{"out/../p.csv", 1, ""},
	})
	var names []string
	for _, f := range got {
		names = append(names, f.Name)
	}
	if s := strings.Join(names, " "); s != "b.txt c.txt deep/.x/y n.txt out/z.csv" || !all {
		t.Errorf("got %s, %v", s, all)
	}
	for _, name := range []string{"out/a\x1b.csv", "e\u202evil.txt"} {
		if got, all := c.Since([]workdir.Seen{{name, 1, ""}}); len(got) > 0 || all {
			t.Errorf("%q: got %v, %v", name, got, all)
		}
	}
	// Nothing is new where it is not known what was old.
	c.Begin(nil, false)
	if got, all := c.Since([]workdir.Seen{{"n.txt", 0, ""}}); len(got) > 0 || all {
		t.Errorf("got %v, %v", got, all)
	}
}

func TestIsTextMIME(t *testing.T) {
	for mime, want := range map[string]bool{
		"text/plain; charset=utf-8": true, "TEXT/CSV": true, "application/json": true, "application/x-ipynb+json": true, "image/svg+xml": true,
		"image/png": false, "application/octet-stream": false, "": false,
	} {
		if got := workdir.IsTextMIME(mime); got != want {
			t.Errorf("%s: %v", mime, got)
		}
	}
}
