//go:build linux

package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func (b *box) content(name string) string {
	b.Helper()
	got, err := os.ReadFile(b.at(name))
	guesttest.Must(b.T, err)
	return string(got)
}

// TestMetadata is what uploads say of files.
func TestMetadata(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.WriteFile(b.at("probe"), nil, 0o644))
	if err := unix.Setxattr(b.at("probe"), metadataPrefix+"probe", nil, 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system of TMPDIR keeps no attributes; package embedded tests them in a sandbox")
	}
	stat := func(name string) map[string]string {
		t.Helper()
		st, err := b.filesystem().Stat(t.Context(), connect.NewRequest(&envd.StatRequest{Path: name}))
		guesttest.Must(t, err)
		return st.Msg.Entry.Metadata
	}
	for _, c := range []struct {
		name   string
		header []string
		want   string // of the answer and of Stat
	}{
		{"none", nil, "map[]"},
		{"keys are lower-case", []string{"X-Metadata-Author", "mish", "x-metadata-purpose", "a b"}, "map[author:mish purpose:a b]"},
		{"an upload replaces all", []string{"X-Metadata-Author", "other"}, "map[author:other]"},
		{"an empty value is one", []string{"X-Metadata-Empty", ""}, "map[empty:]"},
		{"an empty key is none", []string{"X-Metadata-", "x"}, "map[]"},
		{"odd tokens", []string{"X-Metadata-a!#$%&'*+-.^_`|~", "~"}, "map[a!#$%&'*+-.^_`|~:~]"},
		{"an upload without removes all", nil, "map[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, envd: b.envd, home: b.home}
			resp, text := b.do("POST", "/files?path=f", strings.NewReader("x"), append([]string{"Content-Type", octets}, c.header...)...)
			if resp.StatusCode != 200 || strings.Contains(text, `"metadata"`) != (c.want != "map[]") {
				t.Fatal(resp.Status, text)
			}
			if got := fmt.Sprint(stat("f")); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
	t.Run("all files of a form have it", func(t *testing.T) {
		body, kind := form("one", "two")
		resp, text := b.do("POST", "/files", body, "Content-Type", kind, "X-Metadata-K", "v")
		if resp.StatusCode != 200 || strings.Count(text, `"metadata":{"k":"v"}`) != 2 || stat("two")["k"] != "v" {
			t.Error(resp.Status, text)
		}
	})
	for name, header := range map[string][]string{
		"key":   {"X-Metadata-" + strings.Repeat("k", maxMetadataKey+1), "v"},
		"value": {"X-Metadata-K", "\u00e9"},
		"large": {"X-Metadata-K", strings.Repeat("v", maxMetadata)},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			resp, text := b.do("POST", "/files?path=refused", strings.NewReader("x"), append([]string{"Content-Type", octets}, header...)...)
			if resp.StatusCode != 400 || !strings.Contains(text, "metadata") {
				t.Error(resp.Status, text)
			}
			if _, err := os.Stat(b.at("refused")); err == nil {
				t.Error("the file was written")
			}
		})
	}
}

// TestHalfUploads breaks off: no half of a file looks whole, and whatever had the
// old one open or linked sees the new content of a whole one.
func TestHalfUploads(t *testing.T) {
	b := newBox(t)
	guesttest.Must(t, os.WriteFile(b.at("old"), []byte("old content"), 0o640), os.Link(b.at("old"), b.at("linked")), os.Symlink("old", b.at("symlink")))
	whole, kind := form("new", "old")
	for name, body := range map[string]string{
		"form without its end":    whole.String()[:whole.Len()-8],
		"form cut in the file":    whole.String()[:strings.Index(whole.String(), "in old")+3],
		"form cut in a header":    whole.String()[:strings.Index(whole.String(), `filename="old`)],
		"form cut after a header": whole.String()[:strings.Index(whole.String(), "in old")-2],
		"form cut between parts":  whole.String()[:strings.LastIndex(whole.String(), "--")-60],
	} {
		t.Run(name, func(t *testing.T) {
			guesttest.Must(t, os.WriteFile(b.at("old"), []byte("old content"), 0o640))
			resp, text := b.do("POST", "/files", strings.NewReader(body), "Content-Type", kind)
			if resp.StatusCode != 400 || !strings.Contains(text, "ended too soon") {
				t.Fatal(resp.Status, text)
			}
			if got := b.content("old"); got != "old content" && got != "" && got != "in old" {
				t.Errorf("old: %q", got)
			}
		})
	}
	t.Run("form without the last line break", func(t *testing.T) { // as some send it
		resp, text := b.do("POST", "/files", strings.NewReader(strings.TrimSuffix(whole.String(), "\r\n")), "Content-Type", kind)
		if resp.StatusCode != 200 || b.content("old") != "in old" {
			t.Error(resp.Status, text)
		}
	})
	t.Run("the client goes", func(t *testing.T) {
		guesttest.Must(t, os.WriteFile(b.at("old"), []byte("old content"), 0o640))
		for _, name := range []string{"old", "fresh"} {
			from, to := io.Pipe()
			req := httptest.NewRequest("POST", "/files?path="+name, from)
			req.Header.Set("Content-Type", octets)
			ended := make(chan struct{})
			go func() {
				handler(b.g).ServeHTTP(httptest.NewRecorder(), req)
				close(ended)
			}()
			_, err := to.Write([]byte("half of it"))
			guesttest.Must(t, err)
			to.CloseWithError(errors.New("connection reset"))
			<-ended
		}
		if got := b.content("old"); got != "" {
			t.Errorf("old: %q", got)
		}
		if _, err := os.Lstat(b.at("fresh")); !errors.Is(err, fs.ErrNotExist) {
			t.Error("half a new file is left:", err)
		}
	})
	t.Run("whole", func(t *testing.T) {
		if resp, text := b.do("POST", "/files?path=symlink", strings.NewReader("new content"), "Content-Type", octets); resp.StatusCode != 200 {
			t.Fatal(resp.Status, text)
		}
		if b.content("linked") != "new content" {
			t.Error("another file was put in the old one's place")
		}
		if st, _ := os.Lstat(b.at("symlink")); st.Mode()&fs.ModeSymlink == 0 {
			t.Error("the link was replaced")
		}
	})
}

func TestGzipUploads(t *testing.T) {
	b := newBox(t)
	for name, c := range map[string]struct{ encoding, body, message string }{
		"no gzip":         {"gzip", "plain text, no gzip at all", "is not gzip"},
		"empty":           {"gzip", "", "ended too soon"},
		"wrong check sum": {"gzip", zip("abc").String()[:zip("abc").Len()-8] + "12345678", "is not gzip"},
		"cut":             {"gzip", zip("abc").String()[:15], "ended too soon"},
		"unknown":         {"br", "abc", "unknown Content-Encoding 'br'"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, text := b.do("POST", "/files?path=f", strings.NewReader(c.body), "Content-Type", octets, "Content-Encoding", c.encoding)
			if resp.StatusCode != 400 || !strings.Contains(text, c.message) {
				t.Error(resp.Status, text)
			}
			if _, err := os.Stat(b.at("f")); err == nil {
				t.Error("something was left")
			}
		})
	}
	// A bomb is written as it unfolds, and never held.
	resp, text := b.do("POST", "/files?path=f", zip(strings.Repeat("\x00", 32<<20)), "Content-Type", octets, "Content-Encoding", "GZIP")
	if st, err := os.Stat(b.at("f")); resp.StatusCode != 200 || err != nil || st.Size() != 32<<20 {
		t.Error(resp.Status, text, err)
	}
}

// TestUnauthorisedUpload sends much without a right to: the answer comes through.
func TestUnauthorisedUpload(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{AccessToken: "T"})
	resp, text := b.do("POST", "/files?path=f", bytes.NewReader(make([]byte, 8<<20)), "Content-Type", octets)
	if resp.StatusCode != 401 || !strings.Contains(text, "missing signature") {
		t.Error(resp.Status, text)
	}
}

// TestCompose makes one file of several.
func TestCompose(t *testing.T) {
	b := newBox(t)
	compose := func(body string) (int, string) {
		resp, text := b.do("POST", "/files/compose", strings.NewReader(body))
		return resp.StatusCode, text
	}
	parts := func() {
		for _, n := range []string{"1", "2", "3"} {
			guesttest.Must(t, os.WriteFile(b.at(n), []byte("part "+n+"\n"), 0o644))
		}
	}
	t.Run("in their order", func(t *testing.T) {
		parts()
		status, text := compose(`{"source_paths":["3","~/1","` + b.at("2") + `"],"destination":"new/whole"}`)
		if want := `{"path":"` + b.at("new/whole") + `","name":"whole","type":"file"}`; status != 200 || text != want {
			t.Fatal(status, text)
		}
		if got := b.content("new/whole"); got != "part 3\npart 1\npart 2\n" {
			t.Errorf("%q", got)
		}
		for _, n := range []string{"1", "2", "3"} {
			if _, err := os.Stat(b.at(n)); err == nil {
				t.Error(n, "is still there")
			}
		}
		if left, _ := os.ReadDir(b.at("new")); len(left) != 1 {
			t.Error("left behind:", left)
		}
	})
	t.Run("the same twice, over an old file", func(t *testing.T) {
		parts()
		if status, text := compose(`{"source_paths":["1","1"],"destination":"2","username":"user"}`); status != 200 || b.content("2") != "part 1\npart 1\n" {
			t.Error(status, text)
		}
	})
	parts()
	guesttest.Must(t, os.MkdirAll(b.at("dir"), 0o755))
	for _, c := range []struct {
		name, body string
		status     int
		message    string
	}{
		{"no JSON", `{`, 400, "invalid request body"},
		{"no sources", `{"source_paths":[],"destination":"x"}`, 400, "source_paths must not be empty"},
		{"no destination", `{"source_paths":["1"]}`, 400, "destination is required"},
		{"too many", `{"source_paths":["1"` + strings.Repeat(`,"1"`, maxSources) + `],"destination":"x"}`, 400, "more than"},
		{"too large", `{"source_paths":["` + strings.Repeat("x", maxComposeBody) + `"],"destination":"x"}`, 413, "too large"},
		{"a source is missing", `{"source_paths":["1","none"],"destination":"x"}`, 404, "path '" + b.at("none") + "' does not exist"},
		{"a source is a folder", `{"source_paths":["1","dir"],"destination":"x"}`, 400, "is a directory"},
		{"a source never ends", `{"source_paths":["1","/dev/zero"],"destination":"x"}`, 400, "not a regular file"},
		{"the destination is a source", `{"source_paths":["1","2"],"destination":"./2"}`, 400, "is the destination and a source"},
		{"the destination is a folder", `{"source_paths":["1","2"],"destination":"dir"}`, 400, "is a directory"},
		{"the destination is in a file", `{"source_paths":["1","2"],"destination":"3/x"}`, 400, "not a directory"},
		{"unknown user", `{"source_paths":["1","2"],"destination":"x","username":"nobody"}`, 401, "invalid username"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, text := compose(c.body); status != c.status || !strings.Contains(text, c.message) {
				t.Error(status, text)
			}
			if b.content("1") != "part 1\n" || b.content("2") != "part 2\n" {
				t.Error("a source was touched")
			}
		})
	}
	if left, _ := os.ReadDir(b.home); len(left) != 5 { // 1, 2, 3, dir, new
		t.Error("left behind:", left)
	}
}

func TestMoveAndRemove(t *testing.T) {
	b := newBox(t)
	c := b.filesystem()
	guesttest.Must(t, os.MkdirAll(b.at("d/e"), 0o755), os.WriteFile(b.at("d/e/f"), []byte("x"), 0o644), os.WriteFile(b.at("g"), []byte("y"), 0o644),
		os.MkdirAll(b.at("full/x"), 0o755), os.Mkdir(b.at("empty"), 0o755))
	move := func(from, to string) (*envd.EntryInfo, error) {
		resp, err := c.Move(context.Background(), connect.NewRequest(&envd.MoveRequest{Source: from, Destination: to}))
		if err != nil {
			return nil, err
		}
		return resp.Msg.Entry, nil
	}
	remove := func(name string) error {
		_, err := c.Remove(context.Background(), connect.NewRequest(&envd.RemoveRequest{Path: name}))
		return err
	}
	for _, x := range []struct {
		from, to string
		code     connect.Code
		message  string
	}{
		{"none", "made/x", connect.CodeNotFound, "path '" + b.at("none") + "' does not exist"},
		{"d", "d/e/f2/g", connect.CodeInvalidArgument, ""},
		{"g", "d", connect.CodeInvalidArgument, "is a directory"},
		{"d", "full", connect.CodeAlreadyExists, ""},
		{"g", "d/e/f/h", connect.CodeInvalidArgument, "not a directory"},
		{"", "x", connect.CodeInvalidArgument, "the path is empty"},
		{"g", "", connect.CodeInvalidArgument, "the path is empty"},
	} {
		if _, err := move(x.from, x.to); connect.CodeOf(err) != x.code || !strings.Contains(err.Error(), x.message) {
			t.Errorf("%s to %s: %v", x.from, x.to, err)
		}
	}
	if _, err := os.Stat(b.at("made")); err == nil {
		t.Error("parents were made for nothing")
	}
	if e, err := move("d/e/f", "new/er/f"); err != nil || e.Path != b.at("new/er/f") || e.Name != "f" || e.Size != 1 || e.Type != envd.FileType_FILE_TYPE_FILE {
		t.Error(e, err)
	}
	if e, err := move("d", "empty"); err != nil || e.Type != envd.FileType_FILE_TYPE_DIRECTORY {
		t.Error(e, err)
	}
	if _, err := move("g", "new/er/f"); err != nil || b.content("new/er/f") != "y" {
		t.Error(err)
	}
	for _, name := range []string{"new", "new", "none/at/all", "empty/e/f/g"} {
		if err := remove(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(b.at("new")); err == nil {
		t.Error("new is still there")
	}
	guesttest.Must(t, os.WriteFile(b.at("target"), nil, 0o644), os.Symlink("target", b.at("link")), remove("link"))
	if _, err := os.Stat(b.at("target")); err != nil {
		t.Error("a link's target was removed")
	}
	guesttest.Must(t, os.WriteFile(b.at("file"), nil, 0o644), remove("file/x"))
	// Asked of what decides, not of Remove: a mistake would cost whoever tests as
	// root the machine.
	service := b.g
	for _, name := range []string{"", "/", "/..", "//", "/dev", "/home/../sys", "/run", "/proc/"} {
		if _, _, err := service.changeable(http.Header{}, name); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzUpload sends hostile forms: no answer is a failure of ours.
func FuzzUpload(f *testing.F) {
	whole, kind := form("a", "dir/b")
	f.Add(whole.String(), kind, "", "")
	f.Add(whole.String()[:40], kind, "", "path=x")
	f.Add("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nbody\r\n--x--\r\n", "multipart/form-data; boundary=x", "br", "")
	f.Add("", "application/octet-stream", "", "path=a&mode=9")
	home := f.TempDir()
	h := handler(New(settings.New(settings.Config{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), UserName: "user", Home: home})))
	f.Fuzz(func(t *testing.T, body, kind, encoding, query string) {
		// Where a fuzzer may write is in a name of its own making: keep it home.
		if strings.ContainsAny(body+query, "/%") || strings.Contains(body+query, "..") || strings.Contains(strings.ToLower(encoding), "gzip") && body != "" {
			return
		}
		req := httptest.NewRequest("POST", "/files", strings.NewReader(body))
		req.URL.RawQuery = query
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Content-Encoding", encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// FuzzMultipartNames gives parts any names: the one that is used is the one that
// was given, whole.
func FuzzMultipartNames(f *testing.F) {
	for _, s := range []string{"a.txt", "/abs/dir/a", "e\u0301", `quo"te`, `back\slash`, "a\r\nb", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var buf bytes.Buffer
		w := multipart.NewWriter(&buf)
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)
		if _, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + quoted + `"`}}); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		part, err := multipart.NewReader(&buf, w.Boundary()).NextRawPart()
		if err != nil || strings.ContainsAny(name, "\r\n") {
			return // no header
		}
		if field, got := disposition(part.Header.Get("Content-Disposition")); field == "file" && got != name && got != strings.TrimSpace(name) {
			t.Errorf("%q became %q", name, got)
		}
	})
}

// FuzzMetadataHeaders is what a hostile upload may say of its files.
func FuzzMetadataHeaders(f *testing.F) {
	f.Add("X-Metadata-Author", "mish")
	f.Add("x-metadata-", "x")
	f.Add("X-Metadata-\xff", "\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		m, err := readMetadataHeaders(http.Header{name: {value}, "X-Metadata-Other": {"kept"}})
		if err != nil {
			return
		}
		total := 0
		for k, v := range m {
			total += len(metadataPrefix) + len(k) + len(v)
			if k == "" || len(metadataPrefix)+len(k) > 255 || !printable(k) || !printable(v) || k != strings.ToLower(k) {
				t.Errorf("%q: %q", k, v)
			}
		}
		if total > maxMetadata {
			t.Errorf("%d bytes", total)
		}
	})
}

// FuzzSignature tries to forge: only the signature of exactly what is asked for
// opens a file.
func FuzzSignature(f *testing.F) {
	f.Add("f", "", "v1_x", "", "read")
	f.Add("f:read", "", Signature("f", "read", "", "T", ""), "", "write")
	f.Add("f", "root", Signature("f", "read", "root", "T", "99999999999"), "99999999999", "read")
	g := &Service{settings.New(settings.Config{})}
	g.settings.Set(&settings.Settings{HostToken: guesttest.HostToken, Token: "T"})
	f.Fuzz(func(t *testing.T, path, user, sign, expires, operation string) {
		q := url.Values{"path": {path}, "username": {user}, "signature": {sign}}
		if expires != "" {
			q.Set("signature_expiration", expires)
		}
		r := httptest.NewRequest("GET", "/files?"+q.Encode(), nil)
		if g.checkFiles(r, operation) != nil {
			return
		}
		if expires != "" { // "+7" and "07" are 7
			expires = strings.TrimLeft(strings.TrimPrefix(expires, "+"), "0")
		}
		if sign != Signature(path, operation, user, "T", expires) {
			t.Errorf("opened: %q %q %q %q %q", path, user, sign, expires, operation)
		}
	})
}
