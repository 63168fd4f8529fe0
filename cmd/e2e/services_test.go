//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestControlPlane asks for what no method of the packages asks for: E2B's
// command line and dashboards do, and older clients.
func TestControlPlane(t *testing.T) {
	s := start(t)
	ask := func(t *testing.T, method, path string, body any) answer {
		t.Helper()
		return call(t, http.DefaultClient, method, s.URL+path, body, "X-API-KEY", s.Key)
	}
	var b box
	ask(t, "POST", "/sandboxes", `{"templateID":"base","metadata":{"a":"b c","d":"e"}}`).decode(t, 201, &b)

	t.Run("the first version lives fifteen seconds by default, and has no token unless asked", func(t *testing.T) {
		var info struct{ StartedAt, EndAt time.Time }
		ask(t, "GET", "/sandboxes/"+b.ID, nil).decode(t, 200, &info)
		if life := info.EndAt.Sub(info.StartedAt).Round(time.Second); life != 15*time.Second {
			t.Errorf("it lives %v", life)
		}
		if b.Token != "" {
			t.Error("it has a token")
		}
	})
	t.Run("refreshes only extend", func(t *testing.T) {
		end := func() time.Time {
			var info struct{ EndAt time.Time }
			ask(t, "GET", "/sandboxes/"+b.ID, nil).decode(t, 200, &info)
			return info.EndAt
		}
		if a := ask(t, "POST", "/sandboxes/"+b.ID+"/refreshes", `{"duration":600}`); a.Status != 204 {
			t.Fatalf("%v", a)
		}
		longer := end()
		if a := ask(t, "POST", "/sandboxes/"+b.ID+"/refreshes", `{"duration":20}`); a.Status != 204 {
			t.Fatalf("%v", a)
		}
		if left := time.Until(longer); left < 500*time.Second || !end().Equal(longer) {
			t.Errorf("left %v, then the end moved by %v", left, end().Sub(longer))
		}
	})
	t.Run("list of the first version, by metadata", func(t *testing.T) {
		for query, want := range map[string]int{"": 1, url.Values{"a": {"b c"}}.Encode(): 1,
			url.Values{"a": {"b c"}, "d": {"e"}}.Encode(): 1, url.Values{"a": {"c"}}.Encode(): 0} {
			var all []map[string]any
			ask(t, "GET", "/sandboxes?"+url.Values{"metadata": {query}}.Encode(), nil).decode(t, 200, &all)
			if len(all) != want {
				t.Errorf("%q: %v", query, all)
			}
		}
	})
	t.Run("list of the second version counts", func(t *testing.T) {
		if a := ask(t, "GET", "/v2/sandboxes", nil); a.Header.Get("X-Total-Running") != "1" || a.Header.Get("X-Next-Token") != "" {
			t.Errorf("%v", a.Header)
		}
	})
	t.Run("newest metrics of several", func(t *testing.T) {
		until(t, "metrics", func() error {
			var got struct {
				Sandboxes map[string]struct{ MemUsed, DiskTotal int64 }
			}
			a := ask(t, "GET", "/sandboxes/metrics?sandbox_ids="+b.ID+",inobody", nil)
			if a.decode(t, 200, &got); got.Sandboxes[b.ID].MemUsed == 0 || len(got.Sandboxes) != 1 {
				return fmt.Errorf("%v", a)
			}
			return nil
		})
	})
	t.Run("logs", func(t *testing.T) {
		var first struct{ Logs, LogEntries []any }
		ask(t, "GET", "/sandboxes/"+b.ID+"/logs", nil).decode(t, 200, &first)
		var second struct{ Logs []any }
		ask(t, "GET", "/v2/sandboxes/"+b.ID+"/logs?limit=10&direction=backward", nil).decode(t, 200, &second)
		if first.Logs == nil || first.LogEntries == nil || second.Logs == nil {
			t.Errorf("null where a list is expected: %+v, %+v", first, second)
		}
	})
	t.Run("health and readiness", func(t *testing.T) {
		for _, path := range []string{"/health", "/ready"} {
			if a := call(t, http.DefaultClient, "GET", s.URL+path, nil); a.Status/100 != 2 {
				t.Errorf("%s: %v", path, a)
			}
		}
	})
	t.Run("creates in a burst are all served", func(t *testing.T) {
		results := make(chan error, 8)
		for range cap(results) {
			go func() {
				a, err := try(t.Context(), http.DefaultClient, "POST", s.URL+"/v2/sandboxes", `{"templateID":"base","timeout":60}`, "X-API-KEY", s.Key)
				var b box
				if err == nil && (a.Status != 201 || json.Unmarshal(a.Body, &b) != nil) {
					err = fmt.Errorf("%v", a)
				}
				if err == nil {
					a, err = try(t.Context(), http.DefaultClient, "DELETE", s.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", s.Key)
				}
				if err == nil && a.Status != 204 {
					err = fmt.Errorf("%v", a)
				}
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestKeys: keys come and go while the server runs, and a team is one whichever
// of its keys is used.
func TestKeys(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	status := func(key string) int {
		t.Helper()
		return call(t, http.DefaultClient, "GET", s.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", key).Status
	}
	var teams []struct{ Name, Team string }
	if err := json.Unmarshal(s.keys(t, "list", "--json"), &teams); err != nil || len(teams) != 1 {
		t.Fatalf("%+v, %v", teams, err)
	}
	mate, mateID := s.newKey(t, teams[0].Team)
	stranger, strangerID := s.newKey(t, "strangers")
	if !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(mate) {
		t.Error("a key has not the form that older packages check")
	}
	if got := [3]int{status(s.Key), status(mate), status(stranger)}; got != [3]int{200, 200, 404} {
		t.Errorf("owner, mate and stranger get %v", got)
	}
	s.keys(t, "revoke", mateID)
	s.keys(t, "revoke", strangerID)
	if got := [3]int{status(s.Key), status(mate), status(stranger)}; got != [3]int{200, 401, 401} {
		t.Errorf("after they were revoked: %v", got)
	}
	if out := string(s.keys(t, "list")); strings.Contains(out, s.Key) || strings.Contains(out, stranger) {
		t.Error("a list shows a secret")
	}
}

// TestEnvd asks envd for what no method of the packages shows.
func TestEnvd(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	header := b.routed(portEnvd)

	t.Run("health has no body", func(t *testing.T) {
		if a := call(t, http.DefaultClient, "GET", s.URL+"/health", nil, header[:4]...); a.Status != 204 || len(a.Body) != 0 {
			t.Errorf("%v", a)
		}
	})
	t.Run("metrics and environment", func(t *testing.T) {
		var metrics map[string]float64
		call(t, http.DefaultClient, "GET", s.URL+"/metrics", nil, header...).decode(t, 200, &metrics)
		for _, name := range []string{"ts", "cpu_count", "mem_total", "mem_used", "disk_total"} {
			if metrics[name] <= 0 {
				t.Errorf("%s: %v", name, metrics)
			}
		}
		var withEnv box
		call(t, http.DefaultClient, "POST", s.URL+"/v2/sandboxes", `{"templateID":"base","timeout":60,"envVars":{"A":"b c"}}`, "X-API-KEY", s.Key).decode(t, 201, &withEnv)
		var envs map[string]string
		if call(t, http.DefaultClient, "GET", s.URL+"/envs", nil, withEnv.routed(portEnvd)...).decode(t, 200, &envs); envs["A"] != "b c" {
			t.Errorf("%v", envs)
		}
	})
	t.Run("downloads: ranges, conditions, compression", func(t *testing.T) {
		content := strings.Repeat("0123456789", 10_000)
		s.upload(t, b, "/tmp/range.txt", content)
		get := func(extra ...string) answer {
			t.Helper()
			return call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/range.txt", nil, append(append([]string{}, header...), extra...)...)
		}
		if a := get("Range", "bytes=5-8", "Accept-Encoding", "identity"); a.Status != 206 || string(a.Body) != "5678" || a.Header.Get("Content-Range") != "bytes 5-8/100000" {
			t.Errorf("%v %v", a, a.Header)
		}
		if a := get("Range", "bytes=-3", "Accept-Encoding", "identity"); string(a.Body) != "789" {
			t.Errorf("%v", a)
		}
		if a := get("Range", "bytes=100000-", "Accept-Encoding", "identity"); a.Status != 416 {
			t.Errorf("%v", a)
		}
		whole := get("Accept-Encoding", "identity")
		if a := get("If-Modified-Since", whole.Header.Get("Last-Modified")); a.Status != 304 {
			t.Errorf("%v", a)
		}
		packed := get("Accept-Encoding", "gzip")
		r, err := gzip.NewReader(bytes.NewReader(packed.Body))
		if err != nil || packed.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%v, %v", packed.Header, err)
		}
		if text, err := io.ReadAll(r); err != nil || string(text) != content {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		if a := get("Accept-Encoding", "identity;q=0, br"); a.Status != 406 {
			t.Errorf("%v", a)
		}
	})
	t.Run("compose", func(t *testing.T) {
		s.upload(t, b, "/tmp/part1", "one ")
		s.upload(t, b, "/tmp/part2", "two")
		a := call(t, http.DefaultClient, "POST", s.URL+"/files/compose", `{"source_paths":["/tmp/part1","/tmp/part2"],"destination":"/tmp/whole"}`, header...)
		if a.Status != 200 {
			t.Fatalf("%v", a)
		}
		if a := call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/whole", nil, header...); string(a.Body) != "one two" {
			t.Errorf("%v", a)
		}
		if a := call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/part1", nil, header...); a.Status != 404 {
			t.Errorf("a part is left: %v", a)
		}
	})
	t.Run("a signature, as E2B computes it", func(t *testing.T) {
		s.upload(t, b, "/home/user/hello.txt", "hello")
		sum := sha256.Sum256([]byte("hello.txt:read:user:" + b.Token))
		query := url.Values{"path": {"hello.txt"}, "username": {"user"}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}
		if a := call(t, http.DefaultClient, "GET", s.URL+"/files?"+query.Encode(), nil); string(a.Body) != "hello" {
			t.Errorf("%v", a)
		}
	})
	t.Run("a browser may ask", func(t *testing.T) {
		a := call(t, http.DefaultClient, "OPTIONS", s.URL+"/process.Process/Start", nil, "Origin", "https://example.com",
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "e2b-sandbox-id,e2b-sandbox-port,x-access-token,content-type")
		if a.Status/100 != 2 || a.Header.Get("Access-Control-Allow-Origin") == "" || !strings.Contains(strings.ToLower(a.Header.Get("Access-Control-Allow-Headers")), "x-access-token") {
			t.Errorf("%v %v", a, a.Header)
		}
	})
	t.Run("a silent stream is kept alive as often as the client asks", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		frame := envelope(0, map[string]any{"process": map[string]any{"cmd": "/bin/sleep", "args": []string{"600"}}})
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/process.Process/Start", bytes.NewReader(frame))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/connect+json")
		req.Header.Set("Keepalive-Ping-Interval", "1")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		stream := bufio.NewReader(res.Body)
		for kept := 0; kept < 2; {
			var head [5]byte
			if _, err := io.ReadFull(stream, head[:]); err != nil {
				t.Fatal(err)
			}
			text := make([]byte, binary.BigEndian.Uint32(head[1:]))
			if _, err := io.ReadFull(stream, text); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"keepalive"`) {
				kept++
			}
		}
	})
}
