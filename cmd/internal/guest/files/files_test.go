//go:build linux

package files

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
)

const octets = "application/octet-stream"

func zip(s string) *bytes.Buffer {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return &buf
}

func TestUploadAndDownload(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ query, file, mode string }{
		{"path=a.txt", "a.txt", "0644"},
		{"path=~/b.txt&mode=0755", "b.txt", "0755"},
		{"path=deep/er/c.txt&mode=600", "deep/er/c.txt", "0600"},
		{"path=deep/../d.txt", "d.txt", "0644"},
		{"path=" + url.QueryEscape(b.home+"/e \u00e9.txt"), "e \u00e9.txt", "0644"},
	} {
		content := "content of " + c.query
		resp, text := b.do("POST", "/files?"+c.query, strings.NewReader(content), "Content-Type", octets)
		name := filepath.Join(b.home, c.file)
		if resp.StatusCode != 200 || !strings.Contains(text, `"type":"file"`) {
			t.Fatalf("%s: %s %s", c.query, resp.Status, text)
		}
		got, err := os.ReadFile(name)
		st, _ := os.Stat(name)
		if err != nil || string(got) != content || fmt.Sprintf("%#o", st.Mode().Perm()) != c.mode {
			t.Fatalf("%s: %q %v %v", c.query, got, st.Mode(), err)
		}
		q := strings.Split(c.query, "&")[0]
		if resp, text := b.do("GET", "/files?"+q, nil); text != content || resp.Header.Get("Vary") != "Accept-Encoding" || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "inline") {
			t.Fatalf("%s: %q %v", c.query, text, resp.Header)
		}
	}
	// An old file keeps its mode, unless one is given.
	_ = os.Chmod(filepath.Join(b.home, "a.txt"), 0o700)
	b.do("POST", "/files?path=a.txt", strings.NewReader("0123456789"), "Content-Type", octets)
	if st, _ := os.Stat(filepath.Join(b.home, "a.txt")); st.Mode().Perm() != 0o700 || st.Size() != 10 {
		t.Fatal(st.Mode(), st.Size())
	}
	if resp, text := b.do("GET", "/files?path=a.txt", nil, "Range", "bytes=2-4", "Accept-Encoding", "gzip"); resp.StatusCode != 206 || text != "234" {
		t.Fatalf("%s %q", resp.Status, text)
	}
	resp, text := b.do("GET", "/files?path=a.txt", nil, "Accept-Encoding", "gzip, deflate")
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatal(err, resp.Header)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != "0123456789" {
		t.Fatalf("%q %v", got, err)
	}
	b.do("POST", "/files?path=z.txt", zip("zipped"), "Content-Type", octets, "Content-Encoding", "gzip")
	if _, text := b.do("GET", "/files?path=z.txt", nil); text != "zipped" {
		t.Fatalf("%q", text)
	}
}

func form(names ...string) (*bytes.Buffer, string) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, name := range names {
		p, _ := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}})
		_, _ = io.WriteString(p, "in "+name)
	}
	p, _ := w.CreateFormField("other")
	_, _ = io.WriteString(p, "ignored")
	_ = w.Close()
	return &buf, w.FormDataContentType()
}

func TestMultipart(t *testing.T) {
	b := newBox(t)
	body, kind := form("one.txt", "dir/two.txt", b.home+"/three \u00e9.txt")
	resp, text := b.do("POST", "/files", body, "Content-Type", kind)
	if resp.StatusCode != 200 || strings.Count(text, `"path"`) != 3 {
		t.Fatal(resp.Status, text)
	}
	for file, want := range map[string]string{"one.txt": "in one.txt", "dir/two.txt": "in dir/two.txt", "three \u00e9.txt": "in " + b.home + "/three \u00e9.txt"} {
		if got, err := os.ReadFile(filepath.Join(b.home, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", file, got, err)
		}
	}
	body, kind = form("name.txt")
	b.do("POST", "/files?path=elsewhere.txt", zip(body.String()), "Content-Type", kind, "Content-Encoding", "gzip")
	if got, _ := os.ReadFile(filepath.Join(b.home, "elsewhere.txt")); string(got) != "in name.txt" {
		t.Fatalf("%q", got)
	}
	body, kind = form("a", "./a")
	if resp, text := b.do("POST", "/files", body, "Content-Type", kind); resp.StatusCode != 400 || !strings.Contains(text, "given twice") {
		t.Fatal(resp.Status, text)
	}
}

func TestFilesRefused(t *testing.T) {
	b := newBox(t)
	_ = os.Mkdir(filepath.Join(b.home, "dir"), 0o755)
	_ = os.WriteFile(filepath.Join(b.home, "file"), []byte("x"), 0o644)
	_ = syscall.Mkfifo(filepath.Join(b.home, "fifo"), 0o644)
	_ = os.Symlink("loop", filepath.Join(b.home, "loop"))
	at := func(name string) string { return filepath.Join(b.home, name) }
	for _, c := range []struct {
		method, query, kind, body string
		status                    int
		message                   string
	}{
		{"GET", "path=none", "", "", 404, "path '" + at("none") + "' does not exist"},
		{"GET", "path=dir", "", "", 400, "path '" + at("dir") + "' is a directory"},
		{"GET", "path=fifo", "", "", 400, "is not a regular file"},
		{"GET", "path=/dev/zero", "", "", 400, "is not a regular file"},
		{"GET", "path=loop", "", "", 400, "too many levels"},
		{"GET", "path=file/x", "", "", 400, "not a directory"},
		{"GET", "path=a%00b", "", "", 400, "NUL byte"},
		{"GET", "path=" + strings.Repeat("a/", 3000), "", "", 400, "too long"},
		{"GET", "path=file&username=nobody", "", "", 401, "invalid username: 'nobody'"},
		{"GET", "", "", "", 400, "path '" + b.home + "' is a directory"},
		{"POST", "path=dir", octets, "x", 400, "is a directory"},
		{"POST", "path=new/", octets, "x", 400, "is a directory"},
		{"POST", "path=fifo", octets, "x", 400, "is not a regular file"},
		{"POST", "path=file/x", octets, "x", 400, "is not a directory"},
		{"POST", "", octets, "x", 400, "path query parameter is missing"},
		{"POST", "path=x&mode=9", octets, "x", 400, "is not an octal file mode"},
		{"POST", "path=x&mode=70000", octets, "x", 400, "is not an octal file mode"},
		{"POST", "", "multipart/form-data", "x", 400, "no multipart boundary"},
		{"POST", "", "multipart/form-data; boundary=\"", "x", 400, "unsupported content type"},
		{"POST", "path=x", "", "x", 400, "unsupported content type ''"},
		{"POST", "path=x", "application/json", "{}", 400, "unsupported content type 'application/json'"},
		{"POST", "path=~root/x", octets, "x", 400, "own home folder"},
		{"POST", "path=/dev/full", octets, "x", 400, "is not a regular file"},
	} {
		var header []string
		if c.kind != "" {
			header = []string{"Content-Type", c.kind}
		}
		resp, text := b.do(c.method, "/files?"+c.query, strings.NewReader(c.body), header...)
		if resp.StatusCode != c.status || !strings.Contains(text, c.message) || !strings.Contains(text, fmt.Sprintf(`"code":%d`, c.status)) {
			t.Errorf("%s %.60s: %s %s", c.method, c.query, resp.Status, text)
		}
	}
	if resp, text := b.do("POST", "/files?path=half.gz", strings.NewReader(zip(strings.Repeat("abc", 9999)).String()[:40]), "Content-Type", octets, "Content-Encoding", "gzip"); resp.StatusCode != 400 {
		t.Fatal(resp.Status, text)
	}
	if _, err := os.Stat(at("half.gz")); err == nil {
		t.Fatal("half a file was left behind")
	}
}

func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	b := newBox(t)
	small := filepath.Join(b.home, "small")
	_ = os.Mkdir(small, 0o755)
	if err := syscall.Mount("small", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip(err)
	}
	defer func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) }()
	resp, text := b.do("POST", "/files?path=small/f", bytes.NewReader(make([]byte, 1<<20)), "Content-Type", octets)
	if resp.StatusCode != 507 {
		t.Fatal(resp.Status, text)
	}
	if _, err := os.Stat(small + "/f"); err == nil {
		t.Fatal("half a file was left behind")
	}
}

func TestSignatureVector(t *testing.T) {
	const want = "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
	if got := Signature("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", ""); got != want {
		t.Fatal(got)
	}
}

func TestFilesystemService(t *testing.T) {
	b := newBox(t)
	ctx := context.Background()
	c := envdconnect.NewFilesystemClient(guesttest.Plain, b.envd.URL, connect.WithProtoJSON())
	_ = os.MkdirAll(filepath.Join(b.home, "d/e"), 0o755)
	_ = os.WriteFile(filepath.Join(b.home, "d/e/f"), []byte("12345"), 0o640)
	_ = os.Symlink("e", filepath.Join(b.home, "d/link"))
	_ = os.Symlink("nothing", filepath.Join(b.home, "d/dangling"))
	_ = os.WriteFile(filepath.Join(b.home, "d/bad\xff"), nil, 0o644)

	st, err := c.Stat(ctx, connect.NewRequest(&envd.StatRequest{Path: "d/e/f"}))
	if err != nil {
		t.Fatal(err)
	}
	e := st.Msg.Entry
	if e.Owner == "" || e.Group == "" {
		t.Fatal(e)
	}
	if e.Name != "f" || e.Path != b.home+"/d/e/f" || e.Size != 5 || e.Mode != 0o640 || e.Permissions != "-rw-r-----" ||
		e.Type != envd.FileType_FILE_TYPE_FILE || e.ModifiedTime == nil || e.SymlinkTarget != nil {
		t.Fatal(e)
	}
	for name, kind := range map[string]envd.FileType{"d/link": envd.FileType_FILE_TYPE_DIRECTORY, "d/dangling": envd.FileType_FILE_TYPE_SYMLINK} {
		st, err := c.Stat(ctx, connect.NewRequest(&envd.StatRequest{Path: name}))
		if err != nil || st.Msg.Entry.Type != kind || st.Msg.Entry.SymlinkTarget == nil || st.Msg.Entry.Permissions[0] != 'L' {
			t.Fatal(name, st, err)
		}
	}
	for depth, want := range map[uint32]string{0: "bad\uFFFD dangling e link", 2: "bad\uFFFD dangling e f link"} {
		l, err := c.ListDir(ctx, connect.NewRequest(&envd.ListDirRequest{Path: "d", Depth: depth}))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range l.Msg.Entries {
			names = append(names, e.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("depth %d: %s", depth, got)
		}
	}
	if _, err := c.MakeDir(ctx, connect.NewRequest(&envd.MakeDirRequest{Path: "new/er"})); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(b.home + "/new/er"); err != nil || st.Mode().Perm() != 0o755 {
		t.Fatal(st, err)
	}
	stat := func(p string) error {
		_, err := c.Stat(ctx, connect.NewRequest(&envd.StatRequest{Path: p}))
		return err
	}
	list := func(p string) error {
		_, err := c.ListDir(ctx, connect.NewRequest(&envd.ListDirRequest{Path: p}))
		return err
	}
	makeDir := func(p string) error {
		_, err := c.MakeDir(ctx, connect.NewRequest(&envd.MakeDirRequest{Path: p}))
		return err
	}
	for _, x := range []struct {
		name string
		err  error
		code connect.Code
	}{
		{"stat of nothing", stat("nothing"), connect.CodeNotFound},
		{"stat below a file", stat("d/e/f/g"), connect.CodeNotFound}, // which E2B's packages make a plain no of
		{"list of nothing", list("nothing"), connect.CodeNotFound},
		{"list of a file", list("d/e/f"), connect.CodeInvalidArgument},
		{"make an old folder", makeDir("d"), connect.CodeAlreadyExists},
		{"make a file", makeDir("d/e/f"), connect.CodeInvalidArgument},
		{"make a folder in a file", makeDir("d/e/f/g/h"), connect.CodeInvalidArgument},
		{"stat of another's home", stat("~nobody/x"), connect.CodeInvalidArgument},
	} {
		if connect.CodeOf(x.err) != x.code {
			t.Errorf("%s: %v", x.name, x.err)
		}
	}
	req := connect.NewRequest(&envd.StatRequest{Path: "d"})
	req.Header().Set("Authorization", "Basic bm9ib2R5Og==")
	if _, err := c.Stat(ctx, req); connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "invalid username: 'nobody'") {
		t.Fatal(err)
	}
}

func FuzzDisposition(f *testing.F) {
	f.Add(`form-data; name="file"; filename="a/b \" c"`)
	f.Add(`form-data; name=file; filename*=UTF-8''%e2%82%ac`)
	f.Fuzz(func(t *testing.T, s string) { disposition(s) })
}
