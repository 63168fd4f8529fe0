// Package store keeps what a server must still know after it was restarted:
// teams, their API keys and sealed secrets, and the records of sandboxes. It is one
// SQLite database in the data folder, and a file beside it with the folder's secret.
//
// Every method is safe for concurrent use, in one process and between several:
// `cubby keys` edits the database while the server runs, and each look-up reads
// what was committed last. Nothing is cached.
//
// An error that is none of the Err variables means
// that the state could not be read or written. It never means that something is
// not there.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Errors that callers decide on.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("exists already")
	ErrEnded     = errors.New("the sandbox has ended")
	ErrAmbiguous = errors.New("more than one matches")
	ErrFull      = errors.New("there are too many")
	ErrOtherKey  = errors.New("sealed with another key")
)

// Names in the data folder. SQLite adds -wal and -shm to the database's.
const (
	databaseName = "cubby.db"
	newName      = "cubby.db.new" // a database in the making; worth nothing
	lockName     = "server.lock"
)

const (
	// busyTimeout is how long a write waits for another process's. One takes
	// milliseconds; only a stopped process holds the lock for longer.
	busyTimeout = 10 * time.Second
	// busyStep is how long SQLite itself waits for the write lock at a time: it does
	// not look at the context meanwhile.
	busyStep = 100 * time.Millisecond
	// readers bounds the connections that read. Each has a page cache of 1 MiB.
	readers = 4
)

// Store is an open data folder. Close it.
type Store struct {
	dir   string
	write *sql.DB // one connection, so that writers of this process queue here
	read  *sql.DB
	now   func() time.Time

	keepEnded int // keepEndedRecords, but in tests

	teamOfKey *sql.Stmt
	ends      atomic.Uint64 // sandboxes that ended since Open

	used    chan keyUse // to noteUses
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// Open opens the database in dir, and makes both when nothing is there. It
// refuses, as a *fault.Error that says what to do, and leaves every byte as it
// was: a folder that others may write, a file that is not a database of Cubby's,
// belongs to another user than this one or root, is damaged, is of a newer
// version, or may not be read and written.
func Open(ctx context.Context, dir string) (_ *Store, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, refuse(err, "give a folder with --data-dir")
	}
	if err := prepareDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, databaseName)
	if err := prepareDatabase(ctx, dir, path, migrations); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, now: time.Now, keepEnded: keepEndedRecords, used: make(chan keyUse, 64)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closePools())
		}
	}()
	// In WAL mode with synchronous=NORMAL the database survives anything, but a
	// power cut may take the last commits with it. That is right for the records
	// of sandboxes, which a power cut ends, and saves each of them a wait for the
	// disk. Keys are written with FULL (see durably).
	if s.write, err = openPool(path, 1, busyStep, "_txlock=immediate&_synchronous=NORMAL"); err != nil {
		return nil, err
	}
	if s.read, err = openPool(path, readers, busyTimeout, "_query_only=1"); err != nil {
		return nil, err
	}
	s.teamOfKey, err = s.read.PrepareContext(ctx, `SELECT id, team_id, last_used_at FROM keys WHERE hash = ? AND revoked_at IS NULL`)
	if err != nil {
		return nil, s.fail("open the database", err)
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.workers.Go(func() { s.noteUses(background) })
	return s, nil
}

// Dir returns the data folder, as an absolute path.
func (s *Store) Dir() string { return s.dir }

// Close ends the store's own work and closes the database. Calls under way fail
// or are waited for.
func (s *Store) Close() error {
	s.stop()
	s.workers.Wait()
	return s.closePools()
}

func (s *Store) closePools() error {
	var errs []error
	if s.teamOfKey != nil {
		errs = append(errs, s.teamOfKey.Close())
	}
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// dsn names the database file to the driver. parameters are its own and
// SQLite's, joined with &.
func dsn(path, parameters string) string {
	u := url.URL{Scheme: "file", Path: path, RawQuery: parameters}
	return u.String()
}

func openPool(path string, size int, busy time.Duration, parameters string) (*sql.DB, error) {
	// mode=rw: a file that is gone is an error, not a new database.
	db, err := sql.Open("sqlite", dsn(path, fmt.Sprintf("mode=rw&_busy_timeout=%d&_foreign_keys=1&_journal_mode=WAL"+
		"&_defensive=1&_dqs=0&_pragma=trusted_schema(0)&_pragma=cache_size(-1024)&_pragma=journal_size_limit(4194304)&%s",
		busy.Milliseconds(), parameters)))
	if err != nil {
		return nil, refuse(err, "")
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// inTx runs f in a transaction that has the database's write lock from its
// start. f may be rolled back; it must not keep what it read.
func (s *Store) inTx(ctx context.Context, op string, f func(tx *sql.Tx) error) error {
	var tx *sql.Tx
	err := waitForLock(ctx, func() (err error) { tx, err = s.write.BeginTx(ctx, nil); return err })
	if err != nil {
		return s.fail(op, err)
	}
	return s.finish(tx, op, f)
}

// waitForLock calls begin until it gets the database's write lock, the context ends or
// busyTimeout is over.
func waitForLock(ctx context.Context, begin func() error) error {
	deadline := time.Now().Add(busyTimeout)
	for {
		err := begin()
		switch {
		case primary(err) != sqlite3.SQLITE_BUSY || time.Now().After(deadline):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// durably is inTx for what a power cut must not undo, such as the revocation of
// a key: it returns when the disk has it.
func (s *Store) durably(ctx context.Context, op string, f func(tx *sql.Tx) error) error {
	var conn *sql.Conn
	err := waitForLock(ctx, func() (err error) { conn, err = s.write.Conn(ctx); return err })
	if err != nil {
		return s.fail(op, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = FULL`); err != nil {
		return s.fail(op, err)
	}
	// If that fails, later writes are slower and no less right.
	defer conn.ExecContext(context.WithoutCancel(ctx), `PRAGMA synchronous = NORMAL`)
	var tx *sql.Tx
	err = waitForLock(ctx, func() (err error) { tx, err = conn.BeginTx(ctx, nil); return err })
	if err != nil {
		return s.fail(op, err)
	}
	return s.finish(tx, op, f)
}

func (s *Store) finish(tx *sql.Tx, op string, f func(tx *sql.Tx) error) error {
	if err := f(tx); err != nil {
		_ = tx.Rollback() // the first error says what happened
		return s.fail(op, err)
	}
	return s.fail(op, tx.Commit())
}

// fail wraps an error of the database; errors that callers decide on and those
// of contexts stay visible to errors.Is.
func (s *Store) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	e := &fault.Error{Op: op, Code: fault.Internal, Err: err}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", op, ErrNotFound)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrExists), errors.Is(err, ErrEnded), errors.Is(err, ErrAmbiguous),
		errors.Is(err, ErrFull), errors.Is(err, ErrOtherKey):
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, context.Canceled):
		e.Code = fault.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = fault.Timeout
	default:
		e.Err = fmt.Errorf("%s: %w", filepath.Join(s.dir, databaseName), err)
		switch primary(err) {
		case sqlite3.SQLITE_FULL:
			e.Code, e.Hint = fault.Unavailable, "the filesystem of the data folder is full: make room"
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			e.Code, e.Hint = fault.Unavailable, "another process holds the database for too long: is one stopped, or a backup copying it?"
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
			e.Code, e.Hint = fault.Unavailable, "the data folder cannot be read and written: look at its filesystem and its permissions"
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			e.Hint = damagedHint
		}
	}
	return e
}

// primary returns SQLite's primary result code for err, and 0 for an error that
// is not SQLite's.
func primary(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// constraint reports SQLite's extended code of a constraint, such as
// SQLITE_CONSTRAINT_UNIQUE.
func constraint(err error, code int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == code
}

// Times are kept as microseconds since 1970 in UTC; 0 or NULL is the zero time.

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func timeOf(v sql.NullInt64) time.Time {
	if !v.Valid {
		return time.Time{}
	}
	return time.UnixMicro(v.Int64).UTC()
}
