// Package vault keeps teams' secrets: their values are sealed in the store and leave it
// for the network's gateway only, which puts them into headers of requests.
package vault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Bounds of a secret. Those of the metadata are E2B's.
const (
	maxSecrets       = 1000 // of a team
	maxName          = 128  // bytes
	maxValue         = 8 << 10
	maxPairs         = 32 // of metadata
	maxMetadataKey   = 128
	maxMetadataValue = 1024
	maxMetadata      = 8 << 10
	maxPage          = 100
)

// idPrefix begins every id, and no name.
const idPrefix = "sec_"

// Secret is what is told of one: not its value.
type Secret struct {
	ID        string
	Name      string // lower case; unique in the team
	Version   int64  // of the value: 1, and one more for each that replaced it
	Metadata  map[string]string
	CreatedAt time.Time // UTC
	UpdatedAt time.Time
}

// Vault is safe for concurrent use. Its errors are *fault.Error; those with the codes
// InvalidArgument, NotFound, Conflict and RateLimited are for the team, and no error
// has a value in it.
type Vault struct {
	store   *store.Store
	key     *secret.Key
	changed func(ctx context.Context, teamID, name string) error
}

// Open returns the vault of a store, whose values are sealed with key. changed is called
// when a value was replaced or removed; its error fails the call, though the change
// holds. The error says what to do where the store's values were sealed with another
// key.
func Open(ctx context.Context, st *store.Store, key *secret.Key,
	changed func(ctx context.Context, teamID, name string) error) (*Vault, error) {
	err := st.SecretsKey(ctx, key.Fingerprint())
	if errors.Is(err, store.ErrOtherKey) {
		return nil, &fault.Error{Code: fault.InvalidArgument, Err: errors.New("this folder's secrets are sealed with another key than the one that was given"),
			Hint: "start with the key that they were made with: the same --secrets-key-file, --secrets-key-env or --secrets-key-command, or none of them; " +
				"to change it, remove the secrets before (cubby secrets remove) and set them again"}
	}
	if err != nil {
		return nil, err
	}
	return &Vault{st, key, changed}, nil
}

// Create keeps a team's new secret.
func (v *Vault) Create(ctx context.Context, teamID, name, value string, metadata map[string]string) (Secret, error) {
	name = strings.ToLower(name)
	if err := errors.Join(checkName(name), checkValue(value), checkMetadata(metadata)); err != nil {
		return Secret{}, &fault.Error{Code: fault.InvalidArgument, Err: err}
	}
	id := idPrefix + strings.ToLower(rand.Text())
	s, err := v.store.CreateSecret(ctx, store.Secret{
		ID: id, TeamID: teamID, Name: name, Metadata: metadata, Sealed: v.key.Seal(sealedAs(teamID, id), []byte(value)),
	}, maxSecrets)
	switch {
	case errors.Is(err, store.ErrExists):
		return Secret{}, &fault.Error{Code: fault.Conflict, Err: fmt.Errorf("Secret with name '%s' already exists", name)}
	case errors.Is(err, store.ErrFull):
		return Secret{}, &fault.Error{Code: fault.RateLimited, Err: fmt.Errorf("A team can have at most %d secrets: remove one", maxSecrets)}
	case err != nil:
		return Secret{}, err
	}
	// A rule of a sandbox that runs may have referred to one of this name before.
	return told(s), v.changed(ctx, teamID, s.Name)
}

// Update replaces the value of a team's secret by its id or name, and its metadata
// unless that is nil.
func (v *Vault) Update(ctx context.Context, teamID, idOrName, value string, metadata map[string]string) (Secret, error) {
	if err := errors.Join(checkValue(value), checkMetadata(metadata)); err != nil {
		return Secret{}, &fault.Error{Code: fault.InvalidArgument, Err: err}
	}
	s, err := v.find(ctx, teamID, idOrName)
	if err == nil {
		s, err = v.store.UpdateSecret(ctx, teamID, s.ID, v.key.Seal(sealedAs(teamID, s.ID), []byte(value)), metadata)
	}
	if err != nil {
		return Secret{}, missing(idOrName, err)
	}
	return told(s), v.changed(ctx, teamID, s.Name)
}

// Get returns a team's secret by its id or name.
func (v *Vault) Get(ctx context.Context, teamID, idOrName string) (Secret, error) {
	s, err := v.find(ctx, teamID, idOrName)
	if err != nil {
		return Secret{}, missing(idOrName, err)
	}
	return told(s), nil
}

// List returns a team's secrets by name, from the first that comes after the given one,
// at most limit and a hundred.
func (v *Vault) List(ctx context.Context, teamID, after string, limit int) ([]Secret, error) {
	all, err := v.store.Secrets(ctx, teamID, after, min(limit, maxPage))
	if err != nil {
		return nil, err
	}
	list := make([]Secret, 0, len(all))
	for _, s := range all {
		list = append(list, told(s))
	}
	return list, nil
}

// Remove forgets a team's secret by its id or name.
func (v *Vault) Remove(ctx context.Context, teamID, idOrName string) error {
	s, err := v.store.DeleteSecret(ctx, teamID, selector(idOrName))
	if err != nil {
		return missing(idOrName, err)
	}
	return v.changed(ctx, teamID, s.Name)
}

// Values returns the values of those of the named secrets that the team has.
func (v *Vault) Values(ctx context.Context, teamID string, names []string) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range names {
		s, err := v.store.Secret(ctx, teamID, name)
		if errors.Is(err, store.ErrNotFound) || err == nil && s.Name != name {
			continue
		}
		if err != nil {
			return nil, err
		}
		value, err := v.key.Open(sealedAs(teamID, s.ID), s.Sealed)
		if err != nil {
			return nil, &fault.Error{Code: fault.Internal, Err: fmt.Errorf("secret %s: %w", s.ID, err),
				Hint: "the database was changed by other means: set the secret anew"}
		}
		values[name] = string(value)
	}
	return values, nil
}

func (v *Vault) find(ctx context.Context, teamID, idOrName string) (store.Secret, error) {
	return v.store.Secret(ctx, teamID, selector(idOrName))
}

// selector is an id or a name as the store has it.
func selector(idOrName string) string { return strings.ToLower(idOrName) }

// sealedAs binds what is sealed to its secret and its team: moved to another row of the
// database it cannot be opened.
func sealedAs(teamID, id string) string { return "secret\x00" + teamID + "\x00" + id }

func missing(idOrName string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &fault.Error{Code: fault.NotFound, Err: fmt.Errorf("Secret '%s' not found", clip.Ellipsis(idOrName, maxName))}
	}
	return err
}

func told(s store.Secret) Secret {
	if s.Metadata == nil {
		s.Metadata = map[string]string{}
	}
	return Secret{ID: s.ID, Name: s.Name, Version: s.Version, Metadata: s.Metadata, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
}

// checkName lets through what can stand in a reference, a path and a list.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("Secret name must not be empty")
	case len(name) > maxName:
		return fmt.Errorf("Secret name must not be longer than %d characters", maxName)
	case strings.HasPrefix(name, idPrefix):
		return fmt.Errorf("Secret name must not begin with %s, as identifiers do", idPrefix)
	case strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}), name == ".", name == "..":
		return errors.New("Secret name can have letters, digits, '-', '_' and '.' only")
	}
	return nil
}

func checkValue(value string) error {
	switch {
	case value == "":
		return errors.New("Secret value must not be empty")
	case len(value) > maxValue:
		return fmt.Errorf("Secret value must not be longer than %d bytes", maxValue)
	case !httpguts.ValidHeaderFieldValue(value):
		return errors.New("Secret value must not have line ends or other control characters: it is put into headers")
	}
	return nil
}

func checkMetadata(m map[string]string) error {
	if len(m) > maxPairs {
		return fmt.Errorf("Secret metadata can have at most %d entries", maxPairs)
	}
	size := 0
	for k, value := range m {
		size += len(k) + len(value)
		if len(k) > maxMetadataKey || len(value) > maxMetadataValue {
			return fmt.Errorf("Keys of secret metadata can have %d bytes, values %d", maxMetadataKey, maxMetadataValue)
		}
	}
	if size > maxMetadata {
		return fmt.Errorf("Secret metadata can have %d bytes in total", maxMetadata)
	}
	return nil
}
