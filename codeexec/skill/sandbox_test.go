//go:build linux

package skill_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestMain builds the binary that sandboxes run in.
func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// The same tools where code has walls around it, and a user who may not write
// everywhere.
func TestInASandbox(t *testing.T) {
	testenv.CheckLeaks(t)
	executor, err := sandbox.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := executor.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := folder(t, tool)
	tools := open(t, repository(t, dir, "testdata/skills"), func(c *skill.Config) { c.Engine = executor.Engine() })
	ctx := codeexec.WithArtifactService(t.Context(), &artifact.Memory{})
	if _, err := codeexec.SaveArtifactHelper(ctx, "t.csv", []byte("a,b\n1,2\n"), "text/csv"); err != nil {
		t.Fatal(err)
	}

	t.Run("a report", func(t *testing.T) {
		out, err := tools.Run(ctx, skill.RunInput{
			Skill: "csv-report", Command: "python3 scripts/report.py inputs/t.csv", SaveAsArtifacts: true,
			Inputs: []codeexec.InputSpec{{From: "artifact://t.csv"}},
		})
		if err != nil || out.Stdout != "columns: a, b\n" || out.PrimaryOutput == nil || len(out.ArtifactFiles) != 1 || len(out.Warnings) > 0 {
			t.Errorf("got %+v, %v", out, err)
		}
	})
	t.Run("the skill is read-only, and is copied again when it changes", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{Command: `touch new 2>/dev/null || echo protected; echo x 2>/dev/null >> run.sh || echo protected; ./run.sh ran; $EDITOR out/m; cat out/m`, EditorText: "text"})
		if out.Stdout != "protected\nprotected\nran\ntext" {
			t.Errorf("got %+v", out)
		}
		if err := os.Remove(filepath.Join(dir, "tool", "docs", "a.md")); err != nil {
			t.Fatal(err)
		}
		if out := run(t, tools, skill.RunInput{Command: "ls docs; cat out/m"}); out.Stdout != "b.txt\ntext" {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("a terminal", func(t *testing.T) {
		out, err := tools.Exec(ctx, skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: `[ -t 0 ] && printf 'name? ' && read -r n && echo "hello $n"`}, TTY: true})
		if err != nil {
			t.Fatal(err)
		}
		all, wrote := out.Output, false
		for deadline := time.Now().Add(slow); out.Result == nil && time.Now().Before(deadline); all += out.Output {
			if !wrote && strings.Contains(all, "name? ") {
				wrote = true
				out, err = tools.WriteStdin(ctx, skill.WriteStdinInput{SessionID: out.SessionID, Chars: "Ada", Submit: true})
			} else {
				out, err = tools.PollSession(ctx, skill.PollInput{SessionID: out.SessionID})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(all, "hello Ada\n") || out.Result == nil || out.Result.ExitCode != 0 {
			t.Errorf("got %q, %+v", all, out)
		}
	})
}
