package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/testenv"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// helperVar makes the test binary a program that uses the library, so that a
// test can kill it.
const helperVar = "CUBBY_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) != "" {
		helper()
	}
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// helper creates a sandbox, says so and waits to be killed.
func helper() {
	c, err := embedded.Open(context.Background(), embedded.Config{Python: "/usr/bin/python3"})
	if os.Getenv(helperVar) == "open" {
		fmt.Println(cubby.CodeOf(err), err)
		os.Exit(0)
	}
	if err == nil {
		_, err = c.Create(context.Background())
	}
	fmt.Println("ready", err)
	select {}
}

func open(t *testing.T) *embedded.Cubby {
	t.Helper()
	testenv.CheckLeaks(t)
	c, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t), Python: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func create(t *testing.T, opts ...cubby.CreateOption) *cubby.Sandbox {
	t.Helper()
	sbx, err := open(t).Create(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return sbx
}

// run executes code that is to reach its end.
func run(t *testing.T, sbx *cubby.Sandbox, code string, opts ...cubby.RunOption) *cubby.Execution {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ex, err := sbx.RunCode(ctx, code, opts...)
	if err != nil {
		t.Fatalf("RunCode: %v", err)
	}
	return ex
}

func TestRunCode(t *testing.T) {
	sbx := create(t)
	if ex := run(t, sbx, "x = 6*7\nprint(x)"); ex.Stdout != "42\n" || ex.Error != nil {
		t.Errorf("got %+v", ex)
	}
	if ex := run(t, sbx, "x + 1"); ex.Text() != "43" {
		t.Errorf("state was lost, or the last expression: %+v", ex)
	}
	if ex := run(t, sbx, "echo $((6*7)); exit 3", cubby.WithLanguage("bash")); ex.Stdout != "42\n" || ex.ExitCode != 3 || ex.Error != nil {
		t.Errorf("bash: %+v", ex)
	}
	if ex := run(t, sbx, "1/0"); ex.Error == nil || ex.Error.Name != "ZeroDivisionError" || ex.ExitCode != 1 {
		t.Errorf("error: %+v", ex)
	}
	if ex := run(t, sbx, "import os; print(os.getuid(), os.getcwd(), os.environ.get('HOME'))"); ex.Stdout != "1000 /home/user /home/user\n" {
		t.Errorf("user: %q", ex.Stdout)
	}
}

func TestUnknownEngine(t *testing.T) {
	testenv.CheckLeaks(t)
	_, err := embedded.Open(t.Context(), embedded.Config{Engine: "walls"})
	if cubby.CodeOf(err) != cubby.CodeUnavailable || !strings.Contains(err.Error(), `no such engine: "walls" (there is gvisor)`) {
		t.Errorf("got code %v: %v", cubby.CodeOf(err), err)
	}
}

func TestSeveralSandboxesAtOnce(t *testing.T) {
	c := open(t)
	errs := make(chan error, 5)
	for i := range 5 {
		go func() {
			sbx, err := c.Create(t.Context())
			if err == nil {
				var ex *cubby.Execution
				if ex, err = sbx.RunCode(t.Context(), fmt.Sprintf("print(%d)", i)); err == nil && ex.Stdout != fmt.Sprintln(i) {
					err = fmt.Errorf("printed %q", ex.Stdout)
				}
			}
			errs <- err
		}()
	}
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestContexts(t *testing.T) {
	sbx := create(t)
	plain, err := sbx.CreateContext(t.Context(), "python", cubby.WithCwd("/tmp"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, sbx, "x = 'default'")
	if ex := run(t, sbx, "import os; print(os.getcwd(), 'x' in globals())", cubby.InContext(plain)); ex.Stdout != "/tmp False\n" {
		t.Errorf("a context of its own: %+v", ex)
	}
	run(t, sbx, "y = 1", cubby.InContext(plain))
	if err := sbx.RestartContext(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if ex := run(t, sbx, "'y' in globals()", cubby.InContext(plain)); ex.Text() != "False" {
		t.Errorf("after a restart: %+v", ex)
	}
	if err := exec.Command("/usr/bin/python3", "-c", "import IPython").Run(); err != nil {
		t.Skip("the Python package IPython is not installed")
	}
	ipython, err := sbx.CreateContext(t.Context(), "python", cubby.WithIPython())
	if err != nil {
		t.Fatal(err)
	}
	if ex := run(t, sbx, "get_ipython().__class__.__mro__[1].__name__", cubby.InContext(ipython)); !strings.Contains(ex.Text(), "InteractiveShell") {
		t.Errorf("IPython's shell: %+v", ex)
	}
	if ex := run(t, sbx, "1/0", cubby.InContext(ipython)); ex.Error == nil || ex.Error.Name != "ZeroDivisionError" {
		t.Errorf("its errors: %+v", ex)
	}
}

// TestTypeScript goes through esbuild in the guest and Node.
func TestTypeScript(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	sbx := create(t)
	ts := cubby.WithLanguage("typescript")
	if ex := run(t, sbx, "interface P { x: number }\nconst p: P = { x: 41 };\np.x + await Promise.resolve(1)", ts); ex.Text() != "42" {
		t.Errorf("%+v", ex)
	}
	if ex := run(t, sbx, "console.log(p.x)", ts); ex.Stdout != "41\n" {
		t.Errorf("its state lasts: %+v", ex)
	}
	if ex := run(t, sbx, "const = 3", ts); ex.Error == nil || ex.Error.Name != "SyntaxError" {
		t.Errorf("%+v", ex)
	}
}

func TestCancelStopsTheCode(t *testing.T) {
	sbx := create(t)
	run(t, sbx, "n = 0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := sbx.RunCode(ctx, "import time\nwhile True:\n    n += 1\n    print(n)\n    time.sleep(0.01)", cubby.OnStdout(func(string) { cancel() }))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	ex := run(t, sbx, "a = n; time.sleep(0.3); print(n > 0, a == n)")
	if ex.Stdout != "True True\n" {
		t.Errorf("the code went on, or its state was lost: %q %+v", ex.Stdout, ex.Error)
	}
}

func TestStreaming(t *testing.T) {
	sbx := create(t)
	var said string
	// The code goes on only when what it printed has come.
	ex := run(t, sbx, "import os, subprocess, time\nprint('a')\nsubprocess.run(['sh', '-c', 'echo b'])\nwhile not os.path.exists('/home/user/seen'): time.sleep(0.01)\nprint('c')",
		cubby.OnStdout(func(text string) {
			if said += text; said == "a\nb\n" {
				if err := sbx.Files().Write(t.Context(), "seen", strings.NewReader(""), 0); err != nil {
					t.Error(err)
				}
			}
		}))
	if ex.Stdout != "a\nb\nc\n" || said != ex.Stdout {
		t.Errorf("%q, streamed %q", ex.Stdout, said)
	}
}

func TestKill(t *testing.T) {
	sbx := create(t)
	begun, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := sbx.RunCode(t.Context(), "import time; print(1); time.sleep(60)",
			cubby.OnStdout(func(string) { close(begun) }))
		done <- err
	}()
	select {
	case <-begun:
	case err := <-done:
		t.Fatalf("the code did not begin: %v", err)
	}
	if err := sbx.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if cubby.CodeOf(err) != cubby.CodeSandboxGone {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the stream of a killed sandbox hangs")
	}
	if _, err := sbx.RunCode(t.Context(), "1"); cubby.CodeOf(err) != cubby.CodeSandboxGone {
		t.Errorf("afterwards: %v", err)
	}
}

func TestSandboxTimeout(t *testing.T) {
	c := open(t)
	sbx, err := c.Create(t.Context(), cubby.WithTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	_, err = sbx.RunCode(t.Context(), "import time; time.sleep(60)")
	if cubby.CodeOf(err) != cubby.CodeSandboxGone || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v", err)
	}
}

func TestLimits(t *testing.T) {
	c := open(t)
	for _, l := range []cubby.Limits{{Memory: 1 << 20}, {CPUs: -1}, {PIDs: 1}} {
		if _, err := c.Create(t.Context(), cubby.WithLimits(l)); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
			t.Errorf("%+v: %v", l, err)
		}
	}
	sbx, err := c.Create(t.Context(), cubby.WithLimits(cubby.Limits{CPUs: 0.5}))
	switch {
	case err == nil && slices.Contains(sbx.LimitsNotEnforced(), "cpu"):
		t.Error("a limit that was asked for does not hold, and was not refused")
	case err != nil && cubby.CodeOf(err) != cubby.CodeInvalidArgument:
		t.Error(err)
	}
}

func TestOpenFails(t *testing.T) {
	file := func(t *testing.T, text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "cubby")
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script := func(t *testing.T, text string) string { return file(t, "#!/bin/sh\n"+text+"\n", 0o755) }
	for _, test := range []struct {
		name   string
		binary func(t *testing.T) string
		code   cubby.Code
		says   string
	}{
		{"no such binary", func(t *testing.T) string { return "/no/such/cubby" }, cubby.CodeUnavailable, "CUBBY_BINARY"},
		{"another version", func(t *testing.T) string { return script(t, `echo '{"version":"0.0.9"}' >&4`) }, cubby.CodeIncompatible, "0.0.9"},
		{"another version, which says why in its own form", func(t *testing.T) string {
			return script(t, `echo '{"error":"this cubby is 0.0.8","version":"0.0.8","mismatch":true}' >&4`)
		}, cubby.CodeIncompatible, "0.0.8"},
		{"one that says why it cannot start", func(t *testing.T) string {
			return script(t, `echo '{"version":"`+version.Build()+`","error":{"code":"conflict","op":"take the folder","message":"taken","hint":"end it"}}' >&4`)
		}, cubby.CodeConflict, "open: take the folder: taken (end it)"},
		{"one that crashes", func(t *testing.T) string {
			return script(t, `printf 'pan' >&2; echo 'ic: boom' >&2; seq 10000 >&2; exit 2`)
		}, cubby.CodeUnavailable, "panic: boom"},
		{"one that is killed", func(t *testing.T) string { return script(t, "kill -9 $$") }, cubby.CodeUnavailable, "killed by signal 9 (SIGKILL)"},
		{"one that is killed: what to do", func(t *testing.T) string { return script(t, "kill -9 $$") }, cubby.CodeUnavailable, "memory (`dmesg` says so); start it again"},
		{"one that is cut off", func(t *testing.T) string { return script(t, "kill -SEGV $$") }, cubby.CodeUnavailable, "its file may be damaged"},
		{"no cubby at all", func(t *testing.T) string { return script(t, "echo hello >&2; exit 2") }, cubby.CodeIncompatible, "hello"},
		{"one without a word", func(t *testing.T) string { return script(t, "exit 0") }, cubby.CodeIncompatible,
			"it said nothing (it must be cubby " + version.Version + ": install"},
		{"no program", func(t *testing.T) string { return file(t, "hello", 0o755) }, cubby.CodeUnavailable,
			"go install github.com/cubby-sandbox/cubby/cmd/cubby@v" + version.Version},
		{"no interpreter", func(t *testing.T) string { return file(t, "#!/no/such/sh\n", 0o755) }, cubby.CodeUnavailable, "damaged, or not for this machine"},
		{"one that cannot be executed", func(t *testing.T) string { return file(t, "", 0o644) }, cubby.CodeUnavailable, "noexec"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.CheckLeaks(t)
			_, err := embedded.Open(t.Context(), embedded.Config{Binary: test.binary(t)})
			if cubby.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got code %v: %v", cubby.CodeOf(err), err)
			}
		})
	}
}

// TestEngineThatDoesNotFit: a cubby that finds no engine says so in its own words, and
// nothing is added to them that would be no remedy.
func TestEngineThatDoesNotFit(t *testing.T) {
	testenv.CheckLeaks(t)
	if os.Getenv("CUBBY_TEST_LINKED") != "" {
		t.Skip("an engine that is linked is not looked for")
	}
	t.Setenv("CUBBY_ENGINE", "/bin/true")
	_, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t)})
	if cubby.CodeOf(err) != cubby.CodeUnavailable || !strings.HasPrefix(err.Error(), "open: CUBBY_ENGINE does not name the cubby-engine of this program") ||
		!strings.Contains(err.Error(), "(unset CUBBY_ENGINE") || strings.Contains(err.Error(), "CUBBY_BINARY") {
		t.Errorf("got code %v: %v", cubby.CodeOf(err), err)
	}
}

// TestUserNamespacesForbidden is a machine that allows no more of them, to a
// user that may not mount.
func TestUserNamespacesForbidden(t *testing.T) {
	testenv.CheckLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-Ur", "sh", "-c",
		"echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin "+self)
	cmd.Env = append(os.Environ(), helperVar+"=open", "CUBBY_BINARY="+testenv.Cubby(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"unavailable", "forbids user namespaces", "user.max_user_namespaces", "cubby doctor"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
}

// TestKilledProcesses kills the program, or the child, in the middle.
func TestKilledProcesses(t *testing.T) {
	for _, victim := range []string{"program", "child", "program and child"} {
		t.Run(victim, func(t *testing.T) {
			testenv.CheckLeaks(t)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), helperVar+"=1", "CUBBY_BINARY="+testenv.Cubby(t))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			n, _ := out.Read(buf)
			if got := string(buf[:n]); got != "ready <nil>\n" {
				t.Fatalf("helper: %q", got)
			}
			children := pids(t, cmd.Process.Pid)
			if victim != "program" {
				for _, pid := range children {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			if victim != "child" {
				cmd.Process.Kill()
			} else {
				time.Sleep(300 * time.Millisecond)
				cmd.Process.Kill()
			}
			cmd.Wait()
			if victim == "program" {
				return // the child cleans up
			}
			// Nobody was left to: the next start does, of what is not just being made
			// and no longer in use.
			until(t, "the run folders are in use no longer", func() bool { return !slices.ContainsFunc(runDirs(), inUse) })
			for _, dir := range runDirs() {
				hour := time.Now().Add(-time.Hour)
				os.Chtimes(dir, hour, hour)
			}
			c, err := embedded.Open(t.Context(), embedded.Config{})
			if err == nil {
				_, err = c.Create(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func runDirs() []string {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "cubby-run-*"))
	return dirs
}

// inUse reports whether a process holds the lock of a run folder.
func inUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, handshake.LockName))
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

func pids(t *testing.T, parent int) []int {
	t.Helper()
	var all []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(b)) {
			var pid int
			fmt.Sscan(f, &pid)
			all = append(all, pid)
		}
	}
	return all
}

// TestLinksNoEngine keeps the promise that importing the library changes
// nothing: none of gVisor's packages come with it.
func TestLinksNoEngine(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command here")
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("no sources here: ", err)
	}
	for line := range bytes.Lines(out) {
		if bytes.HasPrefix(line, []byte("gvisor.dev/")) {
			t.Errorf("links %s", bytes.TrimSpace(line))
		}
	}
}
