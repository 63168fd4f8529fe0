package server

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestKeys: who may call, and what the others are told.
func TestKeys(t *testing.T) {
	a := newAPI(t, nil)
	for _, test := range []struct {
		name   string
		header http.Header
		status int
		says   string
	}{
		{"a key", http.Header{"X-Api-Key": {redKey}}, 200, `"teamID":"red"`},
		{"as a bearer", http.Header{"Authorization": {"Bearer " + blueKey}}, 200, `"teamID":"blue"`},
		{"the first of both", http.Header{"X-Api-Key": {redKey}, "Authorization": {"Bearer " + blueKey}}, 200, `"teamID":"red"`},
		{"none", nil, 401, "authorization header is missing"},
		{"empty", http.Header{"X-Api-Key": {""}}, 401, "authorization header is missing"},
		{"another scheme", http.Header{"Authorization": {"Basic " + redKey}}, 401, "authorization header is missing"},
		{"an empty bearer", http.Header{"Authorization": {"Bearer "}}, 401, "authorization header is missing"},
		{"another form", http.Header{"X-Api-Key": {"sk-something"}}, 401, "authorization header is malformed"},
		{"a wrong one", http.Header{"X-Api-Key": {"e2b_00"}}, 401, "Invalid API key, please visit https://e2b.dev/docs/api-key for more information."},
		{"a wrong bearer", http.Header{"Authorization": {"Bearer sk_e2b_00"}}, 401, "Invalid API key"},
		{"wrong by its case", http.Header{"X-Api-Key": {"e2b_" + strings.ToUpper(redKey[4:])}}, 401, "Invalid API key"},
		{"endless", http.Header{"X-Api-Key": {"e2b_" + strings.Repeat("0", 1<<16)}}, 401, "Invalid API key"},
		{"one that cannot be looked up", http.Header{"X-Api-Key": {"e2b_unreadable"}}, 503, "API keys cannot be looked up now"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := *a
			b.header = test.header
			got := b.call("GET", "/teams", "")
			if got.status != test.status || !strings.Contains(got.body, test.says) {
				t.Errorf("%d %s", got.status, got.body)
			}
			for _, secret := range []string{"disk I/O", "/var/lib", redKey, blueKey, "sk-something"} {
				if strings.Contains(got.body, secret) {
					t.Errorf("the answer tells %q", secret)
				}
			}
		})
	}
	t.Run("every route asks for one", func(t *testing.T) {
		b := *a
		b.header = nil
		for _, route := range []string{
			"POST /v2/sandboxes", "POST /sandboxes", "GET /v2/sandboxes", "GET /sandboxes", "GET /sandboxes/metrics", "GET /sandboxes/i",
			"DELETE /sandboxes/i", "POST /sandboxes/i/connect", "POST /v2/sandboxes/i/connect", "POST /sandboxes/i/resume",
			"POST /sandboxes/i/timeout", "POST /sandboxes/i/refreshes", "GET /sandboxes/i/metrics", "GET /sandboxes/i/logs",
			"GET /v2/sandboxes/i/logs", "POST /sandboxes/i/pause", "POST /sandboxes/i/snapshots", "POST /sandboxes/i/fork",
			"POST /sandboxes/i/rollback", "DELETE /templates/i", "DELETE /templates/i/j",
			"GET /cubby/disk", "DELETE /cubby/disk",
			"PUT /sandboxes/i/network", "GET /teams", "GET /snapshots", "POST /v3/templates", "GET /volumes",
			"GET /secrets", "POST /secrets", "GET /secrets/x", "POST /secrets/x", "DELETE /secrets/x",
		} {
			method, path, _ := strings.Cut(route, " ")
			if c := b.call(method, path, "{}"); c.status != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", route, c.status, c.body)
			}
		}
	})
}

// TestForeignID: a team cannot tell another team's sandbox from one that never
// was, whatever it calls, byte for byte.
func TestForeignID(t *testing.T) {
	red := newAPI(t, nil)
	blue := red.as(blueKey)
	live := red.create("{}")
	ended := red.create("{}")
	if c := red.call("DELETE", "/sandboxes/"+ended, ""); c.status != http.StatusNoContent {
		t.Fatal(c)
	}
	never := "i" + strings.Repeat("0", len(live)-1)
	for _, route := range []struct{ method, path, body string }{
		{"GET", "/sandboxes/{id}", ""},
		{"DELETE", "/sandboxes/{id}", ""},
		{"POST", "/v2/sandboxes/{id}/connect", `{"timeout":10}`},
		{"POST", "/sandboxes/{id}/connect", `{"timeout":-1}`},
		{"POST", "/sandboxes/{id}/resume", "{}"},
		{"POST", "/sandboxes/{id}/timeout", `{"timeout":0}`},
		{"POST", "/sandboxes/{id}/timeout", `rubbish`},
		{"POST", "/sandboxes/{id}/refreshes", `{"duration":100}`},
		{"POST", "/sandboxes/{id}/pause", ""},
		{"POST", "/sandboxes/{id}/snapshots", "{}"},
		{"POST", "/sandboxes/{id}/fork", "{}"},
		{"PUT", "/sandboxes/{id}/network", "{}"},
		{"GET", "/sandboxes/{id}/metrics", ""},
		{"GET", "/sandboxes/metrics?sandbox_ids={id}", ""},
		{"GET", "/sandboxes/{id}/logs", ""},
		{"GET", "/v2/sandboxes/{id}/logs", ""},
	} {
		answer := func(id string) string {
			c := blue.call(route.method, strings.ReplaceAll(route.path, "{id}", id), route.body)
			keys := slices.Sorted(maps.Keys(c.header))
			return strings.ReplaceAll(fmt.Sprint(c.status, keys, c.body), id, "{id}")
		}
		want := answer(never)
		for name, id := range map[string]string{"a live one": live, "an ended one": ended} {
			if got := answer(id); got != want {
				t.Errorf("%s %s of %s:\n%s\nof one that never was:\n%s", route.method, route.path, name, got, want)
			}
		}
	}
	if c := red.call("GET", "/sandboxes/"+live, ""); c.status != http.StatusOK {
		t.Errorf("it did something to it: %v", c)
	}
	if c := blue.call("GET", "/v2/sandboxes", ""); c.body != "[]\n" || c.header.Get("X-Total-Running") != "0" {
		t.Errorf("listed: %v", c)
	}
}

// TestCrossOrigin: a web page may call a server that asks for keys, and no other.
func TestCrossOrigin(t *testing.T) {
	a := newAPI(t, nil)
	a.header = http.Header{"Origin": {"https://app.example"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"x-api-key,content-type"}}
	c := a.call("OPTIONS", "/v2/sandboxes", "")
	if c.status != http.StatusNoContent || c.header.Get("Access-Control-Allow-Origin") != "*" || c.header.Get("Access-Control-Allow-Headers") != "x-api-key,content-type" {
		t.Errorf("%v", c)
	}
	a.handler = New(Config{Host: Local(a.host)})
	if c := a.call("OPTIONS", "/v2/sandboxes", ""); c.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("private: %v", c)
	}
	if c := a.call("GET", "/v2/sandboxes", ""); c.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("private: %v", c)
	}
}
