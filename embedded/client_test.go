package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/handshake"
)

// TestLifecycle follows sandboxes through the calls about them.
func TestLifecycle(t *testing.T) {
	c := open(t)
	ctx := bounded(t)
	begun := time.Now().Add(-time.Second)
	var made []*cubby.Sandbox
	for _, name := range []string{"a", "b & c=d"} {
		sbx, err := c.Create(ctx, cubby.WithMetadata(map[string]string{"name": name, "test": "lifecycle"}))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, sbx)
	}
	for _, tt := range []struct {
		name string
		opts cubby.ListOptions
		want []*cubby.Sandbox
	}{
		{"all, newest first", cubby.ListOptions{}, []*cubby.Sandbox{made[1], made[0]}},
		{"oldest first", cubby.ListOptions{OldestFirst: true}, made},
		{"one", cubby.ListOptions{Limit: 1}, made[1:]},
		{"by metadata", cubby.ListOptions{Metadata: map[string]string{"name": "b & c=d", "test": "lifecycle"}}, made[1:]},
		{"by metadata that nobody has", cubby.ListOptions{Metadata: map[string]string{"name": "c"}}, nil},
		{"running", cubby.ListOptions{States: []string{cubby.StateRunning}, StartedAfter: begun}, []*cubby.Sandbox{made[1], made[0]}},
		{"paused", cubby.ListOptions{States: []string{cubby.StatePaused}}, nil},
		{"of tomorrow", cubby.ListOptions{StartedAfter: time.Now().Add(24 * time.Hour)}, nil},
	} {
		var got, want []string
		for info, err := range c.List(ctx, tt.opts) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.ID)
			if info.State != cubby.StateRunning || info.Metadata["test"] != "lifecycle" || info.Limits.Memory == 0 {
				t.Errorf("%s: %+v", tt.name, info)
			}
		}
		for _, sbx := range tt.want {
			want = append(want, sbx.ID())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: listed %v, want %v", tt.name, got, want)
		}
	}

	sbx := made[0]
	for _, d := range []time.Duration{time.Hour, 2 * time.Minute} { // later, then sooner
		if err := sbx.SetTimeout(ctx, d); err != nil {
			t.Fatal(err)
		}
		info, err := sbx.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(info.EndAt); left > d || left < d-time.Minute {
			t.Errorf("%v is left after SetTimeout(%v)", left, d)
		}
	}
	if err := sbx.SetTimeout(ctx, 100*365*24*time.Hour); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("a life of a hundred years: %v", err)
	}
	until(t, "something was measured", func() bool {
		used, err := sbx.Metrics(ctx, begun, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return len(used) > 0 && used[0].MemoryTotal > 0 && used[0].CPUs > 0 && used[0].At.After(begun)
	})
	if used, err := sbx.Metrics(ctx, time.Time{}, begun); err != nil || len(used) != 0 {
		t.Errorf("measured before it was there: %v, %v", used, err)
	}
	again, err := c.Connect(ctx, sbx.ID())
	if err != nil {
		t.Fatal(err)
	}
	if res, err := again.Commands().Run(ctx, "echo here"); err != nil || res.Stdout != "here\n" {
		t.Errorf("the connected sandbox said %+v, %v", res, err)
	}

	if err := sbx.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"SetTimeout": sbx.SetTimeout(ctx, time.Minute),
		"Pause":      sbx.Pause(ctx),
		"Metrics":    second(sbx.Metrics(ctx, time.Time{}, time.Time{})),
		"Run":        second(sbx.Commands().Run(ctx, "true")),
		"Write":      sbx.Files().Write(ctx, "x", strings.NewReader(""), 0),
		"Move":       second(sbx.Files().Move(ctx, "x", "y")),
		"Watch":      second(sbx.Files().Watch(ctx, ".", cubby.WatchOptions{})),
	} {
		if cubby.CodeOf(err) != cubby.CodeSandboxGone {
			t.Errorf("%s in a sandbox that has ended: %v", name, err)
		}
	}
	logs, err := sbx.Logs(ctx, time.Time{})
	if err != nil || len(logs) == 0 || logs[0].At.Before(begun) || logs[0].Message == "" {
		t.Errorf("logged %+v, %v", logs, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestFilesOfAllKinds goes through the calls about files.
func TestFilesOfAllKinds(t *testing.T) {
	sbx := create(t)
	ctx := bounded(t)
	f := sbx.Files()
	write := func(f cubby.Files, name, text string, opts ...cubby.WriteOption) {
		t.Helper()
		if err := f.Write(ctx, name, strings.NewReader(text), 0, opts...); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(name string) bool {
		t.Helper()
		is, err := f.Exists(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}

	write(f, "a/b.txt", "b", cubby.WithFileMetadata(map[string]string{"Source": "a test"}))
	e, err := f.Stat(ctx, "a/b.txt")
	if err != nil || e.Metadata["source"] != "a test" || e.Owner != "user" {
		t.Errorf("stat: %+v, %v", e, err)
	}
	e, err = f.Move(ctx, "a/b.txt", "new/folder/c.txt")
	if err != nil || e.Path != "/home/user/new/folder/c.txt" || e.Size != 1 {
		t.Errorf("moved to %+v, %v", e, err)
	}
	if exists("a/b.txt") || !exists("new/folder/c.txt") {
		t.Error("what was moved is where it was, or not where it should be")
	}
	if _, err := f.Move(ctx, "a/b.txt", "x"); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("moved nothing: %v", err)
	}
	for range 2 {
		if err := f.Remove(ctx, "new"); err != nil {
			t.Error(err)
		}
	}
	if exists("new") {
		t.Error("a removed folder is there")
	}
	for _, name := range []string{"/", "/proc"} {
		if err := f.Remove(ctx, name); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("remove %s: %v", name, err)
		}
	}

	root := f.As("root")
	write(root, "roots", "secret")
	if e, err := f.Stat(ctx, "roots"); err != nil || e.Owner != "root" || e.Path != "/home/user/roots" {
		t.Errorf("root's file: %+v, %v", e, err)
	}
	if err := f.As("nobody-at-all").MakeDir(ctx, "x", 0); cubby.CodeOf(err) != cubby.CodeUnauthenticated {
		t.Errorf("a user who is not there: %v", err)
	}
	if b, err := root.Read(ctx, "roots"); err != nil || string(b) != "secret" {
		t.Errorf("root read %q, %v", b, err)
	}
}

func TestFilesWatch(t *testing.T) {
	sbx := create(t)
	ctx := bounded(t)
	f := sbx.Files()
	if err := f.MakeDir(ctx, "seen/deep", 0); err != nil {
		t.Fatal(err)
	}
	w, err := f.Watch(ctx, "seen", cubby.WatchOptions{Recursive: true, Entries: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	res, err := sbx.Commands().Run(ctx, "cd seen; echo 1 > deep/a; mv deep/a b; rm b; mkdir later; touch later/c")
	if err != nil || res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	want := []string{"create deep/a", "rename deep/a", "create b", "remove b", "create later", "create later/c"}
	for e, err := range w.Events() {
		if err != nil {
			t.Fatalf("%v are missing: %v", want, err)
		}
		if e.Type == cubby.EventCreate && e.Entry != nil && path.Base(e.Entry.Path) != path.Base(e.Name) {
			t.Errorf("%q is described as %+v", e.Name, e.Entry)
		}
		if string(e.Type)+" "+e.Name == want[0] {
			if want = want[1:]; len(want) == 0 {
				break
			}
		}
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		w.Close()
	}()
	for e, err := range w.Events() {
		if err != nil {
			t.Errorf("a watch that is closed says %v, %v", e, err)
		}
	}
	if _, err := w.Next(); cubby.CodeOf(err) != cubby.CodeCanceled {
		t.Errorf("after the end: %v", err)
	}
	if _, err := f.Watch(ctx, "nothing", cubby.WatchOptions{}); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("watched nothing: %v", err)
	}

	// A sandbox that ends under a watch says so.
	if w, err = f.Watch(ctx, "seen", cubby.WatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := sbx.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	var last error
	for _, last = range w.Events() {
	}
	if cubby.CodeOf(last) != cubby.CodeSandboxGone {
		t.Errorf("the watch ended with %v", last)
	}
}

// TestSignedURLs reads and writes files through links, without any key.
func TestSignedURLs(t *testing.T) {
	sbx := create(t)
	ctx := bounded(t)
	f := sbx.Files()
	// A private Cubby has no address but its socket.
	dirs := runDirs()
	if len(dirs) != 1 {
		t.Fatalf("run folders: %v", dirs)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dirs[0], handshake.SocketName))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	plain := func(method, link, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, link, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	up, err := f.UploadURL("by link.txt", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := plain(http.MethodPost, up, "linked"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	if status, body := plain(http.MethodGet, strings.Replace(up, "link.txt", "other.txt", 1), ""); status != http.StatusUnauthorized {
		t.Errorf("a link for writing one file reads another: %d %s", status, body)
	}
	down, err := f.As("user").DownloadURL("by link.txt", 0)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := plain(http.MethodGet, down, ""); status != http.StatusOK || body != "linked" {
		t.Error(status, body)
	}
}

// TestPort talks HTTP to a server inside the sandbox.
func TestPort(t *testing.T) {
	sbx := create(t)
	ctx := bounded(t)
	if _, err := sbx.Commands().Start(ctx, "mkdir web && cd web && echo served > a.txt && exec python3 -m http.server 8123"); err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: sbx.Transport(8123)}
	get := func(name string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	until(t, "the server listens", func() bool { status, _ := get("a.txt"); return status != http.StatusBadGateway })
	if status, body := get("a.txt?q=1"); status != http.StatusOK || body != "served\n" {
		t.Error(status, body)
	}
	if status, _ := get("no%2Fthing"); status != http.StatusNotFound {
		t.Error(status)
	}
	if got, want := sbx.Host(8123), "8123-"+sbx.ID()+"."; !strings.HasPrefix(got, want) {
		t.Errorf("host %q", got)
	}
	closed := &http.Client{Transport: sbx.Transport(8124)}
	resp, err := closed.Get("http://sandbox/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("a closed port answers %s", resp.Status)
	}
	if _, err := (&http.Client{Transport: sbx.Transport(0)}).Post("http://sandbox/", "",
		io.NopCloser(bytes.NewReader(nil))); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("port 0: %v", err)
	}
}

// TestDial talks to a server of no protocol inside the sandbox.
func TestDial(t *testing.T) {
	sbx := create(t)
	ctx := bounded(t)
	_, err := sbx.Commands().StartExec(ctx, []string{"python3", "-c", `
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())
            if line == b"bye\n": return
class Server(socketserver.ThreadingTCPServer): request_queue_size = 128
Server(("127.0.0.1", 8125), Echo).serve_forever()`})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the server listens", func() bool {
		conn, err := sbx.Dial(ctx, 8125)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			conn, err := sbx.Dial(ctx, 8125)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for _, line := range []string{fmt.Sprintf("hello %d\n", i), "bye\n"} {
				if _, err := io.WriteString(conn, line); err != nil {
					t.Error(err)
				}
			}
			if b, err := io.ReadAll(conn); err != nil || string(b) != fmt.Sprintf("HELLO %d\nBYE\n", i) {
				t.Errorf("connection %d: %q, %v", i, b, err)
			}
		})
	}
	all.Wait()

	conn, err := sbx.Dial(ctx, 8125)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
	if got, want := conn.RemoteAddr().String(), sbx.ID()+":8125"; got != want {
		t.Errorf("connected to %s, want %s", got, want)
	}
	if _, err := sbx.Dial(ctx, 8126); cubby.CodeOf(err) != cubby.CodeSandboxGone || !strings.Contains(err.Error(), "port is not open") {
		t.Errorf("a closed port: %v", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := sbx.Dial(over, 8125); cubby.CodeOf(err) != cubby.CodeCanceled {
		t.Errorf("with a context that is over: %v", err)
	}

	// The end of the sandbox is the end of its connections.
	if err := sbx.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read from a sandbox that has ended: %v", err)
	}
}
