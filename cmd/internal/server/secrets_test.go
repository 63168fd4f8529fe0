package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/cmd/internal/vault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// TestSecrets: E2B's secrets, whose values are never given back.
func TestSecrets(t *testing.T) {
	const value = "sk-0123456789abcdef"
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	none := newTown(t, Config{}, nil)
	if c := (&api{t: t, handler: none.server}).call("GET", "/secrets", ""); c.status != http.StatusNotImplemented {
		t.Errorf("a server that keeps none: %v", c)
	}
	team, _, _, err := st.Bootstrap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(t.Context(), st, secret.New(), func(context.Context, string, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	tn := newTown(t, Config{Secrets: ofTeam{v, team}}, nil)
	a := &api{t: t, handler: tn.server}
	one := func(c called, status int) (s protocol.Secret) {
		t.Helper()
		if err := json.Unmarshal([]byte(c.body), &s); err != nil || c.status != status || strings.Contains(c.body, value) {
			t.Errorf("%d %s", c.status, c.body)
		}
		return s
	}
	made := one(a.call("POST", "/secrets", `{"name":"Key","value":"`+value+`","metadata":{"a":"b"}}`), 201)
	if !strings.HasPrefix(made.SecretID, "sec_") || made.Name != "key" || made.CurrentVersion != 1 || made.Metadata["a"] != "b" ||
		made.CreatedAt.IsZero() || !made.UpdatedAt.Equal(made.CreatedAt) {
		t.Errorf("%+v", made)
	}
	if got := one(a.call("GET", "/secrets/key", ""), 200); got.SecretID != made.SecretID {
		t.Errorf("%+v", got)
	}
	if got := one(a.call("POST", "/secrets/"+made.SecretID, `{"value":"`+value+`2"}`), 200); got.CurrentVersion != 2 || got.Metadata["a"] != "b" {
		t.Errorf("%+v", got)
	}
	for i := range 4 {
		one(a.call("POST", "/secrets", `{"name":"n`+strconv.Itoa(i)+`","value":"`+value+`"}`), 201)
	}
	var names []string
	for query := "?limit=2"; ; {
		c := a.call("GET", "/secrets"+query, "")
		var page []protocol.Secret
		if err := json.Unmarshal([]byte(c.body), &page); err != nil || len(page) > 2 || strings.Contains(c.body, value) {
			t.Fatal(c)
		}
		for _, s := range page {
			names = append(names, s.Name)
		}
		next := c.header.Get("X-Next-Token")
		if next == "" {
			break
		}
		query = "?limit=2&nextToken=" + next
	}
	if got := strings.Join(names, " "); got != "key n0 n1 n2 n3" {
		t.Errorf("listed %q", got)
	}
	if c := a.call("DELETE", "/secrets/n0", ""); c.status != 204 || c.body != "" {
		t.Errorf("%d %s", c.status, c.body)
	}
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/secrets", `{"name":"key","value":"` + value + `"}`, 409, "Secret with name 'key' already exists"},
		{"POST", "/secrets", `{"name":"sec_a","value":"` + value + `"}`, 400, "sec_"},
		{"POST", "/secrets", `{"name":"x","value":"` + value + `\n"}`, 400, "line ends"},
		{"POST", "/secrets", `{"name":"x"}`, 400, "must not be empty"},
		{"POST", "/secrets", `{"name":"x","value":["` + value + `"]}`, 400, "a string was expected"},
		{"POST", "/secrets", `{"name":"x","value":"` + value, 400, "parsing"},
		{"POST", "/secrets/none", `{"value":"` + value + `"}`, 404, "Secret 'none' not found"},
		{"GET", "/secrets/n0", "", 404, "Secret 'n0' not found"},
		{"DELETE", "/secrets/n0", "", 404, "Secret 'n0' not found"},
		{"GET", "/secrets?limit=0", "", 400, "limit"},
		{"GET", "/secrets?nextToken=~", "", 400, "Invalid next token"},
		{"PATCH", "/secrets/key", "{}", 405, "not allowed"},
	} {
		c := a.call(test.method, test.path, test.body)
		if c.status != test.status || !strings.Contains(c.body, test.says) || strings.Contains(c.body, value) {
			t.Errorf("%s %s %s: %d %s", test.method, test.path, test.body, c.status, c.body)
		}
	}
	if log := tn.log.String(); strings.Contains(log, value) {
		t.Errorf("the log has the value: %s", log)
	}
}

// ofTeam is a vault for callers without keys.
type ofTeam struct {
	*vault.Vault
	team string
}

func (o ofTeam) Create(ctx context.Context, _, name, value string, metadata map[string]string) (vault.Secret, error) {
	return o.Vault.Create(ctx, o.team, name, value, metadata)
}

func (o ofTeam) Update(ctx context.Context, _, id, value string, metadata map[string]string) (vault.Secret, error) {
	return o.Vault.Update(ctx, o.team, id, value, metadata)
}

func (o ofTeam) Get(ctx context.Context, _, id string) (vault.Secret, error) {
	return o.Vault.Get(ctx, o.team, id)
}

func (o ofTeam) List(ctx context.Context, _, after string, limit int) ([]vault.Secret, error) {
	return o.Vault.List(ctx, o.team, after, limit)
}

func (o ofTeam) Remove(ctx context.Context, _, id string) error {
	return o.Vault.Remove(ctx, o.team, id)
}
