//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/files"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func TestTokenOfTheCodeInterpreter(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{AccessToken: "secret"})
	resp := b.request(context.Background(), guesttest.Call{Code: "1"})
	resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Fatal(resp.Status)
	}
	if a := b.run(guesttest.Call{Code: "print(1)", Header: map[string]string{protocol.HeaderAccessToken: "secret"}}); a.Stdout != "1\n" {
		t.Fatalf("%q", a.Stdout)
	}
	resp, err := http.Get(b.code.URL + "/contexts")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err, resp.Status)
	}
	resp.Body.Close()
}

func TestHealth(t *testing.T) {
	b := newBox(t)
	if resp, _ := b.do("GET", "/health", nil); resp.StatusCode != 204 || resp.Header.Get(protocol.HeaderVersion) != guestversion.Build() {
		t.Fatal(resp.Status, resp.Header)
	}
}

func TestToken(t *testing.T) {
	b := newBox(t)
	_ = os.WriteFile(filepath.Join(b.home, "f"), []byte("secret text"), 0o644)
	b.tell(protocol.InitRequest{AccessToken: "T"})
	signed := func(operation, expires string) string {
		q := url.Values{"path": {"f"}, "signature": {files.Signature("f", operation, "", "T", expires)}}
		if expires != "" {
			q.Set("signature_expiration", expires)
		}
		return q.Encode()
	}
	later, earlier := strconv.FormatInt(time.Now().Unix()+60, 10), strconv.FormatInt(time.Now().Unix()-60, 10)
	for _, c := range []struct {
		name, method, path, token string
		status                    int
		message                   string
	}{
		{"health is open", "GET", "/health", "", 204, ""},
		{"no token", "GET", "/files?path=f", "", 401, "missing signature query parameter"},
		{"token", "GET", "/files?path=f", "T", 200, "secret text"},
		{"wrong token", "GET", "/files?path=f", "t", 401, `{"code":401,"message":"access token present in header but does not match"}`},
		{"wrong token, right signature", "GET", "/files?" + signed("read", ""), "t", 401, "does not match"},
		{"signature", "GET", "/files?" + signed("read", ""), "", 200, "secret text"},
		{"signature in time", "GET", "/files?" + signed("read", later), "", 200, "secret text"},
		{"signature too late", "GET", "/files?" + signed("read", earlier), "", 401, `{"code":401,"message":"signature is already expired"}`},
		{"forged and too late", "GET", "/files?path=f&signature=v1_x&signature_expiration=" + earlier, "", 401, `{"code":401,"message":"invalid signature"}`},
		{"later than signed", "GET", "/files?" + strings.Replace(signed("read", earlier), earlier, later, 1), "", 401, "invalid signature"},
		{"time is no number", "GET", "/files?path=f&signature=v1_x&signature_expiration=soon", "", 400, "Invalid format for parameter signature_expiration"},
		{"another path", "GET", "/files?" + strings.Replace(signed("read", ""), "path=f", "path=g", 1), "", 401, "invalid signature"},
		{"the same file by another path", "GET", "/files?" + strings.Replace(signed("read", ""), "path=f", "path=./f", 1), "", 401, "invalid signature"},
		{"another user", "GET", "/files?username=root&" + signed("read", ""), "", 401, "invalid signature"},
		{"signature for writing", "GET", "/files?" + signed("write", ""), "", 401, "invalid signature"},
		{"signature for reading", "POST", "/files?" + signed("read", ""), "", 401, "invalid signature"},
		{"head", "HEAD", "/files?" + signed("read", ""), "", 200, ""},
		{"upload without", "POST", "/files?path=f", "", 401, "missing signature"},
		{"init without", "POST", "/init", "", 401, "unauthorized access"},
		{"init with the client's", "POST", "/init", "T", 401, "unauthorized access"},
		{"envs without", "GET", "/envs", "", 401, "unauthorized access"},
		{"envs", "GET", "/envs", "T", 200, "{}"},
		{"metrics without", "GET", "/metrics", "", 401, "unauthorized access"},
		{"compose without", "POST", "/files/compose", "", 401, "unauthorized access"},
		{"compose with a signature", "POST", "/files/compose?" + signed("write", ""), "", 401, "unauthorized access"},
		{"oom without", "POST", "/cubby/oom", "", 401, "unauthorized access"},
		{"activity without", "GET", "/cubby/activity", "", 401, "unauthorized access"},
		{"process without", "POST", "/process.Process/List", "", 401, "unauthorized access"},
		{"nothing without", "GET", "/nothing", "", 401, "unauthorized access"},
		{"nothing", "GET", "/nothing", "T", 404, `{"code":404,"message":"there is no GET /nothing"}`},
		{"rpc without", "POST", "/filesystem.Filesystem/Stat", "", 401, "unauthorized access"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &box{T: t, g: b.g, envd: b.envd}
			var header []string
			if c.token != "" {
				header = []string{protocol.HeaderAccessToken, c.token}
			}
			resp, text := b.do(c.method, c.path, nil, header...)
			if resp.StatusCode != c.status || !strings.Contains(text, c.message) {
				t.Fatal(resp.Status, text)
			}
		})
	}
}

// TestTokensOfARestoredMachine has the host greet one that was checkpointed as a
// sandbox with tokens: neither of the old ones opens a copy, whatever the copy has.
func TestTokensOfARestoredMachine(t *testing.T) {
	for _, c := range []struct {
		name     string
		req      protocol.InitRequest
		status   int
		old, own int // of a call with the source's token, and with the request's
	}{
		{"resumed", protocol.InitRequest{Restored: protocol.RestoredResume, HostToken: "host2"}, 204, 200, 401},
		{"a copy with a token", protocol.InitRequest{Restored: protocol.RestoredCopy, HostToken: "host2", AccessToken: "T2"}, 204, 401, 200},
		{"an open copy", protocol.InitRequest{Restored: protocol.RestoredCopy, HostToken: "host2"}, 204, 200, 200},
		{"a copy of the host's old token", protocol.InitRequest{Restored: protocol.RestoredCopy, HostToken: guesttest.HostToken}, 400, 200, 401},
		{"a copy without one", protocol.InitRequest{Restored: protocol.RestoredCopy}, 400, 200, 401},
		{"neither", protocol.InitRequest{Restored: "thawed"}, 400, 200, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			b.tell(protocol.InitRequest{AccessToken: "T"})
			init := func(token string) *http.Response {
				body, err := json.Marshal(c.req)
				guesttest.Must(t, err)
				resp, _ := b.do("POST", "/init", bytes.NewReader(body), protocol.HeaderHostToken, token)
				return resp
			}
			if got := init(guesttest.HostToken); got.StatusCode != c.status {
				t.Fatal(got.Status)
			}
			if got := init(guesttest.HostToken); c.status == 204 && got.StatusCode != 401 {
				t.Errorf("with the host's old token: %s", got.Status)
			}
			for token, want := range map[string]int{"T": c.old, c.req.AccessToken: c.own} {
				if resp, _ := b.do("GET", "/envs", nil, protocol.HeaderAccessToken, token); resp.StatusCode != want {
					t.Errorf("with the token %q: %s, want %d", token, resp.Status, want)
				}
			}
		})
	}
}

func TestBrowsersMayCall(t *testing.T) {
	b := newBox(t)
	b.tell(protocol.InitRequest{AccessToken: "T"})
	for _, path := range []string{"/files", "/envs", "/filesystem.Filesystem/Stat", "/process.Process/Start"} {
		resp, _ := b.do("OPTIONS", path, nil, "Origin", "https://example.com", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-access-token")
		if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "*" || resp.Header.Get("Access-Control-Allow-Headers") != "authorization,x-access-token" {
			t.Errorf("%s: %s %v", path, resp.Status, resp.Header)
		}
		resp, _ = b.do("POST", path, nil, "Origin", "https://example.com")
		if resp.StatusCode != 401 || resp.Header.Get("Access-Control-Allow-Origin") != "*" || resp.Header.Get("Access-Control-Expose-Headers") != "*" {
			t.Errorf("%s, refused: %s %v", path, resp.Status, resp.Header)
		}
	}
	req, _ := http.NewRequest("OPTIONS", b.code.URL+"/execute", nil)
	req.Header.Set("Access-Control-Request-Method", "POST")
	resp, err := guesttest.Plain.Do(req)
	if err != nil || resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Error(resp, err)
	}
}
