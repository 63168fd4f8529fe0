package store

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestKey: a folder has one key for ever, that only its owner can read.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	var first *secret.Key
	for range 3 {
		s, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			key, err := s.Key(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = key
			}
			if !bytes.Equal(key.Bytes(), first.Bytes()) {
				t.Error("the key is another one")
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, keyName)); err != nil || info.Mode().Perm() != 0o600 || info.Size() != secret.Size {
		t.Errorf("%v, %v", info, err)
	}
	if key, err := open(t, t.TempDir()).Key(t.Context()); err != nil || bytes.Equal(key.Bytes(), first.Bytes()) {
		t.Errorf("another folder's key is the same: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(dir, databaseName))
	if err != nil || bytes.Contains(content, first.Bytes()) {
		t.Errorf("the database holds the key: %v", err)
	}
}

// TestKeyCutOff: a start that was killed anywhere while it made the key is
// followed by one that goes on.
func TestKeyCutOff(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, dir string){
		"before it had its name": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, newKeyName), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"by who restored it for all to read": func(t *testing.T, dir string) {
			path := filepath.Join(dir, newKeyName)
			if err := errors.Join(os.WriteFile(path, []byte("half"), 0o600), os.Chmod(path, 0o644)); err != nil {
				t.Fatal(err)
			}
		},
		"before the database knew of it": func(t *testing.T, dir string) {
			if _, err := makeKey(dir); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			leave(t, s.Dir())
			there, _ := os.ReadFile(filepath.Join(s.Dir(), keyName))
			key, err := s.Key(t.Context())
			if err != nil || there != nil && !bytes.Equal(there, key.Bytes()) {
				t.Fatal(err)
			}
			if again, err := s.Key(t.Context()); err != nil || !bytes.Equal(again.Bytes(), key.Bytes()) {
				t.Error(err)
			}
		})
	}
}

// TestKeyAtOnce: servers that start at the same time in a new folder have one key.
func TestKeyAtOnce(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		keys := make([][]byte, 8)
		var all sync.WaitGroup
		for i := range keys {
			s := open(t, dir)
			all.Go(func() {
				key, err := s.Key(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				keys[i] = key.Bytes()
			})
		}
		all.Wait()
		for i := range keys {
			if !bytes.Equal(keys[i], keys[0]) {
				t.Fatal("two keys of one folder")
			}
		}
	}
}

// TestOthersFiles: root does not take a database or a key that another user can change.
func TestOthersFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, name := range []string{databaseName, keyName} {
		dir := closedDir(t)
		use := func() error {
			s, err := Open(t.Context(), dir)
			if err != nil {
				return err
			}
			defer s.Close()
			_, err = s.Key(t.Context())
			return err
		}
		if err := use(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.Chown(path, 12345, -1); err != nil {
			t.Skip(err) // a container's root may not
		}
		e, ok := errors.AsType[*fault.Error](use())
		if !ok || !strings.Contains(e.Error(), path+" belongs to another user (uid 12345)") || !strings.Contains(e.Hint, "chown 0 "+path) {
			t.Errorf("%s: %v", name, e)
		}
		if err := os.Chown(path, 0, -1); err != nil {
			t.Fatal(err)
		}
		if err := use(); err != nil {
			t.Errorf("%s is root's again: %v", name, err)
		}
	}
}

// TestKeyRefused: a key that is not the folder's, whole and its owner's alone is
// refused with what to do, and left as it is.
func TestKeyRefused(t *testing.T) {
	for _, test := range []struct {
		name       string
		spoil      func(path string) error
		says, hint string
	}{
		{"missing", os.Remove, "is missing", "restore both"},
		{"empty", func(path string) error { return os.Truncate(path, 0) }, "is damaged", "restore both"},
		{"cut off", func(path string) error { return os.Truncate(path, 31) }, "is damaged", "restore both"},
		{"too long", func(path string) error { return os.WriteFile(path, make([]byte, 33), 0o600) }, "is damaged", "restore both"},
		{"another one", func(path string) error { return os.WriteFile(path, make([]byte, 32), 0o600) }, "is not the key", "restore both"},
		{"others may read it", func(path string) error { return os.Chmod(path, 0o640) }, "other users", "chmod 600"},
		{"a folder", func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		}, "not a file but a folder", "restore both"},
		{"a link", func(path string) error {
			if err := os.Rename(path, path+".moved"); err != nil {
				return err
			}
			return os.Symlink(path+".moved", path)
		}, "not a file but a link", "restore both"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t, t.TempDir())
			if _, err := s.Key(t.Context()); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(s.Dir(), keyName)
			if err := test.spoil(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			for range 2 {
				_, err := s.Key(t.Context())
				var e *fault.Error
				if e = errorOf(err); e == nil || !strings.Contains(e.Err.Error(), test.says) || !strings.Contains(e.Hint, test.hint) {
					t.Errorf("%v", err)
				}
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("it was changed")
			}
		})
	}
}

func errorOf(err error) *fault.Error {
	e, _ := err.(*fault.Error) //nolint:errorlint // it is the outermost
	return e
}

// TestVersionOne opens a folder that the first version's server left behind:
// what lived is still to be ended, what ended keeps its reason, and nobody's key
// is another.
func TestVersionOne(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, databaseName)
	if err := prepareDatabase(t.Context(), dir, path, migrations[:1]); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", dsn(path, ""))
	if err != nil {
		t.Fatal(err)
	}
	const columns = `(id, team_id, template_id, metadata, cpus, memory_mb, disk_mb, started_at, end_at, ended_at, end_reason)`
	at := start2026.UnixMicro()
	for _, statement := range []string{
		`INSERT INTO teams (id, name, created_at) VALUES ('t1', 'team', 1)`,
		`INSERT INTO sandboxes ` + columns + ` VALUES ('i1', 't1', 'base', '{"a":"b"}', 0.5, 512, 1024, ?1, ?1 + 1000000, NULL, NULL)`,
		`INSERT INTO sandboxes ` + columns + ` VALUES ('i2', 't1', 'tpl', '{}', 2, 64, 65, ?1, ?1 + 1000000, ?1 + 500000, 'it was killed')`,
	} {
		args := []any{}
		if strings.Contains(statement, "?1") {
			args = append(args, at)
		}
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s := open(t, dir)
	live, err := s.LiveSandboxes(t.Context())
	if err != nil || len(live) != 1 {
		t.Fatalf("%+v, %v", live, err)
	}
	b := live[0]
	if b.ID != "i1" || b.State != "running" || b.TeamID != "t1" || b.Metadata["a"] != "b" || b.CPUs != 0.5 || b.MemoryMB != 512 || b.DiskMB != 1024 ||
		b.Generation != 1 || b.Memories != 1 || b.Files != 1 || !b.StartedAt.Equal(start2026) || !b.EndAt.Equal(start2026.Add(time.Second)) {
		t.Errorf("the one that lived: %+v", b)
	}
	if err := end(t.Context(), s, b, start2026.Add(time.Minute), "the server was killed"); err != nil {
		t.Error(err)
	}
	for id, reason := range map[string]string{"i1": "the server was killed", "i2": "it was killed"} {
		if b, err := s.Sandbox(t.Context(), id); err != nil || b.State != StateEnded || b.EndReason != reason || b.EndedAt.IsZero() {
			t.Errorf("%s: %+v, %v", id, b, err)
		}
	}
	if _, err := s.Key(t.Context()); err != nil {
		t.Errorf("the key of an old folder: %v", err)
	}
}
