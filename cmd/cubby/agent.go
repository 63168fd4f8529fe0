package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// The agent is a program of its own, since the models' SDKs would double the
// size of this one.
const (
	agentProgram = "cubby-agent"
	// agentVariable names the program to use, and agentForVariable tells it for
	// which build of cubby it is started.
	agentVariable    = "CUBBY_AGENT"
	agentForVariable = "CUBBY_AGENT_FOR"
	binaryVariable   = "CUBBY_BINARY"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent [QUESTION]",
		Short: "Ask a language model, which answers by writing code that runs in a sandbox",
		// Flags are the other program's, --help included.
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return becomeAgent(args) },
	}
	short := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) { // of `cubby help agent`
		if becomeAgent([]string{"--help"}) != nil {
			short(cmd, args)
		}
	})
	return cmd
}

// becomeAgent returns only when it fails.
func becomeAgent(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := findAgent(self, os.Getenv(agentVariable))
	if err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{program}, args...), agentEnv(os.Environ(), self))
}

// findAgent looks where CUBBY_AGENT says, else beside this program, else on PATH.
func findAgent(self, named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", &cubby.Error{Op: "start agent", Code: cubby.CodeUnavailable, Err: fmt.Errorf("%s: %w", agentVariable, err), Hint: "set it to the path of " + agentProgram + ", or unset it"}
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), agentProgram)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(agentProgram)
	if err == nil {
		return path, nil
	}
	return "", &cubby.Error{
		Op: "start agent", Code: cubby.CodeUnavailable, Err: errors.New(agentProgram + " is neither beside cubby nor on PATH"),
		Hint: "`make build` makes both; install " + agentProgram + " " + version.Version + " beside cubby, or name it in " + agentVariable,
	}
}

// agentEnv is the environment of the agent, whose sandboxes are this program's
// unless another was named.
func agentEnv(env []string, self string) []string {
	named := false
	out := make([]string, 0, len(env)+2)
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if name == agentForVariable {
			continue
		}
		named = named || name == binaryVariable && value != ""
		out = append(out, entry)
	}
	out = append(out, agentForVariable+"="+version.Build())
	if !named {
		out = append(out, binaryVariable+"="+self)
	}
	return out
}
