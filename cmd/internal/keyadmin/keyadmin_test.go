package keyadmin_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

const served = "KEYADMIN_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(served) == "" {
		os.Exit(m.Run())
	}
	if err := keyadmin.Serve(context.Background(), mirror{}, os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
}

// mirror answers with what it was asked for, as bytes that JSON leaves alone.
type mirror struct{}

func (mirror) Create(_ context.Context, dir, team, name string) (keyadmin.Key, string, error) {
	return keyadmin.Key{ID: quote(dir), Team: quote(team), Name: quote(name)}, "secret", nil
}

func (mirror) List(_ context.Context, dir string) ([]keyadmin.Key, error) {
	return []keyadmin.Key{{ID: quote(dir)}}, nil
}

func (mirror) Revoke(_ context.Context, dir, id string) (keyadmin.Key, error) {
	return keyadmin.Key{}, &fault.Error{Op: "revoke a key", Code: fault.NotFound, Err: errors.New(quote(dir) + " " + quote(id)), Hint: "hint"}
}

func quote(s string) string { return string(bytes.ToValidUTF8([]byte(s), []byte("<other>"))) }

// TestRemote: what the user wrote arrives at the other process as it was, and its
// answer here.
func TestRemote(t *testing.T) {
	remote := keyadmin.Remote{Command: func(ctx context.Context) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), served+"=1")
		return cmd, nil
	}}
	for _, word := range []string{"", "plain", "Grüße <&>", "line\nbreak", "caf\xe9", "\xff\xfe", "\x00"} {
		dir, id := "/data/"+word, word
		key, secret, err := remote.Create(t.Context(), dir, id, word)
		if want := (keyadmin.Key{ID: quote(dir), Team: quote(id), Name: quote(word)}); err != nil || key != want || secret != "secret" {
			t.Errorf("%q: created %+v, %q, %v", word, key, secret, err)
		}
		keys, err := remote.List(t.Context(), dir)
		if err != nil || !slices.Equal(keys, []keyadmin.Key{{ID: quote(dir)}}) {
			t.Errorf("%q: listed %+v, %v", word, keys, err)
		}
		_, err = remote.Revoke(t.Context(), dir, id)
		if e := fault.In(err); e == nil || e.Code != fault.NotFound || e.Hint != "hint" || e.Message() != "revoke a key: "+quote(dir)+" "+quote(id) {
			t.Errorf("%q: revoked with %v", word, err)
		}
	}
}
