//go:build linux

package sandbox_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// private is a Cubby for the executors of one test.
func private(t *testing.T) *cubby.Client {
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
	return c.Client
}

func open(t *testing.T, cfg e2b.Config) *e2b.CodeExecutor {
	t.Helper()
	e, err := sandbox.New(t.Context(), sandbox.Config{Executor: cfg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// kill ends a sandbox, if it runs, as its end would.
func kill(t *testing.T, c *cubby.Client, id string) {
	t.Helper()
	sbx, err := c.Get(t.Context(), id)
	if cubby.CodeOf(err) == cubby.CodeNotFound {
		return
	}
	if err == nil {
		err = sbx.Kill(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSuite(t *testing.T) {
	client := private(t)
	const short = 3 * time.Second
	with := func(cfg e2b.Config) func(t *testing.T) codeexec.CodeExecutor {
		cfg.Client = client
		return func(t *testing.T) codeexec.CodeExecutor { return open(t, cfg) }
	}
	t.Run("stateful", func(t *testing.T) {
		codeexectest.Run(t, with(e2b.Config{Timeout: 2 * time.Minute}), codeexectest.Traits{
			Stateful: true, PerID: true, Display: true, Files: true, Lose: func(t *testing.T, e codeexec.CodeExecutor, _ string) {
				own, ok := codeexec.As[*e2b.CodeExecutor](e)
				if !ok {
					t.Fatalf("a %T", e)
				}
				kill(t, client, own.SandboxID())
			}, Short: with(e2b.Config{Timeout: short}), Timeout: short,
			Workspaces: &codeexectest.WorkspaceTraits{Root: codeexec.DefaultRoot, MaxOutput: cubby.DefaultMaxOutput},
		})
	})
	t.Run("fresh for each call", func(t *testing.T) {
		codeexectest.Run(t, with(e2b.Config{Timeout: 2 * time.Minute, FreshSandbox: true}), codeexectest.Traits{
			Display: true, Short: with(e2b.Config{Timeout: short, FreshSandbox: true}), Timeout: short,
		})
	})
}
