package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Sandbox is the record of a sandbox, whatever became of it.
type Sandbox struct {
	ID         string
	PublicID   string
	Generation uint32
	TeamID     string

	TemplateID, TemplateDigest string
	Engine, EngineBuild        string

	State    string // StateEnded with EndedAt, and else any other word
	CPUs     float64
	MemoryMB int
	DiskMB   int
	PIDs     int
	Memories int // how many memories it has had, and
	Files    int // how many states of its files
	Metadata map[string]string
	Settings json.RawMessage // a JSON object; empty means {}
	Sealed   []byte          // what is secret, encrypted by the caller; nil once it has ended

	StartedAt time.Time
	EndAt     time.Time // when its time is over, if nothing ends it before
	PausedAt  time.Time // when it was paused last; zero: never
	EndedAt   time.Time // zero: it lives, or is paused
	EndReason string    // why it ended
}

// StateEnded is the state of a sandbox that has ended.
const StateEnded = "ended"

// Records are kept without bound while their sandboxes live. Of ended ones the
// newest are kept, within both bounds, and metadata only if it is short. That
// keeps the database below 50 MB in ordinary use and 500 MB in any, small enough
// to be checked at each start (100,000 records: 20 MB, 40 ms).
const (
	keepEnded         = 30 * 24 * time.Hour
	keepEndedRecords  = 100_000
	keepEndedMetadata = 4 << 10 // bytes of its JSON
	pruneEvery        = 256     // ends

	maxMetadata = 512 << 10 // bytes of its JSON, where a byte may take six: more than a host lets through
	maxReason   = 1 << 10   // bytes
)

// PutSandbox makes a record or replaces it as a whole. The first end wins, and
// there is no way back: another end changes nothing and is no error, anything else
// is ErrEnded. ErrNotFound means that there is no such team. A record of a sandbox
// that was ever paused is on disk when this returns, for a power cut does not end
// such a sandbox.
func (s *Store) PutSandbox(ctx context.Context, b Sandbox) error {
	const op = "record a sandbox"
	metadata, err := json.Marshal(b.Metadata)
	if err != nil {
		return s.fail(op, err)
	}
	if len(metadata) > maxMetadata {
		return &fault.Error{Op: op, Code: fault.InvalidArgument, Err: fmt.Errorf("metadata is longer than %d bytes", maxMetadata)}
	}
	ended := !b.EndedAt.IsZero()
	if b.Metadata == nil || ended && len(metadata) > keepEndedMetadata {
		metadata = []byte("{}")
	}
	if len(b.Settings) == 0 {
		b.Settings = json.RawMessage("{}")
	}
	reason := sql.NullString{}
	if ended {
		b.Sealed, b.State, reason = nil, StateEnded, sql.NullString{String: tidyReason(b.EndReason), Valid: true}
	}
	inTx := s.inTx
	if !b.PausedAt.IsZero() {
		inTx = s.durably
	}
	return inTx(ctx, op, func(tx *sql.Tx) error {
		n, err := affected(tx.ExecContext(ctx, putSandbox,
			b.ID, b.PublicID, b.Generation, b.TeamID, b.TemplateID, b.TemplateDigest, b.Engine, b.EngineBuild, b.State,
			b.CPUs, b.MemoryMB, b.DiskMB, b.PIDs, b.Memories, b.Files, string(metadata), string(b.Settings), b.Sealed,
			b.StartedAt.UnixMicro(), b.EndAt.UnixMicro(), micros(b.PausedAt), micros(b.EndedAt), reason))
		switch {
		case constraint(err, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY):
			return fmt.Errorf("%w: the team", ErrNotFound)
		case err != nil:
			return err
		case n == 0 && !ended:
			return ErrEnded
		case n > 0 && ended && s.ends.Add(1)%pruneEvery == 0:
			return s.prune(ctx, tx)
		}
		return nil
	})
}

const sandboxColumns = `id, public_id, generation, team_id, template_id, template_digest, engine, engine_build, state,
	cpus, memory_mb, disk_mb, pids, memories, files, metadata, settings, sealed, started_at, end_at, paused_at, ended_at, end_reason`

// Whose a sandbox is never changes: a row of another team's is no row of this one.
const putSandbox = `INSERT INTO sandboxes (` + sandboxColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (id) DO UPDATE SET public_id = excluded.public_id, generation = excluded.generation,
	template_id = excluded.template_id, template_digest = excluded.template_digest,
	engine = excluded.engine, engine_build = excluded.engine_build, state = excluded.state,
	cpus = excluded.cpus, memory_mb = excluded.memory_mb, disk_mb = excluded.disk_mb, pids = excluded.pids,
	memories = excluded.memories, files = excluded.files, metadata = excluded.metadata, settings = excluded.settings,
	sealed = excluded.sealed, started_at = excluded.started_at, end_at = excluded.end_at, paused_at = excluded.paused_at,
	ended_at = excluded.ended_at, end_reason = excluded.end_reason
	WHERE sandboxes.ended_at IS NULL AND sandboxes.team_id = excluded.team_id`

// Prune removes the records of ended sandboxes that are beyond what is kept, as
// also happens from time to time while sandboxes end.
func (s *Store) Prune(ctx context.Context) error {
	return s.inTx(ctx, "remove old records", func(tx *sql.Tx) error { return s.prune(ctx, tx) })
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

const selectSandboxes = `SELECT ` + sandboxColumns + ` FROM sandboxes `

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
	var metadata, settings string
	var started, end, paused, ended sql.NullInt64
	var reason sql.NullString
	if err := row.Scan(&b.ID, &b.PublicID, &b.Generation, &b.TeamID, &b.TemplateID, &b.TemplateDigest, &b.Engine, &b.EngineBuild, &b.State,
		&b.CPUs, &b.MemoryMB, &b.DiskMB, &b.PIDs, &b.Memories, &b.Files, &metadata, &settings, &b.Sealed,
		&started, &end, &paused, &ended, &reason); err != nil {
		return Sandbox{}, err
	}
	if err := json.Unmarshal([]byte(metadata), &b.Metadata); err != nil {
		return Sandbox{}, fmt.Errorf("metadata of sandbox %s: %w", b.ID, err)
	}
	b.Settings = json.RawMessage(settings)
	b.StartedAt, b.EndAt, b.PausedAt, b.EndedAt, b.EndReason = timeOf(started), timeOf(end), timeOf(paused), timeOf(ended), reason.String
	return b, nil
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
	return clip.Head(strings.ToValidUTF8(reason, ""), maxReason)
}
