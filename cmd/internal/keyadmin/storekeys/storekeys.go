// Package storekeys edits the keys in a server's database.
package storekeys

import (
	"context"
	"errors"
	"fmt"

	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Admin opens the database for each call.
type Admin struct{}

// Create implements keyadmin.Admin.
func (Admin) Create(ctx context.Context, dir, team, name string) (key keyadmin.Key, secret string, err error) {
	s, err := store.Open(ctx, dir)
	if err != nil {
		return keyadmin.Key{}, "", err
	}
	defer closeStore(s, &err)
	teamID, err := ensureTeam(ctx, s, team)
	if err != nil {
		return keyadmin.Key{}, "", err
	}
	made, secret, err := s.CreateKey(ctx, teamID, name)
	return keyadmin.Key(made), secret, err
}

// List implements keyadmin.Admin.
func (Admin) List(ctx context.Context, dir string) (keys []keyadmin.Key, err error) {
	s, err := openExisting(ctx, dir)
	if err != nil || s == nil {
		return nil, err
	}
	defer closeStore(s, &err)
	all, err := s.Keys(ctx)
	for _, key := range all {
		keys = append(keys, keyadmin.Key(key))
	}
	return keys, err
}

// Revoke implements keyadmin.Admin.
func (Admin) Revoke(ctx context.Context, dir, id string) (_ keyadmin.Key, err error) {
	s, err := openExisting(ctx, dir)
	if err != nil {
		return keyadmin.Key{}, err
	}
	err = store.ErrNotFound
	var key store.Key
	if s != nil {
		defer closeStore(s, &err)
		key, err = s.RevokeKey(ctx, id)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = &fault.Error{Op: "revoke a key", Code: fault.NotFound, Err: fmt.Errorf("no key %q in %s", id, dir),
			Hint: "`cubby keys list` shows the IDs; a server of another user has another folder: --data-dir"}
	case errors.Is(err, store.ErrAmbiguous):
		err = &fault.Error{Op: "revoke a key", Code: fault.InvalidArgument,
			Err: fmt.Errorf("more than one key's ID begins with %q", id), Hint: "give more of it"}
	}
	return keyadmin.Key(key), err
}

// openExisting opens the database of a server that was started, or used with
// `keys create`, before; nil if there is none.
func openExisting(ctx context.Context, dir string) (*store.Store, error) {
	if there, err := store.Exists(dir); err != nil || !there {
		return nil, err
	}
	return store.Open(ctx, dir)
}

// closeStore closes s at the end of a function that returns *err, which stays as it
// is where nothing else fails: what an error is alone decides the exit status.
func closeStore(s *store.Store, err *error) {
	if closeErr := s.Close(); closeErr != nil {
		*err = errors.Join(*err, closeErr)
	}
}

// ensureTeam returns the ID of the team of that name, and makes it if need be.
func ensureTeam(ctx context.Context, s *store.Store, name string) (string, error) {
	t, err := s.CreateTeam(ctx, name)
	if !errors.Is(err, store.ErrExists) {
		return t.ID, err
	}
	teams, err := s.Teams(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range teams {
		if t.Name == name {
			return t.ID, nil
		}
	}
	return "", fmt.Errorf("team %q: %w", name, store.ErrNotFound)
}
