package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cubby-sandbox/cubby"
)

// Sandbox is the record of a sandbox, live or ended.
type Sandbox struct {
	ID         string
	TeamID     string
	TemplateID string
	Metadata   map[string]string
	CPUs       float64
	MemoryMB   int
	DiskMB     int
	StartedAt  time.Time
	EndAt      time.Time // when its time is over, if nothing ends it before
	EndedAt    time.Time // zero: it lives
	EndReason  string    // why it ended; empty while it lives
}

// Records are kept without bound while their sandboxes live. Of ended ones the
// newest are kept, within both bounds, and metadata only if it is short. That
// keeps the database below 50 MB in ordinary use and 500 MB in any, small enough
// to be checked at each start (100,000 records: 20 MB, 40 ms).
const (
	keepEnded         = 30 * 24 * time.Hour
	keepEndedRecords  = 100_000
	keepEndedMetadata = 4 << 10 // bytes of its JSON
	pruneEvery        = 256     // ends

	maxMetadata = 64 << 10 // bytes of its JSON
	maxReason   = 1 << 10  // bytes
)

// PutSandbox records a new sandbox. ErrExists means that there was one of that
// ID, ErrNotFound that there is no such team.
func (s *Store) PutSandbox(ctx context.Context, b Sandbox) error {
	const op = "record a sandbox"
	metadata, err := json.Marshal(b.Metadata)
	if err != nil {
		return s.fail(op, err)
	}
	if len(metadata) > maxMetadata {
		return &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("metadata is longer than %d bytes", maxMetadata)}
	}
	if b.Metadata == nil {
		metadata = []byte("{}")
	}
	return s.inTx(ctx, op, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO sandboxes
			(id, team_id, template_id, metadata, cpus, memory_mb, disk_mb, started_at, end_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			b.ID, b.TeamID, b.TemplateID, string(metadata), b.CPUs, b.MemoryMB, b.DiskMB, b.StartedAt.UnixMicro(), b.EndAt.UnixMicro())
		switch {
		case constraint(err, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY):
			return ErrExists
		case constraint(err, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY):
			return fmt.Errorf("%w: the team", ErrNotFound)
		}
		return err
	})
}

// ExtendSandbox records a new end, later or earlier, of a live sandbox.
// ErrEnded means that it has ended, ErrNotFound that there is no record.
func (s *Store) ExtendSandbox(ctx context.Context, id string, endAt time.Time) error {
	return s.inTx(ctx, "record a sandbox's end", func(tx *sql.Tx) error {
		n, err := affected(tx.ExecContext(ctx, `UPDATE sandboxes SET end_at = ? WHERE id = ? AND ended_at IS NULL`, endAt.UnixMicro(), id))
		if err != nil || n > 0 {
			return err
		}
		if err := exists(ctx, tx, id); err != nil {
			return err
		}
		return ErrEnded
	})
}

const setEnd = `UPDATE sandboxes SET ended_at = ?, end_reason = ?, metadata = iif(octet_length(metadata) > ?, '{}', metadata) `

// EndSandbox records that a sandbox ended, and why. The first end wins: a later
// one changes nothing and is no error. ErrNotFound means that there is no record.
func (s *Store) EndSandbox(ctx context.Context, id string, at time.Time, reason string) error {
	return s.inTx(ctx, "record a sandbox's end", func(tx *sql.Tx) error {
		n, err := affected(tx.ExecContext(ctx, setEnd+`WHERE id = ? AND ended_at IS NULL`,
			at.UnixMicro(), tidyReason(reason), keepEndedMetadata, id))
		if err != nil {
			return err
		}
		if n == 0 {
			return exists(ctx, tx, id)
		}
		if s.ends.Add(1)%pruneEvery == 0 {
			return s.prune(ctx, tx)
		}
		return nil
	})
}

// EndAllLive records the end of every sandbox that a server before this one
// left, and returns how many there were. For the server's start, under
// LockServer.
func (s *Store) EndAllLive(ctx context.Context, at time.Time, reason string) (n int, err error) {
	err = s.inTx(ctx, "record the end of sandboxes", func(tx *sql.Tx) (err error) {
		n, err = affected(tx.ExecContext(ctx, setEnd+`WHERE ended_at IS NULL`,
			at.UnixMicro(), tidyReason(reason), keepEndedMetadata))
		if err != nil {
			return err
		}
		return s.prune(ctx, tx)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// prune removes the records of ended sandboxes that are beyond what is kept.
func (s *Store) prune(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM sandboxes WHERE ended_at < ?`, s.now().Add(-keepEnded).UnixMicro()); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM sandboxes WHERE ended_at <= (
		SELECT ended_at FROM sandboxes WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1 OFFSET ?)`, s.keepEnded)
	return err
}

const selectSandboxes = `SELECT id, team_id, template_id, metadata, cpus, memory_mb, disk_mb, started_at, end_at, ended_at, end_reason FROM sandboxes `

// Sandbox returns the record of one sandbox; ErrNotFound if there is none.
func (s *Store) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	b, err := scanSandbox(s.read.QueryRowContext(ctx, selectSandboxes+`WHERE id = ?`, id))
	if err != nil {
		return Sandbox{}, s.fail("read a sandbox's record", err)
	}
	return b, nil
}

// LiveSandboxes returns the records without an end, oldest first.
func (s *Store) LiveSandboxes(ctx context.Context) ([]Sandbox, error) {
	const op = "list sandboxes"
	rows, err := s.read.QueryContext(ctx, selectSandboxes+`WHERE ended_at IS NULL ORDER BY started_at, id`)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	live := []Sandbox{}
	for rows.Next() {
		b, err := scanSandbox(rows)
		if err != nil {
			return nil, s.fail(op, err)
		}
		live = append(live, b)
	}
	return live, s.fail(op, rows.Err())
}

func scanSandbox(row interface{ Scan(...any) error }) (Sandbox, error) {
	var b Sandbox
	var metadata string
	var started, end, ended sql.NullInt64
	var reason sql.NullString
	if err := row.Scan(&b.ID, &b.TeamID, &b.TemplateID, &metadata, &b.CPUs, &b.MemoryMB, &b.DiskMB, &started, &end, &ended, &reason); err != nil {
		return Sandbox{}, err
	}
	if err := json.Unmarshal([]byte(metadata), &b.Metadata); err != nil {
		return Sandbox{}, fmt.Errorf("metadata of sandbox %s: %w", b.ID, err)
	}
	b.StartedAt, b.EndAt, b.EndedAt, b.EndReason = timeOf(started), timeOf(end), timeOf(ended), reason.String
	return b, nil
}

// exists returns ErrNotFound if there is no record of that ID.
func exists(ctx context.Context, tx *sql.Tx, id string) error {
	var one int
	err := tx.QueryRowContext(ctx, `SELECT 1 FROM sandboxes WHERE id = ?`, id).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

func affected(r sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

// tidyReason bounds a text that may quote a sandbox.
func tidyReason(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	return strings.ToValidUTF8(reason, "")
}
