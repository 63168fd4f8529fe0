package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// DefaultTeam is the name of the team that is there without being asked for.
const DefaultTeam = "default"

// Team owns sandboxes and keys. Teams are never removed.
type Team struct {
	ID        string // a UUID, as E2B's
	Name      string // unique
	CreatedAt time.Time
}

// Key is an API key without its secret, which only CreateKey and Bootstrap return.
type Key struct {
	ID         string // 12 hexadecimal digits
	TeamID     string
	Team       string // the team's name
	Name       string // for people; may be empty, need not be unique
	Mask       string // the secret's ends: e2b_1a2b...9f0e
	CreatedAt  time.Time
	LastUsedAt time.Time // zero: never; up to a minute old
	RevokedAt  time.Time // zero: it is good
}

const (
	// secretPrefix and secretBytes make e2b_ and 40 hexadecimal digits: E2B's
	// clients up to 2.45 refuse a key of another form.
	secretPrefix = "e2b_"
	secretBytes  = 20

	idBytes      = 6
	minKeyPrefix = 4 // of an ID that RevokeKey completes
	maxName      = 100

	// useEvery is how exact LastUsedAt is: a write for each request would be
	// too many.
	useEvery = time.Minute
)

// CreateTeam makes a team; ErrExists if there is one with that name.
func (s *Store) CreateTeam(ctx context.Context, name string) (Team, error) {
	const op = "create a team"
	if name == "" {
		return Team{}, badName(op, "a team needs a name")
	}
	if err := checkName(op, name); err != nil {
		return Team{}, err
	}
	var t Team
	err := s.durably(ctx, op, func(tx *sql.Tx) (err error) {
		t, err = s.insertTeam(ctx, tx, name)
		return err
	})
	return t, err
}

func (s *Store) insertTeam(ctx context.Context, tx *sql.Tx, name string) (Team, error) {
	t := Team{ID: newUUID(), Name: name, CreatedAt: s.clock()}
	_, err := tx.ExecContext(ctx, `INSERT INTO teams (id, name, created_at) VALUES (?, ?, ?)`, t.ID, t.Name, micros(t.CreatedAt))
	if constraint(err, sqlite3.SQLITE_CONSTRAINT_UNIQUE) {
		return Team{}, fmt.Errorf("%w: a team named %q", ErrExists, name)
	}
	return t, err
}

// Teams returns all teams, oldest first.
func (s *Store) Teams(ctx context.Context) ([]Team, error) {
	const op = "list teams"
	rows, err := s.read.QueryContext(ctx, `SELECT id, name, created_at FROM teams ORDER BY created_at, id`)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	teams := []Team{}
	for rows.Next() {
		var t Team
		var created sql.NullInt64
		if err := rows.Scan(&t.ID, &t.Name, &created); err != nil {
			return nil, s.fail(op, err)
		}
		t.CreatedAt = timeOf(created)
		teams = append(teams, t)
	}
	return teams, s.fail(op, rows.Err())
}

// CreateKey makes a key of a team. Only a hash of the secret is kept: it is returned
// here, once. ErrNotFound means that there is no such team.
func (s *Store) CreateKey(ctx context.Context, teamID, name string) (k Key, secret string, err error) {
	const op = "create a key"
	if err := checkName(op, name); err != nil {
		return Key{}, "", err
	}
	err = s.durably(ctx, op, func(tx *sql.Tx) (err error) {
		k, secret, err = s.insertKey(ctx, tx, teamID, name)
		return err
	})
	if err != nil {
		return Key{}, "", err
	}
	return k, secret, nil
}

func (s *Store) insertKey(ctx context.Context, tx *sql.Tx, teamID, name string) (k Key, secret string, err error) {
	secret = secretPrefix + randomHex(secretBytes)
	k = Key{
		ID: randomHex(idBytes), TeamID: teamID, Name: name, CreatedAt: s.clock(),
		Mask: secret[:len(secretPrefix)+4] + "..." + secret[len(secret)-4:],
	}
	if err := tx.QueryRowContext(ctx, `SELECT name FROM teams WHERE id = ?`, teamID).Scan(&k.Team); err != nil {
		return Key{}, "", err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO keys (id, team_id, name, hash, mask, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		k.ID, k.TeamID, k.Name, hash(secret), k.Mask, micros(k.CreatedAt))
	return k, secret, err
}

// Bootstrap makes the first team and its first key when there is no team yet:
// created is then true and secret the key's, which is not kept. Otherwise it returns the
// oldest team. Of several processes at once one creates.
func (s *Store) Bootstrap(ctx context.Context) (teamID, secret string, created bool, err error) {
	err = s.durably(ctx, "make the first team", func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT id FROM teams ORDER BY created_at, id LIMIT 1`).Scan(&teamID)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		t, err := s.insertTeam(ctx, tx, DefaultTeam)
		if err != nil {
			return err
		}
		teamID, created = t.ID, true
		_, secret, err = s.insertKey(ctx, tx, teamID, "first start")
		return err
	})
	if err != nil {
		return "", "", false, err
	}
	return teamID, secret, created, nil
}

const selectKeys = `SELECT k.id, k.team_id, t.name, k.name, k.mask, k.created_at, k.last_used_at, k.revoked_at
	FROM keys k JOIN teams t ON t.id = k.team_id `

func scanKey(row interface{ Scan(...any) error }) (Key, error) {
	var k Key
	var created, used, revoked sql.NullInt64
	err := row.Scan(&k.ID, &k.TeamID, &k.Team, &k.Name, &k.Mask, &created, &used, &revoked)
	k.CreatedAt, k.LastUsedAt, k.RevokedAt = timeOf(created), timeOf(used), timeOf(revoked)
	return k, err
}

// Keys returns the keys of all teams, oldest first, revoked ones too.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	const op = "list keys"
	rows, err := s.read.QueryContext(ctx, selectKeys+`ORDER BY k.created_at, k.id`)
	if err != nil {
		return nil, s.fail(op, err)
	}
	defer rows.Close()
	keys := []Key{}
	for rows.Next() {
		k, err := scanKey(rows)
		if err != nil {
			return nil, s.fail(op, err)
		}
		keys = append(keys, k)
	}
	return keys, s.fail(op, rows.Err())
}

// RevokeKey ends a key, also in a server that runs: from its return on
// TeamOfKey does not know it. The key is named by its ID or by the first digits
// of it, at least four. ErrAmbiguous means that several begin so; a key that is
// revoked already stays as it is.
func (s *Store) RevokeKey(ctx context.Context, idOrPrefix string) (Key, error) {
	var k Key
	err := s.durably(ctx, "revoke a key", func(tx *sql.Tx) error {
		if len(idOrPrefix) < minKeyPrefix || len(idOrPrefix) > 2*idBytes {
			return ErrNotFound
		}
		rows, err := tx.QueryContext(ctx, selectKeys+`WHERE substr(k.id, 1, ?) = ? LIMIT 2`, len(idOrPrefix), idOrPrefix)
		if err != nil {
			return err
		}
		defer rows.Close()
		found := 0
		for ; rows.Next(); found++ {
			if k, err = scanKey(rows); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		switch {
		case found == 0:
			return ErrNotFound
		case found > 1:
			return ErrAmbiguous
		case !k.RevokedAt.IsZero():
			return nil
		}
		k.RevokedAt = s.clock()
		_, err = tx.ExecContext(ctx, `UPDATE keys SET revoked_at = ? WHERE id = ?`, micros(k.RevokedAt), k.ID)
		return err
	})
	if err != nil {
		return Key{}, err
	}
	return k, nil
}

// TeamOfKey returns the team whose API key secret is. Whatever is not a good
// key is ErrNotFound: empty, malformed, unknown or revoked. Any other error
// means that it could not be looked up, and must not be taken for a wrong key.
//
// The secret is hashed before it is compared, so the time that this takes says
// nothing about how much of it was right.
func (s *Store) TeamOfKey(ctx context.Context, secret string) (teamID string, err error) {
	var id string
	var used sql.NullInt64
	if err := s.teamOfKey.QueryRowContext(ctx, hash(secret)).Scan(&id, &teamID, &used); err != nil {
		return "", s.fail("look up a key", err)
	}
	if now := s.clock(); now.Sub(timeOf(used)) >= useEvery {
		select {
		case s.used <- keyUse{id, now}:
		default: // the next request says it again
		}
	}
	return teamID, nil
}

// keyUse says that a key was used.
type keyUse struct {
	id string
	at time.Time
}

// noteUses writes what TeamOfKey saw, beside the requests: none waits for it or
// fails because the disk is full.
func (s *Store) noteUses(ctx context.Context) {
	for {
		select {
		case use := <-s.used:
			// If it fails, a later use is written.
			_ = s.noteUse(use)
			continue
		case <-ctx.Done():
		}
		for { // what is left when the store is closed
			select {
			case use := <-s.used:
				if s.noteUse(use) == nil {
					continue
				}
			default:
			}
			return
		}
	}
}

func (s *Store) noteUse(use keyUse) error {
	// Close waits for this, and should not for long.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// Several uses may have been queued before the first was written.
	_, err := s.write.ExecContext(ctx, `UPDATE keys SET last_used_at = ? WHERE id = ? AND coalesce(last_used_at, 0) <= ?`,
		micros(use.at), use.id, use.at.Add(-useEvery).UnixMicro())
	return err
}

func hash(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

// clock returns the time as the database keeps it.
func (s *Store) clock() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// newUUID returns a random UUID (version 4).
func newUUID() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// checkName refuses what would spoil a list on a terminal.
func checkName(op, name string) error {
	if utf8.RuneCountInString(name) > maxName {
		return badName(op, fmt.Sprintf("a name has at most %d characters", maxName))
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return badName(op, "a name has printable characters only")
	}
	return nil
}

func badName(op, why string) error {
	return &fault.Error{Op: op, Code: fault.InvalidArgument, Err: errors.New(why)}
}
