package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// bounded is a context for what is to come to its end by itself.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// until waits for what another process does in its own time.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// processes counts the processes of the sandbox whose command line holds mark.
func processes(t *testing.T, sbx *cubby.Sandbox, mark string) int {
	t.Helper()
	ex := run(t, sbx, fmt.Sprintf(`
import glob
n = 0
for name in glob.glob("/proc/[0-9]*/cmdline"):
    try: n += %q in open(name).read().replace("\0", " ")
    except OSError: pass
print(n)`, mark))
	n, err := strconv.Atoi(strings.TrimSpace(ex.Stdout))
	if err != nil {
		t.Fatalf("%+v", ex)
	}
	return n
}

func TestCommandsRun(t *testing.T) {
	sbx := create(t, cubby.WithSandboxEnv(map[string]string{"FROM": "sandbox", "BOTH": "sandbox"}))
	c := sbx.Commands()
	for _, tt := range []struct {
		name, line string
		opts       []cubby.CommandOption
		want       cubby.CommandResult
	}{
		{"output and status", "echo out; echo err >&2; exit 3", nil,
			cubby.CommandResult{Stdout: "out\n", Stderr: "err\n", ExitCode: 3, Status: "exit status 3"}},
		{"a signal is status -1", "kill -9 $$", nil, cubby.CommandResult{ExitCode: -1, Status: "signal: killed"}},
		{"no such program", "no-such-program 2>/dev/null", nil, cubby.CommandResult{ExitCode: 127, Status: "exit status 127"}},
		{"the user's shell", `id -un; pwd; echo "$HOME $FROM"`, nil,
			cubby.CommandResult{Stdout: "user\n/home/user\n/home/user sandbox\n", Status: "exit status 0"}},
		{"root", "id -u; pwd", []cubby.CommandOption{cubby.WithUser("root"), cubby.WithCwd("/tmp")},
			cubby.CommandResult{Stdout: "0\n/tmp\n", Status: "exit status 0"}},
		{"environment", `echo "$FROM $BOTH $OWN"`, []cubby.CommandOption{cubby.WithEnv(map[string]string{"BOTH": "call", "OWN": "a b"})},
			cubby.CommandResult{Stdout: "sandbox call a b\n", Status: "exit status 0"}},
		{"nothing to read", "cat; echo over", nil, cubby.CommandResult{Stdout: "over\n", Status: "exit status 0"}},
		{"input", "tr a-z A-Z", []cubby.CommandOption{cubby.WithStdin(strings.NewReader("loud\n"))},
			cubby.CommandResult{Stdout: "LOUD\n", Status: "exit status 0"}},
		{"input that is not read", "exit 2", []cubby.CommandOption{cubby.WithStdin(strings.NewReader(strings.Repeat("x", 4<<20)))},
			cubby.CommandResult{ExitCode: 2, Status: "exit status 2"}},
		{"out of time", "echo begun; sleep 1000", []cubby.CommandOption{cubby.WithTimeout(2 * time.Second)},
			cubby.CommandResult{Stdout: "begun\n", ExitCode: 124, TimedOut: true, Status: "timed out"}},
		{"a bound on output", "printf 'éé'; printf x >&2", []cubby.CommandOption{cubby.WithMaxOutput(3)},
			cubby.CommandResult{Stdout: "é", Stderr: "x", Truncated: true, Status: "exit status 0"}},
		{"a terminal", "test -t 0 && stty size; echo $TERM", []cubby.CommandOption{cubby.WithPTY(101, 42)},
			cubby.CommandResult{Stdout: "42 101\r\nxterm-256color\r\n", Status: "exit status 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Run(bounded(t), tt.line, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if got.Duration <= 0 {
				t.Errorf("it took %v", got.Duration)
			}
			got.Duration = 0
			if *got != tt.want {
				t.Errorf("got  %+v\nwant %+v", *got, tt.want)
			}
		})
	}
	t.Run("arguments as they are", func(t *testing.T) {
		got, err := c.Exec(bounded(t), []string{"printf", "%s|", "a b", "$HOME", "", "'"})
		if err != nil || got.Stdout != "a b|$HOME||'|" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestCommandsThatCannotStart(t *testing.T) {
	sbx := create(t)
	c := sbx.Commands()
	for _, tt := range []struct {
		name string
		argv []string
		opts []cubby.CommandOption
		code cubby.Code
	}{
		{"no command", nil, nil, cubby.CodeInvalidArgument},
		{"no program of that name", []string{"no-such-program"}, nil, cubby.CodeInvalidArgument},
		{"no such user", []string{"true"}, []cubby.CommandOption{cubby.WithUser("nobody-at-all")}, cubby.CodeUnauthenticated},
		{"no such folder", []string{"true"}, []cubby.CommandOption{cubby.WithCwd("/nowhere")}, cubby.CodeInvalidArgument},
		{"a bad variable", []string{"true"}, []cubby.CommandOption{cubby.WithEnv(map[string]string{"A=B": "c"})}, cubby.CodeInvalidArgument},
		{"a negative timeout", []string{"true"}, []cubby.CommandOption{cubby.WithTimeout(-1)}, cubby.CodeInvalidArgument},
		{"arguments too long", []string{"true", strings.Repeat("x", 3<<20)}, nil, cubby.CodeInvalidArgument},
		{"a terminal with an end", []string{"cat"}, []cubby.CommandOption{cubby.WithStdin(strings.NewReader("")), cubby.WithPTY(80, 24)}, cubby.CodeInvalidArgument},
		{"two inputs", []string{"true"}, []cubby.CommandOption{cubby.WithStdin(strings.NewReader("")), cubby.WithOpenStdin()}, cubby.CodeInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := c.Exec(bounded(t), tt.argv, tt.opts...); cubby.CodeOf(err) != tt.code {
				t.Errorf("got %v (%v), want %v", err, cubby.CodeOf(err), tt.code)
			}
		})
	}
	if _, err := c.Connect(bounded(t), 1<<30); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("connected to nothing: %v", err)
	}
	if err := c.Kill(bounded(t), 1<<30); err != nil {
		t.Errorf("what has ended cannot be killed: %v", err)
	}
}

// TestCommandsCancelled: a Run whose context ends leaves nothing running, not
// even what the command itself has started.
func TestCommandsCancelled(t *testing.T) {
	sbx := create(t)
	ctx, cancel := context.WithCancel(bounded(t))
	res, err := sbx.Commands().Run(ctx, "echo begun; sleep 4711 | sleep 4711", cubby.OnStdout(func(string) {
		until(t, "it runs", func() bool { return processes(t, sbx, "sleep 4711") >= 2 })
		cancel()
	}))
	if cubby.CodeOf(err) != cubby.CodeCanceled || !errors.Is(err, context.Canceled) || res == nil || res.Stdout != "begun\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	until(t, "the cancelled command is gone", func() bool { return processes(t, sbx, "sleep 4711") == 0 })
}

// TestCommandsCancelledEarly cancels at every moment of a start.
func TestCommandsCancelledEarly(t *testing.T) {
	sbx := create(t)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(bounded(t), time.Duration(i)*2*time.Millisecond)
			defer cancel()
			if _, err := sbx.Commands().Run(ctx, "sleep 4712"); cubby.CodeOf(err) != cubby.CodeTimeout {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
	until(t, "the cancelled commands are gone", func() bool { return processes(t, sbx, "sleep 4712") == 0 })
}

// TestCommandsDetached: the end of Start's context lets go of a command, which
// goes on and is found again.
func TestCommandsDetached(t *testing.T) {
	sbx := create(t)
	c := sbx.Commands()
	ctx, cancel := context.WithCancel(t.Context())
	cmd, err := c.Start(ctx, "read line; echo heard $line; exit 5", cubby.WithOpenStdin(), cubby.WithTag("listener"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if res, err := cmd.Wait(bounded(t)); cubby.CodeOf(err) != cubby.CodeCanceled {
		t.Errorf("a command that was let go of ended: %+v, %v", res, err)
	}
	list, err := c.List(bounded(t))
	if err != nil || len(list) != 1 || list[0].PID != cmd.PID() || list[0].Tag != "listener" || list[0].Argv[0] != "/bin/bash" {
		t.Fatalf("listed %+v, %v", list, err)
	}
	for _, connect := range []func() (*cubby.Command, error){
		func() (*cubby.Command, error) { return c.Connect(bounded(t), cmd.PID()) },
		func() (*cubby.Command, error) { return c.ConnectTag(bounded(t), "listener") },
	} {
		again, err := connect()
		if err != nil || again.PID() != cmd.PID() {
			t.Fatalf("connected to %v, %v", again, err)
		}
		again.Detach()
		<-again.Done()
	}
	again, err := c.Connect(bounded(t), cmd.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Write(bounded(t), []byte("you\n")); err != nil {
		t.Fatal(err)
	}
	res, err := again.Wait(bounded(t))
	if err != nil || res.Stdout != "heard you\n" || res.ExitCode != 5 {
		t.Errorf("got %+v, %v", res, err)
	}
	if late, err := c.Connect(bounded(t), cmd.PID()); err != nil {
		t.Errorf("too late: %v", err)
	} else if res, err := late.Wait(bounded(t)); err != nil || res.ExitCode != 5 {
		t.Errorf("told late: %+v, %v", res, err)
	}
	if err := again.Write(bounded(t), []byte("x")); cubby.CodeOf(err) != cubby.CodeNotFound {
		t.Errorf("wrote to a command that has ended: %v", err)
	}
}

func TestCommandsTalkedTo(t *testing.T) {
	sbx := create(t)
	cmd, err := sbx.Commands().StartExec(bounded(t), []string{"cat"}, cubby.WithOpenStdin())
	if err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := cmd.Wait(waiting); cubby.CodeOf(err) != cubby.CodeTimeout {
		t.Errorf("cat ended without an end of its input: %v", err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // more than a pipe and a message hold
	if err := cmd.Write(bounded(t), big); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cmd.CloseStdin(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	res, err := cmd.Wait(bounded(t))
	if err != nil || res.Stdout != string(big) || res.ExitCode != 0 {
		t.Errorf("cat said %d bytes, %v", len(res.Stdout), err)
	}
}

func TestCommandsSignalled(t *testing.T) {
	sbx := create(t)
	for _, tt := range []struct {
		name   string
		signal func(*cubby.Command) error
		status string
	}{
		{"term", func(c *cubby.Command) error { return c.Signal(t.Context(), cubby.SignalTerm) }, "exit status 9"},
		{"kill", func(c *cubby.Command) error { return c.Kill(t.Context()) }, "signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ready := make(chan struct{}, 1)
			cmd, err := sbx.Commands().Start(bounded(t), "trap 'exit 9' TERM; sleep 4713 & echo ready; wait",
				cubby.OnStdout(func(string) { ready <- struct{}{} }))
			if err != nil {
				t.Fatal(err)
			}
			<-ready
			if err := tt.signal(cmd); err != nil {
				t.Fatal(err)
			}
			if res, err := cmd.Wait(bounded(t)); err != nil || res.Status != tt.status {
				t.Errorf("got %+v, %v", res, err)
			}
			until(t, "its children are gone, too", func() bool { return processes(t, sbx, "sleep 4713") == 0 })
			if err := cmd.Kill(t.Context()); err != nil {
				t.Errorf("killed again: %v", err)
			}
			if err := cmd.Signal(t.Context(), cubby.SignalTerm); cubby.CodeOf(err) != cubby.CodeNotFound {
				t.Errorf("signalled again: %v", err)
			}
		})
	}
}

// TestCommandsTerminal types into a login shell.
func TestCommandsTerminal(t *testing.T) {
	sbx := create(t)
	c := sbx.Commands()
	cmd, err := c.Start(bounded(t), "", cubby.WithPTY(80, 24))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Resize(bounded(t), 133, 55); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Write(bounded(t), []byte("stty size; echo $((6*7))-\n")); err != nil {
		t.Fatal(err)
	}
	other, err := c.Connect(bounded(t), cmd.PID(), cubby.WithPTY(132, 50))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Write(bounded(t), []byte("stty size; exit 4\n")); err != nil {
		t.Fatal(err)
	}
	res, err := cmd.Wait(bounded(t))
	if err != nil || res.ExitCode != 4 {
		t.Fatalf("got %+v, %v", res, err)
	}
	for _, want := range []string{"42-", "50 132"} {
		if !strings.Contains(res.Stdout, want) {
			t.Errorf("%q is not in %q", want, res.Stdout)
		}
	}
}

// TestCommandsManyAtOnce: each gets its own output, whole and in order.
func TestCommandsManyAtOnce(t *testing.T) {
	sbx := create(t)
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			var want strings.Builder
			for j := range 20 {
				fmt.Fprintln(&want, i, j+1)
			}
			var heard strings.Builder
			res, err := sbx.Commands().Exec(bounded(t),
				[]string{"sh", "-c", fmt.Sprintf("i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo %d $i; done; exit %d", i, i%7)},
				cubby.OnStdout(func(s string) { heard.WriteString(s) }))
			if err != nil || res.Stdout != want.String() || heard.String() != res.Stdout || res.ExitCode != i%7 {
				t.Errorf("command %d: %+v, heard %q, %v", i, res, heard.String(), err)
			}
		})
	}
	all.Wait()
}

func TestCommandsMuchOutput(t *testing.T) {
	sbx := create(t)
	const much = 100_000_000
	res, err := sbx.Commands().Run(bounded(t), fmt.Sprintf("head -c %d /dev/zero; echo over >&2", much))
	if err != nil || len(res.Stdout) != cubby.DefaultMaxOutput || !res.Truncated || res.Stderr != "over\n" {
		t.Errorf("kept %d bytes, truncated %v, %v", len(res.Stdout), res.Truncated, err)
	}
	var n counter
	res, err = sbx.Commands().Run(bounded(t), fmt.Sprintf("head -c %d /dev/zero", much), cubby.StdoutTo(&n))
	if err != nil || n != much || res.Stdout != "" || res.Truncated {
		t.Errorf("wrote %d bytes, %+v, %v", n, res, err)
	}
}

type counter int64

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

// full is a writer with a bound.
type full struct{ left int }

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

type failing struct{ io.Reader }

func (f failing) Read(b []byte) (int, error) {
	if n, err := f.Reader.Read(b); err == nil {
		return n, nil
	}
	return 0, errFull
}

// TestCommandsWhoseCallerFails: a reader or a writer of the caller's that fails
// ends the command, and its error is the call's.
func TestCommandsWhoseCallerFails(t *testing.T) {
	sbx := create(t)
	for name, o := range map[string]cubby.CommandOption{
		"writer": cubby.StdoutTo(&full{1000}),
		"reader": cubby.WithStdin(failing{strings.NewReader("half of it")}),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sbx.Commands().Run(bounded(t), "cat; while sleep 0.01; do seq 1 100; done; : 4714", o); !errors.Is(err, errFull) {
				t.Errorf("got %v", err)
			}
			until(t, "the command is gone", func() bool { return processes(t, sbx, ": 4714") == 0 })
		})
	}
}

// TestSandboxKilledDuringCommand: what was said before is kept, and the error
// says that the sandbox is gone.
func TestSandboxKilledDuringCommand(t *testing.T) {
	sbx := create(t)
	res, err := sbx.Commands().Run(bounded(t), "echo begun; sleep 1000", cubby.OnStdout(func(string) {
		go func() { _ = sbx.Kill(context.Background()) }()
	}))
	if cubby.CodeOf(err) != cubby.CodeSandboxGone || res == nil || res.Stdout != "begun\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := sbx.Commands().Run(bounded(t), "true"); cubby.CodeOf(err) != cubby.CodeSandboxGone {
		t.Errorf("ran in a sandbox that has ended: %v", err)
	}
}
