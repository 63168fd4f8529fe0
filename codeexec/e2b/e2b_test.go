//go:build linux

package e2b_test

import (
	"cmp"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

const template = "code-interpreter-v1"

// exampleServer is what the examples talk to.
var exampleServer *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ct-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o711)
	}
	if err == nil {
		exampleServer, err = testenv.StartServer(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, name := range []string{"E2B_API_URL", "E2B_API_KEY", "CUBE_TEMPLATE_ID", "E2B_SANDBOX_URL", "E2B_DOMAIN"} {
		os.Unsetenv(name)
	}
	code := m.Run()
	if err := exampleServer.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// at configures an executor of that server; what cfg has of it stays.
func at(s *testenv.Server, cfg e2b.Config) e2b.Config {
	cfg.APIURL, cfg.APIKey, cfg.Template = cmp.Or(cfg.APIURL, s.URL), cmp.Or(cfg.APIKey, s.Key), template
	return cfg
}

func create(t *testing.T, cfg e2b.Config) *e2b.CodeExecutor {
	t.Helper()
	e, err := e2b.Create(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func TestSuite(t *testing.T) {
	s := testenv.Serve(t)
	const short = 3 * time.Second
	with := func(cfg e2b.Config) func(t *testing.T) codeexec.CodeExecutor {
		return func(t *testing.T) codeexec.CodeExecutor { return create(t, at(s, cfg)) }
	}
	spaces := codeexectest.WorkspaceTraits{Root: e2b.DefaultWorkspaceRoot, MaxOutput: cubby.DefaultMaxOutput}
	// replaced makes executors that replace their sandbox, and lose ends it.
	replaced := func(cfg e2b.Config) func(t *testing.T) codeexec.CodeExecutor {
		return func(t *testing.T) codeexec.CodeExecutor {
			e, err := e2b.CreateOrRecreate(t.Context(), at(s, cfg), nil)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	}
	lose := func(t *testing.T, e codeexec.CodeExecutor, _ string) {
		own, ok := codeexec.As[*e2b.CodeExecutor](e)
		if !ok {
			t.Fatalf("a %T", e)
		}
		if c := client(t, s); state(t, c, own.SandboxID()) != "gone" {
			kill(t, c, own.SandboxID())
		}
	}
	t.Run("stateful", func(t *testing.T) {
		codeexectest.Run(t, replaced(e2b.Config{Timeout: 2 * time.Minute}), codeexectest.Traits{
			Stateful: true, PerID: true, Display: true, Files: true, Lose: lose, Short: with(e2b.Config{Timeout: short}),
			Timeout: short, Workspaces: &spaces,
		})
	})
	t.Run("fresh for each call", func(t *testing.T) {
		codeexectest.Run(t, replaced(e2b.Config{Timeout: 2 * time.Minute, FreshKernels: true}), codeexectest.Traits{
			Display: true, Files: true, Lose: lose, Short: with(e2b.Config{Timeout: short, FreshKernels: true}), Timeout: short,
		})
	})
	t.Run("a pool", func(t *testing.T) {
		pool := func(timeout time.Duration) func(t *testing.T) codeexec.CodeExecutor {
			return func(t *testing.T) codeexec.CodeExecutor {
				p, err := e2b.NewPool(t.Context(), at(s, e2b.Config{Timeout: timeout}), e2b.PoolConfig{})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
		}
		codeexectest.Run(t, pool(2*time.Minute), codeexectest.Traits{
			Stateful: true, PerID: true, Display: true, Files: true, Short: pool(short), Timeout: short, Workspaces: &spaces,
			Lose: func(t *testing.T, e codeexec.CodeExecutor, id string) {
				p, ok := codeexec.As[*e2b.Pool](e)
				if !ok {
					t.Fatalf("a %T", e)
				}
				if err := p.Release(id); err != nil {
					t.Error(err)
				}
			},
		})
	})
	t.Run("workspaces whose programs are root's", func(t *testing.T) {
		codeexectest.Workspaces(t, func(t *testing.T) codeexec.Engine { return create(t, at(s, e2b.Config{User: "root"})).Engine() }, spaces)
	})
}
