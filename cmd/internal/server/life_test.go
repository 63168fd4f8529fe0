package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// newPausingAPI is an API whose sandboxes can be paused.
func newPausingAPI(t *testing.T, set func(*host.Config)) (*api, *hosttest.Images) {
	t.Helper()
	images := &hosttest.Images{Dir: t.TempDir()}
	return newAPI(t, func(cfg *host.Config) {
		cfg.Images = images
		if set != nil {
			set(cfg)
		}
	}), images
}

// machine is the newest of all.
func (a *api) machine() *hosttest.Machine {
	all := a.engine.Machines()
	return all[len(all)-1]
}

// is checks an answer, whose message is the one that is given.
func (a *api) is(c called, status int, message string) {
	a.t.Helper()
	var e protocol.Error
	if c.status != status || message != "" && (json.Unmarshal([]byte(c.body), &e) != nil || e.Message != message) {
		a.t.Errorf("%d %s, want %d %q", c.status, c.body, status, message)
	}
}

// TestLife: a sandbox is paused and resumed with E2B's statuses, bodies and messages, and
// is the same one after.
func TestLife(t *testing.T) {
	a, _ := newPausingAPI(t, nil)
	var made, again protocol.Sandbox
	a.into(a.call("POST", "/v2/sandboxes", `{"timeout":100}`), http.StatusCreated, &made)
	id := made.SandboxID
	a.machine().SetMemory("x = 1")

	if c := a.call("POST", "/sandboxes/"+id+"/pause", `{}`); c.status != http.StatusNoContent || c.body != "" {
		t.Errorf("pause: %v", c)
	}
	a.is(a.call("POST", "/sandboxes/"+id+"/pause", `{"memory":true}`), http.StatusConflict, "Error pausing sandbox - sandbox '"+id+"' is already paused")
	a.is(a.as(blueKey).call("POST", "/sandboxes/"+id+"/pause", `{}`), http.StatusNotFound, notThere(id))
	a.is(a.as(blueKey).call("POST", "/v2/sandboxes/"+id+"/connect", `{}`), http.StatusNotFound, notThere(id))
	a.into(a.call("POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":200}`), http.StatusCreated, &again)
	if !reflect.DeepEqual(again, made) {
		t.Errorf("connect: %+v, created: %+v", again, made)
	}
	if got := a.machine().Memory(); got != "x = 1" {
		t.Errorf("it remembers %q", got)
	}
	if left := time.Until(a.detail(id).EndAt); left < 190*time.Second || left > 200*time.Second {
		t.Errorf("it has %v", left)
	}
	a.into(a.call("POST", "/sandboxes/"+id+"/connect", `{"timeout":10}`), http.StatusOK, &again)
	a.is(a.call("POST", "/sandboxes/"+id+"/resume", ""), http.StatusConflict, "Sandbox "+id+" is already running")

	a.is(a.call("POST", "/sandboxes/"+id+"/pause", `{"memory":false}`), http.StatusNoContent, "")
	a.into(a.call("POST", "/sandboxes/"+id+"/resume", `{"timeout":60}`), http.StatusCreated, &again)
	if got := a.machine().Memory(); got != "" {
		t.Errorf("a sandbox of files alone remembers %q", got)
	}
	a.machine().SetMemory("x = 2")
	a.is(a.call("POST", "/sandboxes/"+id+"/pause", ""), http.StatusNoContent, "")
	a.into(a.call("POST", "/v2/sandboxes/"+id+"/connect", `{"memory":false}`), http.StatusCreated, &again)
	if got := a.machine().Memory(); got != "" {
		t.Errorf("a sandbox that was booted anew remembers %q", got)
	}

	a.is(a.call("POST", "/sandboxes/"+id+"/pause", ""), http.StatusNoContent, "")
	a.is(a.call("DELETE", "/sandboxes/"+id, ""), http.StatusNoContent, "")
	if c := a.call("POST", "/v2/sandboxes/"+id+"/connect", ""); c.status != http.StatusNotFound || !strings.Contains(c.body, "it was killed") {
		t.Errorf("connect after the end: %v", c)
	}
}

// TestLifecycle: what was asked for is told, and done at the end of a sandbox's time.
func TestLifecycle(t *testing.T) {
	a, _ := newPausingAPI(t, nil)
	for body, want := range map[string]protocol.Lifecycle{
		`{}`:                  {OnTimeout: "kill"},
		`{"autoPause":false}`: {OnTimeout: "kill"},
		`{"autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true},"cubbyIdleTimeout":60}`: {OnTimeout: "pause", AutoResume: true, FilesOnly: true, IdleTimeout: 60},
		`{"autoPause":true,"autoPauseMemory":true}`:                                                      {OnTimeout: "pause"},
		`{"autoResume":{"enabled":true}}`:                                                                {OnTimeout: "kill", AutoResume: true},
	} {
		detail := a.detail(a.create(body))
		if i := detail.Instance; i == nil || *i != (protocol.Instance{Memory: 1, Files: 1}) {
			t.Errorf("%s: %+v", body, i)
		}
		if got := detail.Lifecycle; got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	id := a.create(`{"autoPause":true}`)
	a.is(a.call("POST", "/sandboxes/"+id+"/timeout", `{"timeout":0}`), http.StatusNoContent, "")
	if got := a.detail(id).State; got != "paused" {
		t.Errorf("a sandbox that is paused at its end is %q after it", got)
	}
}

// TestSnapshots: they are made, listed in pages, made into sandboxes, and deleted by all
// the names that they have.
func TestSnapshots(t *testing.T) {
	a, _ := newPausingAPI(t, nil)
	id, other := a.create("{}"), a.create("{}")
	a.machine().SetMemory("y = 1")
	make := func(box, body string) protocol.Snapshot {
		t.Helper()
		var s protocol.Snapshot
		a.into(a.call("POST", "/sandboxes/"+box+"/snapshots", body), http.StatusCreated, &s)
		return s
	}
	unnamed, named, tagged := make(id, ""), make(other, `{"name":"mine"}`), make(other, `{"name":"red/mine:v2","cubbyFilesOnly":true}`)
	if !strings.HasSuffix(unnamed.SnapshotID, ":default") || len(unnamed.Names) != 0 || unnamed.Names == nil || unnamed.SandboxID != id {
		t.Errorf("without a name: %+v", unnamed)
	}
	if named.SnapshotID != "mine:default" || !reflect.DeepEqual(named.Names, []string{"mine"}) || named.FilesOnly {
		t.Errorf("with a name: %+v", named)
	}
	if tagged.SnapshotID != "mine:v2" || !reflect.DeepEqual(tagged.Names, []string{"mine"}) || !tagged.FilesOnly {
		t.Errorf("with a tag: %+v", tagged)
	}
	list := func(query string) (ids []string, next string) {
		t.Helper()
		var all []protocol.Snapshot
		c := a.call("GET", "/snapshots?"+query, "")
		a.into(c, http.StatusOK, &all)
		for _, s := range all {
			ids = append(ids, s.SnapshotID)
		}
		return ids, c.header.Get("X-Next-Token")
	}
	all := []string{tagged.SnapshotID, named.SnapshotID, unnamed.SnapshotID}
	for query, want := range map[string][]string{
		"": all, "sandboxID=" + other: all[:2], "sandboxID=" + id + "-6532622b": all[2:], "sandboxID=inone": nil,
		"name=mine": all[:2], "name=red/mine": all[:2], "name=mine:v2": all[:1], "name=mine:default": all[1:2], "name=other": nil,
		"name=" + strings.TrimSuffix(unnamed.SnapshotID, ":default"): all[2:], "name=" + unnamed.SnapshotID: all[2:], "limit=3": all,
	} {
		if got, next := list(query); !reflect.DeepEqual(got, want) || next != "" {
			t.Errorf("%q: %q, next %q; want %q", query, got, next, want)
		}
	}
	var paged []string
	for next := ""; ; {
		var page []string
		if page, next = list("limit=1&nextToken=" + url.QueryEscape(next)); len(page) > 1 {
			t.Fatalf("a page of %q", page)
		}
		paged = append(paged, page...)
		if next == "" {
			break
		}
	}
	if !reflect.DeepEqual(paged, all) {
		t.Errorf("in pages: %q, want %q", paged, all)
	}
	if c := a.as(blueKey).call("GET", "/snapshots", ""); c.body != "[]\n" {
		t.Errorf("another team's: %v", c)
	}

	for ref, memory := range map[string]string{"mine": "y = 1", "red/mine:default": "y = 1", "mine:v2": "", unnamed.SnapshotID: ""} {
		var box protocol.Sandbox
		a.into(a.call("POST", "/v2/sandboxes", `{"templateID":"`+ref+`"}`), http.StatusCreated, &box)
		if got := a.machine().Memory(); got != memory || box.TemplateID == "base" {
			t.Errorf("made of %s: %q, of template %q", ref, got, box.TemplateID)
		}
	}
	a.is(a.as(blueKey).call("POST", "/v2/sandboxes", `{"templateID":"mine"}`), http.StatusNotFound, "template 'mine' not found")
	a.is(a.as(blueKey).call("DELETE", "/templates/mine", ""), http.StatusNotFound, "template 'mine' not found")
	a.is(a.as(blueKey).call("DELETE", "/templates/red%2Fmine", ""), http.StatusNotFound, "template 'red/mine' not found")
	for _, path := range []string{"red%2Fmine%3Adefault", "red/mine:v2", strings.TrimSuffix(unnamed.SnapshotID, ":default")} {
		a.is(a.call("DELETE", "/templates/"+path, ""), http.StatusNoContent, "")
		a.is(a.call("DELETE", "/templates/"+path, ""), http.StatusNotFound, "")
	}
	if got, _ := list(""); got != nil {
		t.Errorf("after all were deleted: %q", got)
	}
}

// TestFork: each copy is a sandbox of its own or says why it is none; the source goes on.
func TestFork(t *testing.T) {
	a, _ := newPausingAPI(t, func(cfg *host.Config) { cfg.MaxSandboxes = 3 })
	id := a.create(`{"metadata":{"a":"b"}}`)
	a.machine().SetMemory("z = 1")
	var made []protocol.Forked
	a.into(a.call("POST", "/sandboxes/"+id+"/fork", `{"count":3,"timeout":100}`), http.StatusCreated, &made)
	var boxes, refused int
	for _, f := range made {
		switch {
		case f.Sandbox != nil && f.Error == nil:
			boxes++
			d, source := a.detail(f.Sandbox.SandboxID), a.detail(id)
			if d.Metadata["a"] != "b" || d.SandboxID == id || d.EnvdAccessToken == source.EnvdAccessToken {
				t.Errorf("a copy: %+v", d)
			}
			if left := time.Until(a.detail(f.Sandbox.SandboxID).EndAt); left < 90*time.Second || left > 100*time.Second {
				t.Errorf("a copy has %v", left)
			}
		case f.Error != nil && f.Sandbox == nil && f.Error.Code == http.StatusTooManyRequests && f.Error.Message != "":
			refused++
		default:
			t.Errorf("%+v", f)
		}
	}
	if boxes != 2 || refused != 1 || a.detail(id).State != "running" {
		t.Errorf("%d copies, %d refused, the source is %s", boxes, refused, a.detail(id).State)
	}
}

// TestRollback: a sandbox is what it was, under its id.
func TestRollback(t *testing.T) {
	a, _ := newPausingAPI(t, nil)
	var made, after protocol.Sandbox
	a.into(a.call("POST", "/v2/sandboxes", `{}`), http.StatusCreated, &made)
	a.machine().SetMemory("good")
	a.is(a.call("POST", "/sandboxes/"+made.SandboxID+"/snapshots", `{"name":"before"}`), http.StatusCreated, "")
	a.machine().SetMemory("bad")
	a.into(a.call("POST", "/sandboxes/"+made.SandboxID+"/rollback", `{"snapshotID":"red/before:default"}`), http.StatusOK, &after)
	if got := a.machine().Memory(); got != "good" || !reflect.DeepEqual(after, made) {
		t.Errorf("%q, %+v, created %+v", got, after, made)
	}
}

// TestImageErrors: why an image cannot be made or used is in the message, with what to do
// about it, for E2B's packages show nothing else.
func TestImageErrors(t *testing.T) {
	a, images := newPausingAPI(t, nil)
	id := a.create("{}")
	for _, tt := range []struct {
		err     error
		status  int
		message string
	}{
		{&fault.Error{Code: fault.NoSpace, Err: errors.New("no room"), Hint: "remove some"}, http.StatusInsufficientStorage, "no room: remove some"},
		{&fault.Error{Code: fault.Incompatible, Err: errors.New("of another build"), Hint: "files only"}, 505, "of another build: files only"},
		{errors.New("/dev/sda1 is broken"), http.StatusInternalServerError, "the sandbox could not be paused"},
	} {
		images.SetFail(func(method string) error {
			if method == "Create" {
				return tt.err
			}
			return nil
		})
		a.is(a.call("POST", "/sandboxes/"+id+"/pause", ""), tt.status, tt.message)
		if got := a.detail(id).State; got != "running" {
			t.Errorf("after %v it is %s", tt.err, got)
		}
	}
}
