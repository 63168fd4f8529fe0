//go:build linux

package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cubby-sandbox/cubby/internal/modelserver"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestAgentScripts are the agent's behaviour with scripted models, code running
// without a sandbox.
func TestAgentScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Files: scripts(t, "agent"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("CUBBY_FAKE", "1") // which the agent does not use
			env.Setenv("CODE_EXECUTOR_TYPE", "unsafe_local")
			return nil
		},
		Cmds: agentCommands(),
	})
}

// TestAgentSandboxScripts are the same with real sandboxes.
func TestAgentSandboxScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts sandboxes")
	}
	testenv.CheckLeaks(t)
	binary := testenv.Cubby(t)
	testscript.Run(t, testscript.Params{
		Files: scripts(t, "agentsandbox"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("CUBBY_BINARY", binary)
			env.Setenv("CUBBY_PYTHON", python)
			// A script's own folder is too deep for the sockets of a sandbox.
			env.Setenv("TMPDIR", os.TempDir())
			return nil
		},
		Cmds: agentCommands(),
	})
}

func agentCommands() map[string]command {
	all := maps.Clone(commands())
	all["model"], all["interrupt"] = modelCommand, interruptAgent
	return all
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

// interruptAgent is `interrupt TEXT command…`: once the command has printed
// TEXT on standard error it gets SIGINT, and must then end with status 130.
func interruptAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupt TEXT command…")
	}
	// A test that runs in the background ignores signals that its children would then
	// ignore, too. What it handles is theirs by default.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, os.Interrupt)
	defer signal.Stop(handled)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, k := range []string{"CUBBY_FAKE", "CODE_EXECUTOR_TYPE", "HOME", "TMPDIR", "OPENAI_BASE_URL", "OPENAI_API_KEY"} {
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
