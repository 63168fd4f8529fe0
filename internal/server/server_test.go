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
		{"get unknown", "GET", "/sandboxes/inone", "", nil, 404, `Sandbox \"inone\" doesn't exist or you don't have access to it`},
		{"kill unknown", "DELETE", "/sandboxes/inone", "", nil, 404, "doesn't exist"},
		{"not JSON", "POST", "/v2/sandboxes", "{", nil, 400, "Error parsing body"},
		{"wrong type", "POST", "/v2/sandboxes", `{"timeout":"long"}`, nil, 400, "Error parsing body"},
		{"huge body", "POST", "/v2/sandboxes", `{"templateID":"` + strings.Repeat("x", 2<<20) + `"}`, nil, 400, "too large"},
		{"unknown template", "POST", "/v2/sandboxes", `{"templateID":"nope"}`, nil, 404, "template 'nope' not found"},
		{"negative timeout", "POST", "/v2/sandboxes", `{"timeout":-1}`, nil, 400, "Timeout must be greater than 0"},
		{"endless timeout", "POST", "/v2/sandboxes", `{"timeout":9999999}`, nil, 400, "Timeout cannot be greater than 24 hours"},
		{"tiny memory", "POST", "/v2/sandboxes", `{"cubbyLimits":{"memoryMB":1}}`, nil, 400, "memory must be between"},
		{"every bad limit is named", "POST", "/v2/sandboxes", `{"cubbyLimits":{"pids":1,"cpus":-2}}`, nil, 400, "pids must be between"},
		{"not there yet", "POST", "/sandboxes/inone/pause", "", nil, 501, "not implemented"},
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

func TestHealth(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{Host: host.New(host.Config{})}).ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	if w.Code != http.StatusNoContent {
		t.Errorf("%d", w.Code)
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
