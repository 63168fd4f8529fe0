//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// Keys of secrets, as `openssl rand -hex 32` makes them.
const (
	oneKey     = "11aa22bb33cc44dd55ee66ff77008811992233445566778899aabbccddeeff00"
	anotherKey = "00ffeeddccbbaa99887766554433229911880077ff66ee55dd44cc33bb22aa11"
)

// TestSecretsKey: secrets outlive a server that starts again with their key, wherever that
// is kept; with another key, or none, it does not start, and says what to do.
func TestSecretsKey(t *testing.T) {
	w := newEmptyWorld(t)
	whole := os.Getenv("TMPDIR")
	file := func(name, key string) string {
		path := filepath.Join(whole, name)
		if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, another := file("one.key", oneKey), file("another.key", anotherKey)
	inEnv := []string{"THE_KEY=" + oneKey, "ANOTHER_KEY=" + anotherKey}
	for _, test := range []struct {
		name          string
		env           []string
		args, another []string
		missing       []string // a place with no key
		status        string
		says          string
	}{
		{"file", nil, []string{"--secrets-key-file", one}, []string{"--secrets-key-file", another},
			[]string{"--secrets-key-file", one + ".gone"}, "exit status 2", "--secrets-key-file: open " + one + ".gone: no such file"},
		{"env", inEnv, []string{"--secrets-key-env", "THE_KEY"}, []string{"--secrets-key-env", "ANOTHER_KEY"},
			[]string{"--secrets-key-env", "NO_KEY"}, "exit status 2", "--secrets-key-env: give the name of an environment variable that has the key"},
		{"command", nil, []string{"--secrets-key-command", "cat " + one}, []string{"--secrets-key-command", "cat " + another},
			[]string{"--secrets-key-command", "echo locked >&2; exit 3"}, "exit status 125", "--secrets-key-command: the command failed: exit status 3: locked"},
		{"of the data folder", nil, nil, []string{"--secrets-key-file", another}, nil, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(whole, strings.ReplaceAll(test.name, " ", "-"))
			if err := os.Mkdir(dir, 0o711); err != nil {
				t.Fatal(err)
			}
			w.start(t, dir, test.env, test.args...)
			first := w.server
			said := first.secrets(t, first.Key, credential+"\n", "set", "API-Key")
			if said != "secret api-key kept\n" {
				t.Errorf("%q", said)
			}
			first.stop(t)

			// What is refused says why, and changes nothing.
			others := [][]string{test.another}
			if test.args != nil {
				others = append(others, nil)
			}
			for _, args := range others {
				status, said := w.refused(t, dir, test.env, args...)
				for _, want := range []string{"sealed with another key", "--secrets-key-file, --secrets-key-env or --secrets-key-command", "cubby secrets remove"} {
					if status != "exit status 125" || !strings.Contains(said, want) {
						t.Errorf("with %q, without %q: %s, %s", args, want, status, said)
					}
				}
			}
			if test.missing != nil {
				if status, said := w.refused(t, dir, test.env, test.missing...); status != test.status || !strings.Contains(said, test.says) {
					t.Errorf("with %q: %s, %s", test.missing, status, said)
				}
			}

			w.start(t, dir, test.env, test.args...)
			w.server.Key = first.Key
			if list := w.server.secrets(t, first.Key, "", "list", "--json"); !strings.Contains(list, `"name":"api-key","version":1,`) {
				t.Errorf("%s", list)
			}
			b := w.sandbox(t, withSecret("Authorization"))
			out := w.run(t, b, "curl -sSf https://"+apiName+"/")
			seen := w.requests()
			if out.Exit != 0 || len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+credential {
				t.Errorf("%+v, %+v", out, seen)
			}
			// Nothing is sealed after its removal: another key can be had then.
			w.server.secrets(t, first.Key, "", "remove", "api-key")
			kill(w.server, b)
			w.server.stop(t)
			w.start(t, dir, test.env, test.another...)
			logs := first.log.tail(100<<20) + w.server.log.tail(100<<20)
			for _, key := range []string{oneKey, anotherKey, credential} {
				if strings.Contains(logs, key) {
					t.Error("a log has a key, or the secret")
				}
			}
			w.server.stop(t)
		})
	}
}

// secrets is `cubby secrets` at the server, of a key's team. It returns all that was said.
func (s *server) secrets(t *testing.T, key, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Cubby(t), append([]string{"secrets"}, args...)...)
	cmd.Env = append(slices.Clone(s.env), "E2B_API_URL="+s.URL, "E2B_API_KEY="+key)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), credential) {
		t.Fatalf("cubby secrets %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// refused starts a server as start does, which has to end by itself: with which status,
// and what it said.
func (w *world) refused(t *testing.T, dir string, env []string, args ...string) (status, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	by := w.by()
	line := slices.Concat(by[1:], []string{testenv.Cubby(t), "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"), "--python", debianPython}, args)
	cmd := exec.CommandContext(ctx, by[0], line...)
	cmd.Env = slices.Concat(os.Environ(), []string{"HOME=" + filepath.Join(dir, "home")}, env)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ctx.Err() != nil {
		t.Fatalf("a server with %q has not ended by itself: %v\n%s", args, err, &out)
	}
	if strings.Contains(out.String(), oneKey) || strings.Contains(out.String(), anotherKey) {
		t.Errorf("a key is in %s", &out)
	}
	return exit.Error(), out.String()
}
