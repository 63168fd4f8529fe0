//go:build linux

package container

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
	"github.com/cubby-sandbox/cubby/codeexec/container/internal/dockertest"
)

// TestSuite runs what every executor must pass, in a container with an agent.
func TestSuite(t *testing.T) {
	needDocker(t)
	traits := traits(t, Config{})
	traits.Files = true
	traits.Lose = func(t *testing.T, e codeexec.CodeExecutor, id string) {
		own, ok := codeexec.As[*Executor](e)
		if !ok {
			t.Fatalf("a %T", e)
		}
		api, err := client.New(client.WithHost(daemon.Host))
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		if id := own.ContainerID(id); id != "" {
			_, err = api.ContainerRemove(t.Context(), id, client.ContainerRemoveOptions{Force: true})
		}
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			t.Fatal(err)
		}
	}
	codeexectest.Run(t, func(t *testing.T) codeexec.CodeExecutor { return open(t, Config{}) }, traits)
}

// TestSuiteFresh runs it with a container for each call.
func TestSuiteFresh(t *testing.T) {
	needDocker(t)
	traits := traits(t, Config{Fresh: true})
	traits.Workspaces = nil // they are those of TestSuite
	codeexectest.Run(t, func(t *testing.T) codeexec.CodeExecutor { return open(t, Config{Fresh: true}) }, traits)
}

// TestJavaScript: an image that has node has JavaScript.
func TestJavaScript(t *testing.T) {
	needDocker(t)
	tree, err := dockertest.NewTree()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tree.AddPython(), tree.AddProgram("node")); errors.Is(err, exec.ErrNotFound) {
		t.Skip("NOT TESTED: this machine has no node to make an image of")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Import("cubby-test:node", tree.Write); err != nil {
		t.Fatal(err)
	}
	e := open(t, Config{Image: "cubby-test:node"})
	if got := fmt.Sprint(e.Languages()); got != "[python bash javascript]" {
		t.Fatalf("it has %s", got)
	}
	js := func(code string) codeexec.CodeExecutionInput {
		return codeexec.CodeExecutionInput{CodeBlocks: []codeexec.CodeBlock{{Code: code, Language: "js"}}}
	}
	wantOutput(t, mustRun(t, e, js("console.log([1, 2].map(x => x * 21).join())")), "21,42\n")
	r := mustRun(t, e, js("const a = 1;\nfunction f() { throw new TypeError('bad thing'); }\nf();"))
	if r.Error == nil || r.Error.Type != "TypeError" || r.Error.Line != 2 {
		t.Errorf("got %+v", r.Error)
	}
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
