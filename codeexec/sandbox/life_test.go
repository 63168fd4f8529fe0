//go:build linux

package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
)

// paused waits until a sandbox is paused.
func paused(t *testing.T, c *cubby.Client, id string) *cubby.Sandbox {
	t.Helper()
	sbx, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		info, err := sbx.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State == cubby.StatePaused {
			return sbx
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not paused")
		}
	}
}

// TestPauseBetweenTurns: a sandbox that nobody uses is paused, and the next use finds
// everything; or it is told what was lost meanwhile.
func TestPauseBetweenTurns(t *testing.T) {
	c := private(t)
	e := open(t, e2b.Config{Client: c, PauseAfter: time.Millisecond})
	first := execute(t, e, in("a", "python", "x = 1\nkeep = open('note', 'w+')\nkeep.write('kept')"))
	ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "a", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2\n", "3\n"} {
		paused(t, c, e.SandboxID())
		r := execute(t, e, in("a", "python", "x += 1\nprint(x)"))
		if r.Output != want || r.StateLost || r.Instance != first.Instance {
			t.Errorf("after a pause: %+v, before it %+v", r, first.Instance)
		}
	}
	paused(t, c, e.SandboxID())
	p, err := e.Engine().Runner().StartProgram(t.Context(), ws, codeexec.InteractiveProgramSpec{
		RunProgramSpec: codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", "read line; echo $line"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // a program that waits is use
	if err := p.Write("there", true); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(t.Context()); err != nil || r.Stdout != "there\n" {
		t.Errorf("a program that waits: %+v, %v", r, err)
	}
	// Somebody brings it back with its files alone.
	sbx := paused(t, c, e.SandboxID())
	if _, err := c.Connect(t.Context(), sbx.ID(), cubby.WithFilesOnly()); err != nil {
		t.Fatal(err)
	}
	if err := sbx.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := execute(t, e, in("a", "python", "print('x' in globals(), open('note').read())"))
	if variables, files := r.Instance.Losses(first.Instance); !r.StateLost || r.FilesLost || !variables || files {
		t.Errorf("its memory was lost: %+v, before %+v", r, first.Instance)
	}
	id := e.SandboxID()
	paused(t, c, id)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), id); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("closed while it was paused: %v", err)
	}
}

// TestAttachToAPausedSandbox: who pauses resumes, and who does not is told.
func TestAttachToAPausedSandbox(t *testing.T) {
	c := private(t)
	e := open(t, e2b.Config{Client: c, PauseAfter: time.Millisecond, KeepSandbox: true})
	execute(t, e, in("a", "python", "x = 41"))
	id := e.SandboxID()
	paused(t, c, id)
	if err := e.Detach(); err != nil {
		t.Fatal(err)
	}
	if _, err := e2b.Attach(t.Context(), e2b.Config{Client: c, SandboxID: id}); cubby.CodeOf(err) != cubby.CodePaused {
		t.Errorf("attached to a paused one: %v", err)
	}
	e, err := e2b.Attach(t.Context(), e2b.Config{Client: c, SandboxID: id, PauseAfter: time.Hour / 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if r := execute(t, e, in("a", "python", "print(x + 1)")); r.Output != "42\n" || r.StateLost {
		t.Errorf("got %+v", r)
	}
	if err := e.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e2b.Create(t.Context(), e2b.Config{Client: c, PauseAfter: time.Hour}); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("a pause after its end: %v", err)
	}
}

// TestTry: each way begins where the conversation is, and goes on there only if it is
// kept.
func TestTry(t *testing.T) {
	c := private(t)
	e := open(t, e2b.Config{Client: c})
	before := execute(t, e, in("a", "python", "x = [1]\nopen('note', 'w').write('one')"))
	trial, err := e.Try(t.Context(), "a", []codeexec.CodeExecutionInput{
		in("", "python", "x.append(2)\nopen('note', 'w').write('two')\nprint(x)"),
		in("", "python", "1/0"),
		in("", "bash", "cat note"),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer trial.Close()
	for i, want := range []string{"[1, 2]\n", "ZeroDivisionError", "one"} {
		if r := trial.Results()[i]; r.Err != nil || !strings.Contains(r.Output, want) || r.StateLost ||
			(i == 1) != (r.Outcome == codeexec.OutcomeFailed) {
			t.Errorf("way %d: %+v", i, r)
		}
	}
	const show = "print(x, open('note').read())"
	if r := execute(t, e, in("a", "python", show)); r.Output != "[1] one\n" {
		t.Errorf("before a way is kept: %+v", r)
	}
	if err := trial.Keep(t.Context(), 3); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("a way that is none: %v", err)
	}
	if err := trial.Keep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, e, in("a", "python", show)); r.Output != "[1, 2] two\n" || r.StateLost || r.Instance != before.Instance {
		t.Errorf("the way that was kept: %+v, before %+v", r, before.Instance)
	}
	if err := trial.Keep(t.Context(), 1); cubby.CodeOf(err) != cubby.CodeConflict {
		t.Errorf("a second way: %v", err)
	}
	left := 0
	for _, err := range c.List(t.Context(), cubby.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		left++
	}
	if left != 1 {
		t.Errorf("%d sandboxes are left", left)
	}
	for _, err := range c.Snapshots(t.Context(), cubby.SnapshotListOptions{}) {
		t.Errorf("a snapshot is left: %v", err)
	}
	if _, err := e.Try(t.Context(), "a", nil); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("no ways: %v", err)
	}
}
