package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// Secret is a team's secret. Its value is sealed by the caller.
type Secret struct {
	ID        string
	TeamID    string
	Name      string // unique in the team
	Version   int64  // of the value: 1, and one more for each that replaced it
	Metadata  map[string]string
	Sealed    []byte
	CreatedAt time.Time
	UpdatedAt time.Time
}

// CreateSecret keeps a secret, with its first version and now as its times. The error
// wraps ErrExists if the team has one of that name, and ErrFull if it has as many as
// most.
func (s *Store) CreateSecret(ctx context.Context, secret Secret, most int) (Secret, error) {
	const op = "create a secret"
	metadata, err := metadataJSON(secret.Metadata)
	if err != nil {
		return Secret{}, s.fail(op, err)
	}
	secret.Version, secret.CreatedAt = 1, s.clock()
	secret.UpdatedAt = secret.CreatedAt
	err = s.durably(ctx, op, func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM secrets WHERE team_id = ?`, secret.TeamID).Scan(&n); err != nil {
			return err
		}
		if n >= most {
			return ErrFull
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO secrets (id, team_id, name, version, metadata, sealed, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			secret.ID, secret.TeamID, secret.Name, secret.Version, metadata, secret.Sealed, micros(secret.CreatedAt), micros(secret.UpdatedAt))
		if constraint(err, sqlite3.SQLITE_CONSTRAINT_UNIQUE) {
			return fmt.Errorf("%w: a secret named %q", ErrExists, secret.Name)
		}
		return err
	})
	if err != nil {
		return Secret{}, err
	}
	return secret, nil
}

const selectSecrets = `SELECT id, team_id, name, version, metadata, sealed, created_at, updated_at FROM secrets `

func scanSecret(row interface{ Scan(...any) error }) (Secret, error) {
	var secret Secret
	var metadata string
	var created, updated sql.NullInt64
	err := row.Scan(&secret.ID, &secret.TeamID, &secret.Name, &secret.Version, &metadata, &secret.Sealed, &created, &updated)
	if err != nil {
		return Secret{}, err
	}
	if err := json.Unmarshal([]byte(metadata), &secret.Metadata); err != nil {
		return Secret{}, fmt.Errorf("metadata of secret %s: %w", secret.ID, err)
	}
	secret.CreatedAt, secret.UpdatedAt = timeOf(created), timeOf(updated)
	return secret, nil
}

// Secret returns a team's secret by its id or its name. The error wraps ErrNotFound if
// the team has none.
func (s *Store) Secret(ctx context.Context, teamID, idOrName string) (Secret, error) {
	secret, err := scanSecret(s.read.QueryRowContext(ctx, selectSecrets+`WHERE team_id = ?1 AND (id = ?2 OR name = ?2)`, teamID, idOrName))
	if err != nil {
		return Secret{}, s.fail("read a secret", err)
	}
	return secret, nil
}

// Secrets returns at most limit of a team's secrets, by name, from the first whose name
// comes after the given one.
func (s *Store) Secrets(ctx context.Context, teamID, after string, limit int) ([]Secret, error) {
	const op = "list secrets"
	rows, err := s.read.QueryContext(ctx, selectSecrets+`WHERE team_id = ? AND name > ? ORDER BY name LIMIT ?`, teamID, after, limit)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	all := []Secret{}
	for rows.Next() {
		secret, err := scanSecret(rows)
		if err != nil {
			return nil, s.fail(op, err)
		}
		all = append(all, secret)
	}
	return all, s.fail(op, rows.Err())
}

// UpdateSecret replaces the value of a secret by its id, and its metadata unless that is
// nil. The value before is gone. The error wraps ErrNotFound if the team has no such
// secret.
func (s *Store) UpdateSecret(ctx context.Context, teamID, id string, sealed []byte, metadata map[string]string) (Secret, error) {
	const op = "change a secret"
	var secret Secret
	err := s.durably(ctx, op, func(tx *sql.Tx) (err error) {
		if secret, err = scanSecret(tx.QueryRowContext(ctx, selectSecrets+`WHERE team_id = ? AND id = ?`, teamID, id)); err != nil {
			return err
		}
		if metadata != nil {
			secret.Metadata = metadata
		}
		text, err := metadataJSON(secret.Metadata)
		if err != nil {
			return err
		}
		secret.Version, secret.Sealed, secret.UpdatedAt = secret.Version+1, sealed, s.clock()
		_, err = tx.ExecContext(ctx, `UPDATE secrets SET version = ?, sealed = ?, metadata = ?, updated_at = ? WHERE id = ?`,
			secret.Version, secret.Sealed, text, micros(secret.UpdatedAt), secret.ID)
		return err
	})
	if err != nil {
		return Secret{}, err
	}
	return secret, nil
}

// DeleteSecret removes a secret by its id or its name and returns it. The error wraps
// ErrNotFound if the team has no such secret.
func (s *Store) DeleteSecret(ctx context.Context, teamID, idOrName string) (Secret, error) {
	const op = "remove a secret"
	var secret Secret
	err := s.durably(ctx, op, func(tx *sql.Tx) (err error) {
		secret, err = scanSecret(tx.QueryRowContext(ctx,
			`DELETE FROM secrets WHERE team_id = ?1 AND (id = ?2 OR name = ?2)
			RETURNING id, team_id, name, version, metadata, sealed, created_at, updated_at`, teamID, idOrName))
		return err
	})
	if err != nil {
		return Secret{}, err
	}
	return secret, nil
}

// SecretsKey notes the fingerprint of the key that secrets are sealed with. The error
// wraps ErrOtherKey if there are secrets that were sealed with another one.
func (s *Store) SecretsKey(ctx context.Context, fingerprint []byte) error {
	return s.durably(ctx, "note the secrets' key", func(tx *sql.Tx) error {
		var others int
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM secrets WHERE (SELECT fingerprint FROM secrets_key) IS NOT ?`, fingerprint).Scan(&others)
		if err != nil {
			return err
		}
		if others > 0 {
			return ErrOtherKey
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO secrets_key (one, fingerprint) VALUES (1, ?1)
			ON CONFLICT (one) DO UPDATE SET fingerprint = ?1`, fingerprint)
		return err
	})
}

func metadataJSON(m map[string]string) (string, error) {
	if m == nil {
		return "{}", nil
	}
	text, err := json.Marshal(m)
	return string(text), err
}
