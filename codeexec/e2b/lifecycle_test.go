//go:build linux

package e2b_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// client speaks to the server without an executor.
func client(t *testing.T, s *testenv.Server) *cubby.Client {
	t.Helper()
	c, err := cubby.NewClient(cubby.Config{APIURL: s.URL, APIKey: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// state is that of a sandbox, or "gone".
func state(t *testing.T, c *cubby.Client, id string) string {
	t.Helper()
	sbx, err := c.Get(t.Context(), id)
	if cubby.CodeOf(err) == cubby.CodeNotFound {
		return "gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := sbx.Info(t.Context())
	if cubby.CodeOf(err) == cubby.CodeNotFound {
		return "gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.State
}

func kill(t *testing.T, c *cubby.Client, id string) {
	t.Helper()
	sbx, err := c.Get(t.Context(), id)
	if err == nil {
		err = sbx.Kill(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// block is one in any language.
func block(id, language, code string) codeexec.CodeExecutionInput {
	return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: language, Code: code}}, ExecutionID: id}
}

func python(code string) codeexec.CodeExecutionInput {
	return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Language: "python", Code: code}}}
}

func in(id, code string) codeexec.CodeExecutionInput {
	i := python(code)
	i.ExecutionID = id
	return i
}

// beginAndWait is Python that goes on until it is ended; begun waits until it runs.
const beginAndWait = "open('/tmp/begun', 'w').close()\nimport time; time.sleep(600)"

func begun(t *testing.T, c *cubby.Client, id string) {
	t.Helper()
	sbx, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		switch there, err := sbx.Files().Exists(t.Context(), "/tmp/begun"); {
		case err != nil:
			t.Fatal(err)
		case there:
			return
		case time.Now().After(deadline):
			t.Fatal("the code does not begin")
		}
	}
}

// output runs Python that is to reach its end.
func output(t *testing.T, e codeexec.CodeExecutor, i codeexec.CodeExecutionInput) string {
	t.Helper()
	r, err := e.ExecuteCode(t.Context(), i)
	if err != nil || r.Outcome != codeexec.OutcomeOK {
		t.Fatalf("got %+v, %v", r, err)
	}
	return r.Output
}

func wantCode(t *testing.T, what string, err error, code cubby.Code) {
	t.Helper()
	if cubby.CodeOf(err) != code {
		t.Errorf("%s: got %v (%v), want %v", what, err, cubby.CodeOf(err), code)
	}
}

// Who ends a sandbox, and who does not.
func TestWhoEndsTheSandbox(t *testing.T) {
	s := testenv.Serve(t)
	c := client(t, s)
	open := func(t *testing.T, cfg e2b.Config) *e2b.CodeExecutor {
		t.Helper()
		e, err := e2b.Create(t.Context(), at(s, cfg))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	closed := func(t *testing.T, e *e2b.CodeExecutor) {
		t.Helper()
		_, err := e.ExecuteCode(t.Context(), python("1"))
		wantCode(t, "ExecuteCode", err, cubby.CodeConflict)
		_, err = e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
		wantCode(t, "CreateWorkspace", err, cubby.CodeConflict)
	}
	t.Run("Close ends what the executor made", func(t *testing.T) {
		e := open(t, e2b.Config{})
		id := e.SandboxID()
		if err := errors.Join(e.Close(), e.Close()); err != nil || state(t, c, id) != "gone" {
			t.Errorf("got %v, %s", err, state(t, c, id))
		}
		closed(t, e)
	})
	t.Run("and not what is to be kept, or was there before", func(t *testing.T) {
		e := open(t, e2b.Config{KeepSandbox: true})
		id := e.SandboxID()
		output(t, e, python("kept = 41"))
		if err := e.Close(); err != nil || state(t, c, id) != cubby.StateRunning {
			t.Fatalf("got %v, %s", err, state(t, c, id))
		}
		again, err := e2b.Attach(t.Context(), at(s, e2b.Config{SandboxID: id}))
		if err != nil {
			t.Fatal(err)
		}
		if again.SandboxID() != id {
			t.Errorf("attached to %s instead of %s", again.SandboxID(), id)
		}
		if got := output(t, again, python("print(kept + 1)")); got != "42\n" {
			t.Errorf("the empty id's variables are not there: %q", got)
		}
		if err := again.Close(); err != nil || state(t, c, id) != cubby.StateRunning {
			t.Errorf("got %v, %s", err, state(t, c, id))
		}
		closed(t, again)
		if err := again.Destroy(t.Context()); err != nil || state(t, c, id) != "gone" {
			t.Errorf("Destroy: got %v, %s", err, state(t, c, id))
		}
	})
	t.Run("variables and files are there for who attaches with the same execution id", func(t *testing.T) {
		e := create(t, at(s, e2b.Config{KeepSandbox: true}))
		output(t, e, in("a", "kept = 41\nopen('mine', 'w').write('a')"))
		if r, err := e.ExecuteCode(t.Context(), block("a", "js", "var kept = 1")); err != nil || r.Outcome != codeexec.OutcomeOK {
			t.Fatalf("got %+v, %v", r, err)
		}
		output(t, e, in("b", "kept = 'b'"))
		last, err := e.ExecuteCode(t.Context(), in("a", "1"))
		if err == nil {
			err = e.Close() // the sandbox is kept
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := e2b.Attach(t.Context(), at(s, e2b.Config{SandboxID: e.SandboxID()}))
		if err != nil {
			t.Fatal(err)
		}
		defer again.Destroy(context.Background())
		for _, tc := range []struct {
			in   codeexec.CodeExecutionInput
			want string
		}{
			{in("a", "print(kept + 1, open('mine').read())"), "42 a\n"}, {block("a", "js", "console.log(kept)"), "1\n"},
			{block("a", "bash", "cat mine"), "a"}, {in("b", "print(kept)"), "b\n"}, {in("new", "print('kept' in globals())"), "False\n"},
		} {
			r, err := again.ExecuteCode(t.Context(), tc.in)
			if err != nil || r.Output != tc.want || r.StateLost || r.Instance.ID != last.Instance.ID {
				t.Errorf("%s: got %+v, %v, want %q", tc.in.ExecutionID, r, err, tc.want)
			}
		}
	})
	t.Run("and who finds no variables is told", func(t *testing.T) {
		e := open(t, e2b.Config{})
		output(t, e, in("a", "kept = 41"))
		if err := e.Detach(); err != nil {
			t.Fatal(err)
		}
		sbx, err := c.Get(t.Context(), e.SandboxID())
		if err != nil {
			t.Fatal(err)
		}
		kernels, err := sbx.Contexts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range kernels {
			if strings.Contains(k.Cwd, "conversations") {
				err = errors.Join(err, sbx.RemoveContext(t.Context(), k))
			}
		}
		again, aerr := e2b.Attach(t.Context(), at(s, e2b.Config{SandboxID: e.SandboxID()}))
		if err = errors.Join(err, aerr); err != nil {
			t.Fatal(err)
		}
		defer again.Destroy(context.Background())
		r, err := again.ExecuteCode(t.Context(), in("a", "print('kept' in globals())"))
		if err != nil || r.Output != "False\n" || !r.StateLost || r.FilesLost {
			t.Errorf("got %+v, %v", r, err)
		}
		// Somebody restarts its kernel.
		for _, id := range []string{"", "a"} {
			before, err := again.ExecuteCode(t.Context(), in(id, "kept = 1"))
			if err != nil || before.StateLost {
				t.Errorf("%q: got %+v, %v", id, before, err)
			}
			kernels, err := sbx.Contexts(t.Context())
			for _, k := range kernels {
				if k.Language == "python" && strings.Contains(k.Cwd, "conversations") == (id != "") {
					err = errors.Join(err, sbx.RestartContext(t.Context(), k))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := again.ExecuteCode(t.Context(), in(id, "print('kept' in globals())"))
			variables, files := r.Instance.Losses(before.Instance)
			if err != nil || r.Output != "False\n" || !r.StateLost || r.FilesLost || !variables || files {
				t.Errorf("%q: got %+v, %v, before %+v", id, r, err, before.Instance)
			}
		}
	})
	t.Run("Detach lets go, and the programs go on", func(t *testing.T) {
		e := open(t, e2b.Config{})
		id := e.SandboxID()
		ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Engine().Runner().StartProgram(t.Context(), ws, codeexec.InteractiveProgramSpec{
			RunProgramSpec: codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"6789"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Detach(); err != nil {
			t.Error(err)
		}
		_, err = p.Wait(t.Context())
		wantCode(t, "Wait", err, cubby.CodeConflict)
		closed(t, e)
		again := open(t, e2b.Config{SandboxID: id})
		if got := output(t, again, python("import subprocess; print(subprocess.run(['pgrep', '-fc', 'sleep 6789'], capture_output=True, text=True).stdout)")); strings.HasPrefix(got, "0") {
			t.Errorf("the program has ended: %q", got)
		}
		if err := errors.Join(again.Destroy(t.Context()), again.Destroy(t.Context()), again.Close()); err != nil || state(t, c, id) != "gone" {
			t.Errorf("got %v, %s", err, state(t, c, id))
		}
	})
	t.Run("Close ends what is under way", func(t *testing.T) {
		e := open(t, e2b.Config{})
		errs := make(chan error)
		go func() {
			_, err := e.ExecuteCode(context.Background(), python(beginAndWait))
			errs <- err
		}()
		begun(t, c, e.SandboxID())
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		wantCode(t, "ExecuteCode", <-errs, cubby.CodeConflict)
	})
	t.Run("a start that fails leaves nothing", func(t *testing.T) {
		_, err := e2b.Create(t.Context(), at(s, e2b.Config{Limits: codeexec.ResourceLimits{DiskBytes: 64 << 20, FileSizeBytes: 1 << 20}}))
		if !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
			t.Errorf("got %v", err)
		}
		for info, err := range c.List(t.Context(), cubby.ListOptions{}) {
			t.Errorf("there is %s, %v", info.ID, err)
		}
	})
}

func TestGone(t *testing.T) {
	s := testenv.Serve(t)
	c := client(t, s)
	t.Run("attaching to nothing", func(t *testing.T) {
		_, err := e2b.Attach(t.Context(), at(s, e2b.Config{}))
		wantCode(t, "without an id", err, cubby.CodeInvalidArgument)
		if err == nil || !strings.Contains(err.Error(), "Config.SandboxID") {
			t.Errorf("it does not name the field: %v", err)
		}
		for _, open := range []func(context.Context, e2b.Config) (*e2b.CodeExecutor, error){e2b.Create, e2b.Attach} {
			_, err := open(t.Context(), at(s, e2b.Config{SandboxID: "inotthere000000000000"}))
			wantCode(t, "an id that is gone", err, cubby.CodeSandboxGone)
		}
	})
	t.Run("between two calls", func(t *testing.T) {
		e := create(t, at(s, e2b.Config{}))
		output(t, e, python("x = 1"))
		kill(t, c, e.SandboxID())
		for range 2 {
			_, err := e.ExecuteCode(t.Context(), python("print(x)"))
			wantCode(t, "ExecuteCode", err, cubby.CodeSandboxGone)
		}
		_, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
		wantCode(t, "CreateWorkspace", err, cubby.CodeSandboxGone)
	})
	t.Run("while code runs: the code is not run again", func(t *testing.T) {
		var recreated []string
		e, err := e2b.CreateOrRecreate(t.Context(), at(s, e2b.Config{}), func(old string) { recreated = append(recreated, old) })
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		old := e.SandboxID()
		output(t, e, in("a", "x = 1"))
		ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		sbx, err := c.Get(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		// The code says that it runs, and waits.
		type end struct {
			r   codeexec.CodeExecutionResult
			err error
		}
		ended := make(chan end)
		go func() {
			r, err := e.ExecuteCode(t.Context(), in("a", beginAndWait))
			ended <- end{r, err}
		}()
		begun(t, c, old)
		if err := sbx.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-ended
		wantCode(t, "ExecuteCode", got.err, cubby.CodeSandboxGone)
		if got.r.Outcome != codeexec.OutcomeFailed || len(recreated) != 0 {
			t.Errorf("got %+v, recreated %v", got.r, recreated)
		}
		// The next call gets another.
		r, err := e.ExecuteCode(t.Context(), in("a", "import os.path; print(os.path.exists('/tmp/begun'), 'x' in globals())"))
		if err != nil || r.Output != "False False\n" || !r.StateLost {
			t.Errorf("got %+v, %v", r, err)
		}
		if !slices.Equal(recreated, []string{old}) || e.SandboxID() == old {
			t.Errorf("recreated %v, now %s", recreated, e.SandboxID())
		}
		if r, err := e.ExecuteCode(t.Context(), in("a", "1")); err != nil || r.StateLost {
			t.Errorf("told twice: %+v, %v", r, err)
		}
		if r, err := e.ExecuteCode(t.Context(), in("b", "1")); err != nil || r.StateLost {
			t.Errorf("a new conversation has lost nothing: %+v, %v", r, err)
		}
		// What was in the old one is lost, and its workspaces say so.
		_, err = e.Engine().Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "true"})
		if !errors.Is(err, codeexec.ErrWorkspaceStale) || !codeexec.IsWorkspaceRetrySafe(err) {
			t.Errorf("got %v", err)
		}
		if err := e.Engine().Manager().Cleanup(t.Context(), ws); err != nil {
			t.Error(err)
		}
	})
	t.Run("while a program runs", func(t *testing.T) {
		e := create(t, at(s, e2b.Config{}))
		ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Engine().Runner().StartProgram(t.Context(), ws, codeexec.InteractiveProgramSpec{
			RunProgramSpec: codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"600"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		kill(t, c, e.SandboxID())
		_, err = p.Wait(t.Context())
		if cubby.CodeOf(err) != cubby.CodeSandboxGone || codeexec.IsWorkspaceRetrySafe(err) {
			t.Errorf("got %v", err)
		}
		_, err = e.Engine().FS().Collect(t.Context(), ws, []string{"**"})
		if !errors.Is(err, codeexec.ErrWorkspaceStale) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a first sandbox that is gone already", func(t *testing.T) {
		var recreated []string
		e, err := e2b.CreateOrRecreate(t.Context(), at(s, e2b.Config{SandboxID: "inotthere000000000000"}), func(old string) { recreated = append(recreated, old) })
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(recreated, []string{"inotthere000000000000"}) || output(t, e, python("print(1)")) != "1\n" {
			t.Errorf("recreated %v", recreated)
		}
		// An id was given, so its place is somebody's to keep.
		if err := e.Close(); err != nil || state(t, c, e.SandboxID()) != cubby.StateRunning {
			t.Errorf("got %v, %s", err, state(t, c, e.SandboxID()))
		}
		if err := e.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An idle sandbox ends; one that is used does not, however long that takes.
func TestIdleTimeout(t *testing.T) {
	s := testenv.Serve(t)
	c := client(t, s)
	const idle = 6 * time.Second
	e := create(t, at(s, e2b.Config{IdleTimeout: idle}))
	output(t, e, python("import time; time.sleep(9)")) // longer than the timeout
	if got := state(t, c, e.SandboxID()); got != cubby.StateRunning {
		t.Fatalf("it is %s", got)
	}
	ws, err := e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Engine().Runner().RunProgram(t.Context(), ws, codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"9"}})
	if err != nil || r.ExitCode != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	for deadline := time.Now().Add(2 * time.Minute); state(t, c, e.SandboxID()) != "gone"; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
	}
	_, err = e.ExecuteCode(t.Context(), python("1"))
	wantCode(t, "ExecuteCode", err, cubby.CodeSandboxGone)
}

// A whole life is over when it is, however busy.
func TestSandboxTimeout(t *testing.T) {
	s := testenv.Serve(t)
	e := create(t, at(s, e2b.Config{SandboxTimeout: 5 * time.Second}))
	_, err := e.ExecuteCode(t.Context(), python("import time; time.sleep(100)"))
	wantCode(t, "ExecuteCode", err, cubby.CodeSandboxGone)
}

func TestLimits(t *testing.T) {
	s := testenv.Serve(t)
	asked := codeexec.ResourceLimits{MemoryBytes: 200 << 20, MaxPIDs: 64, DiskBytes: 64 << 20, FileSizeBytes: 64 << 20}
	e := create(t, at(s, e2b.Config{Limits: asked, KeepSandbox: true}))
	defer e.Destroy(context.Background())
	t.Run("disk and file size", func(t *testing.T) {
		r, err := e.ExecuteCode(t.Context(), python("open('big', 'wb').write(bytes(80 << 20))"))
		if err != nil || r.Outcome != codeexec.OutcomeFailed || r.Limit != "disk" {
			t.Errorf("got %+v, limit %q, %v", r, r.Limit, err)
		}
		output(t, e, python("import os; os.path.exists('big') and os.remove('big')"))
	})
	t.Run("memory", func(t *testing.T) {
		r, err := e.ExecuteCode(t.Context(), python("x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"))
		if err != nil || r.Outcome != codeexec.OutcomeFailed {
			t.Errorf("got %+v, %v", r, err)
		}
		if r.Limit == "memory" && (r.ExitCode != codeexec.ExitOutOfMemory || !r.StateLost) {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("processes", func(t *testing.T) {
		r, err := e.ExecuteCode(t.Context(), python("import subprocess\nps = [subprocess.Popen(['sleep', '60']) for _ in range(200)]"))
		if err != nil || r.Outcome != codeexec.OutcomeFailed || r.Limit != "processes" {
			t.Errorf("got %+v, limit %q, %v", r, r.Limit, err)
		}
	})
	t.Run("the engine names what holds", func(t *testing.T) {
		d := e.Engine().Describe()
		for _, name := range []string{"memory_bytes", "max_pids", "disk_bytes"} {
			if !slices.Contains(d.Limits, name) {
				t.Errorf("%s is not among %v", name, d.Limits)
			}
		}
		if d.Isolation != "remote" || d.MaxDiskBytes != asked.DiskBytes {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("whoever attaches may ask for what holds, and for no less", func(t *testing.T) {
		again := create(t, at(s, e2b.Config{SandboxID: e.SandboxID(), Limits: asked}))
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		for _, l := range []codeexec.ResourceLimits{{MemoryBytes: 100 << 20}, {MaxPIDs: 32}, {DiskBytes: 1 << 20}, {FileSizeBytes: 1 << 20}} {
			_, err := e2b.Attach(t.Context(), at(s, e2b.Config{SandboxID: e.SandboxID(), Limits: l}))
			if !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
				t.Errorf("%+v: got %v", l, err)
			}
		}
	})
}
