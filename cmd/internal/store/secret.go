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

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

const (
	keyName    = "secret.key"
	newKeyName = "secret.key.new" // a key in the making; worth nothing
)

const keyHint = "it belongs to the database beside it: restore both from the same backup, or move cubby.db* and " + keyName +
	" away to start with new API keys; nothing was changed"

// Key returns the secret of the data folder, which is made once: a file of 32
// random bytes that only its owner may read. Whoever has it can make every
// sandbox's tokens and read what is sealed in the records. One that is missing
// where there was one, cannot be read or is another than before is an error, as a
// *fault.Error that says what to do, and is never replaced.
func (s *Store) Key(ctx context.Context) (*secret.Key, error) {
	release, err := lockDir(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	defer release()
	path := filepath.Join(s.dir, keyName)
	known, err := s.keyFingerprint(ctx)
	if err != nil {
		return nil, err
	}
	key, err := readKey(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && known == nil:
		key, err = makeKey(s.dir)
	case errors.Is(err, fs.ErrNotExist):
		err = refuse(fmt.Errorf("%s, the key of this folder, is missing", path), keyHint)
	}
	if err != nil {
		return nil, err
	}
	if known != nil && !bytes.Equal(known, key.Fingerprint()) {
		return nil, refuse(fmt.Errorf("%s is not the key of this folder", path), keyHint)
	}
	if known == nil {
		// Also for a key whose making was cut off here, or whose database is new.
		err = s.durably(ctx, "note the folder's key", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO secret_key (one, fingerprint) VALUES (1, ?)`, key.Fingerprint())
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return key, nil
}

// keyFingerprint is that of the folder's key; nil if it never had one.
func (s *Store) keyFingerprint(ctx context.Context) (known []byte, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT fingerprint FROM secret_key`).Scan(&known)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return known, s.fail("read the folder's key", err)
}

func readKey(path string) (*secret.Key, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, unreadable(err)
	case !info.Mode().IsRegular():
		return nil, refuse(fmt.Errorf("%s is not a file but a %s", path, kind(info.Mode())), keyHint)
	case info.Mode().Perm()&0o077 != 0:
		return nil, refuse(fmt.Errorf("%s: other users may use this key (mode %04o)", path, info.Mode().Perm()), "chmod 600 "+path)
	}
	if err := ownedByOther(path, info); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(err)
	}
	key, err := secret.Parse(content)
	if err != nil {
		return nil, refuse(fmt.Errorf("%s is damaged: %w", path, err), keyHint)
	}
	return key, nil
}

// makeKey makes a key that appears under its name only when it is whole and on
// disk. The caller holds the folder's lock.
func makeKey(dir string) (*secret.Key, error) {
	key, temporary := secret.New(), filepath.Join(dir, newKeyName)
	if err := writeSynced(temporary, key.Bytes()); err != nil {
		return nil, errors.Join(unreadable(err), os.Remove(temporary))
	}
	if err := os.Rename(temporary, filepath.Join(dir, keyName)); err != nil {
		return nil, errors.Join(unreadable(err), os.Remove(temporary))
	}
	if err := syncDir(dir); err != nil {
		return nil, unreadable(err)
	}
	return key, nil
}
