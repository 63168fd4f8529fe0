package cubby_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// life is a server of one sandbox that answers one call about it as a test says, and
// keeps what was asked.
type life struct {
	foreign bool   // it is no Cubby
	state   string // of the sandbox; empty: it has ended
	status  int    // of the call
	answer  string

	call string // method, path and query
	body string
}

func (l *life) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limits := `,"cubbyLimits":{"memoryMB":512},"cubbyInstance":{"memory":3,"files":2}`
	if l.foreign {
		limits = ""
	}
	if r.Method == http.MethodGet && r.URL.Path == "/sandboxes/isbx1" {
		if l.state == "" {
			refuse(http.StatusNotFound, "404", "it has ended")(w, r)
			return
		}
		fmt.Fprintf(w, `{"sandboxID":"isbx1","state":%q,"lifecycle":{"onTimeout":"pause","autoResume":true,"cubbyIdleTimeout":90}%s}`, l.state, limits)
		return
	}
	b, _ := io.ReadAll(r.Body)
	l.call, l.body = r.Method+" "+r.URL.EscapedPath(), string(b)
	if r.URL.RawQuery != "" {
		l.call += "?" + r.URL.RawQuery
	}
	w.WriteHeader(l.status)
	io.WriteString(w, l.answer)
}

// sandbox is the server's sandbox, which runs at first.
func (l *life) sandbox(t *testing.T) (*cubby.Client, *cubby.Sandbox) {
	t.Helper()
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL, APIKey: "e2b_k"})
	if err != nil {
		t.Fatal(err)
	}
	now := l.state
	l.state = cubby.StateRunning
	sbx, err := c.Get(t.Context(), "isbx1")
	if err != nil {
		t.Fatal(err)
	}
	l.state = now
	return c, sbx
}

// TestLifeCalls: what each call sends, and what its answers mean.
func TestLifeCalls(t *testing.T) {
	const snapshot = `{"snapshotID":"ready:default","names":["ready"],"cubbySandboxID":"isbx1","cubbyFilesOnly":true,"cubbySize":7,"cubbyCreatedAt":"2026-01-02T03:04:05Z"}`
	pause := func(opts ...cubby.PauseOption) func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error) {
		return func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) (any, error) {
			return nil, s.Pause(ctx, opts...)
		}
	}
	snap := func(opts ...cubby.SnapshotOption) func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error) {
		return func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) (any, error) {
			return s.Snapshot(ctx, opts...)
		}
	}
	rollback := func(id string) func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error) {
		return func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) (any, error) {
			return nil, s.Rollback(ctx, id)
		}
	}
	remove := func(id string) func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error) {
		return func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) (any, error) {
			return nil, c.DeleteSnapshot(ctx, id)
		}
	}
	list := func(opts cubby.SnapshotListOptions) func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error) {
		return func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) (any, error) {
			ids := []string{}
			for one, err := range c.Snapshots(ctx, opts) {
				if err != nil {
					return ids, err
				}
				ids = append(ids, one.ID)
			}
			return ids, nil
		}
	}
	connect := func(opts ...cubby.ConnectOption) func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error) {
		return func(ctx context.Context, c *cubby.Client, _ *cubby.Sandbox) (any, error) {
			s, err := c.Connect(ctx, "isbx1", opts...)
			if err != nil {
				return nil, err
			}
			return s.ID(), nil
		}
	}
	for _, tt := range []struct {
		name       string
		life       life
		do         func(context.Context, *cubby.Client, *cubby.Sandbox) (any, error)
		call, body string
		want       string // what came back
		code       cubby.Code
		text       string // of the error
	}{
		{"pause", life{status: 204}, pause(), "POST /sandboxes/isbx1/pause", `{}`, "<nil>", 0, ""},
		{"pause, files only", life{status: 204}, pause(cubby.WithFilesOnly()), "POST /sandboxes/isbx1/pause", `{"memory":false}`, "<nil>", 0, ""},
		{"pause of one that is paused", life{state: "paused", status: 409, answer: `{"code":409,"message":"already paused"}`}, pause(),
			"POST /sandboxes/isbx1/pause", `{}`, "<nil>", 0, ""},
		{"pause of one that has ended", life{status: 404, answer: `{"code":404,"message":"no such"}`}, pause(), "", "", "", cubby.CodeSandboxGone, "no such"},
		{"pause without room", life{state: "running", status: 507, answer: `{"code":507,"message":"no room"}`}, pause(), "", "", "", cubby.CodeNoSpace, "no room"},
		{"connect", life{status: 201, answer: `{"sandboxID":"isbx1"}`}, connect(), "POST /v2/sandboxes/isbx1/connect", `{"timeout":300}`, "isbx1", 0, ""},
		{"connect, files only", life{status: 200, answer: `{"sandboxID":"isbx1"}`}, connect(cubby.WithFilesOnly(), cubby.WithTimeout(time.Minute)),
			"POST /v2/sandboxes/isbx1/connect", `{"timeout":60,"memory":false}`, "isbx1", 0, ""},
		{"set timeout of one that is paused", life{state: "paused", status: 404, answer: `{"code":404,"message":"no such"}`},
			func(ctx context.Context, _ *cubby.Client, s *cubby.Sandbox) (any, error) {
				return nil, s.SetTimeout(ctx, time.Minute)
			},
			"", "", "", cubby.CodePaused, "the sandbox is paused (Client.Connect resumes it)"},

		{"snapshot", life{status: 201, answer: snapshot}, snap(), "POST /sandboxes/isbx1/snapshots", `{}`,
			"{ready:default [ready] isbx1 true 7 2026-01-02 03:04:05 +0000 UTC}", 0, ""},
		{"snapshot with a name, files only", life{status: 201, answer: snapshot}, snap(cubby.WithName("ready:v1"), cubby.WithFilesOnly()),
			"POST /sandboxes/isbx1/snapshots", `{"name":"ready:v1","cubbyFilesOnly":true}`, "", 0, ""},
		{"snapshot of files on a server that keeps memory, too", life{foreign: true, status: 201, answer: snapshot}, snap(cubby.WithFilesOnly()),
			"none", "", "", cubby.CodeUnimplemented, "Cubby server only"},
		{"snapshot with memory on another server", life{foreign: true, status: 201, answer: `{"snapshotID":"team/x:default","names":["team/x"]}`}, snap(),
			"POST /sandboxes/isbx1/snapshots", `{}`, "{team/x:default [team/x]  false 0 0001-01-01 00:00:00 +0000 UTC}", 0, ""},
		{"snapshot with a bad id", life{status: 201, answer: `{"snapshotID":"a\nb"}`}, snap(), "", "", "", cubby.CodeInternal, "bad snapshot id"},
		{"snapshot without an id", life{status: 201, answer: `{}`}, snap(), "", "", "", cubby.CodeInternal, "bad snapshot id"},

		{"snapshots", life{status: 200, answer: "[" + snapshot + `,{"snapshotID":"s1"}]`}, list(cubby.SnapshotListOptions{}),
			"GET /snapshots?limit=100", "", "[ready:default s1]", 0, ""},
		{"snapshots that are asked for", life{status: 200, answer: "[" + snapshot + "," + snapshot + "]"},
			list(cubby.SnapshotListOptions{SandboxID: "isbx1", Name: "ready", Limit: 1}), "GET /snapshots?limit=1&name=ready&sandboxID=isbx1", "", "[ready:default]", 0, ""},
		{"snapshots with a bad id", life{status: 200, answer: `[{"snapshotID":".."}]`}, list(cubby.SnapshotListOptions{}), "", "", "", cubby.CodeInternal, "bad snapshot id"},
		{"fewer than no snapshots", life{status: 200, answer: `[]`}, list(cubby.SnapshotListOptions{Limit: -1}), "none", "", "", cubby.CodeInvalidArgument, "negative"},

		{"delete", life{status: 204}, remove("team/ready:v1"), "DELETE /templates/team%2Fready:v1", "", "<nil>", 0, ""},
		{"delete what is not there", life{status: 404, answer: `{"code":404,"message":"no such"}`}, remove("x"), "", "", "", cubby.CodeNotFound, "no such"},
		{"delete nothing", life{status: 204}, remove(""), "none", "", "", cubby.CodeInvalidArgument, "snapshot's id"},
		{"delete a path", life{status: 204}, remove(".."), "none", "", "", cubby.CodeInvalidArgument, "snapshot's id"},

		{"rollback", life{status: 200, answer: `{"sandboxID":"isbx1"}`}, rollback("ready:v1"), "POST /sandboxes/isbx1/rollback", `{"snapshotID":"ready:v1"}`, "<nil>", 0, ""},
		{"rollback to nothing", life{state: "running", status: 404, answer: `{"code":404,"message":"snapshot 'x' not found"}`}, rollback("x"),
			"", "", "", cubby.CodeNotFound, "snapshot 'x' not found"},
		{"rollback of one that has ended", life{status: 404, answer: `{"code":404,"message":"no such sandbox"}`}, rollback("x"), "", "", "", cubby.CodeSandboxGone, "no such sandbox"},
		{"rollback on another server", life{foreign: true, status: 200, answer: `{}`}, rollback("x"), "none", "", "", cubby.CodeUnimplemented, "WithTemplate"},
		{"rollback to a bad id", life{status: 200}, rollback("a b"), "none", "", "", cubby.CodeInvalidArgument, "snapshot's id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &tt.life
			c, s := l.sandbox(t)
			got, err := tt.do(t.Context(), c, s)
			if cubby.CodeOf(err) != tt.code || tt.text != "" && !strings.Contains(fmt.Sprint(err), tt.text) {
				t.Errorf("error %v (%v), want %v with %q", err, cubby.CodeOf(err), tt.code, tt.text)
			}
			if tt.call == "none" {
				tt.call = ""
			} else if tt.call == "" {
				tt.call, tt.body = l.call, l.body
			}
			if l.call != tt.call || strings.TrimSpace(l.body) != tt.body {
				t.Errorf("asked %q with %q, want %q with %q", l.call, l.body, tt.call, tt.body)
			}
			if tt.want != "" && fmt.Sprint(got) != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestFork: copies come back with an error for those that are missing, and no copy is
// lost over it.
func TestFork(t *testing.T) {
	const full = `{"error":{"code":429,"message":"too many sandboxes","hint":"end some"}}`
	for _, tt := range []struct {
		name   string
		n      int
		opts   []cubby.ForkOption
		status int
		answer string
		body   string
		ids    string
		code   cubby.Code
		text   string
	}{
		{"one", 1, nil, 201, `[{"sandbox":{"sandboxID":"a","envdAccessToken":"t"}}]`, `{"count":1,"timeout":300}`, "[a]", 0, ""},
		{"two, for a while", 2, []cubby.ForkOption{cubby.WithTimeout(1500 * time.Millisecond)}, 201, `[{"sandbox":{"sandboxID":"a"}},{"sandbox":{"sandboxID":"b"}}]`,
			`{"count":2,"timeout":2}`, "[a b]", 0, ""},
		{"some", 4, nil, 201, `[{"sandbox":{"sandboxID":"a"}},` + full + `,{"sandbox":{"sandboxID":"b"}},` + full + `]`, "", "[a b]", cubby.CodeRateLimited,
			"fork sandbox: 2 of 4 copies could not be made: too many sandboxes (end some)"},
		{"different reasons", 3, nil, 201, `[` + full + `,{"error":{"code":507,"message":"disk full"}},{"sandbox":{"sandboxID":"b"}}]`, "", "[b]", cubby.CodeRateLimited,
			"2 of 3 copies could not be made: too many sandboxes\ndisk full (end some)"},
		{"none", 1, nil, 201, `[` + full + `]`, "", "[]", cubby.CodeRateLimited, "1 of 1 copies"},
		{"fewer than were asked for", 2, nil, 201, `[{"sandbox":{"sandboxID":"a"}}]`, "", "[a]", cubby.CodeInternal, "1 of 2 copies could not be made: the server answered 1 copies"},
		{"neither", 1, nil, 201, `[{}]`, "", "[]", cubby.CodeInternal, "neither a copy nor an error"},
		{"a bad id", 2, nil, 201, `[{"sandbox":{"sandboxID":"../x"}},{"sandbox":{"sandboxID":"b"}}]`, "", "[b]", cubby.CodeInternal, "bad sandbox id"},
		{"an error without words", 1, nil, 201, `[{"error":{}}]`, "", "[]", cubby.CodeInternal, "does not say why"},
		{"all refused", 1, nil, 501, `{"code":501,"message":"cannot fork"}`, "", "[]", cubby.CodeUnimplemented, "cannot fork"},
		{"no copies", 0, nil, 201, `[]`, "none", "[]", cubby.CodeInvalidArgument, "1 to 100"},
		{"too many", cubby.MaxForks + 1, nil, 201, `[]`, "none", "[]", cubby.CodeInvalidArgument, "1 to 100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &life{state: "running", status: tt.status, answer: tt.answer}
			_, s := l.sandbox(t)
			copies, err := s.Fork(t.Context(), tt.n, tt.opts...)
			ids := []string{}
			for _, c := range copies {
				ids = append(ids, c.ID())
			}
			if fmt.Sprint(ids) != tt.ids || cubby.CodeOf(err) != tt.code || tt.text != "" && !strings.Contains(fmt.Sprint(err), tt.text) {
				t.Errorf("got %v, %v (%v)", ids, err, cubby.CodeOf(err))
			}
			if tt.body == "none" && l.call != "" || tt.body != "" && tt.body != "none" && l.body != tt.body {
				t.Errorf("asked %s with %s", l.call, l.body)
			}
		})
	}
}

// TestKeepOptions: what a create says of pauses, and what Info says of them.
func TestKeepOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []cubby.CreateOption
		want string
	}{
		{"auto-pause", []cubby.CreateOption{cubby.WithAutoPause()}, `{"autoPause":true}`},
		{"auto-pause of files", []cubby.CreateOption{cubby.WithAutoPause(cubby.WithFilesOnly())}, `{"autoPause":true,"autoPauseMemory":false}`},
		{"auto-resume", []cubby.CreateOption{cubby.WithAutoPause(), cubby.WithAutoResume()}, `{"autoPause":true,"autoResume":{"enabled":true}}`},
		{"idle", []cubby.CreateOption{cubby.WithIdleTimeout(1500 * time.Millisecond)}, `{"cubbyIdleTimeout":2}`},
	} {
		w := &wire{}
		srv := httptest.NewServer(w)
		defer srv.Close()
		c, err := cubby.NewClient(cubby.Config{APIURL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), tt.opts...); err != nil {
			t.Fatal(err)
		}
		var sent map[string]any
		if err := json.Unmarshal(w.body, &sent); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"templateID", "timeout", "allow_internet_access"} {
			delete(sent, name)
		}
		if got, _ := json.Marshal(sent); string(got) != tt.want {
			t.Errorf("%s: sent %s, want %s", tt.name, got, tt.want)
		}
	}
	_, s := (&life{state: "paused"}).sandbox(t)
	info, err := s.Info(t.Context())
	if err != nil || !info.AutoPause || !info.AutoResume || info.IdleTimeout != 90*time.Second ||
		info.Instance != (cubby.Instance{Memory: 3, Files: 2}) {
		t.Errorf("%+v, %v", info, err)
	}
	_, s = (&life{state: "paused", foreign: true}).sandbox(t)
	if info, err = s.Info(t.Context()); err != nil || info.Instance != (cubby.Instance{}) {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestIdleTimeoutElsewhere: a server that does not know it ends nothing by it, so the
// sandbox is ended.
func TestIdleTimeoutElsewhere(t *testing.T) {
	deleted := 0
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted++
			w.WriteHeader(http.StatusNoContent)
			return
		}
		io.WriteString(w, `{"sandboxID":"iforeign"}`)
	})
	_, err := c.Create(t.Context(), cubby.WithIdleTimeout(time.Minute))
	if cubby.CodeOf(err) != cubby.CodeUnimplemented || !strings.Contains(fmt.Sprint(err), "an idle timeout is possible on a Cubby server only") || deleted != 1 {
		t.Errorf("got %v, %d ended", err, deleted)
	}
}
