package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestDisk: a team is told what it has, and the owner of a server without keys what all
// take; what is removed is the team's.
func TestDisk(t *testing.T) {
	a, _ := newPausingAPI(t, nil)
	id := a.create("{}")
	a.is(a.call("POST", "/sandboxes/"+id+"/snapshots", ""), http.StatusCreated, "")
	a.is(a.call("POST", "/sandboxes/"+id+"/snapshots", `{"name":"kept"}`), http.StatusCreated, "")
	a.is(a.call("POST", "/sandboxes/"+id+"/pause", ""), http.StatusNoContent, "")
	for key, want := range map[string]string{
		redKey:  `{"paused":{"count":1,"bytes":1048576},"snapshots":{"count":2,"bytes":2097152}}`,
		blueKey: `{"paused":{"count":0,"bytes":0},"snapshots":{"count":0,"bytes":0}}`,
	} {
		if c := a.as(key).call("GET", "/cubby/disk", ""); c.status != http.StatusOK || c.body != want+"\n" {
			t.Errorf("%v, want %s", c, want)
		}
	}
	for _, tt := range []struct {
		key, query, want string
		status           int
	}{
		{blueKey, "?all=true", `{"count":0,"bytes":0}`, 200}, {redKey, "", `{"count":0,"bytes":0}`, 200},
		{redKey, "?all=true&age=100", `{"count":0,"bytes":0}`, 200}, {redKey, "?all=true&age=0", `{"count":1,"bytes":1048576}`, 200},
		{redKey, "?all=maybe", "all must be true or false", 400}, {redKey, "?age=old", "age must be", 400}, {redKey, "?age=1e9", "age must be", 400},
		{redKey, "?age=9999999999999", "age must be", 400},
	} {
		if c := a.as(tt.key).call("DELETE", "/cubby/disk"+tt.query, ""); c.status != tt.status || !strings.Contains(c.body, tt.want) {
			t.Errorf("%s: %v, want %d %s", tt.query, c, tt.status, tt.want)
		}
	}

	h := host.New(host.Config{Engine: &hosttest.Engine{}, Images: &hosttest.Images{Dir: t.TempDir()}})
	defer h.Close()
	var d protocol.Disk
	private := &api{t: t, handler: New(Config{Host: Local(h)})}
	private.into(private.call("GET", "/cubby/disk", ""), http.StatusOK, &d)
	if d.All == nil {
		t.Error("the owner is not told what all take")
	}
}
