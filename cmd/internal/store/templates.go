package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// Template is something that sandboxes are made of: so far, a snapshot of one.
type Template struct {
	ID        string
	TeamID    string
	SandboxID string   // that it is a snapshot of
	Names     []string // "name:tag", sorted
	FilesOnly bool     // it has no memory
	Bytes     int64    // on disk
	Settings  json.RawMessage
	Sealed    []byte // what is secret, encrypted by the caller
	CreatedAt time.Time
}

// PutTemplate makes a template, which is on disk when this returns. Its names are taken
// from those of its team that had them. ErrNotFound means that there is no such team.
func (s *Store) PutTemplate(ctx context.Context, t Template) error {
	return s.durably(ctx, "record a snapshot", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO templates (id, team_id, sandbox_id, files_only, bytes, settings, sealed, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			t.ID, t.TeamID, t.SandboxID, t.FilesOnly, t.Bytes, string(t.Settings), t.Sealed, t.CreatedAt.UnixMicro())
		if constraint(err, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY) {
			return fmt.Errorf("%w: the team", ErrNotFound)
		}
		for _, name := range t.Names {
			if err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO template_names (team_id, name, template_id) VALUES (?, ?, ?)
					ON CONFLICT (team_id, name) DO UPDATE SET template_id = excluded.template_id`, t.TeamID, name, t.ID)
			}
		}
		return err
	})
}

const selectTemplates = `SELECT id, team_id, sandbox_id, files_only, bytes, settings, sealed, created_at,
	(SELECT group_concat(name, ' ') FROM template_names WHERE template_id = id) FROM templates `

// Template returns a team's template by its id, or by a name with a tag. The error wraps
// ErrNotFound if there is none.
func (s *Store) Template(ctx context.Context, teamID, idOrName string) (Template, error) {
	t, err := scanTemplate(s.read.QueryRowContext(ctx, selectTemplates+`WHERE team_id = ?1 AND
		(id = ?2 OR id = (SELECT template_id FROM template_names WHERE team_id = ?1 AND name = ?2))`, teamID, idOrName))
	if err != nil {
		return Template{}, s.fail("look up a snapshot", err)
	}
	return t, nil
}

// Templates returns a team's templates, newest first, those of the same moment by id; of
// all teams for an empty one.
func (s *Store) Templates(ctx context.Context, teamID string) ([]Template, error) {
	const op = "list snapshots"
	rows, err := s.read.QueryContext(ctx, selectTemplates+`WHERE ?1 = '' OR team_id = ?1 ORDER BY created_at DESC, id`, teamID)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	all := []Template{}
	for rows.Next() {
		t, err := scanTemplate(rows)
		if err != nil {
			return nil, s.fail(op, err)
		}
		all = append(all, t)
	}
	return all, s.fail(op, rows.Err())
}

// DeleteTemplate removes a team's template by its id, with its names. The error wraps
// ErrNotFound if there is none.
func (s *Store) DeleteTemplate(ctx context.Context, teamID, id string) error {
	return s.durably(ctx, "remove a snapshot", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM template_names WHERE team_id = ? AND template_id = ?`, teamID, id); err != nil {
			return err
		}
		n, err := affected(tx.ExecContext(ctx, `DELETE FROM templates WHERE team_id = ? AND id = ?`, teamID, id))
		if err == nil && n == 0 {
			return ErrNotFound
		}
		return err
	})
}

func scanTemplate(row interface{ Scan(...any) error }) (Template, error) {
	var t Template
	var settings string
	var created sql.NullInt64
	var names sql.NullString
	if err := row.Scan(&t.ID, &t.TeamID, &t.SandboxID, &t.FilesOnly, &t.Bytes, &settings, &t.Sealed, &created, &names); err != nil {
		return Template{}, err
	}
	t.Settings, t.CreatedAt = json.RawMessage(settings), timeOf(created)
	t.Names = strings.Fields(names.String)
	slices.Sort(t.Names)
	return t, nil
}
