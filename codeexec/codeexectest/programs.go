package codeexectest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// slow is more than anything here takes on a machine that is busy.
const slow = 2 * time.Minute

func (w workspaces) runProgram(t *testing.T) {
	p := w.place(t)
	ctx := t.Context()
	run := func(t *testing.T, spec codeexec.RunProgramSpec) codeexec.RunResult {
		t.Helper()
		if spec.Timeout == 0 {
			spec.Timeout = time.Minute
		}
		r, err := p.Runner().RunProgram(ctx, p.ws, spec)
		if err != nil {
			t.Fatalf("RunProgram(%.200v): %v", spec, err)
		}
		return r
	}
	t.Run("streams, exit code, duration", func(t *testing.T) {
		r := run(t, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", "echo out; echo err >&2; exit 3"}})
		if r.Stdout != "out\n" || r.Stderr != "err\n" || r.ExitCode != 3 || r.Duration <= 0 || r.TimedOut || r.Truncated {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("arguments are not a shell's", func(t *testing.T) {
		args := []string{"a b", "", "$HOME", "*", "'\"", "-n", "ü\n", "a=b", `\`}
		r := run(t, codeexec.RunProgramSpec{Cmd: "printf", Args: append([]string{"<%s>"}, args...)})
		if want := "<" + strings.Join(args, "><") + ">"; r.Stdout != want {
			t.Errorf("got %q, want %q", r.Stdout, want)
		}
	})
	t.Run("input", func(t *testing.T) {
		in := strings.Repeat("line\n", 100_000)
		if r := run(t, codeexec.RunProgramSpec{Cmd: "wc", Args: []string{"-c"}, Stdin: in}); strings.TrimSpace(r.Stdout) != "500000" {
			t.Errorf("got %+v", r)
		}
		if r := run(t, codeexec.RunProgramSpec{Cmd: "cat"}); r.Stdout != "" || r.ExitCode != 0 || r.TimedOut {
			t.Errorf("without input: %+v", r)
		}
		if r := run(t, codeexec.RunProgramSpec{Cmd: "true", Stdin: in}); r.ExitCode != 0 {
			t.Errorf("input that is not read: %+v", r)
		}
	})
	t.Run("the workspace's variables", func(t *testing.T) {
		r := run(t, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c",
			`cd "$WORKSPACE_DIR" && ls -d "$SKILLS_DIR" "$WORK_DIR" "$OUTPUT_DIR" "$RUN_DIR" | sed "s#$PWD/##; s#run_.*#run#"; echo "$MINE"; pwd`},
			Env: map[string]string{"MINE": "a b"}})
		if want := "out\nruns/run\nskills\nwork\na b\n" + p.ws.Path + "\n"; r.Stdout != want {
			t.Errorf("got %q, %q; want %q", r.Stdout, r.Stderr, want)
		}
		r = run(t, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", `echo "$WORK_DIR"`}, Env: map[string]string{"WORK_DIR": "/mine"}})
		if r.Stdout != "/mine\n" {
			t.Errorf("the caller's own do not win: %q", r.Stdout)
		}
	})
	t.Run("a clean environment", func(t *testing.T) {
		r := run(t, codeexec.RunProgramSpec{Cmd: "env", CleanEnv: true, Env: map[string]string{"MINE": "1"}})
		var names []string
		for line := range strings.Lines(r.Stdout) {
			name, _, _ := strings.Cut(line, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		if got, want := strings.Join(names, " "), "MINE OUTPUT_DIR PATH RUN_DIR SKILLS_DIR WORKSPACE_DIR WORK_DIR"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("a working directory", func(t *testing.T) {
		p.put(t, codeexec.PutFile{Path: "work/sub/x", Content: []byte("x")})
		if r := run(t, codeexec.RunProgramSpec{Cmd: "cat", Args: []string{"x"}, Cwd: "work/sub"}); r.Stdout != "x" {
			t.Errorf("got %+v", r)
		}
		p.sh(t, "ln -sfn /tmp work/outside")
		for _, bad := range []string{"..", "/tmp", "work/none", "work/outside", "a\x00"} {
			_, err := p.Runner().RunProgram(ctx, p.ws, codeexec.RunProgramSpec{Cmd: "true", Cwd: bad})
			wantCode(t, bad, err, cubby.CodeInvalidArgument, cubby.CodeNotFound)
		}
	})
	t.Run("a command that is not there fails", func(t *testing.T) {
		for _, cmd := range []string{"no-such-command", "no=such"} {
			// 126 where PATH has a folder that may not be searched.
			if r := run(t, codeexec.RunProgramSpec{Cmd: cmd}); r.ExitCode != 127 && r.ExitCode != 126 {
				t.Errorf("%s: %+v", cmd, r)
			}
		}
	})
	t.Run("calls that make no sense", func(t *testing.T) {
		for what, spec := range map[string]codeexec.RunProgramSpec{
			"no command":       {},
			"NUL":              {Cmd: "echo", Args: []string{"a\x00b"}},
			"bad variable":     {Cmd: "true", Env: map[string]string{"A=B": "x"}},
			"empty variable":   {Cmd: "true", Env: map[string]string{"": "x"}},
			"negative timeout": {Cmd: "true", Timeout: -1},
			"giant argument":   {Cmd: "true", Args: []string{strings.Repeat("x", 200_000)}},
		} {
			_, err := p.Runner().RunProgram(ctx, p.ws, spec)
			wantCode(t, what, err, cubby.CodeInvalidArgument)
		}
	})
	t.Run("a timeout ends the whole group and is no error", func(t *testing.T) {
		r := run(t, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c",
			`echo begun; (trap '' TERM; while :; do sleep 0.2; date +%s%N > work/alive; done) & wait`}, Timeout: 2 * time.Second})
		if !r.TimedOut || r.ExitCode != 124 || r.Stdout != "begun\n" {
			t.Errorf("got %+v", r)
		}
		before := p.sh(t, "cat work/alive; sleep 1.5")
		if after := p.sh(t, "cat work/alive"); before != after {
			t.Errorf("a child went on: %s, then %s", before, after)
		}
	})
	t.Run("a caller that gives up ends it", func(t *testing.T) {
		short, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err := p.Runner().RunProgram(short, p.ws, codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"600"}, Timeout: 10 * time.Minute})
		wantCode(t, "RunProgram", err, cubby.CodeCanceled)
		if time.Since(began) > slow {
			t.Errorf("it took %v", time.Since(began))
		}
	})
	t.Run("output is bounded, the program goes on", func(t *testing.T) {
		n := max(w.traits.MaxOutput, 1<<20)
		r := run(t, codeexec.RunProgramSpec{Cmd: "sh", Args: []string{"-c", "head -c " + itoa(n+4096) + " /dev/zero | tr '\\0' x; echo done >&2"}})
		if len(r.Stdout) != n || !r.Truncated || r.Stderr != "done\n" || r.ExitCode != 0 {
			t.Errorf("got %d bytes, truncated %v, %q, exit %d; want %d", len(r.Stdout), r.Truncated, r.Stderr, r.ExitCode, n)
		}
	})
	t.Run("bytes that are no text", func(t *testing.T) {
		if r := run(t, codeexec.RunProgramSpec{Cmd: "printf", Args: []string{`a\377b`}}); r.Stdout != "a\uFFFDb" {
			t.Errorf("got %q", r.Stdout)
		}
	})
	t.Run("many at a time", func(t *testing.T) {
		errs := make(chan error)
		for i := range 8 {
			go func() {
				r, err := p.Runner().RunProgram(ctx, p.ws, codeexec.RunProgramSpec{Cmd: "echo", Args: []string{itoa(i)}, Timeout: time.Minute})
				if err == nil && r.Stdout != itoa(i)+"\n" {
					err = errors.New("got " + r.Stdout + r.Stderr)
				}
				errs <- err
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// Every limit is either named by the capabilities or refused before anything
// runs.
func (w workspaces) limits(t *testing.T) {
	p := w.place(t)
	enforced := p.Describe().Limits
	for name, l := range map[string]codeexec.ResourceLimits{
		"cpus": {CPUs: 0.01}, "memory_bytes": {MemoryBytes: 16 << 20}, "max_pids": {MaxPIDs: 2},
		"disk_bytes": {DiskBytes: 4096}, "file_size_bytes": {FileSizeBytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := p.Runner().RunProgram(t.Context(), p.ws, codeexec.RunProgramSpec{
				Cmd: "sh", Args: []string{"-c", "echo ran > work/ran-" + name}, Limits: l, Timeout: time.Minute,
			})
			if !slices.Contains(enforced, name) {
				if !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
					t.Errorf("it is not among %v; got %+v, %v", enforced, r, err)
				}
			} else if err != nil && !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
				t.Errorf("it is among %v; got %v", enforced, err)
			}
			if err != nil && len(p.collect(t, "work/ran-"+name)) > 0 {
				t.Error("it was refused and ran")
			}
		})
	}
	// What is taken holds: the program that goes over it does not succeed.
	for name, tc := range map[string]struct {
		limit  codeexec.ResourceLimits
		script string
	}{
		"memory_bytes":    {codeexec.ResourceLimits{MemoryBytes: 128 << 20}, `python3 -c 'b = bytearray(600 << 20); b[::4096] = b"x" * len(b[::4096])'`},
		"max_pids":        {codeexec.ResourceLimits{MaxPIDs: 32}, `for i in $(seq 80); do sleep 20 & done; [ $(jobs -p | wc -l) -ge 80 ]; r=$?; kill $(jobs -p); exit $r`},
		"disk_bytes":      {codeexec.ResourceLimits{DiskBytes: 64 << 20}, "head -c 300000000 /dev/zero > work/disk"},
		"file_size_bytes": {codeexec.ResourceLimits{FileSizeBytes: 1 << 20}, "head -c 4194304 /dev/zero > work/big"},
	} {
		if !slices.Contains(enforced, name) {
			continue
		}
		t.Run("over "+name, func(t *testing.T) {
			r, err := p.Runner().RunProgram(t.Context(), p.ws, codeexec.RunProgramSpec{
				Cmd: "sh", Args: []string{"-c", tc.script}, Timeout: 2 * time.Minute, Limits: tc.limit,
			})
			if err == nil && r.ExitCode == 0 {
				t.Errorf("it succeeded: %+v", r)
			} else if err != nil && !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
				t.Error(err)
			}
			for name, content := range p.collect(t, "work/big") {
				if len(content) > 1<<20 {
					t.Errorf("%s has %d bytes", name, len(content))
				}
			}
			p.sh(t, "rm -f work/big work/disk") // and the workspace is intact
		})
	}
	t.Run("a negative limit", func(t *testing.T) {
		_, err := p.Runner().RunProgram(t.Context(), p.ws, codeexec.RunProgramSpec{Cmd: "true", Limits: codeexec.ResourceLimits{MemoryBytes: -1}})
		wantCode(t, "RunProgram", err, cubby.CodeInvalidArgument)
	})
	t.Run("a workspace of a size", func(t *testing.T) {
		ws, err := p.Manager().CreateWorkspace(t.Context(), "sized", codeexec.WorkspacePolicy{MaxDiskBytes: 4096})
		if err == nil {
			err = p.Manager().Cleanup(t.Context(), ws)
			if !slices.Contains(enforced, "disk_bytes") {
				t.Error("it was made although nothing bounds it")
			}
		}
		if err != nil && !errors.Is(err, codeexec.ErrLimitNotEnforceable) {
			t.Error(err)
		}
	})
}

func (w workspaces) startProgram(t *testing.T) {
	p := w.place(t)
	ctx := t.Context()
	start := func(t *testing.T, tty bool, cmd string, args ...string) codeexec.ProgramSession {
		t.Helper()
		s, err := p.Runner().StartProgram(ctx, p.ws, codeexec.InteractiveProgramSpec{
			RunProgramSpec: codeexec.RunProgramSpec{Cmd: cmd, Args: args, Timeout: 5 * time.Minute}, TTY: tty,
		})
		if err != nil {
			t.Fatalf("StartProgram: %v", err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	// await polls until the output holds text.
	await := func(t *testing.T, s codeexec.ProgramSession, text string) string {
		t.Helper()
		var all strings.Builder
		for deadline := time.Now().Add(slow); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			poll := s.Poll(nil)
			all.WriteString(poll.Output)
			if strings.Contains(all.String(), text) {
				return all.String()
			}
			if poll.Status == codeexec.StatusExited {
				break
			}
		}
		t.Fatalf("%q did not come, only %q", text, all.String())
		return ""
	}
	t.Run("question and answer", func(t *testing.T) {
		s := start(t, false, "sh", "-c", `printf 'name? '; read -r n; echo "hello $n"; exit 5`)
		await(t, s, "name? ")
		if err := s.Write("Ada", true); err != nil {
			t.Fatal(err)
		}
		await(t, s, "hello Ada\n")
		r, err := s.Wait(ctx)
		if err != nil || r.ExitCode != 5 || r.Stdout != "name? hello Ada\n" {
			t.Errorf("got %+v, %v", r, err)
		}
		poll := s.Poll(nil)
		if poll.Status != codeexec.StatusExited || poll.ExitCode == nil || *poll.ExitCode != 5 || poll.Output != "" {
			t.Errorf("got %+v", poll)
		}
		wantCode(t, "Write", s.Write("late", true), cubby.CodeConflict)
		if err := errors.Join(s.Kill(0), s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Run("lines by number", func(t *testing.T) {
		s := start(t, false, "sh", "-c", "seq 0 9; echo last")
		if _, err := s.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		three, four := 3, 4
		if poll := s.Poll(&three); poll.Output != "0\n1\n2\n" || poll.Offset != 0 || poll.NextOffset != 3 {
			t.Errorf("got %+v", poll)
		}
		if log := s.Log(&four, &three); log.Output != "4\n5\n6\n" || log.Offset != 4 || log.NextOffset != 7 {
			t.Errorf("got %+v", log)
		}
		if poll := s.Poll(nil); !strings.HasPrefix(poll.Output, "3\n4\n") || poll.Offset != 3 || poll.NextOffset != 11 {
			t.Errorf("got %+v", poll)
		}
		if log := s.Log(nil, nil); strings.Count(log.Output, "\n") != 11 {
			t.Errorf("got %+v", log)
		}
	})
	t.Run("lines of both outputs", func(t *testing.T) {
		s := start(t, false, "sh", "-c", "echo out; echo err >&2")
		if _, err := s.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		// Which is first, the two pipes do not tell.
		if log := s.Log(nil, nil); log.NextOffset != 2 || !strings.Contains(log.Output, "out\n") || !strings.Contains(log.Output, "err\n") {
			t.Errorf("got %+v", log)
		}
	})
	t.Run("it ends when asked", func(t *testing.T) {
		s := start(t, false, "sh", "-c", `trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.1; done`)
		await(t, s, "ready")
		if err := s.Kill(slow); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Wait(ctx); err != nil || !strings.Contains(r.Stdout, "bye") {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("it is ended when it does not", func(t *testing.T) {
		s := start(t, false, "sh", "-c", `trap '' TERM; echo ready; while :; do sleep 0.1; done`)
		await(t, s, "ready")
		if err := s.Kill(300 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Wait(ctx); err == nil && r.ExitCode == 0 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("its time is bounded", func(t *testing.T) {
		s, err := p.Runner().StartProgram(ctx, p.ws, codeexec.InteractiveProgramSpec{
			RunProgramSpec: codeexec.RunProgramSpec{Cmd: "sleep", Args: []string{"600"}, Timeout: time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Wait(ctx); err != nil || !r.TimedOut || r.ExitCode != 124 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("it outlives the context that started it", func(t *testing.T) {
		short, cancel := context.WithCancel(ctx)
		s, err := p.Runner().StartProgram(short, p.ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "cat", Timeout: time.Minute}})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Write("still here", true); err != nil {
			t.Fatal(err)
		}
		await(t, s, "still here")
	})
	t.Run("who waits may stop waiting", func(t *testing.T) {
		s := start(t, false, "sleep", "600")
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := s.Wait(short)
		wantCode(t, "Wait", err, cubby.CodeTimeout)
		if poll := s.Poll(nil); poll.Status != codeexec.StatusRunning || poll.ExitCode != nil {
			t.Errorf("got %+v", poll)
		}
	})
	t.Run("a terminal", func(t *testing.T) {
		if w.traits.NoTTY {
			_, err := p.Runner().StartProgram(ctx, p.ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "tty"}, TTY: true})
			wantCode(t, "StartProgram", err, cubby.CodeUnimplemented)
			return
		}
		// It waits before it ends: Linux may drop what a terminal's session leader
		// writes last, if it ends at once.
		s := start(t, true, "sh", "-c", `[ -t 0 ] && [ -t 1 ] && echo terminal; read -r x; echo "got $x"; read -r x`)
		await(t, s, "terminal\n")
		if err := s.Write("it", true); err != nil {
			t.Fatal(err)
		}
		await(t, s, "got it\n")
		if err := s.Write("", true); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("a workspace that is gone", func(t *testing.T) {
		ws, err := p.Manager().CreateWorkspace(ctx, "short", codeexec.WorkspacePolicy{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Manager().Cleanup(ctx, ws); err != nil {
			t.Fatal(err)
		}
		s, err := p.Runner().StartProgram(ctx, ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{Cmd: "true"}})
		if err == nil {
			_, err = s.Wait(ctx)
		}
		if !errors.Is(err, codeexec.ErrWorkspaceGone) {
			t.Errorf("got %v", err)
		}
	})
}
