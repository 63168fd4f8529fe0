//go:build linux

package container

import (
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
)

// TestSuite runs what every executor must pass, in a container with an agent.
func TestSuite(t *testing.T) {
	needDocker(t)
	codeexectest.Run(t, func(t *testing.T) codeexec.CodeExecutor { return open(t, Config{}) }, traits(t, Config{}))
}

// TestSuiteFresh runs it with a container for each call.
func TestSuiteFresh(t *testing.T) {
	needDocker(t)
	traits := traits(t, Config{Fresh: true})
	traits.Workspaces = nil // they are those of TestSuite
	codeexectest.Run(t, func(t *testing.T) codeexec.CodeExecutor { return open(t, Config{Fresh: true}) }, traits)
}

func traits(t *testing.T, cfg Config) codeexectest.Traits {
	return codeexectest.Traits{
		Timeout: 3 * time.Second,
		Short: func(t *testing.T) codeexec.CodeExecutor {
			short := cfg
			short.Timeout = 3 * time.Second
			return open(t, short)
		},
		Workspaces: &codeexectest.WorkspaceTraits{Root: codeexec.DefaultRoot, MaxOutput: cubby.DefaultMaxOutput},
	}
}
