package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestOpenMakes: nothing is asked for but a name; what is made is the owner's
// alone, and is there the next time.
func TestOpenMakes(t *testing.T) {
	for _, name := range []string{"data", "a/b/c", "with space", "100%", "a?b#c&d=e", "ünï", "'\";--", "%41"} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, name)
			s, err := Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			team, secret, _, err := s.Bootstrap(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]fs.FileMode{
				dir: fs.ModeDir | 0o700, dir + "/cubby.db": 0o600, dir + "/cubby.db-wal": 0o600, dir + "/cubby.db-shm": 0o600,
			} {
				if info, err := os.Stat(path); err != nil || info.Mode() != want {
					t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != databaseName {
				t.Errorf("closed, %v is there, %v", files, err)
			}
			if got, err := open(t, dir).TeamOfKey(t.Context(), secret); err != nil || got != team {
				t.Errorf("the next time: %q, %v", got, err)
			}
			if files, err := os.ReadDir(parent); err != nil || len(files) != 1 {
				t.Errorf("beside the folder %v is there, %v", files, err)
			}
		})
	}
}

// closedDir is a data folder with a few records and nobody using it.
func closedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	team, _, _, err := s.Bootstrap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := s.PutSandbox(t.Context(), testSandbox(team, fmt.Sprint("i", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// killedDir is a data folder whose server was killed: its records are in the
// write-ahead log.
func killedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	p := start(t, "write", dir, 0)
	for range 100 {
		p.line()
	}
	p.kill()
	if info, err := os.Stat(filepath.Join(dir, databaseName+"-wal")); err != nil || info.Size() == 0 {
		t.Fatal("the log is empty", err)
	}
	return dir
}

// TestCutOffMerge: a kill or a full disk that cuts off the merging of the log into the
// database, which begins with the header, is no damage: the log has all of it.
func TestCutOffMerge(t *testing.T) {
	dir := killedDir(t)
	path := filepath.Join(dir, databaseName)
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	editDatabase(t, dir, `PRAGMA wal_checkpoint(TRUNCATE)`)
	merged, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(merged) <= len(before) {
		t.Fatal("the log did not make the database longer")
	}
	live := func() int {
		s, err := Open(t.Context(), dir)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer s.Close()
		all, err := s.LiveSandboxes(t.Context())
		if err != nil {
			t.Error(err)
		}
		return len(all)
	}
	want := live()
	for _, pages := range []int{1, 2, len(merged)/4096 - 1} {
		content := append(slices.Clone(merged[:pages*4096]), before[min(pages*4096, len(before)):]...)
		for name, content := range map[string][]byte{path: content, path + "-wal": log} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_ = os.Remove(path + "-shm")
		if got := live(); got != want || want == 0 {
			t.Errorf("%d pages were merged: %d records, not %d", pages, got, want)
		}
	}
}

func editDatabase(t testing.TB, dir, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, databaseName), ""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// TestOpenRefuses: what cannot be read is never taken for nothing, the error
// says what is wrong and what to do, and every byte stays as it was.
func TestOpenRefuses(t *testing.T) {
	database := func(dir string) string { return filepath.Join(dir, databaseName) }
	overwrite := func(t *testing.T, path string, at int64, content string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at < 0 {
			info, _ := f.Stat()
			at += info.Size()
		}
		if _, err := f.WriteAt([]byte(content), at); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	replace := func(t *testing.T, path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const damaged, notOurs, backup, another = "is damaged", "is not a database of Cubby's", "restore the folder from a backup", "--data-dir"
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		says  string // of what is wrong
		hint  string // of what to do
	}{
		{"an empty file", func(t *testing.T, dir string) { replace(t, database(dir), "") }, notOurs, backup},
		{"a text", func(t *testing.T, dir string) { replace(t, database(dir), "hello\n") }, notOurs, backup},
		{"a long text", func(t *testing.T, dir string) { replace(t, database(dir), strings.Repeat("hello\n", 10_000)) }, notOurs, backup},
		{"zeros, as a power cut leaves", func(t *testing.T, dir string) { replace(t, database(dir), strings.Repeat("\x00", 40960)) }, notOurs, backup},
		{"another program's database", func(t *testing.T, dir string) {
			must(t, os.Remove(database(dir)))
			editDatabase(t, dir, `CREATE TABLE keys (id); INSERT INTO keys VALUES (1)`)
			must(t, os.Chmod(database(dir), 0o600))
		}, notOurs, another},
		{"a header without our mark", func(t *testing.T, dir string) { editDatabase(t, dir, `PRAGMA application_id = 1`) }, notOurs, another},
		{"a newer schema", func(t *testing.T, dir string) {
			editDatabase(t, dir, fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)+1))
		},
			"written by a newer Cubby", "use that version"},
		{"no schema version", func(t *testing.T, dir string) { editDatabase(t, dir, `PRAGMA user_version = 0`) }, damaged, backup},
		{"a negative schema version", func(t *testing.T, dir string) { editDatabase(t, dir, `PRAGMA user_version = -1`) }, damaged, backup},
		{"a table less", func(t *testing.T, dir string) { editDatabase(t, dir, `DROP TABLE sandboxes`) }, damaged, backup},
		{"cut in the middle", func(t *testing.T, dir string) { must(t, os.Truncate(database(dir), 5*4096)) }, damaged, backup},
		{"cut in the first page", func(t *testing.T, dir string) { must(t, os.Truncate(database(dir), 1000)) }, "", backup},
		{"a page of noise", func(t *testing.T, dir string) { overwrite(t, database(dir), 2*4096, strings.Repeat("\xa5", 4096)) }, damaged, backup},
		{"a last page of zeros", func(t *testing.T, dir string) { overwrite(t, database(dir), -4096, strings.Repeat("\x00", 4096)) }, damaged, backup},
		{"a schema of noise", func(t *testing.T, dir string) { overwrite(t, database(dir), 108, strings.Repeat("\xff", 3988)) }, damaged, backup},
		{"a folder", func(t *testing.T, dir string) {
			must(t, os.Remove(database(dir)))
			must(t, os.Mkdir(database(dir), 0o700))
		}, "not a file but a folder", another},
		{"a pipe", func(t *testing.T, dir string) {
			must(t, os.Remove(database(dir)))
			must(t, syscall.Mkfifo(database(dir), 0o600))
		}, "not a file but a pipe", another},
		{"a link to nothing", func(t *testing.T, dir string) {
			must(t, os.Remove(database(dir)))
			must(t, os.Symlink("nowhere", database(dir)))
		}, "no such file", another},
		{"a log without its database", func(t *testing.T, dir string) {
			must(t, os.Remove(database(dir)))
			replace(t, database(dir)+"-wal", "log")
		}, "is missing, but its log", backup},
		{"a file that others may write", func(t *testing.T, dir string) { must(t, os.Chmod(database(dir), 0o660)) }, "other users may write this file", "chmod 600"},
		{"a folder that the group may write", func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o770)) }, "other users may write this folder", "chmod 700"},
		{"a folder that all may write", func(t *testing.T, dir string) { must(t, os.Chmod(dir, fs.ModeSticky|0o777)) }, "other users may write this folder", another},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := closedDir(t)
			test.spoil(t, dir)
			before := snapshot(t, dir)
			s, err := Open(t.Context(), dir)
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			checkRefusal(t, err, dir, test.says, test.hint)
			if after := snapshot(t, dir); !maps.Equal(before, after) {
				t.Errorf("there was %q, now %q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
		})
	}

	t.Run("damage under a log", func(t *testing.T) {
		dir := killedDir(t)
		// What the log does not cover is damaged.
		must(t, os.Truncate(database(dir), 2*4096+1))
		log, err := os.ReadFile(database(dir) + "-wal")
		must(t, err)
		replace(t, database(dir)+"-wal", string(log[:32+24+100])) // cut in its first frame
		before := snapshot(t, dir)
		s, err := Open(t.Context(), dir)
		if err == nil {
			s.Close()
			t.Fatal("it was opened")
		}
		checkRefusal(t, err, dir, damaged, backup)
		after := snapshot(t, dir)
		delete(before, database(dir)+"-shm") // the log's index, which holds nothing of its own
		delete(after, database(dir)+"-shm")
		if !maps.Equal(before, after) {
			t.Errorf("there was %q, now %q", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		}
	})

	t.Run("a file in place of the folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		replace(t, path, "hello")
		_, err := Open(t.Context(), path)
		checkRefusal(t, err, path, "not a directory", another)
		_, err = Open(t.Context(), filepath.Join(path, "below"))
		checkRefusal(t, err, path, "not a directory", another)
	})
}

func checkRefusal(t *testing.T, err error, dir, says, hint string) {
	t.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Op != opOpen || e.Code == 0 {
		t.Fatalf("not an *Error: %#v", err)
	}
	if !strings.Contains(e.Err.Error(), says) || !strings.Contains(e.Err.Error(), dir) || !strings.Contains(e.Hint, hint) {
		t.Errorf("%v\nhint: %s", e.Err, e.Hint)
	}
	if errors.Is(err, ErrNotFound) {
		t.Error("it says that something was not found")
	}
}

// TestOpenWithoutPermission plays a user who may not: the test's own if that is
// not root, else another.
func TestOpenWithoutPermission(t *testing.T) {
	uid := uint32(0) // the test's own
	if os.Geteuid() == 0 {
		uid = 65534
	}
	own := func(dir string) {
		if uid == 0 {
			return
		}
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(uid), int(uid)))
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(dir string) error
	}{
		{"a file that may not be read", func(dir string) error { return os.Chmod(filepath.Join(dir, databaseName), 0) }},
		{"a file that may not be written", func(dir string) error { return os.Chmod(filepath.Join(dir, databaseName), 0o400) }},
		{"a folder that may not be entered", func(dir string) error { return os.Chmod(dir, 0) }},
		{"a folder that may not be listed", func(dir string) error { return os.Chmod(dir, 0o300) }},
		{"a folder that may not be written", func(dir string) error { return os.Chmod(dir, 0o500) }},
		{"a parent that may not be written", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Chmod(filepath.Dir(dir), 0o555))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			parent := filepath.Join(publicDir(t), "parent")
			dir := filepath.Join(parent, "data")
			s, err := Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			own(parent)
			if err := test.spoil(dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(parent, 0o700); os.Chmod(dir, 0o700) })
			lines := start(t, "open", dir, uid).rest()
			if got := strings.Join(slices.Concat(lines...), " "); !strings.Contains(got, "permission denied") ||
				!strings.Contains(got, dir) || !strings.Contains(got, "run as the user that owns it") {
				t.Error(got)
			}
		})
	}
}

// TestOpenSeesTheLog: what a killed server wrote last is in the write-ahead log,
// and must be there when the database is checked and used again.
func TestOpenSeesTheLog(t *testing.T) {
	dir := killedDir(t)
	live, err := open(t, dir).LiveSandboxes(t.Context())
	if err != nil || len(live) == 0 {
		t.Errorf("%d, %v", len(live), err)
	}
}

// TestOpenWhileOpen: a second store of the same process must not disturb the
// first one, whose locks are the process's.
func TestOpenWhileOpen(t *testing.T) {
	s, team := newStore(t)
	for i := range 5 {
		other, err := Open(t.Context(), s.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.PutSandbox(t.Context(), testSandbox(team, fmt.Sprint("i", i))); err != nil {
			t.Fatal(err)
		}
		if live, err := other.LiveSandboxes(t.Context()); err != nil || len(live) != i+1 {
			t.Errorf("%d, %v", len(live), err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamageWhileOpen: an answer that cannot be had is an error, never "no such
// key".
func TestDamageWhileOpen(t *testing.T) {
	dir := closedDir(t)
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Truncate(filepath.Join(dir, databaseName), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := s.TeamOfKey(t.Context(), "e2b_x"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("look up a key: %v", err)
	}
	if _, err := s.Sandbox(t.Context(), "i1"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("read a record: %v", err)
	}
	if _, err := s.LiveSandboxes(t.Context()); err == nil {
		t.Error("the list of sandboxes is empty")
	}
}

// TestContext: a call ends with its context, also while it waits for the lock
// of another process.
func TestContext(t *testing.T) {
	s, team := newStore(t)
	other, err := sql.Open("sqlite", dsn(filepath.Join(s.Dir(), databaseName), "_txlock=immediate"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.PutSandbox(ctx, testSandbox(team, "i1")); !errors.Is(err, context.DeadlineExceeded) || fault.CodeOf(err) != fault.Timeout {
		t.Errorf("while another writes: %v", err)
	}
	if _, err := s.Sandbox(t.Context(), "i1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("reading must not wait: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSandbox(t.Context(), testSandbox(team, "i1")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"put": s.PutSandbox(canceled, testSandbox(team, "i2")),
		"key": func() error { _, err := s.TeamOfKey(canceled, ""); return err }(),
	} {
		if fault.CodeOf(err) != fault.Canceled {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestMigrations(t *testing.T) {
	older := migrations
	newer := append(slices.Clone(older),
		`ALTER TABLE teams ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'`,
		`UPDATE teams SET colour = 'blue'; CREATE TABLE colours (name TEXT) STRICT`)
	prepare := func(t *testing.T, dir string, m []string) error {
		return prepareDatabase(t.Context(), dir, filepath.Join(dir, databaseName), m)
	}
	version := func(t *testing.T, dir string) (v int) {
		t.Helper()
		v, err := examine(t.Context(), filepath.Join(dir, databaseName))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}

	t.Run("a new database has them all", func(t *testing.T) {
		dir := t.TempDir()
		if err := prepare(t, dir, newer); err != nil || version(t, dir) != len(newer) {
			t.Error(err)
		}
	})
	t.Run("an old one gets what it lacks, once", func(t *testing.T) {
		dir := closedDir(t)
		for range 2 {
			if err := prepare(t, dir, newer); err != nil {
				t.Fatal(err)
			}
		}
		db, err := sql.Open("sqlite", dsn(filepath.Join(dir, databaseName), ""))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var colour string
		var sandboxes int
		if err := db.QueryRow(`SELECT colour, (SELECT count(*) FROM sandboxes) FROM teams`).Scan(&colour, &sandboxes); err != nil || colour != "blue" || sandboxes != 50 {
			t.Errorf("%q %d %v", colour, sandboxes, err)
		}
	})
	t.Run("one that fails changes nothing", func(t *testing.T) {
		dir := closedDir(t)
		err := prepare(t, dir, append(slices.Clone(older), `DROP TABLE keys; nonsense`))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("to version ", len(newer)-1)) || version(t, dir) != len(older) {
			t.Fatal(err)
		}
		if keys, err := open(t, dir).Keys(t.Context()); err != nil || len(keys) != 1 {
			t.Errorf("%v, %v", keys, err)
		}
	})
	t.Run("not under a server", func(t *testing.T) {
		dir := closedDir(t)
		synctest.Test(t, func(t *testing.T) {
			release, err := lockServer(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if err := prepare(t, dir, newer); fault.CodeOf(err) != fault.Conflict || version(t, dir) != len(older) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("after a server that is about to end", func(t *testing.T) {
		dir := closedDir(t)
		synctest.Test(t, func(t *testing.T) {
			release, err := lockServer(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(lockWait/2, func() { release() })
			if err := prepare(t, dir, newer); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("beside a server that was faster", func(t *testing.T) {
		dir := closedDir(t)
		synctest.Test(t, func(t *testing.T) {
			release, err := lockServer(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if err := migrate(t.Context(), dir, filepath.Join(dir, databaseName), older); err != nil {
				t.Error(err)
			}
		})
	})
}

// FuzzOpen spoils a database anywhere: it is opened or refused, and what is
// refused stays as it was.
func FuzzOpen(f *testing.F) {
	good, err := os.ReadFile(filepath.Join(closedDir(f), databaseName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte("x"), uint32(len(good)))
	f.Add(uint32(18), []byte{1, 1}, uint32(len(good)))
	f.Add(uint32(16), []byte{0, 1}, uint32(len(good)))
	f.Add(uint32(28), []byte{0xff, 0xff, 0xff, 0xff}, uint32(len(good)))
	f.Add(uint32(100), []byte{2}, uint32(len(good)))
	f.Add(uint32(4096), []byte{13, 0, 0, 255}, uint32(len(good)))
	f.Add(uint32(5000), []byte("abc"), uint32(4097))
	f.Fuzz(func(t *testing.T, at uint32, noise []byte, size uint32) {
		content := slices.Clone(good[:min(int(size), len(good))])
		if int(at) < len(content) {
			copy(content[at:], noise)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, databaseName)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), dir)
		if err != nil {
			if after, readErr := os.ReadFile(path); readErr != nil || !slices.Equal(after, content) {
				t.Fatalf("refused with %v, and changed", err)
			}
			return
		}
		// None of these may crash or hang; they may fail.
		team, _, _, err := s.Bootstrap(t.Context())
		if err == nil {
			_ = s.PutSandbox(t.Context(), testSandbox(team, "new"))
		}
		_, _ = s.LiveSandboxes(t.Context())
		_, _ = s.Keys(t.Context())
		_ = s.Close()
	})
}
