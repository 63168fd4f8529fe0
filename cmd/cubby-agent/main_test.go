//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cubby-sandbox/cubby/internal/modelserver"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func TestMain(m *testing.M) {
	// A test binary that is started in the background may inherit an ignored
	// SIGINT, which the scripts' children would then inherit, too.
	signal.Reset(os.Interrupt)
	testscript.Main(m, map[string]func(){"cubby-agent": main})
}

// TestScripts are the command's behaviour with scripted models, code running
// without a sandbox.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Files: scripts(t, "cli"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("CODE_EXECUTOR_TYPE", "unsafe_local")
			return nil
		},
		Cmds: commands(),
	})
}

// TestSandboxScripts are the same with real sandboxes.
func TestSandboxScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts sandboxes")
	}
	testenv.CheckLeaks(t)
	binary := testenv.Cubby(t)
	testscript.Run(t, testscript.Params{
		Files: scripts(t, "sandbox"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("CUBBY_BINARY", binary)
			env.Setenv("CUBBY_PYTHON", "/usr/bin/python3")
			// A script's own folder is too deep for the sockets of a sandbox.
			env.Setenv("TMPDIR", os.TempDir())
			return nil
		},
		Cmds: commands(),
	})
}

func scripts(t *testing.T, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/script/" + prefix + "-*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts %s-*: %v", prefix, err)
	}
	return files
}

type scriptCommand = func(ts *testscript.TestScript, neg bool, args []string)

func commands() map[string]scriptCommand {
	return map[string]scriptCommand{"model": modelCommand, "status": statusCommand, "interrupt": interruptCommand}
}

// modelCommand is `model FILE`: a model that says what the script in the file
// says. Both providers' variables lead to it.
func modelCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: model FILE")
	}
	script, err := modelserver.Parse(args[0], []byte(ts.ReadFile(args[0])))
	ts.Check(err)
	srv, err := modelserver.Start(modelserver.Config{Script: script})
	ts.Check(err)
	ts.Defer(func() { ts.Check(srv.Close()) })
	ts.Setenv("OPENAI_BASE_URL", srv.OpenAIURL())
	ts.Setenv("ANTHROPIC_BASE_URL", srv.AnthropicURL())
	ts.Setenv("OPENAI_API_KEY", "sk-scripted")
	ts.Setenv("ANTHROPIC_API_KEY", "sk-ant-scripted")
}

// statusCommand is `status N command…`: the command must end with status N.
func statusCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if want := args[0]; fmt.Sprint(got) != want {
		ts.Fatalf("exit status %d, want %s", got, want)
	}
}

// interruptCommand is `interrupt TEXT command…`: once the command has printed
// TEXT it gets SIGINT, and must then end with status 130.
func interruptCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupt TEXT command…")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, k := range []string{"CODE_EXECUTOR_TYPE", "HOME", "TMPDIR", "OPENAI_BASE_URL", "OPENAI_API_KEY"} {
		cmd.Env = append(cmd.Env, k+"="+ts.Getenv(k))
	}
	out, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	var seen bytes.Buffer
	for piece := make([]byte, 1024); !strings.Contains(seen.String(), args[0]); {
		n, err := out.Read(piece)
		seen.Write(piece[:n])
		if err != nil {
			ts.Fatalf("it printed %q", seen.String())
		}
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_, _ = seen.ReadFrom(out)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitInterrupted {
		ts.Fatalf("exit status %d, having printed %q", got, seen.String())
	}
}
