package store

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestSecrets(t *testing.T) {
	ctx := t.Context()
	s, team := newStore(t)
	other, err := s.CreateTeam(ctx, "others")
	if err != nil {
		t.Fatal(err)
	}
	at := s.clock()
	s.now = func() time.Time { return at }
	first, err := s.CreateSecret(ctx, Secret{ID: "sec_1", TeamID: team, Name: "key", Sealed: []byte("one")}, 2)
	want := Secret{ID: "sec_1", TeamID: team, Name: "key", Version: 1, Sealed: []byte("one"), CreatedAt: at, UpdatedAt: at}
	if err != nil || !reflect.DeepEqual(first, want) {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := s.CreateSecret(ctx, Secret{ID: "sec_2", TeamID: team, Name: "key", Sealed: []byte("two")}, 2); !errors.Is(err, ErrExists) {
		t.Errorf("the same name: %v", err)
	}
	if _, err := s.CreateSecret(ctx, Secret{ID: "sec_3", TeamID: other.ID, Name: "key", Sealed: []byte("theirs")}, 2); err != nil {
		t.Errorf("another team's: %v", err)
	}
	if _, err := s.CreateSecret(ctx, Secret{ID: "sec_4", TeamID: team, Name: "a", Sealed: []byte("a"), Metadata: map[string]string{"k": "v"}}, 2); err != nil {
		t.Error(err)
	}
	if _, err := s.CreateSecret(ctx, Secret{ID: "sec_5", TeamID: team, Name: "b", Sealed: []byte("b")}, 2); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	at = at.Add(time.Minute)
	for _, by := range []string{"sec_1", "key"} {
		got, err := s.Secret(ctx, team, by)
		if err != nil || got.ID != "sec_1" || !bytes.Equal(got.Sealed, []byte("one")) {
			t.Errorf("%s: %+v, %v", by, got, err)
		}
	}
	changed, err := s.UpdateSecret(ctx, team, "sec_1", []byte("three"), map[string]string{"x": "y"})
	if err != nil || changed.Version != 2 || !changed.UpdatedAt.Equal(at) || changed.Metadata["x"] != "y" {
		t.Errorf("%+v, %v", changed, err)
	}
	if changed, err = s.UpdateSecret(ctx, team, "sec_1", []byte("four"), nil); err != nil || changed.Version != 3 || changed.Metadata["x"] != "y" {
		t.Errorf("metadata that was not given: %+v, %v", changed, err)
	}
	var names []string
	for after := ""; ; {
		page, err := s.Secrets(ctx, team, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		after = page[0].Name
		names = append(names, after)
	}
	if !reflect.DeepEqual(names, []string{"a", "key"}) {
		t.Errorf("%q", names)
	}
	// Another team's is one that is not there.
	if _, err := s.Secret(ctx, other.ID, "sec_1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("read by another team: %v", err)
	}
	if _, err := s.UpdateSecret(ctx, other.ID, "sec_1", []byte("x"), nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("changed by another team: %v", err)
	}
	if _, err := s.DeleteSecret(ctx, other.ID, "sec_1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed by another team: %v", err)
	}
	if gone, err := s.DeleteSecret(ctx, team, "key"); err != nil || gone.ID != "sec_1" {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := s.Secret(ctx, team, "sec_1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after its removal: %v", err)
	}
	if _, err := s.Secret(ctx, other.ID, "key"); err != nil {
		t.Errorf("the other team's of the same name: %v", err)
	}
}

// TestSecretsKey: a key is replaced only where nothing was sealed with it.
func TestSecretsKey(t *testing.T) {
	ctx := t.Context()
	s, team := newStore(t)
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for _, key := range [][]byte{one, two, two} {
		if err := s.SecretsKey(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CreateSecret(ctx, Secret{ID: "sec_1", TeamID: team, Name: "key", Sealed: []byte("x")}, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.SecretsKey(ctx, two); err != nil {
		t.Errorf("the same key: %v", err)
	}
	if err := s.SecretsKey(ctx, one); !errors.Is(err, ErrOtherKey) {
		t.Errorf("another key: %v", err)
	}
	if _, err := s.DeleteSecret(ctx, team, "key"); err != nil {
		t.Fatal(err)
	}
	if err := s.SecretsKey(ctx, one); err != nil {
		t.Errorf("another key, when nothing is sealed: %v", err)
	}
}
