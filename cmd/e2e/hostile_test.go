//go:build linux

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// trace is what no answer may show: the inside of the server.
var trace = regexp.MustCompile(`goroutine \d|\.go:\d+|panic|runtime error|0x[0-9a-f]{8}`)

// checkError requires an answer in E2B's form: JSON whose code is the status.
func checkError(t *testing.T, a answer, status int, says string) {
	t.Helper()
	var body struct {
		Code    json.Number `json:"code"`
		Message string      `json:"message"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		t.Fatalf("not JSON: %v", a)
	}
	if a.Status != status || body.Code.String() != fmt.Sprint(status) || body.Message == "" || !strings.Contains(body.Message, says) {
		t.Errorf("want %d that says %q, got %v", status, says, a)
	}
	if trace.Match(a.Body) {
		t.Errorf("an answer shows the server's inside: %v", a)
	}
}

// TestBadControlPlane asks the control plane for what it must refuse.
func TestBadControlPlane(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	foreign, _ := s.newKey(t, "another team")
	const unknown = "i0123456789abcdefghij"

	t.Run("keys", func(t *testing.T) {
		for name, header := range map[string][]string{
			"none":         nil,
			"empty":        {"X-API-KEY", ""},
			"wrong":        {"X-API-KEY", "e2b_" + strings.Repeat("0", 40)},
			"no shape":     {"X-API-KEY", "' OR 1=1 --"},
			"longer":       {"X-API-KEY", s.Key + "0"},
			"shorter":      {"X-API-KEY", s.Key[:len(s.Key)-1]},
			"huge":         {"X-API-KEY", strings.Repeat("e2b_", 5_000)},
			"wrong bearer": {"Authorization", "Bearer e2b_" + strings.Repeat("0", 40)},
			"basic":        {"Authorization", "Basic cm9vdDo="},
		} {
			t.Run(name, func(t *testing.T) {
				for _, ask := range [][2]string{{"GET", "/sandboxes"}, {"POST", "/v2/sandboxes"}, {"GET", "/sandboxes/" + b.ID}, {"DELETE", "/sandboxes/" + b.ID}} {
					checkError(t, call(t, http.DefaultClient, ask[0], s.URL+ask[1], nil, header...), http.StatusUnauthorized, "")
				}
			})
		}
		for _, header := range [][]string{{"x-api-key", s.Key}, {"Authorization", "Bearer " + s.Key}} {
			if a := call(t, http.DefaultClient, "GET", s.URL+"/sandboxes/"+b.ID, nil, header...); a.Status != 200 {
				t.Errorf("%s: %v", header[0], a)
			}
		}
	})

	t.Run("another team's sandbox is as one that never was", func(t *testing.T) {
		for _, ask := range [][3]string{
			{"GET", "", ""}, {"DELETE", "", ""}, {"POST", "/timeout", `{"timeout":10}`}, {"POST", "/refreshes", `{"duration":10}`},
			{"POST", "/connect", `{"timeout":10}`}, {"GET", "/metrics", ""}, {"GET", "/logs", ""}, {"POST", "/pause", "{}"},
			{"POST", "/resume", "{}"}, {"POST", "/snapshots", "{}"}, {"POST", "/fork", "{}"}, {"PUT", "/network", "{}"},
		} {
			theirs := call(t, http.DefaultClient, ask[0], s.URL+"/sandboxes/"+b.ID+ask[1], ask[2], "X-API-KEY", foreign)
			never := call(t, http.DefaultClient, ask[0], s.URL+"/sandboxes/"+unknown+ask[1], ask[2], "X-API-KEY", foreign)
			same := strings.ReplaceAll(string(theirs.Body), b.ID, unknown)
			if theirs.Status != never.Status || same != string(never.Body) {
				t.Errorf("%s %s: %v, but for an id that never was %v", ask[0], ask[1], theirs, never)
			}
			if theirs.Status != http.StatusNotFound && theirs.Status != http.StatusNotImplemented {
				t.Errorf("%s %s: %v", ask[0], ask[1], theirs)
			}
		}
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			if a := call(t, http.DefaultClient, "GET", s.URL+path, nil, "X-API-KEY", foreign); a.Status != 200 || strings.Contains(string(a.Body), b.ID) {
				t.Errorf("%s: %v", path, a)
			}
		}
		if a := call(t, http.DefaultClient, "GET", s.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", s.Key); a.Status != 200 {
			t.Errorf("the owner's own: %v", a)
		}
	})

	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no JSON", "POST", "/v2/sandboxes", "{", 400, ""},
		{"no body", "POST", "/v2/sandboxes", "", 400, ""},
		{"an array", "POST", "/v2/sandboxes", "[]", 400, ""},
		{"text", "POST", "/sandboxes", "hello", 400, ""},
		{"no UTF-8", "POST", "/sandboxes", "{\"templateID\":\"\xff\xfe\"}", 404, ""},
		{"deep", "POST", "/v2/sandboxes", `{"templateID":"base","mcp":` + deep + "}", 400, ""},
		{"wrong types", "POST", "/v2/sandboxes", `{"templateID":5}`, 400, ""},
		{"metadata of no text", "POST", "/v2/sandboxes", `{"templateID":"base","metadata":{"a":1}}`, 400, ""},
		{"unknown template", "POST", "/v2/sandboxes", `{"templateID":"../../etc"}`, 404, "template '../../etc' not found"},
		{"negative time-out", "POST", "/v2/sandboxes", `{"templateID":"base","timeout":-1}`, 400, "Timeout"},
		{"negative time-out, first version", "POST", "/sandboxes", `{"templateID":"base","timeout":-1}`, 400, "Timeout"},
		{"endless time-out", "POST", "/v2/sandboxes", `{"templateID":"base","timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"time-out beyond numbers", "POST", "/v2/sandboxes", `{"templateID":"base","timeout":99999999999999999999999}`, 400, ""},
		{"time-out in words", "POST", "/v2/sandboxes", `{"templateID":"base","timeout":"long"}`, 400, ""},
		{"half a second", "POST", "/v2/sandboxes", `{"templateID":"base","timeout":0.5}`, 400, ""},
		{"negative new time-out", "POST", "/sandboxes/" + b.ID + "/timeout", `{"timeout":-5}`, 400, ""},
		{"endless new time-out", "POST", "/sandboxes/" + b.ID + "/timeout", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"no new time-out", "POST", "/sandboxes/" + b.ID + "/timeout", `{"timeout":"x"}`, 400, ""},
		{"negative connect", "POST", "/sandboxes/" + b.ID + "/connect", `{"timeout":-5}`, 400, ""},
		{"negative connect, second version", "POST", "/v2/sandboxes/" + b.ID + "/connect", `{"timeout":-5}`, 400, ""},
		{"negative refresh", "POST", "/sandboxes/" + b.ID + "/refreshes", `{"duration":-5}`, 400, ""},
		{"bad variable", "POST", "/v2/sandboxes", `{"templateID":"base","envVars":{"A=B":"c"}}`, 400, ""},
		{"NUL in a variable", "POST", "/v2/sandboxes", `{"templateID":"base","envVars":{"A":"\u0000"}}`, 400, ""},
		{"bad cursor", "GET", "/v2/sandboxes?nextToken=garbage", "", 400, ""},
		{"bad cursor in Base64", "GET", "/v2/sandboxes?nextToken=Z2FyYmFnZQ", "", 400, ""},
		{"huge cursor", "GET", "/v2/sandboxes?nextToken=" + strings.Repeat("A", 50_000), "", 400, ""},
		{"no limit", "GET", "/v2/sandboxes?limit=0", "", 400, ""},
		{"negative limit", "GET", "/v2/sandboxes?limit=-1", "", 400, ""},
		{"limit in words", "GET", "/v2/sandboxes?limit=all", "", 400, ""},
		{"bad state", "GET", "/v2/sandboxes?state=flying", "", 400, ""},
		{"bad order", "GET", "/v2/sandboxes?order=sideways", "", 400, ""},
		{"bad time", "GET", "/v2/sandboxes?startedAfter=yesterday", "", 400, ""},
		{"bad metadata", "GET", "/v2/sandboxes?metadata=%25zz", "", 400, ""},
		{"bad metrics", "GET", "/sandboxes/" + b.ID + "/metrics?start=then&end=now", "", 400, ""},
		{"unknown id", "GET", "/sandboxes/" + unknown, "", 404, `Sandbox "` + unknown + `" doesn't exist or you don't have access to it`},
		{"path for an id", "GET", "/sandboxes/..%2F..%2Fetc%2Fpasswd", "", 400, "Invalid sandbox ID"},
		{"markup for an id", "DELETE", "/sandboxes/%3Cscript%3E", "", 400, "Invalid sandbox ID"},
		{"a pause of half the memory", "POST", "/sandboxes/" + b.ID + "/pause", `{"memory":"half"}`, 400, ""},
		{"no copies", "POST", "/sandboxes/" + b.ID + "/fork", `{"count":0}`, 400, "Count must be at least 1"},
		{"too many copies", "POST", "/sandboxes/" + b.ID + "/fork", `{"count":101}`, 400, "Count cannot be greater than 100"},
		{"copies of no time", "POST", "/sandboxes/" + b.ID + "/fork", `{"timeout":-1}`, 400, ""},
		{"a snapshot's bad name", "POST", "/sandboxes/" + b.ID + "/snapshots", `{"name":"../a b"}`, 400, "snapshot name"},
		{"a snapshot with a template's name", "POST", "/sandboxes/" + b.ID + "/snapshots", `{"name":"base"}`, 400, "name of a template"},
		{"back to no snapshot", "POST", "/sandboxes/" + b.ID + "/rollback", `{"snapshotID":"none"}`, 404, ""},
		{"negative idleness", "POST", "/v2/sandboxes", `{"templateID":"base","cubbyIdleTimeout":-1}`, 400, ""},
		{"a network of no host", "PUT", "/sandboxes/" + b.ID + "/network", `{"allowOut":["a b"],"denyOut":["0.0.0.0/0"]}`, 400, ""},
		{"later: volumes", "GET", "/volumes", "", 501, ""},
		{"later: builds", "POST", "/v3/templates", `{"name":"x"}`, 501, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkError(t, call(t, http.DefaultClient, test.method, s.URL+test.path, test.body, "X-API-KEY", s.Key), test.status, test.says)
		})
	}

	t.Run("a path that is not there", func(t *testing.T) {
		for _, path := range []string{"/no/such/path", "/sandboxes/" + b.ID + "/nothing", "//sandboxes", "/v9/sandboxes"} {
			a := call(t, http.DefaultClient, "GET", s.URL+path, nil, "X-API-KEY", s.Key)
			if a.Status != http.StatusNotFound && a.Status != http.StatusNotImplemented {
				t.Errorf("%s: %v", path, a)
			}
			checkError(t, a, a.Status, "")
		}
	})
	t.Run("a huge body", func(t *testing.T) {
		a := call(t, http.DefaultClient, "POST", s.URL+"/v2/sandboxes", `{"templateID":"`+strings.Repeat("x", 64<<20)+`"}`, "X-API-KEY", s.Key)
		if a.Status != http.StatusBadRequest && a.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("%v", a)
		}
		checkError(t, a, a.Status, "")
	})
	t.Run("health needs no key", func(t *testing.T) {
		if a := call(t, http.DefaultClient, "GET", s.URL+"/health", nil); a.Status/100 != 2 {
			t.Errorf("%v", a)
		}
	})
}

// TestBadDataPlane asks sandboxes for what they, or the way to them, must refuse.
func TestBadDataPlane(t *testing.T) {
	s := start(t)
	foreign, _ := s.newKey(t, "another team")
	b, other := s.create(t, s.Key), s.create(t, foreign)
	envdOf := func(id, token string) []string {
		return []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", portEnvd, "X-Access-Token", token}
	}

	t.Run("routing", func(t *testing.T) {
		for _, port := range []string{"", "0", "-1", "70000", "abc", "49983.5", "+1", "0x50", "99999999999999999999"} {
			a := call(t, http.DefaultClient, "GET", s.URL+"/health", nil, "E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", port)
			checkError(t, a, http.StatusBadRequest, "")
		}
		for _, id := range []string{"inobody", strings.ToUpper(b.ID), b.ID + "x", "../" + b.ID, "%2e", strings.Repeat("i", 10_000)} {
			a := call(t, http.DefaultClient, "GET", s.URL+"/health", nil, "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", portEnvd)
			if a.Status != http.StatusBadGateway && a.Status != http.StatusBadRequest {
				t.Errorf("%.40q: %v", id, a)
			}
			checkError(t, a, a.Status, "")
		}
		client := s.viaProxy(t)
		for _, host := range []string{"49983-inobody.example.test", "0-" + b.ID + ".example.test", "70000-" + b.ID + ".example.test", "abc-" + b.ID + ".example.test", "49983-.example.test"} {
			if a := call(t, client, "GET", "http://"+host+"/files?path=/etc/hostname", nil, "X-API-KEY", s.Key); a.Status < 400 {
				t.Errorf("%s: %v", host, a)
			}
		}
	})
	t.Run("tokens", func(t *testing.T) {
		for name, header := range map[string][]string{
			"none":          {"E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", portEnvd},
			"wrong":         envdOf(b.ID, strings.Repeat("f", len(b.Token))),
			"another's":     envdOf(b.ID, other.Token),
			"the API key":   envdOf(b.ID, s.Key),
			"a bit shorter": envdOf(b.ID, b.Token[:len(b.Token)-1]),
		} {
			t.Run(name, func(t *testing.T) {
				for _, ask := range [][2]string{{"GET", "/files?path=/etc/hostname"}, {"POST", "/filesystem.Filesystem/ListDir"}, {"POST", "/process.Process/List"}, {"GET", "/metrics"}, {"GET", "/envs"}} {
					a := call(t, http.DefaultClient, ask[0], s.URL+ask[1], "{}", header...)
					if a.Status != http.StatusUnauthorized || trace.Match(a.Body) {
						t.Errorf("%s: %v", ask, a)
					}
				}
				if _, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "id"}, header...); err == nil {
					t.Error("a command ran")
				}
				code := append([]string{}, header...)
				code[3] = portCode
				if a := call(t, http.DefaultClient, "POST", s.URL+"/execute", `{"code":"1"}`, code...); a.Status != http.StatusUnauthorized {
					t.Errorf("code: %v", a)
				}
			})
		}
	})
	t.Run("a token alone leads to its own sandbox", func(t *testing.T) {
		s.upload(t, b, "/tmp/whose", "mine")
		s.upload(t, other, "/tmp/whose", "theirs")
		for token, want := range map[string]string{b.Token: "mine", other.Token: "theirs"} {
			if a := call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/whose", nil, "X-Access-Token", token); string(a.Body) != want {
				t.Errorf("%v", a)
			}
		}
		a := call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/whose", nil, "X-Access-Token", strings.Repeat("0", len(b.Token)))
		if a.Status < 400 {
			t.Errorf("nobody's token: %v", a)
		}
	})
	t.Run("what is the host's alone", func(t *testing.T) {
		for _, path := range []string{"/init", "/cubby/oom", "//init", "/./init", "/x/../init", "/%69nit"} {
			if a := call(t, http.DefaultClient, "POST", s.URL+path, `{"accessToken":"mine now"}`, b.routed(portEnvd)...); a.Status < 300 || a.Status >= 500 {
				t.Errorf("%s: %v", path, a)
			}
		}
		if a := call(t, http.DefaultClient, "GET", s.URL+"/files?path=/etc/hostname", nil, b.routed(portEnvd)...); a.Status != 200 {
			t.Errorf("and the token is as before: %v", a)
		}
	})
	t.Run("files", func(t *testing.T) {
		for _, test := range []struct {
			name, method, query, body string
			status                    []int
			header                    []string
		}{
			{"not there", "GET", "path=/no/such", "", []int{404}, nil},
			{"a folder", "GET", "path=/tmp", "", []int{400}, nil},
			{"NUL", "GET", "path=%2Ftmp%2Fa%00b", "", []int{400}, nil},
			{"a huge path", "GET", "path=/" + strings.Repeat("a/", 20_000), "", []int{400, 404, 414}, nil},
			{"a long name", "GET", "path=/tmp/" + strings.Repeat("a", 300), "", []int{400, 404}, nil},
			{"unknown user", "GET", "path=/tmp/x&username=../../root", "", []int{401}, nil},
			{"write through a file", "POST", "path=/etc/hostname/x", "x", []int{400, 500}, []string{"Content-Type", "application/octet-stream"}},
			{"write without a path", "POST", "", "x", []int{400}, []string{"Content-Type", "application/octet-stream"}},
			{"no form", "POST", "path=/tmp/x", "x", []int{400}, []string{"Content-Type", "multipart/form-data"}},
			{"half a form", "POST", "path=/tmp/x", "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhalf", []int{400}, []string{"Content-Type", "multipart/form-data; boundary=b"}},
			{"no gzip", "POST", "path=/tmp/x", "x", []int{400}, []string{"Content-Type", "application/octet-stream", "Content-Encoding", "gzip"}},
			{"encoding unheard of", "POST", "path=/tmp/x", "x", []int{400, 415}, []string{"Content-Type", "application/octet-stream", "Content-Encoding", "br"}},
			{"bad signature", "GET", "path=/tmp/whose&signature=v1_nonsense", "", []int{401, 200}, nil},
			{"bad range", "GET", "path=/tmp/whose", "", []int{416, 200}, []string{"Range", "bytes=9-1"}},
		} {
			t.Run(test.name, func(t *testing.T) {
				a := call(t, http.DefaultClient, test.method, s.URL+"/files?"+test.query, test.body, append(b.routed(portEnvd), test.header...)...)
				for _, status := range test.status {
					if a.Status == status {
						if trace.Match(a.Body) {
							t.Errorf("%v", a)
						}
						return
					}
				}
				t.Errorf("want %v, got %v", test.status, a)
			})
		}
	})
	t.Run("remote procedures", func(t *testing.T) {
		stream := []string{"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1"}
		for _, test := range []struct {
			name, path string
			body       []byte
			header     []string
		}{
			{"no such method", "/process.Process/Nothing", []byte("{}"), nil},
			{"no JSON", "/process.Process/List", []byte("{"), nil},
			{"wrong types", "/filesystem.Filesystem/ListDir", []byte(`{"path":5,"depth":"x"}`), nil},
			{"negative depth", "/filesystem.Filesystem/ListDir", []byte(`{"path":"/","depth":-1}`), nil},
			{"content type", "/process.Process/Start", []byte("{}"), []string{"Content-Type", "text/plain"}},
			{"half an envelope", "/process.Process/Start", []byte{0, 0, 0}, stream},
			{"an envelope of four gigabytes", "/process.Process/Start", binary.BigEndian.AppendUint32([]byte{0}, 1<<32-1), stream},
			{"a compressed envelope that is none", "/process.Process/Start", append([]byte{1, 0, 0, 0, 2}, "{}"...), append([]string{"Connect-Content-Encoding", "gzip"}, stream...)},
			{"no command", "/process.Process/Start", envelope(0, map[string]any{}), stream},
			{"NUL in a command", "/process.Process/Start", envelope(0, map[string]any{"process": map[string]any{"cmd": "/bin/ec\x00ho"}}), stream},
			{"no such program", "/process.Process/Start", envelope(0, map[string]any{"process": map[string]any{"cmd": "/no/such"}}), stream},
			{"terminal of no size", "/process.Process/Update", []byte(`{"process":{"pid":1},"pty":{"size":{"cols":99999999,"rows":0}}}`), nil},
			{"signal to the first process", "/process.Process/SendSignal", []byte(`{"process":{"pid":1},"signal":"SIGNAL_SIGKILL"}`), nil},
			{"unknown signal", "/process.Process/SendSignal", []byte(`{"process":{"pid":1},"signal":77}`), nil},
		} {
			t.Run(test.name, func(t *testing.T) {
				a := call(t, http.DefaultClient, "POST", s.URL+test.path, string(test.body), append(b.routed(portEnvd), test.header...)...)
				// A stream tells its error in the last envelope, after a 200.
				if a.Status == http.StatusOK {
					a.Body = lastEnvelope(t, a.Body)
				}
				if failed := a.Status >= 400 || strings.Contains(string(a.Body), `"error"`); !failed || trace.Match(a.Body) {
					t.Errorf("%v", a)
				}
			})
		}
		for _, header := range []string{"-5", "abc", "99999999999999999999"} {
			// A time-out that is none is either refused or no time-out.
			if out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "echo fine", Timeout: header},
				b.routed(portEnvd)...); err == nil && out.Stdout != "fine\n" {
				t.Errorf("time-out %s: %+v", header, out)
			}
		}
	})
	t.Run("code", func(t *testing.T) {
		for _, test := range []struct {
			body   string
			status int
		}{
			{`{`, 400}, {`[]`, 400}, {`{"code":5}`, 400},
			{`{"code":"1","context_id":"a","language":"python"}`, 400},
			{`{"code":"1","context_id":"none"}`, 404},
			{`{"code":"1","language":"cobol"}`, 404},
		} {
			if a := call(t, http.DefaultClient, "POST", s.URL+"/execute", test.body, b.routed(portCode)...); a.Status != test.status || trace.Match(a.Body) {
				t.Errorf("%s: want %d, got %v", test.body, test.status, a)
			}
		}
	})
	t.Run("and everything still works", func(t *testing.T) {
		for _, b := range []box{b, other} {
			if out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "echo fine"}, b.routed(portEnvd)...); err != nil || out.Stdout != "fine\n" {
				t.Errorf("%+v, %v", out, err)
			}
		}
	})
}

// lastEnvelope is the message that ends a stream. Who sends compressed ones gets
// them.
func lastEnvelope(t *testing.T, stream []byte) []byte {
	t.Helper()
	for len(stream) >= 5 {
		flags, size := stream[0], binary.BigEndian.Uint32(stream[1:])
		message := stream[5:]
		if uint64(size) > uint64(len(message)) {
			break
		}
		message, stream = message[:size], message[size:]
		switch {
		case flags&2 == 0:
			continue
		case flags&1 == 0:
			return message
		}
		r, err := gzip.NewReader(bytes.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		if message, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		return message
	}
	t.Fatalf("the stream has no end: %q", stream)
	return nil
}

// TestNoGrowth treats the server as no client should, many times, and then asks
// what it still holds.
func TestNoGrowth(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	address := strings.TrimPrefix(s.URL, "http://")
	head := "E2b-Sandbox-Id: " + b.ID + "\r\nE2b-Sandbox-Port: " + portEnvd + "\r\nX-Access-Token: " + b.Token + "\r\n"
	if out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "head -c 300M /dev/zero > /tmp/big"}, b.routed(portEnvd)...); err != nil || out.Exit != 0 {
		t.Fatalf("%+v, %v", out, err)
	}

	var halves atomic.Int32
	abuses := map[string]func(context.Context) error{
		"half a request head": func(ctx context.Context) error {
			return say(ctx, address, "GET /sandboxes HTTP/1.1\r\nHost: x\r\nX-API")
		},
		"half a body": func(ctx context.Context) error {
			return say(ctx, address, "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: "+s.Key+"\r\nContent-Length: 500000\r\n\r\n{\"templateID\":")
		},
		"half an upload": func(ctx context.Context) error {
			return say(ctx, address, fmt.Sprintf("POST /files?path=/tmp/half-%d HTTP/1.1\r\nHost: x\r\n", halves.Add(1))+head+"Content-Type: application/octet-stream\r\nContent-Length: 100000000\r\n\r\n"+strings.Repeat("x", 100_000))
		},
		"half an envelope": func(ctx context.Context) error {
			return say(ctx, address, "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n"+head+"Content-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\x00\x00\x00\r\n")
		},
		"a stream that is left": func(ctx context.Context) error {
			frame := string(envelope(0, map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-c", "echo; exec sleep 2"}}}))
			return say(ctx, address, fmt.Sprintf("POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n%s", head, len(frame), frame))
		},
		"a download that is not read": func(ctx context.Context) error {
			return say(ctx, address, "GET /files?path=/tmp/big HTTP/1.1\r\nHost: x\r\n"+head+"\r\n")
		},
		"half a tunnel": func(ctx context.Context) error {
			return say(ctx, address, "CONNECT "+portEnvd+"-"+b.ID+".example.test:80 HTTP/1.1\r\nHost: x\r\n\r\nGET /he")
		},
		"no HTTP": func(ctx context.Context) error {
			return say(ctx, address, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
		},
		"a watch that is left": func(ctx context.Context) error {
			frame := string(envelope(0, map[string]any{"path": "/tmp", "recursive": true}))
			return say(ctx, address, fmt.Sprintf("POST /filesystem.Filesystem/WatchDir HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n%s", head, len(frame), frame))
		},
		"code that is left": func(ctx context.Context) error {
			body := `{"code":"import time; time.sleep(1)"}`
			return say(ctx, address, fmt.Sprintf("POST /execute HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", strings.Replace(head, portEnvd, portCode, 1), len(body), body))
		},
		"a sandbox that is not waited for": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := try(ctx, http.DefaultClient, "POST", s.URL+"/v2/sandboxes", `{"templateID":"base","timeout":5}`, "X-API-KEY", s.Key)
			if errors.Is(err, context.DeadlineExceeded) {
				return nil
			}
			return err
		},
	}
	round := func(times int) {
		var wg sync.WaitGroup
		for name, abuse := range abuses {
			n := times
			if strings.HasPrefix(name, "a sandbox") {
				n = min(n, 2) // each costs a machine's start
			}
			for range n {
				wg.Go(func() {
					if err := abuse(t.Context()); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		wg.Wait()
		until(t, "only the one sandbox is left", func() error {
			var all []struct{ SandboxID string }
			call(t, http.DefaultClient, "GET", s.URL+"/sandboxes", nil, "X-API-KEY", s.Key).decode(t, 200, &all)
			if len(all) != 1 {
				return fmt.Errorf("%d sandboxes", len(all))
			}
			return nil
		})
	}
	// What a round needs at once stays with the process until its collector has run
	// a few times: small requests make it run.
	usage := func() (kib, descriptors int) {
		for range 2000 {
			call(t, http.DefaultClient, "GET", s.URL+"/v2/sandboxes", nil, "X-API-KEY", s.Key)
		}
		http.DefaultClient.CloseIdleConnections()
		return s.usage(t)
	}
	for range 2 {
		round(20)
	}
	kib, fds := usage()
	t.Logf("after two rounds: %d KiB private, %d descriptors", kib, fds)
	for range 4 {
		round(20)
	}
	until(t, "what was used is given back", func() error {
		// Over 800 requests: a buffer or a stack that each of them kept would be seen.
		if k, f := usage(); k > kib+16<<10 || f > fds+5 {
			return fmt.Errorf("%d KiB private and %d descriptors, %d and %d before", k, f, kib, fds)
		}
		return nil
	})
	until(t, "the sandbox is as it was", func() error {
		out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "ls -A /tmp | grep -vx .cubby; pgrep -c sleep || true"}, b.routed(portEnvd)...)
		if err != nil || out.Stdout != "big\n0\n" {
			return fmt.Errorf("%+v, %v", out, err)
		}
		return nil
	})
}

// say sends text and keeps the connection for a moment, without reading: then it
// hangs up.
func say(ctx context.Context, address, text string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The server may hang up first, and is right to.
	if _, err := io.WriteString(conn, text); err != nil {
		return nil
	}
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil
}

// TestLogs: an access log, and nothing in it that is nobody's business.
func TestLogs(t *testing.T) {
	s := start(t)
	b := s.create(t, s.Key)
	const secret = "secret-of-the-body"
	s.upload(t, b, "/tmp/x", secret)
	if out, err := run(t.Context(), http.DefaultClient, s.URL, command{Text: "echo " + secret, Envs: map[string]string{"K": secret}},
		b.routed(portEnvd)...); err != nil || out.Exit != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	call(t, http.DefaultClient, "GET", s.URL+"/files?path=/tmp/x&signature="+url.QueryEscape("v1_"+secret), nil)
	call(t, http.DefaultClient, "GET", s.URL+"/sandboxes?metadata="+secret, nil, "X-API-KEY", "e2b_"+secret)
	until(t, "the log has a line of the upload", func() error {
		if text := s.log.tail(1 << 20); !strings.Contains(text, "/files") || !strings.Contains(text, b.ID) {
			return errors.New(text)
		}
		return nil
	})
	for name, text := range map[string]string{"body, query or variable": secret, "API key": s.Key, "access token": b.Token} {
		if strings.Contains(s.log.tail(1<<20), text) {
			t.Errorf("the log has the %s", name)
		}
	}
}
