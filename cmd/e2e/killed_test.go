//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// killsVar is how many rounds TestKilledAnywhere has; `make soak` sets more.
const killsVar = "CUBBY_TEST_KILLS"

// fewKills are its rounds otherwise: each process once or twice.
const fewKills = 6

// victims are the processes that are killed, by a part of their first argument; the
// first two are the server's own.
var victims = []string{"front", "child", "runsc-sandbox", "runsc-gofer", "cubby-gateway"}

// changes are what is under way when one of them is.
var changes = []string{"pause", "resume", "snapshot", "fork", "rollback"}

// TestKilledAnywhere kills one process of a server at some moment of a change of a
// sandbox. Afterwards the sandbox is there with its memory, or the API says why it ended;
// snapshots and copies have the memory that they were made with; nothing is left behind.
func TestKilledAnywhere(t *testing.T) {
	rounds := fewKills
	if n, err := strconv.Atoi(os.Getenv(killsVar)); err == nil {
		rounds = n
	}
	testenv.CheckLeaks(t)
	dir := os.Getenv("TMPDIR")
	s := startIn(t, dir, "--log-level", "warn")
	k := &killing{t: t, key: s.Key}
	for round := range rounds {
		victim, change := victims[round%len(victims)], changes[rand.IntN(len(changes))]
		name := fmt.Sprintf("round %d: the end of %s during a %s", round, victim, change)
		s = k.round(s, dir, name, victim, change)
		if t.Failed() {
			return
		}
	}
	// What is left is the snapshots, and then nothing.
	for _, ref := range k.snapshots(s) {
		if a := k.api(s, "DELETE", "/templates/"+ref, nil); a.Status != http.StatusNoContent {
			t.Errorf("delete %s: %d %s", ref, a.Status, a.Body)
		}
	}
	s.stop(t)
	s = startIn(t, dir)
	s.stop(t)
	entries, err := os.ReadDir(filepath.Join(s.DataDir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left among the images: %s", e.Name())
	}
}

// says is what code in a sandbox says, or what went wrong on the way.
func says(s *server, b box, code string) string {
	body, _ := json.Marshal(map[string]string{"code": code})
	req, err := http.NewRequest("POST", s.URL+"/execute", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for header := b.routed(portCode); len(header) > 0; header = header[2:] {
		req.Header.Set(header[0], header[1])
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s %v", resp.StatusCode, text, err)
}

type killing struct {
	t   *testing.T
	key string
}

func (k *killing) api(s *server, method, path string, body any) answer {
	k.t.Helper()
	return call(k.t, http.DefaultClient, method, s.URL+path, body, "X-API-KEY", k.key)
}

func (k *killing) snapshots(s *server) (refs []string) {
	k.t.Helper()
	var all []struct{ SnapshotID string }
	k.api(s, "GET", "/snapshots", nil).decode(k.t, http.StatusOK, &all)
	for _, one := range all {
		refs = append(refs, one.SnapshotID)
	}
	return refs
}

// round returns the server that there is afterwards.
func (k *killing) round(s *server, dir, name, victim, change string) *server {
	t := k.t
	b := s.createWith(t, k.key, map[string]any{"timeout": 3000, "allow_internet_access": true})
	s.python(t, b, "x = '"+b.ID+"'")
	route := "/sandboxes/" + b.ID + "/" + change
	body := map[string]any{}
	switch change {
	case "resume":
		if a := k.api(s, "POST", "/sandboxes/"+b.ID+"/pause", nil); a.Status != http.StatusNoContent {
			t.Fatalf("%s: pause: %d %s", name, a.Status, a.Body)
		}
		route = "/v2/sandboxes/" + b.ID + "/connect"
	case "snapshot":
		route += "s"
	case "fork":
		body = map[string]any{"count": 2, "timeout": 3000}
	case "rollback":
		var snapshot struct{ SnapshotID string }
		k.api(s, "POST", "/sandboxes/"+b.ID+"/snapshots", nil).decode(t, http.StatusCreated, &snapshot)
		body = map[string]any{"snapshotID": snapshot.SnapshotID}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		encoded, _ := json.Marshal(body)
		req, err := http.NewRequest("POST", s.URL+route, strings.NewReader(string(encoded)))
		if err != nil {
			return
		}
		req.Header.Set("X-API-KEY", k.key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return // it was cut
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusBadRequest {
			said, _ := io.ReadAll(resp.Body)
			t.Errorf("%s: it does not begin: %s", name, said)
		}
	}()
	time.Sleep(rand.N(400 * time.Millisecond))
	own := k.kill(s, victim)
	<-done
	if own {
		_ = s.cmd.Wait()
		until(t, name+": all of the server is gone", func() error {
			if pids := s.processes(t); len(pids) > 0 {
				return fmt.Errorf("processes %v", pids)
			}
			return nil
		})
		s = startIn(t, dir, "--log-level", "warn")
	}
	k.check(s, name, b.ID)
	return s
}

// kill kills the victim, if there is one, and reports whether the server ends with it.
func (k *killing) kill(s *server, victim string) (own bool) {
	k.t.Helper()
	servers := s.processes(k.t)
	for _, pid := range testenv.Family(s.cmd.Process.Pid) {
		line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		front := pid == s.cmd.Process.Pid
		child := !front && slices.Contains(servers, pid)
		if victim == "front" && front || victim == "child" && child || strings.HasPrefix(string(line), victim) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				k.t.Fatal(err)
			}
			return front || child
		}
	}
	return false
}

// check looks at all that there is, and ends it but for the snapshots.
func (k *killing) check(s *server, name, source string) {
	t := k.t
	t.Helper()
	var d struct {
		State, Message string
	}
	until(t, name+": the sandbox has a state", func() error {
		a := k.api(s, "GET", "/sandboxes/"+source, nil)
		if err := json.Unmarshal(a.Body, &d); err != nil {
			return err
		}
		if a.Status != http.StatusOK && a.Status != http.StatusNotFound {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		if a.Status == http.StatusNotFound && !strings.Contains(d.Message, "ended at") {
			t.Errorf("%s: it is gone, and nobody says why: %s", name, a.Body)
		}
		return nil
	})
	var all []struct{ SandboxID string }
	k.api(s, "GET", "/v2/sandboxes", nil).decode(t, http.StatusOK, &all)
	for _, one := range all {
		var b box
		a := k.api(s, "POST", "/v2/sandboxes/"+one.SandboxID+"/connect", map[string]int{"timeout": 600})
		if a.Status == http.StatusNotFound {
			continue // its machine was the victim's
		}
		if a.Status != http.StatusOK && a.Status != http.StatusCreated {
			t.Errorf("%s: connect: %d %s", name, a.Status, a.Body)
			continue
		}
		if err := json.Unmarshal(a.Body, &b); err != nil {
			t.Fatal(err)
		}
		if got := says(s, b, "x"); !strings.Contains(got, source) {
			// That its machine lost a process may be noticed a moment later.
			until(t, name+": "+b.ID+" has ended, for it says "+got, func() error {
				if a := k.api(s, "GET", "/sandboxes/"+b.ID, nil); a.Status != http.StatusNotFound {
					return fmt.Errorf("%d %s", a.Status, a.Body)
				}
				return nil
			})
		}
		if a := k.api(s, "DELETE", "/sandboxes/"+b.ID, nil); a.Status != http.StatusNoContent && a.Status != http.StatusNotFound {
			t.Errorf("%s: kill: %d %s", name, a.Status, a.Body)
		}
	}
	for _, ref := range k.snapshots(s) {
		b := s.createWith(t, k.key, map[string]any{"templateID": ref})
		if got := s.python(t, b, "print(len(x))"); !strings.Contains(got, strconv.Itoa(len(source))) {
			t.Errorf("%s: the snapshot %s: %s", name, ref, got)
		}
		for _, path := range []string{"/sandboxes/" + b.ID, "/templates/" + ref} {
			if a := k.api(s, "DELETE", path, nil); a.Status != http.StatusNoContent {
				t.Errorf("%s: delete %s: %d %s", name, path, a.Status, a.Body)
			}
		}
	}
}
