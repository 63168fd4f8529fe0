package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestFirstStartOfMany: of processes that start at once on no folder, one makes
// the team and all work.
func TestFirstStartOfMany(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var all []*process
	for range 8 {
		all = append(all, start(t, "bootstrap", dir, 0))
	}
	created, teams := 0, map[string]bool{}
	for _, p := range all {
		for _, line := range p.rest() {
			if line[0] == "true" {
				created++
			}
			teams[line[1]] = true
		}
	}
	if created != 1 || len(teams) != 1 {
		t.Errorf("%d created, teams %v", created, teams)
	}
	// SQLite's log may stay, when the last two closed at once; what was in the
	// making may not.
	if _, err := os.Lstat(filepath.Join(dir, newName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

// TestManyProcesses: each makes and revokes keys while this one looks them up;
// nothing fails for another's lock, and nothing is lost.
func TestManyProcesses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var all []*process
	for range 4 {
		all = append(all, start(t, "keys", dir, 0))
	}
	n := 0
	for _, p := range all {
		for _, line := range p.rest() {
			n++
			_, err := s.TeamOfKey(t.Context(), line[1])
			if good := line[0] == "good"; good && err != nil || !good && !errors.Is(err, ErrNotFound) {
				t.Errorf("%s key: %v", line[0], err)
			}
		}
	}
	keys, err := s.Keys(t.Context())
	if err != nil || n != 80 || len(keys) != 81 {
		t.Errorf("%d told, %d listed, %v", n, len(keys), err)
	}
}

// TestRevokedElsewhere: a key that another process revoked is none from that
// moment on.
func TestRevokedElsewhere(t *testing.T) {
	s, team := newStore(t)
	p := start(t, "revoke", s.Dir(), 0)
	for range 10 {
		k, secret, err := s.CreateKey(t.Context(), team, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.TeamOfKey(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(p.in, k.ID)
		p.line()
		if _, err := s.TeamOfKey(t.Context(), secret); !errors.Is(err, ErrNotFound) {
			t.Fatalf("revoked: %v", err)
		}
	}
	p.rest()
}

// TestKilled: processes that are killed in the middle of writing leave a sound
// database with everything that they were told was written, and no lock.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	told := map[string]map[string]bool{"sandbox": {}, "ended": {}, "key": {}}
	note := func(lines ...[]string) {
		for _, line := range lines {
			told[line[0]][line[1]] = true // a line is one write, which a kill does not cut
		}
	}
	for round := range 6 {
		p, q := start(t, "write", dir, 0), start(t, "write", dir, 0)
		for range 20 + 7*round {
			note(p.line())
			note(q.line())
		}
		note(p.kill()...)
		note(q.kill()...)
		s, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for id := range told["sandbox"] {
			b, err := s.Sandbox(t.Context(), id)
			if err != nil || told["ended"][id] && b.EndReason != "test" && b.EndReason != "killed" {
				t.Fatalf("round %d: %s: %+v, %v", round, id, b, err)
			}
		}
		for secret := range told["key"] {
			if _, err := s.TeamOfKey(t.Context(), secret); err != nil {
				t.Fatalf("round %d: a key: %v", round, err)
			}
		}
		live, err := s.LiveSandboxes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range live {
			if err := end(t.Context(), s, b, time.Now(), "killed"); err != nil {
				t.Fatal(err)
			}
		}
		var verdict string
		if err := s.read.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
			t.Fatalf("round %d: %s, %v", round, verdict, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(told["sandbox"]) < 100 || len(told["ended"]) == 0 || len(told["key"]) == 0 {
		t.Errorf("too little was written: %d, %d, %d", len(told["sandbox"]), len(told["ended"]), len(told["key"]))
	}
}

// TestLockServer: one server a folder; the refused one learns whose process the
// other is, and a killed one's lock is gone.
func TestLockServer(t *testing.T) {
	s, _ := newStore(t)
	p := start(t, "lock", s.Dir(), 0)
	p.line()
	once, cancel := context.WithCancel(t.Context()) // without the wait
	cancel()
	_, err := s.LockServer(once)
	if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", p.cmd.Process.Pid)) ||
		!strings.Contains(err.Error(), s.Dir()) {
		t.Errorf("%v", err)
	}
	if _, err := s.Keys(t.Context()); err != nil {
		t.Errorf("beside a server: %v", err)
	}
	p.kill()
	release, err := s.LockServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.LockServer(once); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("twice in one process: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if release, err = s.LockServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
