//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// detail is what the API tells of a sandbox.
type detail struct {
	State string
	EndAt time.Time
}

func (s *server) detail(t *testing.T, key string, b box) (d detail) {
	t.Helper()
	call(t, http.DefaultClient, "GET", s.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", key).decode(t, http.StatusOK, &d)
	return d
}

// createWith makes a sandbox of what a create may say.
func (s *server) createWith(t *testing.T, key string, body map[string]any) box {
	t.Helper()
	var b box
	call(t, http.DefaultClient, "POST", s.URL+"/v2/sandboxes", body, "X-API-KEY", key).decode(t, http.StatusCreated, &b)
	return b
}

// python runs code in a sandbox and returns all that was said about it.
func (s *server) python(t *testing.T, b box, code string) string {
	t.Helper()
	a := call(t, http.DefaultClient, "POST", s.URL+"/execute", map[string]string{"code": code}, b.routed(portCode)...)
	if a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return string(a.Body)
}

// killChild kills the process that has the sandboxes, and waits for the end of all.
func (s *server) killChild(t *testing.T) {
	t.Helper()
	for _, pid := range s.processes(t) {
		if pid != s.cmd.Process.Pid {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.cmd.Wait(); err == nil {
		t.Error("a server without the process that serves says that all is well")
	}
	until(t, "all of the server is gone", func() error {
		if pids := s.processes(t); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
}

// TestKeep: a planned end pauses what was created to be kept, and the next start resumes
// it with the time that it had left; what is paused, and snapshots, outlive every end.
func TestKeep(t *testing.T) {
	testenv.CheckLeaks(t)
	dir, whole := os.Getenv("TMPDIR"), t
	s := startIn(t, dir)
	key := s.Key
	kept := s.createWith(t, key, map[string]any{"timeout": 3000, "autoPause": true})
	ended := s.createWith(t, key, map[string]any{"timeout": 3000})
	paused := s.createWith(t, key, map[string]any{"timeout": 3000})
	for _, b := range []box{kept, ended, paused} {
		s.python(t, b, "x = 'of "+b.ID+"'")
	}
	api := func(s *server, method, path string, body any) answer {
		t.Helper()
		return call(t, http.DefaultClient, method, s.URL+path, body, "X-API-KEY", key)
	}
	if a := api(s, "POST", "/sandboxes/"+paused.ID+"/snapshots", map[string]string{"name": "kept"}); a.Status != http.StatusCreated {
		t.Fatalf("snapshot: %d %s", a.Status, a.Body)
	}
	if a := api(s, "POST", "/sandboxes/"+paused.ID+"/pause", nil); a.Status != http.StatusNoContent {
		t.Fatalf("pause: %d %s", a.Status, a.Body)
	}
	if a := api(s, "POST", "/sandboxes/"+kept.ID+"/snapshots", map[string]string{"name": "before"}); a.Status != http.StatusCreated {
		t.Fatalf("snapshot: %d %s", a.Status, a.Body)
	}
	s.python(t, kept, "x = 'spoilt'")
	if a := api(s, "POST", "/sandboxes/"+kept.ID+"/rollback", map[string]string{"snapshotID": "before"}); a.Status != http.StatusOK {
		t.Fatalf("rollback: %d %s", a.Status, a.Body)
	}
	if got := s.python(t, kept, "x"); !strings.Contains(got, "of "+kept.ID) {
		t.Errorf("what was put back says %s", got)
	}
	if a := api(s, "DELETE", "/templates/before:default", nil); a.Status != http.StatusNoContent {
		t.Errorf("delete: %d %s", a.Status, a.Body)
	}
	// isThere checks what must have outlived a server.
	isThere := func(t *testing.T, s *server) {
		t.Helper()
		if d := s.detail(t, key, paused); d.State != "paused" {
			t.Errorf("what was paused is %s", d.State)
		}
		if a := api(s, "POST", "/v2/sandboxes/"+paused.ID+"/connect", nil); a.Status != http.StatusCreated {
			t.Fatalf("connect: %d %s", a.Status, a.Body)
		}
		if got := s.python(t, paused, "x"); !strings.Contains(got, "of "+paused.ID) {
			t.Errorf("what was paused says %s", got)
		}
		if a := api(s, "POST", "/sandboxes/"+paused.ID+"/pause", nil); a.Status != http.StatusNoContent {
			t.Fatalf("pause: %d %s", a.Status, a.Body)
		}
		copied := s.createWith(t, key, map[string]any{"templateID": "kept"})
		if got := s.python(t, copied, "x"); !strings.Contains(got, "of "+paused.ID) {
			t.Errorf("of the snapshot: %s", got)
		}
		if a := api(s, "DELETE", "/sandboxes/"+copied.ID, nil); a.Status != http.StatusNoContent {
			t.Errorf("kill: %d %s", a.Status, a.Body)
		}
	}

	left := time.Until(s.detail(t, key, kept).EndAt)
	s.stop(t)
	if log := s.log.tail(64 << 10); !strings.Contains(log, "pausing sandboxes for the next server") {
		t.Errorf("the log does not say what is being done:\n%s", log)
	}
	time.Sleep(2 * time.Second) // which are not taken off its time
	s = startIn(whole, dir)
	until(t, "what was kept runs again", func() error {
		if d := s.detail(t, key, kept); d.State != "running" {
			return fmt.Errorf("it is %s", d.State)
		}
		return nil
	})
	if now := time.Until(s.detail(t, key, kept).EndAt); now < left-30*time.Second || now > left+time.Second {
		t.Errorf("it has %v, and had %v", now, left)
	}
	if got := s.python(t, kept, "x"); !strings.Contains(got, "of "+kept.ID) {
		t.Errorf("what was kept says %s", got)
	}
	checkError(t, api(s, "GET", "/sandboxes/"+ended.ID, nil), http.StatusNotFound, "the server was stopped")
	isThere(t, s)

	s.killChild(t)
	s = startIn(whole, dir)
	checkError(t, api(s, "GET", "/sandboxes/"+kept.ID, nil), http.StatusNotFound, "the server was killed; this was found at its next start")
	isThere(t, s)
	var snapshots []json.RawMessage
	api(s, "GET", "/snapshots", nil).decode(t, http.StatusOK, &snapshots)
	if len(snapshots) != 1 {
		t.Errorf("snapshots: %s", snapshots)
	}
}
