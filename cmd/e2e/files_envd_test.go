package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/protocol"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// wired is a sandbox as E2B's clients see it: requests with routing headers.
type wired struct {
	*testing.T
	id, token string
	socket    http.RoundTripper
	files     envdconnect.FilesystemClient
}

// openPrivate runs a private Cubby until the test ends.
func openPrivate(t *testing.T) {
	t.Helper()
	testenv.CheckLeaks(t)
	c, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t), Python: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// wire creates a sandbox with limits over plain HTTP.
func wire(t *testing.T, limits protocol.Limits) *wired {
	t.Helper()
	openPrivate(t)
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "cubby-run-*"))
	if len(dirs) != 1 {
		t.Fatalf("run folders: %v", dirs)
	}
	socket := filepath.Join(dirs[0], handshake.SocketName)
	transport := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	s := &wired{T: t, socket: transport}
	status, body := s.call("POST", "/v2/sandboxes", protocol.NewSandbox{TemplateID: "base", Limits: &limits})
	var created protocol.Sandbox
	if err := json.Unmarshal([]byte(body), &created); err != nil || status != 201 || created.EnvdAccessToken == "" {
		t.Fatal(status, body, err)
	}
	s.id, s.token = created.SandboxID, created.EnvdAccessToken
	s.files = envdconnect.NewFilesystemClient(&http.Client{Transport: s}, "http://cubby", connect.WithProtoJSON())
	return s
}

// RoundTrip routes a request to envd, or to the port that it names.
func (s *wired) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.id != "" {
		r.Header.Set(protocol.HeaderSandboxID, s.id)
		r.Header.Set(protocol.HeaderAccessToken, s.token)
		if r.Header.Get(protocol.HeaderSandboxPort) == "" {
			r.Header.Set(protocol.HeaderSandboxPort, strconv.Itoa(protocol.EnvdPort))
		}
	}
	return s.socket.RoundTrip(r)
}

// call sends one request; a body that is no reader goes as JSON. Headers come in
// pairs.
func (s *wired) call(method, path string, body any, header ...string) (int, string) {
	s.Helper()
	from, raw := body.(io.Reader)
	if !raw && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.Fatal(err)
		}
		from = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.Context(), method, "http://cubby"+path, from)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.RoundTrip(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// python runs a cell and returns what it prints.
func (s *wired) python(code string) string {
	s.Helper()
	status, body := s.call("POST", "/execute", protocol.ExecuteRequest{Code: code},
		protocol.HeaderSandboxPort, strconv.Itoa(protocol.CodeInterpreterPort))
	if status != 200 {
		s.Fatal(status, body)
	}
	out := ""
	for line := range strings.Lines(body) {
		var e struct{ Type, Text, Traceback string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.Fatal(err)
		}
		switch e.Type {
		case protocol.EventStdout:
			out += e.Text
		case protocol.EventError:
			s.Fatal(e.Traceback)
		}
	}
	return out
}

// TestEnvdFiles is what envd does with files in a sandbox, on the sandbox's own
// kernel and its overlay.
func TestEnvdFiles(t *testing.T) {
	s := wire(t, protocol.Limits{DiskMB: 64, MemoryMB: 384})
	for _, c := range []struct {
		name string
		test func(*wired)
	}{
		{"metadata is in extended attributes and follows the file", envdMetadata},
		{"a recursive watch sees what code and clients do", envdWatch},
		{"polled watchers", envdPolled},
		{"a full disk is 507, and has room again", envdFullDisk},
		{"users own what they make", envdUsers},
		{"metrics are the sandbox's, not the machine's", envdMetrics},
		{"the code knows that it is in a sandbox", envdEnvironment},
		{"files of the kernel have content", envdProc},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := *s
			inner.T = t
			c.test(&inner)
		})
	}
}

func envdMetadata(s *wired) {
	status, body := s.call("POST", "/files?path=/data/new/doc.txt", strings.NewReader("text"), "X-Metadata-Author", "mish", "X-Metadata-PURPOSE", "a b")
	if status != 200 || body != `[{"path":"/data/new/doc.txt","name":"doc.txt","type":"file","metadata":{"author":"mish","purpose":"a b"}}]` {
		s.Fatal(status, body)
	}
	if got := s.python("import os; print(os.getxattr('/data/new/doc.txt', 'user.e2b.author').decode())"); got != "mish\n" {
		s.Errorf("the attribute: %q", got)
	}
	moved, err := s.files.Move(s.Context(), connect.NewRequest(&envd.MoveRequest{Source: "/data/new/doc.txt", Destination: "moved/doc.txt"}))
	if err != nil || moved.Msg.Entry.Metadata["purpose"] != "a b" || moved.Msg.Entry.Path != "/home/user/moved/doc.txt" {
		s.Fatal(moved, err)
	}
	s.python("import os; os.setxattr('/home/user/moved/doc.txt', 'user.e2b.author', b'someone'); os.setxattr('/home/user/moved/doc.txt', 'user.e2b.bad', b'\\xff')")
	list, err := s.files.ListDir(s.Context(), connect.NewRequest(&envd.ListDirRequest{Path: "moved"}))
	if err != nil || len(list.Msg.Entries) != 1 || fmt.Sprint(list.Msg.Entries[0].Metadata) != "map[author:someone purpose:a b]" {
		s.Fatal(list, err)
	}
	if status, body := s.call("POST", "/files?path=moved/doc.txt", strings.NewReader("anew")); status != 200 || strings.Contains(body, "metadata") {
		s.Error(status, body)
	}
	if st, err := s.files.Stat(s.Context(), connect.NewRequest(&envd.StatRequest{Path: "moved/doc.txt"})); err != nil || len(st.Msg.Entry.Metadata) != 0 {
		s.Error("a new content keeps the old metadata:", st, err)
	}
}

func envdWatch(s *wired) {
	s.python("import os; os.makedirs('/home/user/watched/old/er'); os.makedirs('/home/user/beside')")
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	stream, err := s.files.WatchDir(ctx, connect.NewRequest(&envd.WatchDirRequest{Path: "watched", Recursive: true, IncludeEntry: true}))
	if err != nil {
		s.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		s.Fatal("the first message is no start:", stream.Msg(), stream.Err())
	}
	// until returns the events up to and with the one that is waited for.
	until := func(last string) []string {
		s.Helper()
		var seen []string
		for stream.Receive() {
			e := stream.Msg().GetFilesystem()
			if e == nil {
				continue
			}
			text := strings.ToLower(strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_")) + ":" + e.Name
			if e.Entry != nil {
				text += "*"
			}
			seen = append(seen, text)
			if text == last {
				return seen
			}
		}
		s.Fatalf("%s did not come: %v %v", last, seen, stream.Err())
		return nil
	}
	s.call("POST", "/files?path=watched/3.txt", strings.NewReader("x"))
	if _, err := s.files.Move(ctx, connect.NewRequest(&envd.MoveRequest{Source: "watched/3.txt", Destination: "watched/4.txt"})); err != nil {
		s.Fatal(err)
	}
	if _, err := s.files.Remove(ctx, connect.NewRequest(&envd.RemoveRequest{Path: "watched/4.txt"})); err != nil {
		s.Fatal(err)
	}
	seen := until("remove:4.txt")
	for _, want := range []string{"create:3.txt", "write:3.txt", "rename:3.txt"} {
		if !slices.ContainsFunc(seen, func(e string) bool { return strings.TrimSuffix(e, "*") == want }) {
			s.Errorf("no %s in %v", want, seen)
		}
	}
	s.python(`
import os
os.makedirs('/home/user/watched/a/b/c/d'); open('/home/user/watched/a/b/c/d/deep', 'w').write('1')
open('/home/user/watched/old/er/file', 'w').write('2')`)
	seen = until("write:old/er/file*")
	for _, want := range []string{"create:a*", "create:a/b*", "create:a/b/c*", "create:a/b/c/d*", "create:a/b/c/d/deep*"} {
		if n := len(slices.DeleteFunc(slices.Clone(seen), func(e string) bool { return e != want })); n != 1 {
			s.Errorf("%s came %d times: %v", want, n, seen)
		}
	}
	s.python(`
import os
os.rename('/home/user/watched/a/b', '/home/user/watched/moved')
open('/home/user/watched/moved/c/d/deep', 'a').write('3')
os.rename('/home/user/watched/moved/c', '/home/user/beside/c')
open('/home/user/beside/c/d/unseen', 'w').write('4')
os.rename('/home/user/beside/c', '/home/user/watched/back')`)
	seen = until("create:back/d/unseen*")
	s.python("import os; os.chmod('/home/user/watched/back/d/deep', 0o600)") // it is watched again
	seen = append(seen, until("chmod:back/d/deep*")...)
	all := strings.Join(seen, " ")
	if !strings.Contains(all, "rename:a/b") || !strings.Contains(all, "write:moved/c/d/deep") || !strings.Contains(all, "rename:moved/c") ||
		strings.Contains(all, "write:moved/c/d/unseen") || !strings.Contains(all, "create:back/d/unseen") {
		s.Errorf("moved folders: %v", seen)
	}
}

func envdPolled(s *wired) {
	s.python("import os; os.makedirs('/home/user/polled')")
	made, err := s.files.CreateWatcher(s.Context(), connect.NewRequest(&envd.CreateWatcherRequest{Path: "polled"}))
	if err != nil {
		s.Fatal(err)
	}
	id := made.Msg.WatcherId
	s.python("open('/home/user/polled/f', 'w').write('1')")
	var names []string
	for end := time.Now().Add(time.Minute); !slices.Contains(names, "EVENT_TYPE_WRITE f") && time.Now().Before(end); {
		got, err := s.files.GetWatcherEvents(s.Context(), connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			s.Fatal(err)
		}
		for _, e := range got.Msg.Events {
			names = append(names, e.Type.String()+" "+e.Name)
		}
	}
	if !slices.Equal(names, []string{"EVENT_TYPE_CREATE f", "EVENT_TYPE_WRITE f"}) {
		s.Error(names)
	}
	if _, err := s.files.RemoveWatcher(s.Context(), connect.NewRequest(&envd.RemoveWatcherRequest{WatcherId: id})); err != nil {
		s.Error(err)
	}
	if _, err := s.files.GetWatcherEvents(s.Context(),
		connect.NewRequest(&envd.GetWatcherEventsRequest{WatcherId: id})); connect.CodeOf(err) != connect.CodeNotFound {
		s.Error(err)
	}
}

// zeroes reads n zero bytes.
func zeroes(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func envdFullDisk(s *wired) {
	if status, body := s.call("POST", "/files?path=old", strings.NewReader("old content")); status != 200 {
		s.Fatal(status, body)
	}
	for _, name := range []string{"new", "old"} {
		if status, body := s.call("POST", "/files?path="+name, zeroes(100<<20)); status != 507 || !strings.Contains(body, `"code":507`) {
			s.Fatalf("%s: %d %s", name, status, body)
		}
	}
	if got := s.python("import os; print(os.path.exists('/home/user/new'), os.path.getsize('/home/user/old'))"); got != "False 0\n" {
		s.Errorf("left behind: %s", got)
	}
	if status, body := s.call("POST", "/files?path=next", zeroes(8<<20)); status != 200 {
		s.Error("no room after a full disk:", status, body)
	}
}

func envdUsers(s *wired) {
	for _, c := range []struct{ user, home, owner string }{{"", "/home/user", "user"}, {"user", "/home/user", "user"}, {"root", "/root", "root"}} {
		if status, body := s.call("POST", "/files?path=made/by"+c.user+"/file&username="+c.user, strings.NewReader("x")); status != 200 {
			s.Fatal(status, body)
		}
		for _, name := range []string{"/made", "/made/by" + c.user, "/made/by" + c.user + "/file"} {
			st, err := s.files.Stat(s.Context(), connect.NewRequest(&envd.StatRequest{Path: c.home + name}))
			if err != nil || st.Msg.Entry.Owner != c.owner || st.Msg.Entry.Group != c.owner {
				s.Errorf("%q, %s: %v %v", c.user, name, st, err)
			}
		}
	}
	got := s.python("import os; print([os.stat('/home/user/made/by' + n).st_uid for n in ('', 'user', 'user/file')])")
	if got != "[1000, 1000, 1000]\n" {
		s.Error(got)
	}
}

func envdMetrics(s *wired) {
	status, body := s.call("GET", "/metrics", nil)
	var m struct {
		TS          int64
		CPUCount    int     `json:"cpu_count"`
		CPU         float64 `json:"cpu_used_pct"`
		MemTotal    int64   `json:"mem_total"`
		MemUsed     int64   `json:"mem_used"`
		DiskTotal   int64   `json:"disk_total"`
		DiskUsed    int64   `json:"disk_used"`
		MemTotalMiB int64   `json:"mem_total_mib"`
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || status != 200 {
		s.Fatal(status, body, err)
	}
	if m.CPUCount != 1 || m.MemTotal != 384<<20 || m.MemTotalMiB != 384 || m.DiskTotal != 64<<20 {
		s.Errorf("not the limits: %s", body)
	}
	if m.MemUsed <= 0 || m.MemUsed > m.MemTotal || m.DiskUsed <= 0 || m.DiskUsed > m.DiskTotal || m.CPU < 0 || m.CPU > 100 {
		s.Errorf("not what is used: %s", body)
	}
	if now := time.Now().Unix(); m.TS < now-60 || m.TS > now+60 {
		s.Errorf("not the time: %s", body)
	}
}

func envdEnvironment(s *wired) {
	got := s.python("import os; print(os.environ.get('E2B_SANDBOX'), os.environ.get('E2B_SANDBOX_ID'), os.environ.get('E2B_TEMPLATE_ID'), [k for k in os.environ if k.startswith('CUBBY')])")
	if want := "true " + s.id + " base []\n"; got != want {
		s.Errorf("got %q, want %q", got, want)
	}
}

func envdProc(s *wired) {
	if status, body := s.call("GET", "/files?path=/proc/version", nil); status != 200 || !strings.HasPrefix(body, "Linux") {
		s.Error(status, body)
	}
	if status, body := s.call("GET", "/files?path=/dev/zero", nil); status != 400 {
		s.Error(status, body)
	}
}
