package vault

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

const value = "sk-0123456789abcdef"

// safe is a vault and what it keeps its secrets in.
type safe struct {
	*Vault
	store      *store.Store
	team, them string
	changed    []string // names, of team alone
	fail       error    // of what a change tells
}

func open(t *testing.T, dir string, key *secret.Key) *safe {
	t.Helper()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := &safe{store: st}
	if s.team, _, _, err = st.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	teams, err := st.Teams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.them = teams[len(teams)-1].ID; s.them == s.team {
		them, err := st.CreateTeam(t.Context(), "them")
		if err != nil {
			t.Fatal(err)
		}
		s.them = them.ID
	}
	s.Vault, err = Open(t.Context(), st, key, func(_ context.Context, team, name string) error {
		if team == s.team {
			s.changed = append(s.changed, name)
		}
		return s.fail
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *safe) values(t *testing.T, team string, names ...string) map[string]string {
	t.Helper()
	got, err := s.Values(t.Context(), team, names)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestVault(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir(), secret.New())
	made, err := s.Create(ctx, s.team, "OpenAI-Key", value, map[string]string{"env": "test"})
	if err != nil || made.Name != "openai-key" || made.Version != 1 || !strings.HasPrefix(made.ID, "sec_") || made.Metadata["env"] != "test" {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := s.Create(ctx, s.team, "openai-KEY", "x", nil); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("the same name: %v", err)
	}
	if _, err := s.Create(ctx, s.them, "openai-key", "theirs", nil); err != nil {
		t.Errorf("another team's: %v", err)
	}
	for _, by := range []string{made.ID, "openai-key", "OpenAI-Key"} {
		if got, err := s.Get(ctx, s.team, by); err != nil || got.ID != made.ID {
			t.Errorf("%s: %+v, %v", by, got, err)
		}
	}
	if got := s.values(t, s.team, "openai-key", "none", made.ID); !maps.Equal(got, map[string]string{"openai-key": value}) {
		t.Errorf("%q", got)
	}
	changed, err := s.Update(ctx, s.team, "openai-key", "new", nil)
	if err != nil || changed.Version != 2 || changed.ID != made.ID || changed.Metadata["env"] != "test" {
		t.Errorf("%+v, %v", changed, err)
	}
	if got := s.values(t, s.team, "openai-key")["openai-key"]; got != "new" {
		t.Errorf("after a change: %q", got)
	}
	for _, err := range []error{
		func() error { _, err := s.Get(ctx, s.them, made.ID); return err }(),
		func() error { _, err := s.Update(ctx, s.them, made.ID, "x", nil); return err }(),
		s.Remove(ctx, s.them, made.ID),
		s.Remove(ctx, s.team, "none"),
	} {
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("what is another team's, or nobody's: %v", err)
		}
	}
	if err := s.Remove(ctx, s.team, made.ID); err != nil {
		t.Error(err)
	}
	if got := s.values(t, s.team, "openai-key"); len(got) != 0 {
		t.Errorf("after its removal: %q", got)
	}
	if got := s.values(t, s.them, "openai-key")["openai-key"]; got != "theirs" {
		t.Errorf("the other team's: %q", got)
	}
	if want := []string{"openai-key", "openai-key", "openai-key"}; !slices.Equal(s.changed, want) {
		t.Errorf("told of %q", s.changed)
	}
	s.fail = errors.New("not told")
	if _, err := s.Create(ctx, s.team, "a", "b", nil); !errors.Is(err, s.fail) {
		t.Errorf("a change that sandboxes do not know of: %v", err)
	}
}

func TestRefused(t *testing.T) {
	s := open(t, t.TempDir(), secret.New())
	many := map[string]string{}
	for i := range 33 {
		many[strings.Repeat("k", i+1)] = ""
	}
	for _, test := range []struct {
		name, value string
		metadata    map[string]string
		says        string
	}{
		{"", value, nil, "name must not be empty"},
		{"sec_a", value, nil, "must not begin with sec_"},
		{"SEC_a", value, nil, "must not begin with sec_"},
		{strings.Repeat("a", 129), value, nil, "longer than 128"},
		{"a}b", value, nil, "letters, digits"}, {"a/b", value, nil, "letters, digits"}, {"..", value, nil, "letters, digits"},
		{"a\x00b", value, nil, "letters, digits"}, {"ключ", value, nil, "letters, digits"},
		{"a", "", nil, "value must not be empty"},
		{"a", strings.Repeat("x", 8193), nil, "longer than 8192"},
		{"a", value + "\r\nX-Other: 1", nil, "line ends"}, {"a", value + "\x00", nil, "control characters"},
		{"a", value, many, "at most 32"},
		{"a", value, map[string]string{strings.Repeat("k", 129): ""}, "128 bytes"},
		{"a", value, map[string]string{"k": strings.Repeat("v", 1025)}, "1024"},
		{"a", value, map[string]string{
			"1": strings.Repeat("v", 1024), "2": strings.Repeat("v", 1024), "3": strings.Repeat("v", 1024), "4": strings.Repeat("v", 1024),
			"5": strings.Repeat("v", 1024), "6": strings.Repeat("v", 1024), "7": strings.Repeat("v", 1024), "8": strings.Repeat("v", 1024),
		}, "in total"},
	} {
		_, err := s.Create(t.Context(), s.team, test.name, test.value, test.metadata)
		if fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), value) {
			t.Errorf("%.20q: %v, want %s", test.name, err, test.says)
		}
	}
	if all, err := s.List(t.Context(), s.team, "", 10); err != nil || len(all) != 0 || len(s.changed) != 0 {
		t.Errorf("%v, %v, %q", all, err, s.changed)
	}
}

// TestSealed: whoever has the database alone reads no value, and cannot put one team's
// into another's name.
func TestSealed(t *testing.T) {
	ctx, dir, key := t.Context(), t.TempDir(), secret.New()
	s := open(t, dir, key)
	mine, err := s.Create(ctx, s.team, "mine", value, nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := s.Create(ctx, s.them, "theirs", "theirs", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(ctx, s.team, "mine", value+"2", nil); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || bytes.Contains(content, []byte(value)) {
			t.Errorf("%s: has the value, or %v", e.Name(), err)
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "cubby.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, forged := range []string{
		`UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE id = '` + mine.ID + `') WHERE id = '` + theirs.ID + `'`,
		`UPDATE secrets SET team_id = '` + s.them + `' WHERE id = '` + mine.ID + `'`,
	} {
		if _, err := db.ExecContext(ctx, forged); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"theirs", "mine"} {
			if got, err := s.Values(ctx, s.them, []string{name}); err == nil && strings.Contains(got[name], value) {
				t.Errorf("%s: the other team reads it", forged)
			}
		}
	}
	st := s.store
	if _, err := Open(ctx, st, secret.New(), nil); fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "another key") {
		t.Errorf("another key: %v", err)
	}
	if _, err := Open(ctx, st, key, nil); err != nil {
		t.Errorf("the same key: %v", err)
	}
}
