package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/host"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestErrors asks for what cannot be had. No sandbox is needed for that; what
// needs one is tested through package embedded.
func TestErrors(t *testing.T) {
	s := New(Config{Host: host.New(host.Config{})})
	routed := func(id, port string) http.Header {
		return http.Header{protocol.HeaderSandboxID: {id}, protocol.HeaderSandboxPort: {port}}
	}
	for _, test := range []struct {
		name, method, path, body string
		header                   http.Header
		status                   int
		says                     string
	}{
		{"data plane, unknown sandbox", "GET", "/health", "", routed("inone", "49983"), 502, "The sandbox was not found"},
		{"data plane, no port", "GET", "/health", "", routed("inone", ""), 400, "Invalid sandbox port"},
		{"data plane, port out of range", "GET", "/health", "", routed("inone", "70000"), 400, "Invalid sandbox port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
			for k, v := range test.header {
				r.Header[http.CanonicalHeaderKey(k)] = v
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			var body struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatalf("not JSON: %q", w.Body)
			}
			if w.Code != test.status || body.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// TestHostOnly: what the host tells a guest is nobody else's to say.
func TestHostOnly(t *testing.T) {
	for path, want := range map[string]bool{"/init": true, "/cubby/oom": true, "/files": false, "/health": false, "/initial": false} {
		if got := hostOnly(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
