//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// oldestNode is what the packages themselves ask for.
var oldestNode = [3]int{20, 18, 1}

// TestSDK runs the tests of folder js, which are programs of E2B's packages,
// against one server: with the newest packages, with the last that create by the
// first version of the API, and with those and sandboxes without access token.
func TestSDK(t *testing.T) {
	files, err := filepath.Glob("js/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in js: %v", err)
	}
	needNode(t)
	for _, generation := range []string{"new", "old"} {
		install(t, generation)
	}
	s := start(t)
	for _, variant := range []struct{ name, generation, secure string }{
		{"new", "new", "true"},
		{"old", "old", "true"},
		{"old-insecure", "old", "false"},
	} {
		for _, file := range files {
			name := variant.name + "/" + strings.TrimSuffix(filepath.Base(file), ".test.mjs")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s.node(t, variant.generation, file, "CUBBY_SECURE="+variant.secure)
			})
		}
	}
}

// TestSDKByDomain: a server that was told its domain tells clients, and is found
// by its own names.
func TestSDKByDomain(t *testing.T) {
	needNode(t)
	install(t, "new")
	s := start(t, "--domain", trpcDomain)
	s.node(t, "new", "js/names.test.mjs", "CUBBY_DOMAIN="+trpcDomain)
	if b := s.create(t, s.Key); b.Domain != trpcDomain {
		t.Errorf("create tells the domain %q", b.Domain)
	}
}

// TestSDKOfAFullServer: what both generations make of 429.
func TestSDKOfAFullServer(t *testing.T) {
	needNode(t)
	for _, generation := range []string{"new", "old"} {
		t.Run(generation, func(t *testing.T) {
			install(t, generation)
			s := start(t, "--max-sandboxes", "2")
			s.node(t, generation, "js/alone/full.test.mjs")
		})
	}
}

// node runs a file of tests with a generation of the packages.
func (s *server) node(t *testing.T, generation, file string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	// The packages leave timers of a minute behind: exit all the same.
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "--test-timeout=180000", "--test-force-exit", file)
	cmd.Env = append(append(os.Environ(), "E2B_API_URL="+s.URL, "E2B_SANDBOX_URL="+s.URL, "E2B_API_KEY="+s.Key,
		"CUBBY_GENERATION="+generation, "NO_COLOR=1"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

// needNode skips without a Node that the packages support: they say so with an
// error about their own code.
func needNode(t *testing.T) {
	t.Helper()
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		missing(t, "node", err)
	}
	var have [3]int
	for i, part := range strings.SplitN(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".", 3) {
		have[i], _ = strconv.Atoi(part)
	}
	for i := range have {
		if have[i] != oldestNode[i] {
			if have[i] < oldestNode[i] {
				missing(t, "Node "+strings.TrimSpace(string(out)), errors.New("E2B's packages need 20.18.1 or newer"))
			}
			break
		}
	}
}

// missing fails in CI, where everything is meant to be there, and skips
// elsewhere.
func missing(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s: %v", what, err)
	}
	t.Skipf("the tests with E2B's packages do not run: %s: %v", what, err)
}

// install fetches a generation's packages as its lock file names them, once for
// each state of that file.
func install(t *testing.T, generation string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(generation, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(generation, "node_modules", ".installed.json")
	if have, err := os.ReadFile(installed); err == nil && bytes.Equal(have, want) {
		return
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci")
	cmd.Dir = generation
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, "npm ci in e2e/"+generation, errors.New(err.Error()+"\n"+string(out)))
	}
	if err := os.WriteFile(installed, want, 0o644); err != nil {
		t.Fatal(err)
	}
}
