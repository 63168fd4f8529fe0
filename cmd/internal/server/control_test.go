package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Keys of the tests' teams, in the form of E2B's.
const (
	redKey  = "e2b_0123456789abcdef0123456789abcdef01234567"
	blueKey = "e2b_fedcba9876543210fedcba9876543210fedcba98"
)

// teamKeys is a Keys of a map; the key "e2b_unreadable" cannot be looked up.
type teamKeys map[string]string

func (k teamKeys) TeamOfKey(_ context.Context, secret string) (string, error) {
	if secret == "e2b_unreadable" {
		return "", errors.New("/var/lib/cubby/cubby.db: disk I/O error")
	}
	if team, ok := k[secret]; ok {
		return team, nil
	}
	return "", host.ErrNotFound
}

// api is a server whose control plane is called without a network.
type api struct {
	t       testing.TB
	host    *host.Host
	engine  *hosttest.Engine
	handler http.Handler
	header  http.Header // of each call
}

// newAPI serves the teams red and blue, and calls as red.
func newAPI(t testing.TB, set func(*host.Config)) *api {
	t.Helper()
	a := &api{t: t, engine: &hosttest.Engine{}, header: http.Header{"X-Api-Key": {redKey}}}
	cfg := host.Config{Engine: a.engine, MaxSandboxes: 1000, Templates: host.Toolchain(host.Template{}, "tpl-1")}
	if set != nil {
		set(&cfg)
	}
	a.host = host.New(cfg)
	t.Cleanup(func() {
		if err := a.host.Close(); err != nil {
			t.Error(err)
		}
	})
	a.handler = New(Config{Host: Local(a.host), Domain: "sbx.example", Keys: teamKeys{redKey: "red", blueKey: "blue"}})
	return a
}

// as calls with another key.
func (a *api) as(key string) *api {
	b := *a
	b.header = maps.Clone(a.header)
	b.header.Set("X-Api-Key", key)
	return &b
}

// called is an answer of the control plane.
type called struct {
	status int
	header http.Header
	body   string
}

func (a *api) call(method, path, body string) called {
	a.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	maps.Copy(r.Header, a.header)
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	c := called{w.Code, w.Result().Header, w.Body.String()}
	if c.status >= 400 {
		a.isError(c)
	}
	return c
}

// isError checks that an answer is E2B's JSON for an error, with its code in the
// body, for several of its clients look nowhere else.
func (a *api) isError(c called) {
	a.t.Helper()
	var e protocol.Error
	d := json.NewDecoder(strings.NewReader(c.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Code != c.status || e.Message == "" || c.header.Get("Content-Type") != "application/json" {
		a.t.Errorf("%d %v is no error of E2B's: %q (%v)", c.status, c.header, c.body, err)
	}
}

// into decodes an answer with the status that is wanted.
func (a *api) into(c called, status int, v any) {
	a.t.Helper()
	if c.status != status {
		a.t.Fatalf("%d, want %d: %s", c.status, status, c.body)
	}
	if err := json.Unmarshal([]byte(c.body), v); err != nil {
		a.t.Fatalf("%v: %s", err, c.body)
	}
}

// create makes a sandbox and returns its id.
func (a *api) create(body string) string {
	a.t.Helper()
	var answer protocol.Sandbox
	a.into(a.call("POST", "/v2/sandboxes", body), http.StatusCreated, &answer)
	return answer.SandboxID
}

func (a *api) detail(id string) protocol.SandboxDetail {
	a.t.Helper()
	var d protocol.SandboxDetail
	a.into(a.call("GET", "/sandboxes/"+id, ""), http.StatusOK, &d)
	return d
}

// TestControlPlane calls every route that there is, with what E2B's clients send.
func TestControlPlane(t *testing.T) {
	const all = `{"templateID":"base","timeout":300,"metadata":{"user":"ann"},"envVars":{"A":"b"},"autoPause":false,` +
		`"allow_internet_access":true,"network":{"allowPublicTraffic":true},"from":"a newer client"}`
	for _, test := range []struct {
		name, method, path, body string // "{id}" in the path is a live sandbox
		status                   int
		says                     string
	}{
		{"create, v2", "POST", "/v2/sandboxes", all, 201, `"envdVersion":"0.6.13"`},
		{"create, v2, nothing asked", "POST", "/v2/sandboxes", `{}`, 201, `"templateID":"base"`},
		{"create, v1", "POST", "/sandboxes", `{"templateID":"code-interpreter-v1","secure":true,"timeout":300}`, 201, `"clientID":"6532622b"`},
		{"create of the owner's template", "POST", "/sandboxes", `{"templateID":"tpl-1"}`, 201, `"templateID":"tpl-1"`},
		{"create with what is off anyway", "POST", "/v2/sandboxes", `{"autoPause":false,"autoResume":{"enabled":false},"mcp":null,"iam":{"tokens":{}},
			"volumeMounts":[],"network":{"allowOut":[],"denyOut":[],"rules":{},"egressProxy":null,"httpsPorts":[]}}`, 201, `"sandboxID":"i`},
		{"list, v2", "GET", "/v2/sandboxes?state=running,paused&limit=100", "", 200, `"state":"running"`},
		{"list, v1", "GET", "/sandboxes", "", 200, `"state":"running"`},
		{"get", "GET", "/sandboxes/{id}", "", 200, `"lifecycle":{"autoResume":false,"onTimeout":"kill"}`},
		{"get with the client's id", "GET", "/sandboxes/{id}-6532622b", "", 200, `"sandboxID":"{id}"`},
		{"kill", "DELETE", "/sandboxes/{id}", "", 204, ""},
		{"connect, v2", "POST", "/v2/sandboxes/{id}/connect", `{"timeout":60,"memory":false}`, 200, `"sandboxID":"{id}"`},
		{"connect, v2, without a body", "POST", "/v2/sandboxes/{id}/connect", "", 200, `"domain":"sbx.example"`},
		{"connect, v1", "POST", "/sandboxes/{id}/connect", `{"timeout":60}`, 200, `"envdAccessToken":"`},
		{"connect for no time", "POST", "/sandboxes/{id}/connect", `{"timeout":0}`, 200, `"sandboxID":"{id}"`},
		{"resume of what runs", "POST", "/sandboxes/{id}/resume", `{"timeout":60}`, 409, `"Sandbox {id} is already running"`},
		{"timeout", "POST", "/sandboxes/{id}/timeout", `{"timeout":60}`, 204, ""},
		{"timeout of zero", "POST", "/sandboxes/{id}/timeout", `{"timeout":0}`, 204, ""},
		{"refresh", "POST", "/sandboxes/{id}/refreshes", `{"duration":60}`, 204, ""},
		{"refresh without a body", "POST", "/sandboxes/{id}/refreshes", "", 204, ""},
		{"metrics", "GET", "/sandboxes/{id}/metrics", "", 200, "["},
		{"metrics from a time", "GET", "/sandboxes/{id}/metrics?start=1&end=2", "", 200, "[]"},
		{"metrics of many", "GET", "/sandboxes/metrics?sandbox_ids={id},inone", "", 200, `{"sandboxes":{`},
		{"logs, v1", "GET", "/sandboxes/{id}/logs", "", 200, `\"message\":\"Sandbox created\"`},
		{"logs, v2", "GET", "/v2/sandboxes/{id}/logs?direction=backward&level=info&limit=10", "", 200, `"message":"Sandbox created"`},
		{"teams", "GET", "/teams", "", 200, `"teamID":"red"`},
		{"health", "GET", "/health", "", 200, "ok"},
		{"readiness", "GET", "/ready", "", 200, "ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPI(t, nil)
			id := a.create(`{"templateID":"base"}`)
			got := a.call(test.method, strings.ReplaceAll(test.path, "{id}", id), test.body)
			if want := strings.ReplaceAll(test.says, "{id}", id); got.status != test.status || !strings.Contains(got.body, want) {
				t.Errorf("%d %s, want %d %q", got.status, got.body, test.status, want)
			}
		})
	}
}

// TestControlPlaneBadInput: what cannot be understood or had is said so, in E2B's
// words where those are known, and changes nothing.
func TestControlPlaneBadInput(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"empty", "POST", "/v2/sandboxes", "", 400, "the body is no JSON object"},
		{"broken off", "POST", "/v2/sandboxes", `{"templateID":`, 400, "unexpected end of JSON input"},
		{"an array", "POST", "/v2/sandboxes", `[]`, 400, "no JSON object"},
		{"null", "POST", "/v2/sandboxes", `null`, 400, "no JSON object"},
		{"garbage after it", "POST", "/v2/sandboxes", `{} {}`, 400, "after top-level value"},
		{"wrong type", "POST", "/v2/sandboxes", `{"timeout":"long"}`, 400, "timeout: a whole number was expected, not string"},
		{"wrong type inside", "POST", "/v2/sandboxes", `{"metadata":{"a":1}}`, 400, "metadata: a string was expected, not number"},
		{"wrong type of many", "POST", "/v2/sandboxes", `{"metadata":["a"]}`, 400, "metadata: an object was expected, not array"},
		{"half a second", "POST", "/v2/sandboxes", `{"timeout":0.5}`, 400, "timeout: a whole number was expected, not number 0.5"},
		{"beyond any number", "POST", "/v2/sandboxes", `{"timeout":1e999}`, 400, "timeout: a whole number was expected"},
		{"deep", "POST", "/v2/sandboxes", `{"mcp":` + deep + "}", 400, "exceeded max depth"},
		{"huge", "POST", "/v2/sandboxes", `{"templateID":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "too large"},
		{"unknown template", "POST", "/v2/sandboxes", `{"templateID":"nope"}`, 404, "template 'nope' not found"},
		{"unknown tag", "POST", "/v2/sandboxes", `{"templateID":"base:v2"}`, 404, "tag 'v2' does not exist for template 'base'"},
		{"negative timeout", "POST", "/v2/sandboxes", `{"timeout":-1}`, 400, "Timeout must be greater than 0"},
		{"timeout of zero", "POST", "/sandboxes", `{"timeout":0}`, 400, "Timeout must be greater than 0"},
		{"endless timeout", "POST", "/v2/sandboxes", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"variable with =", "POST", "/v2/sandboxes", `{"envVars":{"A=B":"c"}}`, 400, "is no name for a variable"},
		{"variable with NUL", "POST", "/v2/sandboxes", `{"envVars":{"A":"\u0000"}}`, 400, "contains NUL"},
		{"too much metadata", "POST", "/v2/sandboxes", `{"metadata":{"a":"` + strings.Repeat("x", 70000) + `"}}`, 400, "at most 65536"},
		{"tiny memory", "POST", "/v2/sandboxes", `{"cubbyLimits":{"memoryMB":1}}`, 400, "memory must be between"},
		{"every bad limit is named", "POST", "/v2/sandboxes", `{"cubbyLimits":{"pids":1,"cpus":-2}}`, 400, `cpu must be between 0.01 and 1024\npids must be between`},
		{"closed ports without a token", "POST", "/sandboxes", `{"network":{"allowPublicTraffic":false}}`, 400, "unless you enable secure envd access via 'secure' flag"},
		{"https port that is none", "POST", "/v2/sandboxes", `{"network":{"httpsPorts":[0]}}`, 400, "not a port"},
		{"https port of envd", "POST", "/v2/sandboxes", `{"network":{"httpsPorts":[8443,49983]}}`, 400, "cannot be listed"},
		{"mask that splits a header", "POST", "/v2/sandboxes", `{"network":{"maskRequestHost":"a\r\nb"}}`, 400, "no host name"},

		{"get, none", "GET", "/sandboxes/inone", "", 404, `Sandbox \"inone\" doesn't exist or you don't have access to it`},
		{"get, no id", "GET", "/sandboxes/I%20AM", "", 400, "Invalid sandbox ID"},
		{"get, a path", "GET", "/sandboxes/..%2F..%2Fetc", "", 400, "Invalid sandbox ID"},
		{"get, too long", "GET", "/sandboxes/" + strings.Repeat("a", 65), "", 400, "Invalid sandbox ID"},
		{"get, bad client's id", "GET", "/sandboxes/ione-", "", 400, "Invalid sandbox ID"},
		{"kill, none", "DELETE", "/sandboxes/inone", "", 404, "doesn't exist"},
		{"connect, none", "POST", "/v2/sandboxes/inone/connect", "{}", 404, "doesn't exist"},
		{"connect, negative", "POST", "/v2/sandboxes/{id}/connect", `{"timeout":-5}`, 400, "Timeout must not be negative"},
		{"connect, endless", "POST", "/sandboxes/{id}/connect", `{"timeout":9999999999}`, 400, "Timeout cannot be greater than 24 hours"},
		{"connect, no JSON", "POST", "/sandboxes/{id}/connect", `x`, 400, "no JSON object"},
		{"timeout, none", "POST", "/sandboxes/inone/timeout", `{"timeout":1}`, 404, "doesn't exist"},
		{"timeout, negative", "POST", "/sandboxes/{id}/timeout", `{"timeout":-1}`, 400, "Timeout must not be negative"},
		{"timeout, missing", "POST", "/sandboxes/{id}/timeout", `{}`, 400, "timeout is missing"},
		{"timeout, no body", "POST", "/sandboxes/{id}/timeout", "", 400, "no JSON object"},
		{"timeout, endless", "POST", "/sandboxes/{id}/timeout", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"timeout, beyond 64 bits", "POST", "/sandboxes/{id}/timeout", `{"timeout":99999999999999999999}`, 400, "timeout: a whole number was expected"},
		{"refresh, negative", "POST", "/sandboxes/{id}/refreshes", `{"duration":-1}`, 400, "between 0 and 3600"},
		{"refresh, too long", "POST", "/sandboxes/{id}/refreshes", `{"duration":3601}`, 400, "between 0 and 3600"},
		{"resume, none", "POST", "/sandboxes/inone/resume", "{}", 404, "doesn't exist"},
		{"resume, another life", "POST", "/sandboxes/{id}/resume", `{"autoPause":true}`, 400, "autoPause cannot be changed"},
		{"resume, endless", "POST", "/sandboxes/{id}/resume", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"pause, none", "POST", "/sandboxes/inone/pause", "{}", 404, "doesn't exist"},
		{"pause, no JSON", "POST", "/sandboxes/{id}/pause", "[]", 400, "no JSON object"},
		{"pause, wrong type", "POST", "/sandboxes/{id}/pause", `{"memory":"no"}`, 400, "memory: true or false was expected, not string"},
		{"pause, without a folder for it", "POST", "/sandboxes/{id}/pause", "", 501, "sandboxes cannot be paused here"},
		{"snapshot, none", "POST", "/sandboxes/inone/snapshots", "{}", 404, "doesn't exist"},
		{"snapshot, name", "POST", "/sandboxes/{id}/snapshots", `{"name":"Big"}`, 400, "snapshot name 'Big'"},
		{"snapshot, tag", "POST", "/sandboxes/{id}/snapshots", `{"name":"a:b:c"}`, 400, "tag 'b:c'"},
		{"snapshot, another team's", "POST", "/sandboxes/{id}/snapshots", `{"name":"blue/a"}`, 400, "snapshot name 'blue/a'"},
		{"snapshot, a template's name", "POST", "/sandboxes/{id}/snapshots", `{"name":"base"}`, 400, "'base' is the name of a template"},
		{"snapshots, limit", "GET", "/snapshots?limit=0", "", 400, "limit must be a number from 1 on"},
		{"snapshots, cursor", "GET", "/snapshots?nextToken=x", "", 400, "Invalid next token"},
		{"snapshots, no id", "GET", "/snapshots?sandboxID=..", "", 400, "Invalid sandbox ID"},
		{"snapshot that is not there", "DELETE", "/templates/nope", "", 404, "template 'nope' not found"},
		{"snapshot of a team that is not there", "DELETE", "/templates/x/nope:v1", "", 404, "template 'x/nope:v1' not found"},
		{"template as a snapshot", "DELETE", "/templates/base", "", 403, "comes with the server"},
		{"fork, none", "POST", "/sandboxes/inone/fork", "{}", 404, "doesn't exist"},
		{"fork of none", "POST", "/sandboxes/{id}/fork", `{"count":0}`, 400, "Count must be at least 1"},
		{"fork of many", "POST", "/sandboxes/{id}/fork", `{"count":101}`, 400, "Count cannot be greater than 100"},
		{"fork, no time", "POST", "/sandboxes/{id}/fork", `{"timeout":0}`, 400, "Timeout must be greater than 0"},
		{"fork, endless", "POST", "/sandboxes/{id}/fork", `{"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
		{"rollback to nothing", "POST", "/sandboxes/{id}/rollback", `{}`, 400, "snapshotID is missing"},
		{"rollback to none", "POST", "/sandboxes/{id}/rollback", `{"snapshotID":"nope"}`, 404, "snapshot 'nope' not found"},

		{"list, state", "GET", "/v2/sandboxes?state=asleep", "", 400, "state must be running or paused"},
		{"list, order", "GET", "/v2/sandboxes?order=up", "", 400, "order must be asc or desc"},
		{"list, limit of zero", "GET", "/v2/sandboxes?limit=0", "", 400, "limit must be a number from 1 on"},
		{"list, limit", "GET", "/v2/sandboxes?limit=many", "", 400, "limit must be a number from 1 on"},
		{"list, started after", "GET", "/v2/sandboxes?startedAfter=yesterday", "", 400, "startedAfter must be a time"},
		{"list, metadata", "GET", "/v2/sandboxes?metadata=novalue", "", 400, "Error parsing metadata"},
		{"list, metadata's encoding", "GET", "/sandboxes?metadata=a%3D%25zz", "", 400, "Error parsing metadata"},
		{"list, cursor", "GET", "/v2/sandboxes?nextToken=%21%21", "", 400, "Invalid next token"},
		{"list, cursor of nothing", "GET", "/v2/sandboxes?nextToken=" + strings.Repeat("A", 5000), "", 400, "Invalid next token"},
		{"list, cursor of the other order", "GET", "/v2/sandboxes?order=asc&nextToken=" + cursor{time.Now(), "ione", false}.String(), "", 400, "other order"},

		{"metrics, none", "GET", "/sandboxes/inone/metrics", "", 404, "doesn't exist"},
		{"metrics, time", "GET", "/sandboxes/{id}/metrics?start=now", "", 400, "start must be a whole number"},
		{"metrics, negative time", "GET", "/sandboxes/{id}/metrics?end=-1", "", 400, "end must be a whole number"},
		{"metrics, backwards", "GET", "/sandboxes/{id}/metrics?start=2&end=1", "", 400, "start time cannot be after end time"},
		{"metrics of many, of none", "GET", "/sandboxes/metrics", "", 400, "sandbox_ids is missing"},
		{"metrics of too many", "GET", "/sandboxes/metrics?sandbox_ids=" + strings.Repeat("a,", 100) + "a", "", 400, "maximum is 100"},
		{"metrics of many, no id", "GET", "/sandboxes/metrics?sandbox_ids=a,,b", "", 400, "Invalid sandbox ID"},
		{"logs, none", "GET", "/v2/sandboxes/inone/logs", "", 404, "doesn't exist"},
		{"logs, no id", "GET", "/v2/sandboxes/..%2Fx/logs", "", 400, "Invalid sandbox ID"},
		{"logs, level", "GET", "/v2/sandboxes/{id}/logs?level=loud", "", 400, "level must be"},
		{"logs, direction", "GET", "/v2/sandboxes/{id}/logs?direction=up", "", 400, "direction must be"},
		{"logs, cursor", "GET", "/v2/sandboxes/{id}/logs?cursor=x", "", 400, "cursor must be"},
		{"logs, limit", "GET", "/sandboxes/{id}/logs?limit=-1", "", 400, "limit must be"},
		{"logs, search", "GET", "/v2/sandboxes/{id}/logs?search=" + strings.Repeat("x", 300), "", 400, "at most 256"},

		{"no such route", "GET", "/v9/sandboxes", "", 404, "no such route"},
		{"the root", "GET", "/", "", 404, "no such route"},
		{"not clean", "GET", "/v2//sandboxes", "", 404, "no such route"},
		{"upwards", "GET", "/v2/../teams", "", 404, "no such route"},
		{"slash at the end", "GET", "/sandboxes/", "", 404, "no such route"},
		{"wrong method", "PUT", "/v2/sandboxes", "{}", 405, "PUT is not allowed"},
		{"wrong method for one", "PATCH", "/sandboxes/{id}", "{}", 405, "PATCH is not allowed"},
		{"wrong method for health", "POST", "/health", "", 405, "POST is not allowed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPI(t, nil)
			id := a.create(`{"timeout":1000}`)
			before := a.detail(id).EndAt
			got := a.call(test.method, strings.ReplaceAll(test.path, "{id}", id), test.body)
			if got.status != test.status || !strings.Contains(got.body, test.says) {
				t.Errorf("%d %s", got.status, got.body)
			}
			if got.status == http.StatusMethodNotAllowed && got.header.Get("Allow") == "" {
				t.Error("which method is allowed is not said")
			}
			if after := a.detail(id).EndAt; !after.Equal(before) || len(a.host.Live()) != 1 {
				t.Errorf("it changed something: ends at %v, not %v; %d live", after, before, len(a.host.Live()))
			}
		})
	}
}

// TestNotYet: what later versions add is named, and nothing is made or changed.
func TestNotYet(t *testing.T) {
	for _, test := range []struct{ name, method, path, body string }{
		{"building templates", "POST", "/v3/templates", `{"name":"x"}`},
		{"building templates", "POST", "/v2/templates/x/builds/y", "{}"},
		{"building templates", "GET", "/templates/x/builds/y/status?logsOffset=0", ""},
		{"building templates", "POST", "/templates/tags", `{"target":"base:default","tags":["v1"]}`},
		{"building templates", "DELETE", "/templates/tags", `{"name":"base","tags":["v1"]}`},
		{"building templates", "POST", "/templates", `{"dockerfile":"FROM scratch"}`},
		{"volumes", "POST", "/volumes", `{"name":"x"}`},
		{"volumes", "GET", "/volumes/x", ""},
		{"mcp", "POST", "/v2/sandboxes", `{"mcp":{"exa":{}}}`},
		{"iam", "POST", "/v2/sandboxes", `{"iam":{"tokens":{"a":{"audience":"b","tokenType":"c"}}}}`},
		{"volumeMounts", "POST", "/sandboxes", `{"volumeMounts":[{"name":"a","path":"/b"}]}`},
	} {
		t.Run(test.name+" "+test.method+" "+test.path, func(t *testing.T) {
			a := newAPI(t, nil)
			id := a.create(`{}`)
			got := a.call(test.method, strings.ReplaceAll(test.path, "{id}", id), test.body)
			// What to do instead is in the message: E2B's packages show nothing else.
			if got.status != http.StatusNotImplemented || !strings.Contains(got.body, "not implemented: "+test.name) ||
				regexp.MustCompile(`yet: \w+`).FindString(got.body) == "" {
				t.Errorf("%d %s", got.status, got.body)
			}
			if n := len(a.host.Live()); n != 1 {
				t.Errorf("%d sandboxes", n)
			}
		})
	}
}

// TestCreated: what a client is told is what it asked for.
func TestCreated(t *testing.T) {
	a := newAPI(t, nil)
	for _, test := range []struct {
		name, path, body string
		secure, closed   bool
		internet         string // in the detail
	}{
		{"v2 is always secure", "/v2/sandboxes", `{"secure":false}`, true, false, "null"},
		{"v1 is not", "/sandboxes", `{}`, false, false, "null"},
		{"v1, secure", "/sandboxes", `{"secure":true,"allow_internet_access":true}`, true, false, "true"},
		{"without the internet", "/v2/sandboxes", `{"allow_internet_access":false}`, true, false, "false"},
		{"closed ports", "/v2/sandboxes", `{"network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}"}}`, true, true, "null"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s protocol.Sandbox
			a.into(a.call("POST", test.path, test.body), http.StatusCreated, &s)
			if (s.EnvdAccessToken != "") != test.secure || (s.TrafficAccessToken != nil) != test.closed || *s.Domain != "sbx.example" || s.Alias != "base" {
				t.Errorf("%+v", s)
			}
			c := a.call("GET", "/sandboxes/"+s.SandboxID, "")
			if !strings.Contains(c.body, `"allowInternetAccess":`+test.internet) || strings.Contains(c.body, `"network"`) != test.closed {
				t.Error(c.body)
			}
			if d := a.detail(s.SandboxID); d.EnvdAccessToken != s.EnvdAccessToken || d.CPUCount != 1 ||
				d.MemoryMB != 512 || d.DiskSizeMB != 1024 || d.State != "running" {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestDefaultTimeouts: E2B's for a server with keys, a day for a private Cubby.
func TestDefaultTimeouts(t *testing.T) {
	shared := newAPI(t, nil)
	private := *shared
	private.handler = New(Config{Host: Local(shared.host)})
	private.header = nil
	for _, test := range []struct {
		name string
		api  *api
		path string
		want time.Duration
	}{
		{"v2", shared, "/v2/sandboxes", 300 * time.Second},
		{"v1", shared, "/sandboxes", 15 * time.Second},
		{"private", &private, "/v2/sandboxes", 24 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s protocol.Sandbox
			test.api.into(test.api.call("POST", test.path, "{}"), http.StatusCreated, &s)
			d := test.api.detail(s.SandboxID)
			if got := d.EndAt.Sub(d.StartedAt); got != test.want {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestTimeouts: which calls shorten a life, and which only lengthen it.
func TestTimeouts(t *testing.T) {
	for _, test := range []struct {
		name, path, body string
		want             time.Duration // to live from then; a minute was left
	}{
		{"timeout, longer", "/sandboxes/{id}/timeout", `{"timeout":600}`, 10 * time.Minute},
		{"timeout, shorter", "/sandboxes/{id}/timeout", `{"timeout":10}`, 10 * time.Second},
		{"connect, longer", "/v2/sandboxes/{id}/connect", `{"timeout":600}`, 10 * time.Minute},
		{"connect, shorter", "/v2/sandboxes/{id}/connect", `{"timeout":10}`, time.Minute},
		{"connect, unsaid", "/v2/sandboxes/{id}/connect", `{}`, 5 * time.Minute},
		{"connect, v1, unsaid", "/sandboxes/{id}/connect", ``, 5 * time.Minute},
		{"refresh, longer", "/sandboxes/{id}/refreshes", `{"duration":600}`, 10 * time.Minute},
		{"refresh, shorter", "/sandboxes/{id}/refreshes", `{"duration":1}`, time.Minute},
		{"refresh, unsaid", "/sandboxes/{id}/refreshes", ``, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, nil)
				id := a.create(`{"timeout":120}`)
				time.Sleep(time.Minute)
				if c := a.call("POST", strings.ReplaceAll(test.path, "{id}", id), test.body); c.status >= 300 {
					t.Fatalf("%d %s", c.status, c.body)
				}
				if got := time.Until(a.detail(id).EndAt); got != test.want {
					t.Errorf("%v left", got)
				}
				time.Sleep(test.want + time.Second)
				synctest.Wait()
				if c := a.call("GET", "/sandboxes/"+id, ""); c.status != http.StatusNotFound || !strings.Contains(c.body, "its timeout was reached") {
					t.Errorf("after its time: %d %s", c.status, c.body)
				}
			})
		})
	}
}

// TestKill: the second kill finds nothing, as E2B's clients expect of one that
// was there.
func TestKill(t *testing.T) {
	a := newAPI(t, nil)
	id := a.create("{}")
	if c := a.call("DELETE", "/sandboxes/"+id, ""); c.status != http.StatusNoContent || c.body != "" {
		t.Errorf("%d %s", c.status, c.body)
	}
	if c := a.call("DELETE", "/sandboxes/"+id, ""); c.status != http.StatusNotFound || !strings.Contains(c.body, "it was killed") {
		t.Errorf("%d %s", c.status, c.body)
	}
}

// TestNoRoom: who comes too much is told when to come again.
func TestNoRoom(t *testing.T) {
	a := newAPI(t, func(c *host.Config) { c.MaxSandboxes = 1 })
	id := a.create("{}")
	c := a.call("POST", "/v2/sandboxes", "{}")
	if c.status != http.StatusTooManyRequests || c.header.Get("Retry-After") != "5" || !strings.Contains(c.body, "the server is full") {
		t.Errorf("%v", c)
	}
	if c := a.call("GET", "/ready", ""); c.status != http.StatusServiceUnavailable || !strings.Contains(c.body, "the server is full") {
		t.Errorf("%v", c)
	}
	if c := a.call("GET", "/health", ""); c.status != http.StatusOK {
		t.Errorf("%v", c)
	}
	if c := a.call("DELETE", "/sandboxes/"+id, ""); c.status != http.StatusNoContent {
		t.Errorf("%v", c)
	}
	a.create("{}")
}

// TestClosing: a server that stops says so.
func TestClosing(t *testing.T) {
	a := newAPI(t, nil)
	if err := a.host.Close(); err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{"POST /v2/sandboxes", "GET /ready"} {
		method, path, _ := strings.Cut(route, " ")
		if c := a.call(method, path, "{}"); c.status != http.StatusServiceUnavailable || !strings.Contains(c.body, "the server is stopping") {
			t.Errorf("%s: %v", route, c)
		}
	}
}

// TestHostsFault: the owner of a private Cubby is told everything, a client of a
// server that others share nothing of its insides.
func TestHostsFault(t *testing.T) {
	a := newAPI(t, nil)
	a.engine.Boot = func(context.Context, engine.Spec) error { return errors.New("/root/secret/path: permission denied") }
	if c := a.call("POST", "/v2/sandboxes", "{}"); c.status != http.StatusInternalServerError || strings.Contains(c.body, "secret") {
		t.Errorf("%v", c)
	}
	if c := a.call("GET", "/ready", ""); c.status != http.StatusServiceUnavailable || strings.Contains(c.body, "secret") {
		t.Errorf("%v", c)
	}
	a.handler = New(Config{Host: Local(a.host)})
	if c := a.call("POST", "/v2/sandboxes", "{}"); c.status != http.StatusInternalServerError || !strings.Contains(c.body, "secret") || !strings.Contains(c.body, "cubby doctor") {
		t.Errorf("%v", c)
	}
}

// pipeListener accepts one end of each pipe that it dials.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "test"} }

// TestHalfOpenBody: a client that stops in the middle of its body is told so and
// let go of.
func TestHalfOpenBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, nil)
		l := &pipeListener{make(chan net.Conn), make(chan struct{})}
		srv := &http.Server{Handler: a.handler}
		go srv.Serve(l)
		defer srv.Close()
		ours, theirs := net.Pipe()
		defer ours.Close()
		l.conns <- theirs
		begun := time.Now()
		go io.WriteString(ours, "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: "+redKey+"\r\nContent-Length: 100\r\n\r\n{\"templ")
		answer, err := io.ReadAll(ours) // the connection is closed after it
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || time.Since(begun) > bodyTimeout+5*time.Second {
			t.Errorf("after %v: %q, %v", time.Since(begun), answer, err)
		}
		if n := len(a.host.Live()); n != 0 {
			t.Errorf("%d sandboxes", n)
		}
	})
}
