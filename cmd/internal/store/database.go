package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

const damagedHint = "nothing was changed; restore the folder from a backup, or move its cubby.db* files away to start with new keys"

// prepareDatabase leaves a sound database of this version's schema at path, or
// refuses and changes nothing.
func prepareDatabase(ctx context.Context, dir, path string, migrations []string) error {
	if there, err := Exists(dir); err != nil {
		return err
	} else if !there {
		if err := create(ctx, dir, path, migrations); err != nil {
			return err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return unreadable(err)
	}
	if !info.Mode().IsRegular() {
		return refuse(fmt.Errorf("%s is not a file but a %s", path, kind(info.Mode())), "move it away, or name another folder with --data-dir")
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return refuse(fmt.Errorf("%s: other users may write this file (mode %04o), and so could replace the keys in it", path, perm), "chmod 600 "+path)
	}
	if err := ownedByOther(path, info); err != nil {
		return err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS); err != nil {
		return unreadable(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	version, err := examine(ctx, path)
	if err != nil {
		return err
	}
	switch {
	case version > len(migrations):
		return &fault.Error{Op: opOpen, Code: fault.Incompatible,
			Err:  fmt.Errorf("%s was written by a newer Cubby (its schema is %d, this one knows %d)", path, version, len(migrations)),
			Hint: "use that version, or name another folder with --data-dir; nothing was changed"}
	case version < len(migrations):
		return migrate(ctx, dir, path, migrations)
	}
	return nil
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "device"
}

// create makes a database that appears under its name only when it is whole and
// on disk: a file that is empty or cut is therefore damage, never a start.
func create(ctx context.Context, dir, path string, migrations []string) error {
	release, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer release()
	if there, err := Exists(dir); err != nil || there {
		return err // another process was faster
	}
	for _, suffix := range []string{"-wal", "-journal"} {
		info, err := os.Lstat(path + suffix)
		if err == nil && info.Size() > 0 {
			return refuse(fmt.Errorf("%s is missing, but its log %s is there", path, filepath.Base(path+suffix)), damagedHint)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unreadable(err)
		}
	}
	content, err := emptyDatabase(ctx, migrations)
	if err != nil {
		return refuse(fmt.Errorf("make a database: %w", err), "")
	}
	temporary := filepath.Join(dir, newName)
	if err := writeSynced(temporary, content); err != nil {
		return errors.Join(unreadable(err), os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(unreadable(err), os.Remove(temporary))
	}
	if err := syncDir(dir); err != nil {
		return unreadable(err)
	}
	return nil
}

// emptyDatabase returns the bytes of a database without rows.
func emptyDatabase(ctx context.Context, migrations []string) ([]byte, error) {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx) // each connection has a memory of its own
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, m := range migrations {
		if _, err := conn.ExecContext(ctx, m); err != nil {
			return nil, err
		}
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, len(migrations))); err != nil {
		return nil, err
	}
	var content []byte
	if err := conn.Raw(func(c any) (err error) {
		content, err = c.(interface{ Serialize() ([]byte, error) }).Serialize()
		return err
	}); err != nil {
		return nil, err
	}
	// Bytes 18 and 19 of the header say how the file is written and read: 2 is
	// WAL. PRAGMA journal_mode cannot say so of a database in memory, and on the
	// file it would be one more step that a kill could halve.
	if len(content) < 100 || !bytes.Equal(content[18:20], []byte{1, 1}) {
		return nil, errors.New("unexpected header")
	}
	content[18], content[19] = 2, 2
	return content, nil
}

// writeSynced makes a file that is its owner's alone. What is there goes: it may have
// another mode, or be a link.
func writeSynced(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// examine tells the schema's version of a sound database of Cubby's.
//
// The first look is with immutable=1: SQLite then takes no lock and makes no
// file, so that what is refused stays as it was. Without a write-ahead log that
// look says everything. With one, or when a log appeared meanwhile because
// another process opened the database, a second look goes through the log. It is
// read-only too, for a connection that may write would merge the log into a
// damaged database when it is closed.
//
// The file is never opened by other means: closing it would drop the locks that
// SQLite holds in this process.
func examine(ctx context.Context, path string) (version int, err error) {
	if logged, err := hasLog(path); err != nil {
		return 0, err
	} else if !logged {
		version, err = look(ctx, path, "immutable=1", true)
		if err == nil {
			return version, nil
		}
		if logged, statErr := hasLog(path); statErr != nil || !logged {
			return 0, err
		}
	} else if _, err := look(ctx, path, "immutable=1", false); err != nil && primary(err) != sqlite3.SQLITE_CORRUPT {
		// A file that is shorter than its header says is what a kill or a full disk
		// leaves of merging the log, which has the rest: the second look tells.
		return 0, err
	}
	return look(ctx, path, fmt.Sprintf("mode=ro&_busy_timeout=%d", busyTimeout.Milliseconds()), true)
}

func hasLog(path string) (bool, error) {
	_, err := os.Lstat(path + "-wal")
	if err == nil {
		return true, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, unreadable(err)
}

// look reads the header and, if thorough, checks that every page is sound (not
// that indexes match, which is slow: some 10 ms for 10,000 records).
func look(ctx context.Context, path, parameters string, thorough bool) (version int, err error) {
	db, err := sql.Open("sqlite", dsn(path, parameters+"&_defensive=1&_pragma=trusted_schema(0)&_error_rc=1"))
	if err != nil {
		return 0, refuse(err, "")
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	var id int
	err = db.QueryRowContext(ctx, `PRAGMA application_id`).Scan(&id)
	if err == nil && id == applicationID {
		err = db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version)
	}
	verdict := "ok"
	if err == nil && id == applicationID && thorough {
		err = db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict)
		if err == nil && verdict == "ok" {
			// A schema without what every version has is damage, too.
			_, err = db.ExecContext(ctx, `SELECT k.hash, t.name, s.ended_at FROM keys k, teams t, sandboxes s LIMIT 0`)
		}
	}
	switch code := primary(err); {
	case code == sqlite3.SQLITE_NOTADB, err == nil && id != applicationID:
		return 0, refuse(fmt.Errorf("%s is not a database of Cubby's", path),
			"nothing was changed; if it should be one it is damaged: restore the folder from a backup. Else name another folder with --data-dir")
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_ERROR:
		return 0, refuse(fmt.Errorf("%s is damaged: %w", path, err), damagedHint)
	case err != nil:
		return 0, refuse(fmt.Errorf("%s cannot be read: %w", path, err), "look at its filesystem and its permissions; nothing was changed")
	case verdict != "ok":
		return 0, refuse(fmt.Errorf("%s is damaged: %s", path, verdict), damagedHint)
	case version < 1:
		return 0, refuse(fmt.Errorf("%s is damaged: its schema has no version", path), damagedHint)
	}
	return version, nil
}

// migrate brings an older schema up to date, each step in a transaction of its
// own. Not under a running server: that is of the older version, and would read
// a schema that it does not know.
func migrate(ctx context.Context, dir, path string, migrations []string) error {
	releaseDir, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer releaseDir()
	if version, err := examine(ctx, path); err != nil || version >= len(migrations) {
		return err // another process was faster, and may serve by now
	}
	releaseServer, err := lockServer(ctx, dir)
	if err != nil {
		return err
	}
	defer releaseServer()
	db, err := openPool(path, 1, busyTimeout, "_txlock=immediate&_synchronous=FULL")
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		done, err := migrateOnce(ctx, db, migrations)
		if err != nil {
			return refuse(fmt.Errorf("%s: bring its schema up to date: %w", path, err), "the database is as it was before this step")
		}
		if done {
			return nil
		}
	}
}

func migrateOnce(ctx context.Context, db *sql.DB, migrations []string) (done bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	var version int
	if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return false, err
	}
	if version >= len(migrations) {
		return true, nil
	}
	if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
		return false, fmt.Errorf("to version %d: %w", version+1, err)
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, version+1)); err != nil {
		return false, err
	}
	return false, tx.Commit()
}
