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
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
	"github.com/cubby-sandbox/cubby/embedded"
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
	executor, err := sandbox.New(t.Context(), sandbox.Config{})
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
	if _, err := artifactctx.Save(ctx, "t.csv", []byte("a,b\n1,2\n"), "text/csv"); err != nil {
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

// When the place of a conversation's workspace is lost, the next command runs in a
// new one, and says so once: in a sandbox, in a pool, and for code that has made
// the session's sandbox anew before.
func TestWorkspaceThatIsLost(t *testing.T) {
	testenv.CheckLeaks(t)
	own, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	pool, err := sandbox.NewPool(t.Context(), sandbox.Config{Executor: e2b.Config{Client: own.Client}}, e2b.PoolConfig{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	executor, err := sandbox.New(t.Context(), sandbox.Config{Executor: e2b.Config{Client: own.Client}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { executor.Close() })
	touch := func(t *testing.T, id string) {
		t.Helper()
		if _, err := pool.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{ExecutionID: id, Code: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		engine codeexec.Engine
		lose   func(t *testing.T)
	}{
		"a sandbox that ended": {executor.Engine(), func(t *testing.T) {
			sbx, err := own.Get(t.Context(), executor.SandboxID())
			if err == nil {
				err = sbx.Kill(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			// Somebody else's code gets the new sandbox.
			for range 2 {
				if _, err = executor.ExecuteCode(t.Context(), codeexec.CodeExecutionInput{ExecutionID: "other"}); err == nil {
					return
				}
			}
			t.Fatal(err)
		}},
		"a pool without room":             {pool.Engine(), func(t *testing.T) { touch(t, "other") }},
		"a pool, and the session is back": {pool.Engine(), func(t *testing.T) { touch(t, "other"); touch(t, "mine") }},
	} {
		t.Run(name, func(t *testing.T) {
			tools := open(t, repository(t, folder(t, tool)), func(c *skill.Config) { c.Engine, c.ExecutionID = tc.engine, "mine" })
			if out := run(t, tools, skill.RunInput{Command: "echo kept > work/mine"}); len(out.Warnings) > 0 {
				t.Errorf("got %+v", out)
			}
			tc.lose(t)
			out := run(t, tools, skill.RunInput{Command: "ls work/mine 2>/dev/null || echo gone"})
			if out.Stdout != "gone\n" || !strings.Contains(strings.Join(out.Warnings, "\n"), "files of earlier commands are gone") {
				t.Errorf("after the loss: %+v", out)
			}
			if out := run(t, tools, skill.RunInput{Command: "true"}); len(out.Warnings) > 0 {
				t.Errorf("told twice: %+v", out)
			}
		})
	}
}
