//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCLI drives E2B's own command line in two versions, each with its
// generation of the packages, through what a user of it does in a day.
func TestCLI(t *testing.T) {
	needNode(t)
	for _, generation := range []string{"new", "old"} {
		install(t, generation)
	}
	s := start(t)
	for _, generation := range []string{"new", "old"} {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			// e2b runs the command line and returns all that it prints.
			e2b := func(ok bool, args ...string) string {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(generation, "node_modules", "@e2b", "cli", "dist", "index.js")}, args...)...)
				cmd.Env = append(slices.Clone(s.env), "E2B_API_URL="+s.URL, "E2B_SANDBOX_URL="+s.URL, "E2B_API_KEY="+s.Key, "NO_COLOR=1", "FORCE_COLOR=0",
					"NO_UPDATE_NOTIFIER=1", "HOME="+t.TempDir())
				out, err := cmd.CombinedOutput()
				if (err == nil) != ok {
					t.Fatalf("e2b %q: %v\n%s", args, err, out)
				}
				return string(out)
			}
			var templates []struct{ TemplateID string }
			if err := json.Unmarshal([]byte(e2b(true, "template", "list", "--format", "json")), &templates); err != nil || len(templates) < 2 || templates[0].TemplateID != "base" {
				t.Errorf("templates: %+v, %v", templates, err)
			}
			if out := e2b(true, "template", "list"); !strings.Contains(out, "code-interpreter-v1") {
				t.Errorf("templates: %s", out)
			}
			id := regexp.MustCompile(`\bi[a-z0-9]{20}\b`).FindString(e2b(true, "sandbox", "create", "base", "--detach"))
			if id == "" {
				t.Fatal("create shows no id")
			}
			if out := e2b(true, "sandbox", "exec", id, "echo", "hello"); !strings.Contains(out, "hello") {
				t.Errorf("exec: %s", out)
			}
			lines := logLines(t, e2b(true, "sandbox", "logs", "--format", "json", id))
			if first := lines[0]; first.Message != "Sandbox created" || first.Level != "INFO" && !strings.EqualFold(first.Level, "info") || first.Logger == "" {
				t.Errorf("log: %+v", lines)
			}
			if out := e2b(true, "sandbox", "logs", "--format", "json", "--level", "warn", id); strings.Contains(out, "Sandbox created") {
				t.Errorf("warnings: %s", out)
			}
			if out := e2b(false, "template", "delete", "base", "--yes"); !strings.Contains(out, "comes with the server") {
				t.Errorf("template delete: %s", out)
			}
			if out := e2b(true, "sandbox", "pause", id); !strings.Contains(out, "has been paused") {
				t.Errorf("pause: %s", out)
			}
			if out := e2b(true, "sandbox", "kill", id); !strings.Contains(out, "has been killed") {
				t.Errorf("kill: %s", out)
			}
			if out := e2b(true, "sandbox", "logs", id); !strings.Contains(out, "Sandbox ended: it was killed") {
				t.Errorf("log after the end: %s", out)
			}
			if out := e2b(false, "sandbox", "logs", "inone"); !strings.Contains(out, "doesn't exist") {
				t.Errorf("log of none: %s", out)
			}
		})
	}
}

type logLine struct{ Level, Logger, Message string }

// logLines are the lines of `e2b sandbox logs --format json`.
func logLines(t *testing.T, out string) (lines []logLine) {
	t.Helper()
	for text := range strings.Lines(out) {
		var line logLine
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		t.Fatal("no line of the log")
	}
	return lines
}

// TestRequireContextToken: a server whose operator wants the access token at
// contexts, too. What E2B's packages send there is refused; executions go on.
func TestRequireContextToken(t *testing.T) {
	s := start(t, "--require-context-token")
	b := s.create(t, s.Key)
	withToken := b.routed("49999")
	without := withToken[:4]
	var contexts []struct{ ID string }
	call(t, s.viaProxy(t), "GET", s.URL+"/contexts", nil, withToken...).decode(t, 200, &contexts)
	checkError(t, call(t, s.viaProxy(t), "GET", s.URL+"/contexts", nil, without...), 401, "ask for its access token")
	checkError(t, call(t, s.viaProxy(t), "POST", fmt.Sprintf("http://49999-%s.example.com/contexts", b.ID), map[string]string{"language": "bash"}), 401, "ask for its access token")
	if a := call(t, s.viaProxy(t), "POST", s.URL+"/execute", map[string]string{"code": "6*7"}, withToken...); a.Status != 200 || !strings.Contains(string(a.Body), `"42"`) {
		t.Errorf("an execution: %v", a)
	}
	if a := call(t, s.viaProxy(t), "POST", s.URL+"/execute", map[string]string{"code": "6*7"}, without...); a.Status != 401 {
		t.Errorf("an execution without the token: %v", a)
	}
}
