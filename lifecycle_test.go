package cubby_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

func client(t *testing.T, h http.HandlerFunc) *cubby.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL, APIKey: "e2b_k"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// collect lists until the end or an error.
func collect(c *cubby.Client, opts cubby.ListOptions) (ids []string, err error) {
	for info, err := range c.List(context.Background(), opts) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, info.ID)
	}
	return ids, nil
}

func TestListPages(t *testing.T) {
	var queries []url.Values
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.Query())
		if r.URL.Path != "/v2/sandboxes" || r.Header.Get("X-API-Key") != "e2b_k" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		n, _ := strconv.Atoi(r.URL.Query().Get("nextToken"))
		if n < 2 {
			w.Header().Set("X-Next-Token", strconv.Itoa(n+1))
		}
		fmt.Fprintf(w, `[{"sandboxID":"a%d","volumeMounts":[{"name":"v","path":"/v"}]},{"sandboxID":"b%d","metadata":null}]`, n, n)
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	ids, err := collect(c, cubby.ListOptions{
		Metadata: map[string]string{"a b": "c&d=é"}, States: []string{"running", "paused"}, Template: "base",
		StartedAfter: at, OldestFirst: true, Limit: 5,
	})
	if err != nil || fmt.Sprint(ids) != "[a0 b0 a1 b1 a2]" {
		t.Fatalf("got %v, %v", ids, err)
	}
	want := url.Values{"limit": {"5"}, "state": {"running,paused"}, "template": {"base"}, "startedAfter": {"2026-01-02T02:04:05.000000006Z"}, "order": {"asc"}}
	for k := range want {
		if queries[0].Get(k) != want.Get(k) {
			t.Errorf("%s: %q, want %q", k, queries[0].Get(k), want.Get(k))
		}
	}
	// E2B's clients encode labels once more than the query does, and once more
	// than that.
	pairs, err := url.ParseQuery(queries[0].Get("metadata"))
	if err != nil || pairs.Get("a+b") != "c%26d%3D%C3%A9" {
		t.Errorf("metadata %q", queries[0].Get("metadata"))
	}
	if got := queries[2].Get("limit"); got != "1" {
		t.Errorf("the last page was asked for %s", got)
	}
}

func TestHostileLists(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		opts    cubby.ListOptions
		code    cubby.Code
	}{
		{"a token again and again", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Next-Token", "same")
			io.WriteString(w, `[]`)
		}, cubby.ListOptions{}, cubby.CodeInternal},
		{"pages without end", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Next-Token", r.URL.Query().Get("nextToken")+"x")
			io.WriteString(w, `[]`)
		}, cubby.ListOptions{}, cubby.CodeInternal},
		{"a giant token", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Next-Token", strings.Repeat("x", 10<<10))
			io.WriteString(w, `[]`)
		}, cubby.ListOptions{}, cubby.CodeInternal},
		{"a bad id", answer(`[{"sandboxID":"../x"}]`), cubby.ListOptions{}, cubby.CodeInternal},
		{"no JSON", answer(`[`), cubby.ListOptions{}, cubby.CodeInternal},
		{"no list", answer(`{}`), cubby.ListOptions{}, cubby.CodeInternal},
		{"a wrong key", refuse(http.StatusUnauthorized, "401", "no"), cubby.ListOptions{}, cubby.CodeUnauthenticated},
		{"a negative limit", answer(`[]`), cubby.ListOptions{Limit: -1}, cubby.CodeInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if ids, err := collect(client(t, tt.handler), tt.opts); cubby.CodeOf(err) != tt.code || len(ids) != 0 {
				t.Errorf("got %v, %v (%v), want %v", ids, err, cubby.CodeOf(err), tt.code)
			}
		})
	}
}

// TestOlderServers: those that do not know the newer form of create, connect and
// list are spoken to in the older one, and from then on at once.
func TestOlderServers(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		var asked []string
		c := client(t, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			asked = append(asked, r.Method+" "+r.URL.Path)
			switch r.Method + " " + r.URL.Path {
			case "POST /sandboxes":
				if !strings.Contains(string(b), `"secure":true`) {
					t.Errorf("created with %s", b)
				}
				io.WriteString(w, `{"sandboxID":"isbx1"}`)
			case "POST /sandboxes/isbx1/connect":
				io.WriteString(w, `{"sandboxID":"isbx1"}`)
			case "GET /sandboxes":
				io.WriteString(w, `[{"sandboxID":"old","startedAt":"2026-01-01T00:00:00Z","templateID":"a"},
					{"sandboxID":"new","startedAt":"2026-01-02T00:00:00Z","templateID":"a"},{"sandboxID":"other","templateID":"b"}]`)
			default:
				w.WriteHeader(status)
				io.WriteString(w, `{"code":404,"message":"first answer"}`)
			}
		})
		if _, err := c.Connect(t.Context(), "nothere"); err == nil || !strings.Contains(err.Error(), "first answer") {
			t.Errorf("%d: connected to nothing: %v", status, err)
		}
		if _, err := c.Create(t.Context()); err != nil {
			t.Errorf("%d: create: %v", status, err)
		}
		if _, err := c.Connect(t.Context(), "isbx1"); err != nil {
			t.Errorf("%d: connect: %v", status, err)
		}
		if ids, err := collect(c, cubby.ListOptions{Template: "a"}); err != nil || fmt.Sprint(ids) != "[new old]" {
			t.Errorf("%d: listed %v, %v", status, ids, err)
		}
		if _, err := collect(c, cubby.ListOptions{States: []string{cubby.StatePaused}}); cubby.CodeOf(err) != cubby.CodeUnimplemented {
			t.Errorf("%d: listed what is paused: %v", status, err)
		}
		want := "POST /v2/sandboxes/nothere/connect, POST /sandboxes/nothere/connect, POST /v2/sandboxes, POST /sandboxes, POST /sandboxes/isbx1/connect, GET /sandboxes"
		if got := strings.Join(asked, ", "); got != want {
			t.Errorf("%d: asked %s", status, got)
		}
	}
}

// TestErrorsOfTheOlderFormCount: a server that answers it with more than "no
// such thing" is believed.
func TestErrorsOfTheOlderFormCount(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2") {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		refuse(http.StatusTooManyRequests, "429", "too many sandboxes")(w, r)
	})
	if _, err := c.Create(t.Context()); cubby.CodeOf(err) != cubby.CodeRateLimited {
		t.Errorf("got %v", err)
	}
}

// TestPauseAndResume against a server that can.
func TestPauseAndResume(t *testing.T) {
	paused := false
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		state := map[bool]string{false: "running", true: "paused"}[paused]
		switch {
		case r.Header.Get("E2b-Sandbox-Id") != "":
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, `{"sandboxId":"isbx1","message":"The sandbox was not found","code":502}`)
		case r.URL.Path == "/sandboxes/isbx1/pause" && paused:
			refuse(http.StatusConflict, "409", "already paused")(w, r)
		case r.URL.Path == "/sandboxes/isbx1/pause":
			paused = true
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/v2/sandboxes/isbx1/connect":
			paused = false
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"sandboxID":"isbx1"}`)
		default:
			fmt.Fprintf(w, `{"sandboxID":"isbx1","state":%q}`, state)
		}
	})
	sbx, err := c.Get(t.Context(), "isbx1")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sbx.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, run := sbx.RunCode(t.Context(), "1")
	_, command := sbx.Commands().Run(t.Context(), "true")
	_, read := sbx.Files().Read(t.Context(), "x")
	_, watch := sbx.Files().Watch(t.Context(), ".", cubby.WatchOptions{})
	for name, err := range map[string]error{"RunCode": run, "Run": command, "Read": read, "Watch": watch} {
		if cubby.CodeOf(err) != cubby.CodePaused || !strings.Contains(fmt.Sprint(err), "Connect resumes it") {
			t.Errorf("%s in a paused sandbox: %v", name, err)
		}
	}
	if _, err := c.Connect(t.Context(), "isbx1"); err != nil || paused {
		t.Errorf("resumed: %v, paused %v", err, paused)
	}
}

func TestSetTimeoutRoundsUp(t *testing.T) {
	var body string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if body = string(b); r.Method == http.MethodGet {
			io.WriteString(w, `{"sandboxID":"isbx1"}`)
		}
	})
	sbx, err := c.Get(t.Context(), "isbx1")
	if err != nil {
		t.Fatal(err)
	}
	if err := sbx.SetTimeout(t.Context(), 1500*time.Millisecond); err != nil || body != `{"timeout":2}` {
		t.Errorf("sent %s, %v", body, err)
	}
	for _, d := range []time.Duration{0, -time.Second} {
		if err := sbx.SetTimeout(t.Context(), d); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// TestLogs: a sandbox's log is asked for by id, also after its end, and of what a
// server sends nothing unbounded is kept.
func TestLogs(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/sandboxes/iended/logs":
			fmt.Fprintf(w, `{"logs":[{"timestamp":"2026-01-02T03:04:05Z","level":"info","message":%q,"fields":{"a":"b"}},{}]}`, r.URL.RawQuery)
		case "/v2/sandboxes/ihostile/logs":
			io.WriteString(w, `{"logs":{}}`)
		case "/v2/sandboxes/iendless/logs":
			io.WriteString(w, `{"logs":[`)
			for line := strings.Repeat(`{"message":"x"},`, 4096); ; {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
		case "/sandboxes/iended":
			io.WriteString(w, `{"sandboxID":"iended"}`)
		default:
			refuse(http.StatusNotFound, "404", "Sandbox doesn't exist")(w, r)
		}
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for since, query := range map[time.Time]string{{}: "limit=1000", at: "cursor=1767323045000&limit=1000"} {
		log, err := c.Logs(t.Context(), "iended", since)
		if err != nil || len(log) != 2 || log[0].Message != query || log[0].Level != "info" || log[0].Fields["a"] != "b" || !log[0].At.Equal(at) {
			t.Errorf("got %+v, %v", log, err)
		}
	}
	for id, code := range map[string]cubby.Code{
		"iforgotten": cubby.CodeNotFound, "ihostile": cubby.CodeInternal, "iendless": cubby.CodeInternal,
		"../iended": cubby.CodeInvalidArgument, "": cubby.CodeInvalidArgument,
	} {
		if log, err := c.Logs(t.Context(), id, at); cubby.CodeOf(err) != code || log != nil {
			t.Errorf("%q: %d lines, %v", id, len(log), err)
		}
	}
	sbx, err := c.Get(t.Context(), "iended")
	if err != nil {
		t.Fatal(err)
	}
	if log, err := sbx.Logs(t.Context(), at); err != nil || len(log) != 2 {
		t.Errorf("got %+v, %v", log, err)
	}
}

// TestFlows: what code wanted to connect to is asked for by id, and of what a server sends
// nothing unbounded is kept.
func TestFlows(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/sandboxes/ione/network":
			io.WriteString(w, `{"flows":[{"time":"2026-01-02T03:04:05Z","proto":"tcp","host":"a.example","addr":"198.18.0.1:443","allowed":false,
				"rule":"","reason":"no rule allows it","entry":"a.example:443"},
				{"time":"2026-01-02T03:04:05Z","proto":"udp","addr":"192.0.2.1:9","allowed":true,"rule":"192.0.2.0/24","sent":1,"received":2,
				"end":"2026-01-02T03:04:06Z"}]}`)
		case "/sandboxes/iendless/network":
			io.WriteString(w, `{"flows":[`)
			for line := strings.Repeat(`{"host":"x"},`, 4096); ; {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
		case "/sandboxes/ione":
			io.WriteString(w, `{"sandboxID":"ione"}`)
		default:
			refuse(http.StatusNotFound, "404", "Sandbox doesn't exist")(w, r)
		}
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []cubby.Flow{
		{At: at, Proto: "tcp", Host: "a.example", Addr: "198.18.0.1:443", Reason: "no rule allows it", Allow: "a.example:443"},
		{At: at, Proto: "udp", Addr: "192.0.2.1:9", Allowed: true, Rule: "192.0.2.0/24", Sent: 1, Received: 2, EndedAt: at.Add(time.Second)},
	}
	sbx, err := c.Get(t.Context(), "ione")
	if err != nil {
		t.Fatal(err)
	}
	if flows, err := sbx.Flows(t.Context()); err != nil || !slices.Equal(flows, want) {
		t.Errorf("got %+v, %v", flows, err)
	}
	for id, code := range map[string]cubby.Code{
		"inone": cubby.CodeNotFound, "iendless": cubby.CodeInternal, "../ione": cubby.CodeInvalidArgument,
	} {
		if flows, err := c.Flows(t.Context(), id); cubby.CodeOf(err) != code || flows != nil {
			t.Errorf("%q: %d flows, %v", id, len(flows), err)
		}
	}
}

// TestKillByID: who names a sandbox is told that there is none; who holds one
// wants it gone, and it is.
func TestKillByID(t *testing.T) {
	lives := true
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			io.WriteString(w, `{"sandboxID":"isbx1"}`)
		case r.Method != http.MethodDelete || r.URL.Path != "/sandboxes/isbx1" || r.Header.Get("X-API-Key") != "e2b_k":
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		case lives:
			lives = false
			w.WriteHeader(http.StatusNoContent)
		default:
			refuse(http.StatusNotFound, "404", "Sandbox isbx1 has ended: killed")(w, r)
		}
	})
	sbx, err := c.Get(t.Context(), "isbx1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(t.Context(), "isbx1"); err != nil || lives {
		t.Errorf("%v", err)
	}
	if err := c.Kill(t.Context(), "isbx1"); cubby.CodeOf(err) != cubby.CodeNotFound || !strings.Contains(err.Error(), "has ended: killed") {
		t.Errorf("again: %v", err)
	}
	if err := sbx.Kill(t.Context()); err != nil {
		t.Errorf("%v", err)
	}
	if err := c.Kill(t.Context(), "isbx1/timeout"); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("a path for an id: %v", err)
	}
}

// TestRedirectsAreNotFollowed: the key would go with them.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %v", r.URL, r.Header) }))
	defer other.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		c := client(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+r.URL.Path, status) })
		_, err := c.Create(t.Context())
		for what, err := range map[string]error{"create": err, "kill": c.Kill(t.Context(), "isbx1")} {
			if cubby.CodeOf(err) != cubby.CodeInternal || !strings.Contains(err.Error(), other.URL) {
				t.Errorf("%s, %d: %v", what, status, err)
			}
		}
	}
}

// TestPageOfSomethingElse: what is no server of sandboxes answers with pages, of
// which nothing is worth being told.
func TestPageOfSomethingElse(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<html><body>Welcome to nginx")
	})
	if err := c.Kill(t.Context(), "isbx1"); err == nil || err.Error() != "kill sandbox: the server answered 404 Not Found" {
		t.Errorf("%v", err)
	}
}
