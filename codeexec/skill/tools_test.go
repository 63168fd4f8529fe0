//go:build linux || darwin

package skill_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

const slow = 2 * time.Minute

// tool is a skill whose folder has a script and a document.
var tool = files{
	"tool/SKILL.md":   "---\nname: tool\ndescription: a tool\n---\nUse run.sh.",
	"tool/run.sh":     "#!/bin/sh\necho \"$@\"\n",
	"tool/docs/a.md":  "about a",
	"tool/docs/b.txt": "about b",
}

func run(t *testing.T, tools *skill.Tools, in skill.RunInput) skill.RunOutput {
	t.Helper()
	if in.Skill == "" {
		in.Skill = "tool"
	}
	out, err := tools.Run(t.Context(), in)
	if err != nil {
		t.Fatalf("skill_run: %v", err)
	}
	return out
}

func TestLoadAndDocs(t *testing.T) {
	tools := open(t, repository(t, folder(t, tool)), nil)
	if got := tools.Overview(); !strings.Contains(got, "- tool: a tool\n") {
		t.Errorf("the overview is %q", got)
	}
	out, err := tools.Load(t.Context(), skill.LoadInput{Skill: "tool", Docs: skill.Strings{"docs/a.md"}})
	if err != nil || out.Body != "Use run.sh." || len(out.Docs) != 1 || out.Docs[0] != (skill.Doc{Path: "docs/a.md", Content: "about a"}) ||
		!slices.Equal(out.OtherDocs, []string{"docs/b.txt"}) {
		t.Errorf("got %+v, %v", out, err)
	}
	list, err := tools.ListDocs(t.Context(), skill.ListDocsInput{Skill: "tool"})
	if err != nil || !slices.Equal(list.Docs, []string{"docs/a.md", "docs/b.txt"}) {
		t.Errorf("got %+v, %v", list, err)
	}
	for _, step := range []struct {
		in   skill.SelectDocsInput
		want string
	}{
		{skill.SelectDocsInput{Docs: skill.Strings{"docs/b.txt"}}, "docs/a.md docs/b.txt"},
		{skill.SelectDocsInput{Docs: skill.Strings{"docs/b.txt"}, Mode: "replace"}, "docs/b.txt"},
		{skill.SelectDocsInput{Mode: "clear"}, ""},
		{skill.SelectDocsInput{IncludeAllDocs: true, Mode: "add"}, "docs/a.md docs/b.txt"},
	} {
		step.in.Skill = "tool"
		out, err := tools.SelectDocs(t.Context(), step.in)
		if got := strings.Join(out.Selected, " "); err != nil || got != step.want {
			t.Errorf("%+v: %q, %v", step.in, got, err)
		}
	}
	if got := tools.Context(); !strings.Contains(got, "Use run.sh.") || !strings.Contains(got, "about a") || !strings.Contains(got, "about b") {
		t.Errorf("the context is %q", got)
	}
	_, err = tools.Load(t.Context(), skill.LoadInput{Skill: "toll"})
	if wantCode(t, "toll", err, cubby.CodeNotFound); err == nil || !strings.Contains(err.Error(), "there are: tool") {
		t.Errorf("the model is not told which there are: %v", err)
	}
	_, err = tools.Load(t.Context(), skill.LoadInput{Skill: "tool", Docs: skill.Strings{"../x.md"}})
	wantCode(t, "../x.md", err, cubby.CodeNotFound)
	_, err = tools.SelectDocs(t.Context(), skill.SelectDocsInput{Skill: "tool", Mode: "x"})
	wantCode(t, "mode x", err, cubby.CodeInvalidArgument)
}

func TestRun(t *testing.T) {
	tools := open(t, repository(t, folder(t, tool)), func(c *skill.Config) { c.Env = map[string]string{"FROM_CONFIG": "c", "BOTH": "c"} })

	t.Run("in the skill's folder, with its variables", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{
			Command: `./run.sh "a b" "$SKILL_NAME" "$FROM_CONFIG" "$BOTH" "${SKILL_DIR#"$SKILLS_DIR"/}"; basename "$PWD"; cat; echo err >&2; exit 3`, Stdin: "in\n",
			Env: map[string]string{"BOTH": "own"},
		})
		if out.Stdout != "a b tool c own tool\ntool\nin\n" || out.Stderr != "err\n" || out.ExitCode != 3 || out.TimedOut || len(out.Warnings) > 0 {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("files in out come back", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{Command: `echo answer > out/a.txt; printf '\211PNG\r\n\032\nx' > "$OUTPUT_DIR/p.png"; echo note > work/note`})
		if len(out.OutputFiles) != 2 || out.PrimaryOutput == nil || out.PrimaryOutput.Content != "answer\n" || out.PrimaryOutput.Ref != "workspace://out/a.txt" {
			t.Fatalf("got %+v", out)
		}
		if p := out.OutputFiles[1]; p.MIMEType != "image/png" || p.Content != "" || p.SizeBytes != 9 {
			t.Errorf("got %+v", p)
		}
		out = run(t, tools, skill.RunInput{Command: "true", OutputFiles: skill.Strings{"work/note"}, OmitInlineContent: true})
		if len(out.OutputFiles) != 1 || out.OutputFiles[0].Name != "work/note" || out.OutputFiles[0].Content != "" || out.PrimaryOutput != nil {
			t.Errorf("got %+v", out)
		}
		out = run(t, tools, skill.RunInput{Command: "true", Outputs: &codeexec.OutputSpec{Globs: []string{"out/*", "work/*"}, MaxFiles: 1}})
		if len(out.OutputFiles) != 1 || len(out.Warnings) == 0 {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("working directories", func(t *testing.T) {
		for cwd, want := range map[string]string{
			"": "skills/tool", ".": "skills/tool", "docs": "skills/tool/docs", "$WORK_DIR": "work", "${OUTPUT_DIR}": "out", "work": "work",
			"$SKILLS_DIR/tool": "skills/tool", "$WORKSPACE_DIR": "", "$SKILL_DIR/docs": "skills/tool/docs", "inputs": "work/inputs",
		} {
			out := run(t, tools, skill.RunInput{Command: `pwd -P | sed "s#^$(cd "$WORKSPACE_DIR" && pwd -P)##"`, Cwd: cwd})
			if got := strings.Trim(out.Stdout, "/\n"); got != want {
				t.Errorf("%s: got %q, want %q", cwd, got, want)
			}
		}
		for _, bad := range []string{"/etc", "../../..", "$HOME", "$WORK_DIR/../..", "none", "docs/a.md", "a\x00"} {
			_, err := tools.Run(t.Context(), skill.RunInput{Skill: "tool", Command: "pwd", Cwd: bad})
			wantCode(t, bad, err, cubby.CodeInvalidArgument)
		}
	})
	t.Run("an editor that writes a text", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{Command: `$EDITOR "$WORK_DIR/message"; cat "$WORK_DIR/message"`, EditorText: "the text\nof 'it'"})
		if out.Stdout != "the text\nof 'it'" {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("a timeout", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{Command: "echo begun; sleep 600", Timeout: 2})
		if !out.TimedOut || out.ExitCode != 124 || out.Stdout != "begun\n" {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("long output is cut, and files are not", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{Command: `seq 100000; printf '\033[31mred' >&2; seq 30000 > out/long.txt`, OutputFiles: skill.Strings{"out/long.txt"}})
		if len(out.Stdout) > 16<<10 || !strings.HasPrefix(out.Stdout, "1\n2\n") || !strings.HasSuffix(out.Stdout, "\n100000\n") ||
			len(out.Warnings) != 1 || out.Stderr != "red" {
			t.Errorf("got %d bytes, %q, %v", len(out.Stdout), out.Stderr, out.Warnings)
		}
		if f := out.OutputFiles[0]; f.SizeBytes != 168894 || len(f.Content) > 32<<10 || !f.Truncated {
			t.Errorf("got %d bytes of %d", len(f.Content), f.SizeBytes)
		}
	})
	t.Run("a skill's own Python", func(t *testing.T) {
		out := run(t, tools, skill.RunInput{Command: `mkdir -p "$WORK_DIR/.venv/bin" && printf '#!/bin/sh\necho own\n' > "$WORK_DIR/.venv/bin/python" && chmod +x "$WORK_DIR/.venv/bin/python"`})
		if out.ExitCode != 0 {
			t.Fatalf("got %+v", out)
		}
		if out := run(t, tools, skill.RunInput{Command: "python"}); out.Stdout != "own\n" {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("calls that make no sense", func(t *testing.T) {
		for what, in := range map[string]skill.RunInput{
			"no command": {Command: " "}, "a giant command": {Command: strings.Repeat("x", 100_000)}, "a negative timeout": {Command: "true", Timeout: -1},
			"a bad pattern": {Command: "true", OutputFiles: skill.Strings{"../*"}}, "a bad variable": {Command: "true", Env: map[string]string{"A=": ""}},
			"a bad input": {Command: "true", Inputs: []codeexec.InputSpec{{From: "https://x"}}}, "a negative limit": {Command: "true", Outputs: &codeexec.OutputSpec{MaxFiles: -1}},
			"a name": {Skill: "../tool", Command: "true"},
		} {
			if in.Skill == "" {
				in.Skill = "tool"
			}
			_, err := tools.Run(t.Context(), in)
			wantCode(t, what, err, cubby.CodeInvalidArgument)
		}
	})
}

func TestInputsAndArtifacts(t *testing.T) {
	repo := repository(t, folder(t, tool))
	tools := open(t, repo, nil)
	store := &artifact.Memory{}
	ctx := codeexec.WithArtifactService(t.Context(), store)
	if _, err := artifactctx.Save(ctx, "data.csv", []byte("x\n1\n"), "text/csv"); err != nil {
		t.Fatal(err)
	}
	out, err := tools.Run(ctx, skill.RunInput{
		Skill: "tool", Command: "cat inputs/data.csv inputs/a.md > out/both", SaveAsArtifacts: true, ArtifactPrefix: "report/",
		Inputs: []codeexec.InputSpec{{From: "artifact://data.csv"}, {From: "skill://tool/docs/a.md"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.StagedInputs) != 2 || out.StagedInputs[0] != (skill.StagedInput{From: "artifact://data.csv", Path: "work/inputs/data.csv"}) {
		t.Errorf("staged %+v", out.StagedInputs)
	}
	if len(out.ArtifactFiles) != 1 || out.ArtifactFiles[0].Name != "report/out/both" || out.PrimaryOutput == nil || out.PrimaryOutput.Content != "x\n1\nabout a" {
		t.Errorf("got %+v", out)
	}
	// What a command printed is not lost because its files cannot be saved.
	out = run(t, tools, skill.RunInput{Command: "echo done", SaveAsArtifacts: true})
	if out.Stdout != "done\n" || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "artifact service") {
		t.Errorf("got %+v", out)
	}

	t.Run("files of the host only if that is allowed", func(t *testing.T) {
		in := skill.RunInput{Skill: "tool", Command: "cat inputs/hostname", Inputs: []codeexec.InputSpec{{From: "host:///etc/hostname"}}}
		_, err := tools.Run(ctx, in)
		wantCode(t, "host://", err, cubby.CodePermissionDenied)
		allowed := open(t, repo, func(c *skill.Config) { c.AllowHostInputs = true })
		if out, err := allowed.Run(ctx, in); err != nil || out.ExitCode != 0 {
			t.Errorf("got %+v, %v", out, err)
		}
	})
}

// A skill is copied once, read-only, and again when it changes.
func TestStaging(t *testing.T) {
	dir := folder(t, tool)
	tools := open(t, repository(t, dir), nil)
	out := run(t, tools, skill.RunInput{Command: `ls -ld . docs run.sh docs/a.md | cut -c1-10 | sort -r; test -w out && test -w work && echo writable`})
	if out.Stdout != "dr-xr-xr-x\ndr-xr-xr-x\n-r-xr-xr-x\n-r-xr-xr-x\nwritable\n" {
		t.Errorf("got %q", out.Stdout)
	}
	inode := func() string {
		return run(t, tools, skill.RunInput{Command: "ls -i run.sh; ls"}).Stdout
	}
	before := inode()
	if again := inode(); again != before {
		t.Errorf("it was copied again: %q, then %q", before, again)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "tool", "docs", "a.md")), os.WriteFile(filepath.Join(dir, "tool", "new.md"), []byte("new"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out := run(t, tools, skill.RunInput{Command: "ls . docs"}); !strings.Contains(out.Stdout, "new.md") || strings.Contains(out.Stdout, "a.md") {
		t.Errorf("after a change: %q", out.Stdout)
	}
	// A skill with an out of its own keeps it.
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "tool", "out"), 0o755), os.WriteFile(filepath.Join(dir, "tool", "out", "own"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out := run(t, tools, skill.RunInput{Command: "ls out"}); out.Stdout != "own\n" {
		t.Errorf("got %q", out.Stdout)
	}
}

func TestSkillThatCannotBeStaged(t *testing.T) {
	dir := folder(t, tool)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "tool", "passwd")); err != nil {
		t.Fatal(err)
	}
	tools := open(t, repository(t, dir), nil)
	_, err := tools.Run(t.Context(), skill.RunInput{Skill: "tool", Command: "cat passwd"})
	if wantCode(t, "a link out", err, cubby.CodeInvalidArgument); err == nil || !strings.Contains(err.Error(), "passwd") {
		t.Errorf("it is not named: %v", err)
	}
}

func TestLostWorkspaceIsMadeAgain(t *testing.T) {
	var e codeexec.Engine
	registry := skill.NewWorkspaces()
	tools := open(t, repository(t, folder(t, tool)), func(c *skill.Config) { e = c.Engine; c.Workspaces = registry })
	run(t, tools, skill.RunInput{Command: "echo x > work/x"})
	ws, err := registry.Acquire(t.Context(), e.Manager(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(ws.Path, "work", "x")); err != nil {
		t.Errorf("the registry's workspace is another one: %v", err)
	}
	defer func() {
		// It is not the tools' own, and they leave it.
		if err := e.Manager().CleanupID(context.Background(), t.Name()); err != nil {
			t.Error(err)
		}
	}()
	if err := e.Manager().Cleanup(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	// Nothing has run when that is found out, so the command runs, once, in a new
	// one; and the model is told what that means.
	out := run(t, tools, skill.RunInput{Command: "echo ran >> work/count; ls work; cat work/count"})
	if out.Stdout != "count\ninputs\nran\n" || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "lost") {
		t.Errorf("got %+v", out)
	}
	if out := run(t, tools, skill.RunInput{Command: "cat work/count"}); out.Stdout != "ran\n" || len(out.Warnings) > 0 {
		t.Errorf("got %+v", out)
	}
}

func TestSessions(t *testing.T) {
	tools := open(t, repository(t, folder(t, tool)), func(c *skill.Config) { c.MaxSessions = 2 })
	ctx := t.Context()
	// await polls until the output holds text.
	await := func(t *testing.T, out skill.SessionOutput, text string) skill.SessionOutput {
		t.Helper()
		all := out.Output
		for deadline := time.Now().Add(slow); !strings.Contains(all, text); {
			if time.Now().After(deadline) || out.Status == codeexec.StatusExited && out.Result != nil {
				t.Fatalf("%q did not come, only %q", text, all)
			}
			var err error
			if out, err = tools.PollSession(ctx, skill.PollInput{SessionID: out.SessionID}); err != nil {
				t.Fatal(err)
			}
			all += out.Output
		}
		return out
	}
	ended := func(t *testing.T, out skill.SessionOutput) skill.SessionOutput {
		t.Helper()
		for deadline := time.Now().Add(slow); out.Result == nil && time.Now().Before(deadline); {
			var err error
			if out, err = tools.PollSession(ctx, skill.PollInput{SessionID: out.SessionID}); err != nil {
				t.Fatal(err)
			}
		}
		if out.Result == nil || out.Status != codeexec.StatusExited || out.ExitCode == nil {
			t.Fatalf("it did not end: %+v", out)
		}
		return out
	}
	t.Run("question, answer, files", func(t *testing.T) {
		out, err := tools.Exec(ctx, skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: `printf 'name? '; read -r n; echo "hello $n"; echo "$n" > out/name.txt; exit 4`}})
		if err != nil {
			t.Fatal(err)
		}
		await(t, out, "name? ")
		out, err = tools.WriteStdin(ctx, skill.WriteStdinInput{SessionID: out.SessionID, Chars: "Ada", Submit: true})
		if err != nil {
			t.Fatal(err)
		}
		out = ended(t, await(t, out, "hello Ada\n"))
		if *out.ExitCode != 4 || out.Result.ExitCode != 4 || out.Result.PrimaryOutput == nil || out.Result.PrimaryOutput.Content != "Ada\n" {
			t.Errorf("got %+v, %+v", out, out.Result)
		}
		_, err = tools.WriteStdin(ctx, skill.WriteStdinInput{SessionID: out.SessionID, Chars: "late"})
		wantCode(t, "late input", err, cubby.CodeConflict)
	})
	t.Run("lines are told in portions, and the result with the last", func(t *testing.T) {
		out, err := tools.Exec(ctx, skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: "seq 5"}, PollLines: 2, YieldTimeMS: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		all := out.Output
		for n := 0; out.Result == nil && n < 1000; n++ {
			if strings.Count(out.Output, "\n") > 2 {
				t.Errorf("more than two lines: %q", out.Output)
			}
			if out, err = tools.PollSession(ctx, skill.PollInput{SessionID: out.SessionID, PollLines: 2}); err != nil {
				t.Fatal(err)
			}
			all += out.Output
		}
		if all != "1\n2\n3\n4\n5\n" || out.Result == nil {
			t.Errorf("got %q, %+v", all, out)
		}
	})
	t.Run("a terminal", func(t *testing.T) {
		out, err := tools.Exec(ctx, skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: "[ -t 0 ] && echo terminal"}, TTY: true})
		if err != nil {
			t.Fatal(err)
		}
		ended(t, await(t, out, "terminal"))
	})
	t.Run("as many as are allowed", func(t *testing.T) {
		var ids []string
		for range 2 {
			out, err := tools.Exec(ctx, skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: "sleep 600"}, YieldTimeMS: 1})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, out.SessionID)
		}
		_, err := tools.Exec(ctx, skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: "true"}})
		wantCode(t, "a third", err, cubby.CodeRateLimited)
		for _, id := range ids {
			if out, err := tools.KillSession(ctx, skill.KillInput{SessionID: id}); err != nil || !out.OK || out.Status != codeexec.StatusExited {
				t.Errorf("got %+v, %v", out, err)
			}
			_, err := tools.PollSession(ctx, skill.PollInput{SessionID: id})
			wantCode(t, "after its end", err, cubby.CodeNotFound)
		}
	})
	t.Run("bad calls", func(t *testing.T) {
		_, err := tools.PollSession(ctx, skill.PollInput{SessionID: "nobody"})
		wantCode(t, "nobody", err, cubby.CodeNotFound)
		_, err = tools.KillSession(ctx, skill.KillInput{})
		wantCode(t, "no id", err, cubby.CodeNotFound)
	})
}

func TestCloseEndsAndCleansUp(t *testing.T) {
	tools := open(t, repository(t, folder(t, tool)), nil)
	out, err := tools.Exec(t.Context(), skill.ExecInput{RunInput: skill.RunInput{Skill: "tool", Command: `echo "$WORKSPACE_DIR"; sleep 600`}})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(slow); out.Output == "" && time.Now().Before(deadline); {
		if out, err = tools.PollSession(t.Context(), skill.PollInput{SessionID: out.SessionID}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(strings.TrimSpace(out.Output)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workspace is left: %v", err)
	}
	_, err = tools.Run(t.Context(), skill.RunInput{Skill: "tool", Command: "true"})
	wantCode(t, "after Close", err, cubby.CodeConflict)
}

func TestDefinitions(t *testing.T) {
	tools := open(t, repository(t, folder(t, tool)), nil)
	calls := map[string]skill.Definition{}
	var names []string
	for _, d := range tools.Definitions() {
		calls[d.Name] = d
		names = append(names, d.Name)
		for _, raw := range []json.RawMessage{d.InputSchema, d.OutputSchema} {
			var s struct {
				Type       string
				Properties map[string]struct{ Type string }
				Required   []string
			}
			if err := json.Unmarshal(raw, &s); err != nil || s.Type != "object" || len(s.Properties) == 0 {
				t.Errorf("%s: %v: %s", d.Name, err, raw)
			}
			for _, name := range s.Required {
				if s.Properties[name].Type == "" {
					t.Errorf("%s requires %q, which it does not describe", d.Name, name)
				}
			}
		}
	}
	if want := []string{"skill_load", "skill_list_docs", "skill_select_docs", "skill_run", "skill_exec", "skill_write_stdin", "skill_poll_session", "skill_kill_session"}; !slices.Equal(names, want) {
		t.Errorf("got %v", names)
	}
	if schema := string(calls["skill_exec"].InputSchema); !strings.Contains(schema, `"tty"`) || !strings.Contains(schema, `"output_files":{"type":"array"`) || !strings.Contains(schema, `"required":["skill","command"]`) {
		t.Errorf("skill_exec takes %s", schema)
	}
	call := func(name, args string) (string, error) {
		b, err := calls[name].Call(t.Context(), json.RawMessage(args))
		return string(b), err
	}
	for _, args := range []string{
		`{"skill":"tool","command":"echo hi > out/x","output_files":"out/x"}`,
		`{"skill":"tool","command":"echo hi > out/x","outputs":{"Globs":"out/*"},"unknown":1}`,
		`"{\"skill\":\"tool\",\"command\":\"echo hi > out/x\",\"output_files\":[\"out/x\"]}"`,
	} {
		if out, err := call("skill_run", args); err != nil || !strings.Contains(out, `"content":"hi\n"`) {
			t.Errorf("%s: %s, %v", args, out, err)
		}
	}
	for _, args := range []string{`{"skill":5}`, `[]`, `{`, `"x"`, ``, `null`, `{"skill":"tool","command":["ls"]}`} {
		_, err := call("skill_run", args)
		wantCode(t, args, err, cubby.CodeInvalidArgument)
	}
}
