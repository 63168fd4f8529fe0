//go:build linux || darwin

package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// slow is more than anything here takes on a machine that is busy.
const slow = 2 * time.Minute

// raced is a workspace in which a program swaps folders for links that lead out,
// and back, as fast as it can.
func raced(t *testing.T, script string) (codeexec.Engine, codeexec.Workspace, string) {
	t.Helper()
	e := open(t, local.Config{}).Engine()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	ws, err := e.Manager().CreateWorkspace(t.Context(), "raced", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Runner().StartProgram(t.Context(), ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{
		Cmd: "python3", Args: []string{"-c", script}, Env: map[string]string{"OUTSIDE": outside}, Timeout: 5 * time.Minute,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Manager().Cleanup(t.Context(), ws); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Error(err)
		}
		s.Close()
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !strings.Contains(s.Log(nil, nil).Output, "ready"); {
		time.Sleep(10 * time.Millisecond)
	}
	return e, ws, outside
}

const swapFolder = `
import os, itertools, shutil
out, aside = 'out', os.environ['OUTSIDE']
os.mkdir('real'); open('real/file', 'w').write('inside')
os.symlink(aside, 'link')
os.rmdir(out)
print('ready', flush=True)
for i in itertools.count():
    for name in ('real', 'link'):
        try:
            os.rename(name, out); os.rename(out, name)
        except OSError:
            # What the library put in the way goes.
            if os.path.isdir(out) and not os.path.islink(out): shutil.rmtree(out, ignore_errors=True)
`

func TestRacingLinksAreNotReadThrough(t *testing.T) {
	e, ws, _ := raced(t, swapFolder)
	collected := 0
	for range 1500 {
		files, err := e.FS().Collect(t.Context(), ws, []string{"out/**"})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			collected++
			if strings.Contains(string(f.Content), "secret") {
				t.Fatalf("%s was read from outside", f.Name)
			}
		}
		if err := e.FS().StageInputs(t.Context(), ws, []codeexec.InputSpec{{From: "workspace://out/file", To: "work/copied"}}); err == nil {
			files, err := e.FS().Collect(t.Context(), ws, []string{"work/copied"})
			if err != nil || len(files) != 1 || string(files[0].Content) != "inside" {
				t.Fatalf("copied %+v, %v", files, err)
			}
		}
	}
	t.Logf("%d times the file was there", collected)
}

func TestRacingLinksAreNotWrittenThrough(t *testing.T) {
	e, ws, outside := raced(t, swapFolder)
	for range 1500 {
		err := e.FS().PutFiles(t.Context(), ws, []codeexec.PutFile{{Path: "out/file", Content: []byte("overwritten")}, {Path: "out/sub/new", Content: []byte("x")}})
		if err != nil && cubby.CodeOf(err) == 0 {
			t.Fatalf("no code: %v", err)
		}
		if err := e.FS().StageInputs(t.Context(), ws, []codeexec.InputSpec{{From: "workspace://metadata.json", To: "out/new"}}); err != nil && cubby.CodeOf(err) == 0 {
			t.Fatalf("no code: %v", err)
		}
	}
	b, err := os.ReadFile(filepath.Join(outside, "file"))
	if err != nil || string(b) != "secret" {
		t.Errorf("the file outside is now %q, %v", b, err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
		t.Errorf("outside there are %v, %v", names, err)
	}
}

// A program's folder is opened, not named: a link that takes its place later
// does not count.
func TestRacingLinksAreNotRunIn(t *testing.T) {
	e, ws, outside := raced(t, swapFolder)
	ran := 0
	for range 200 {
		r, err := e.Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "pwd", Args: []string{"-P"}, Cwd: "out"})
		if err != nil {
			continue // it was a link then, or nothing
		}
		ran++
		if strings.Contains(r.Stdout, outside) {
			t.Fatalf("it ran in %s", r.Stdout)
		}
	}
	t.Logf("it ran %d times", ran)
}

// A program can move its own workspace away; what stands there then is not
// taken for it.
func TestWorkspaceThatWasReplaced(t *testing.T) {
	e := open(t, local.Config{}).Engine()
	ctx := t.Context()
	mine, err := e.Manager().CreateWorkspace(ctx, "mine", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := e.Manager().CreateWorkspace(ctx, "other", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.FS().PutFiles(ctx, other, []codeexec.PutFile{{Path: "out/secret", Content: []byte("of another")}}); err != nil {
		t.Fatal(err)
	}
	r, err := e.Runner().RunProgram(ctx, mine, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", `mv "$WORKSPACE_DIR" "$WORKSPACE_DIR-moved" && ln -s "$1" "$WORKSPACE_DIR"`, "sh", filepath.Base(other.Path)}})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if files, err := e.FS().Collect(ctx, mine, []string{"**"}); !errors.Is(err, codeexec.ErrWorkspaceGone) {
		t.Errorf("collected %+v, %v", files, err)
	}
	if err := e.FS().PutFiles(ctx, mine, []codeexec.PutFile{{Path: "x"}}); !errors.Is(err, codeexec.ErrWorkspaceGone) {
		t.Errorf("PutFiles: %v", err)
	}
	if err := e.Manager().Cleanup(ctx, mine); err != nil {
		t.Error(err)
	}
	if files, err := e.FS().Collect(ctx, other, []string{"out/*"}); err != nil || len(files) != 1 {
		t.Errorf("the other one now holds %+v, %v", files, err)
	}
	if _, err := os.Lstat(mine.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link is left: %v", err)
	}
}

func TestLinksInside(t *testing.T) {
	e := open(t, local.Config{}).Engine()
	ctx := t.Context()
	ws, err := e.Manager().CreateWorkspace(ctx, "links", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", `mkdir -p work/deep/er; echo x > work/deep/er/f
ln -s "$WORK_DIR/deep" work/absolute; ln -s ../work/absolute/er/f out/chain; ln -s a work/b; ln -s b work/a; ln -s "$WORKSPACE_DIR/../$(basename $WORKSPACE_DIR)/work" out/around`}})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	m, err := e.FS().CollectOutputs(ctx, ws, codeexec.OutputSpec{Globs: []string{"out/*", "work/[ab]"}, Inline: true})
	if err != nil || len(m.Files) != 1 || m.Files[0].Name != "out/chain" || string(m.Files[0].Content) != "x\n" {
		t.Errorf("got %+v, %v", m.Files, err)
	}
	if len(m.Left) != 3 {
		t.Errorf("left: %+v", m.Left)
	}
	// Absolute links into the workspace are followed for every purpose.
	if err := e.FS().StageInputs(ctx, ws, []codeexec.InputSpec{{From: "workspace://work/absolute/er", To: "work/absolute/copy", ReadOnly: true}}); err != nil {
		t.Error(err)
	}
	if r, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "cat", Args: []string{"../copy/f"}, Cwd: "work/absolute/er"}); err != nil || r.Stdout != "x\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := e.Manager().Cleanup(ctx, ws); err != nil {
		t.Error(err)
	}
}

// Folders can be made deeper than any path is long.
func TestDeepFolders(t *testing.T) {
	e := open(t, local.Config{}).Engine()
	ctx := t.Context()
	ws, err := e.Manager().CreateWorkspace(ctx, "deep", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "python3", Args: []string{"-c", `
import os
os.chdir('out')
open('top', 'w').close()
for i in range(1500):
    os.mkdir('d'); os.chdir('d')
`}})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	m, err := e.FS().CollectOutputs(ctx, ws, codeexec.OutputSpec{Globs: []string{"out/**"}})
	if err != nil || len(m.Files) != 1 || !m.LimitsHit {
		t.Errorf("got %+v, %v", m, err)
	}
	if err := e.Manager().Cleanup(ctx, ws); err != nil {
		t.Error(err)
	}
}

// Links can be made so that each takes long to follow.
func TestLinksThatTakeLong(t *testing.T) {
	e := open(t, local.Config{}).Engine()
	ctx := t.Context()
	ws, err := e.Manager().CreateWorkspace(ctx, "slow", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{Cmd: "python3", Args: []string{"-c", `
import os
os.mkdir('work/d')
for n in range(40):
    os.symlink('d/../' * 800 + str(n + 1), f'work/{n}')
open('work/40', 'w').close()
open('out/file', 'w').close()
for n in range(3000):
    os.symlink('../work/0', f'out/l{n}')
`}, Timeout: slow})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	began := time.Now()
	m, err := e.FS().CollectOutputs(ctx, ws, codeexec.OutputSpec{Globs: []string{"out/*"}})
	if err != nil || len(m.Files) != 1 || m.Files[0].Name != "out/file" || !m.LimitsHit {
		t.Errorf("got %d files, %v", len(m.Files), err)
	}
	t.Logf("it took %v", time.Since(began))
}
