//go:build linux

package e2e

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestStreamsThatNobodyReads opens streams of every kind and reads none of them:
// the same sandbox goes on, in the context of code that nobody listens to as well.
func TestStreamsThatNobodyReads(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	open := func(method, port, path string, body []byte, header ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		header = append(header, b.routed(port)...)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", path, resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
	}
	stream := []string{"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1"}
	if a := call(t, http.DefaultClient, "POST", s.URL+"/execute", `{"code":"kept = 1; open('large', 'wb').truncate(1 << 28)"}`, b.routed(portCode)...); a.Status != 200 {
		t.Fatal(a)
	}
	for range 10 {
		open("POST", portEnvd, "/process.Process/Start", envelope(0, map[string]any{"process": map[string]any{"cmd": "/usr/bin/yes"}}), stream...)
		open("POST", portEnvd, "/filesystem.Filesystem/WatchDir", envelope(0, map[string]any{"path": "/home/user"}), stream...)
		open("GET", portEnvd, "/files?path=large", nil)
		open("POST", portCode, "/execute", []byte(`{"code":"while True: print('x' * 65536)"}`))
	}
	for what, try := range map[string]func() bool{
		"code": func() bool {
			a := call(t, http.DefaultClient, "POST", s.URL+"/execute", `{"code":"print('on', kept)"}`, b.routed(portCode)...)
			return a.Status == 200 && strings.Contains(string(a.Body), `on 1\n`)
		},
		"a command": func() bool {
			out, err := run(ctx, http.DefaultClient, s.URL, command{Text: "echo on"}, b.routed(portEnvd)...)
			return err == nil && out.Stdout == "on\n"
		},
		"a listing": func() bool {
			a := call(t, http.DefaultClient, "POST", s.URL+"/filesystem.Filesystem/ListDir", `{"path":"/home/user"}`, append(b.routed(portEnvd), "Content-Type", "application/json")...)
			return a.Status == 200 && strings.Contains(string(a.Body), "large")
		},
	} {
		begun := time.Now()
		if !try() {
			t.Errorf("%s does not work", what)
		}
		t.Logf("%s took %v", what, time.Since(begun).Round(time.Millisecond))
	}
}
