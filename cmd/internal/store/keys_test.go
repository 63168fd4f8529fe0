package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

func TestTeams(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	if teams, err := s.Teams(ctx); err != nil || len(teams) != 0 {
		t.Fatalf("of a new folder: %v, %v", teams, err)
	}
	a, err := s.CreateTeam(ctx, "a")
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(a.ID) {
		t.Fatalf("%+v, %v", a, err)
	}
	b, err := s.CreateTeam(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateTeam(ctx, "a"); !errors.Is(err, ErrExists) {
		t.Errorf("a second team of one name: %v", err)
	}
	if teams, err := s.Teams(ctx); err != nil || len(teams) != 2 || teams[0] != a || teams[1] != b {
		t.Errorf("%v, %v", teams, err)
	}
}

func TestNames(t *testing.T) {
	s, team := newStore(t)
	for _, test := range []struct {
		what, name string
		ok         bool
	}{
		{"none", "", true},
		{"words", "my laptop", true},
		{"another script", "ключ 鍵 🔑", true},
		{"the longest", strings.Repeat("ü", 100), true},
		{"too long", strings.Repeat("ü", 101), false},
		{"a line break", "a\nb", false},
		{"an escape code", "\x1b[2J", false},
		{"a right-to-left override", "a\u202eb", false},
		{"not UTF-8", "\xff", false},
	} {
		t.Run(test.what, func(t *testing.T) {
			k, _, err := s.CreateKey(t.Context(), team, test.name)
			if test.ok && (err != nil || k.Name != test.name) {
				t.Errorf("%q: %v", k.Name, err)
			}
			if !test.ok && fault.CodeOf(err) != fault.InvalidArgument {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := s.CreateTeam(t.Context(), ""); fault.CodeOf(err) != fault.InvalidArgument {
		t.Errorf("a team without a name: %v", err)
	}
}

func TestKeys(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	k, secret, err := s.CreateKey(ctx, team, "laptop")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(secret) {
		t.Errorf("secret %q", secret) // E2B's clients up to 2.45 check the form
	}
	if k.Mask != secret[:8]+"..."+secret[40:] || len(k.ID) != 12 || k.TeamID != team || k.Team != "team" || k.CreatedAt.IsZero() {
		t.Errorf("%+v", k)
	}
	if keys, err := s.Keys(ctx); err != nil || len(keys) != 1 || keys[0] != k {
		t.Errorf("listed: %+v, %v; created: %+v", keys, err, k)
	}
	if got, err := s.TeamOfKey(ctx, secret); err != nil || got != team {
		t.Errorf("%q, %v", got, err)
	}
	for what, wrong := range map[string]string{
		"nothing": "", "a prefix": "e2b_", "upper case": strings.ToUpper(secret), "cut": secret[:43], "longer": secret + "0",
		"spaces": " " + secret, "its hash": string(hash(secret)), "its mask": k.Mask, "its ID": k.ID, "an unknown one": "e2b_" + strings.Repeat("0", 40),
		"a wildcard": "%", "NUL": "\x00", "not UTF-8": "\xff\xfe", "a megabyte": strings.Repeat("a", 1<<20),
	} {
		if got, err := s.TeamOfKey(ctx, wrong); !errors.Is(err, ErrNotFound) || got != "" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, _, err := s.CreateKey(ctx, "no-such-team", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("key of no team: %v", err)
	}
}

// TestSecretIsNotKept: whoever reads the database cannot use a key.
func TestSecretIsNotKept(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	team, first, _, err := s.Bootstrap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := s.CreateKey(t.Context(), team, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, closed := range []bool{false, true} {
		if closed {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, path := range files {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{first, second} {
				if bytes.Contains(content, []byte(secret[8:40])) {
					t.Errorf("%s has a secret", path)
				}
			}
		}
	}
}

func TestRevokeKey(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	k, secret, err := s.CreateKey(ctx, team, "")
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := s.CreateKey(ctx, team, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "%", "____", k.ID[:3], k.ID + "0", "zzzz", secret, k.ID[:11] + "_", "'; DROP TABLE keys; --"} {
		if _, err := s.RevokeKey(ctx, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
	revoked, err := s.RevokeKey(ctx, k.ID[:8])
	if err != nil || revoked.ID != k.ID || revoked.RevokedAt.IsZero() {
		t.Fatalf("%+v, %v", revoked, err)
	}
	if got, err := s.TeamOfKey(ctx, secret); !errors.Is(err, ErrNotFound) {
		t.Errorf("a revoked key: %q, %v", got, err)
	}
	if got, err := s.TeamOfKey(ctx, other); err != nil || got != team {
		t.Errorf("the other key: %q, %v", got, err)
	}
	if again, err := s.RevokeKey(ctx, k.ID); err != nil || again != revoked {
		t.Errorf("again: %+v, %v", again, err)
	}
	if keys, err := s.Keys(ctx); err != nil || len(keys) != 2 || keys[0] != revoked {
		t.Errorf("listed: %+v, %v", keys, err)
	}
}

// TestRevokeByPrefix: what could mean two keys revokes neither.
func TestRevokeByPrefix(t *testing.T) {
	s, team := newStore(t)
	ctx := t.Context()
	for _, id := range []string{"aaaa11111111", "aaaa22222222"} {
		if _, err := s.write.ExecContext(ctx, `INSERT INTO keys (id, team_id, name, hash, mask, created_at) VALUES (?, ?, '', ?, '', 1)`, id, team, hash(id)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.RevokeKey(ctx, "aaaa"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("%v", err)
	}
	for _, secret := range []string{"aaaa11111111", "aaaa22222222"} {
		if _, err := s.TeamOfKey(ctx, secret); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
	}
	if k, err := s.RevokeKey(ctx, "aaaa2"); err != nil || k.ID != "aaaa22222222" {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestBootstrap(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	team, secret, created, err := s.Bootstrap(ctx)
	if err != nil || !created {
		t.Fatalf("%v %v", created, err)
	}
	if got, err := s.TeamOfKey(ctx, secret); err != nil || got != team {
		t.Errorf("%q, %v", got, err)
	}
	teams, err := s.Teams(ctx)
	if err != nil || len(teams) != 1 || teams[0].Name != DefaultTeam {
		t.Errorf("%v, %v", teams, err)
	}
	again, none, created, err := s.Bootstrap(ctx)
	if err != nil || created || none != "" || again != team {
		t.Errorf("the second start: %q %q %v %v", again, none, created, err)
	}
}

// TestLastUsed: a use is noted, and at most once a minute.
func TestLastUsed(t *testing.T) {
	dir := t.TempDir()
	var secret string
	// used uses the key at each of the seconds and returns what is on record
	// once the store was closed, which waits for what is to be written.
	used := func(seconds ...int) time.Time {
		s, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if secret == "" {
			if _, secret, _, err = s.Bootstrap(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, second := range seconds {
			s.now = func() time.Time { return start2026.Add(time.Duration(second) * time.Second) }
			if _, err := s.TeamOfKey(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		keys, err := s.Keys(t.Context())
		if err != nil || len(keys) != 1 {
			t.Fatal(keys, err)
		}
		return keys[0].LastUsedAt
	}
	if got := used(); !got.IsZero() {
		t.Errorf("never used: %v", got)
	}
	for _, step := range []struct {
		seconds []int
		want    int
	}{
		{[]int{0, 1, 2, 59}, 0},
		{[]int{59}, 0},
		{[]int{60}, 60},
		{[]int{61, 119}, 60},
		{[]int{1000}, 1000},
	} {
		if got, want := used(step.seconds...), start2026.Add(time.Duration(step.want)*time.Second); !got.Equal(want) {
			t.Errorf("used at %v: noted %v, want %v", step.seconds, got, want)
		}
	}
}

// FuzzTeamOfKey: nothing but the secret is a key, and nothing is an error.
func FuzzTeamOfKey(f *testing.F) {
	s, team := newStore(f)
	_, secret, err := s.CreateKey(f.Context(), team, "")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "e2b_", secret, secret + "\x00", "' OR 1=1 --", "%", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := s.TeamOfKey(t.Context(), text)
		if text == secret {
			if err != nil || got != team {
				t.Errorf("the key: %q, %v", got, err)
			}
		} else if !errors.Is(err, ErrNotFound) || got != "" {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if k, err := s.RevokeKey(t.Context(), text); err == nil && (len(text) < minKeyPrefix || !strings.HasPrefix(k.ID, text)) {
			t.Errorf("%q revoked %s", text, k.ID)
		}
	})
}
