//go:build linux

package container

import (
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// TestShellOnly: an image without Python has Bash, by Docker's exec.
func TestShellOnly(t *testing.T) {
	e := open(t, Config{Image: imageShell, Timeout: 10 * time.Second})
	if got := strings.Join(e.Languages(), " "); got != "bash" {
		t.Fatalf("it has %s", got)
	}
	r := mustRun(t, e, bash("echo out; echo err >&2; pwd; exit 3"))
	if r.ExitCode != 3 || !strings.HasPrefix(r.Blocks[0].Stdout, "out\n/tmp/run/ws_") || r.Blocks[0].Stderr != "err\n" {
		t.Errorf("got %+v", r)
	}
	if r = mustRun(t, e, python("print(1)")); !r.Blocks[0].Unsupported || !strings.Contains(r.Output, "bash") {
		t.Errorf("got %+v", r)
	}
	wantOutput(t, mustRun(t, e, bash("echo kept > f")), "")
	wantOutput(t, mustRun(t, e, bash("cat f")), "kept\n")
	in := bash("echo new > n.txt; cat f")
	in.Collect = []string{"**"}
	if r = mustRun(t, e, in); len(r.OutputFiles) != 1 || r.OutputFiles[0].Name != "n.txt" || string(r.OutputFiles[0].Content) != "new\n" {
		t.Errorf("got %+v", r)
	}
	t.Run("leftovers", func(t *testing.T) {
		id := e.ContainerID("")
		r := mustRun(t, e, bash("sleep 1000 & setsid sleep 1000 & echo left"))
		if r.Output != "left\n" || r.TimedOut {
			t.Errorf("got %+v", r)
		}
		r = mustRun(t, e, bash("ps -e -o comm= | grep -c sleep; :"))
		wantOutput(t, r, "0\n")
		if e.ContainerID("") != id {
			t.Error("the container was replaced")
		}
	})
	t.Run("a timeout takes the container", func(t *testing.T) {
		r, err := e.ExecuteCode(t.Context(), bash("echo begun; sleep 600"))
		if err != nil || !r.TimedOut || r.Output != "begun\n" || r.ExitCode != codeexec.ExitTimedOut {
			t.Errorf("got %+v, %v", r, err)
		}
		r = mustRun(t, e, bash("cat f 2>/dev/null; echo again"))
		if !r.StateLost || !strings.HasSuffix(r.Output, "again\n") {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("a workspace", func(t *testing.T) {
		m, run := e.Engine().Manager(), e.Engine().Runner()
		ws, err := m.CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Engine().FS().PutFiles(t.Context(), ws, []codeexec.PutFile{{Path: "work/f", Content: []byte("f")}}); err != nil {
			t.Fatal(err)
		}
		res, err := run.RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "tr", Args: []string{"a-z", "A-Z"}, Stdin: "shout"})
		if err != nil || res.Stdout != "SHOUT" {
			t.Errorf("got %+v, %v", res, err)
		}
		_, err = run.RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", "sleep 600"}, Timeout: time.Second})
		if err != nil && cubby.CodeOf(err) == 0 {
			t.Errorf("got %v", err)
		}
	})
}
