//go:build linux

package e2b_test

import (
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

// at are the options of an executor of that server.
func at(s *testenv.Server, more ...e2b.Option) []e2b.Option {
	return append([]e2b.Option{e2b.WithAPIURL(s.URL), e2b.WithAPIKey(s.Key), e2b.WithTemplate(template)}, more...)
}

func create(t *testing.T, opts ...e2b.Option) *e2b.CodeExecutor {
	t.Helper()
	e, err := e2b.Create(t.Context(), opts...)
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
	for name, mode := range map[string][]e2b.Option{
		"stateful": nil, "fresh for each call": {e2b.WithFreshContext()}, "programs as root": {e2b.WithUser("root")},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(timeout time.Duration) func(t *testing.T) codeexec.CodeExecutor {
				return func(t *testing.T) codeexec.CodeExecutor {
					return create(t, at(s, append(mode, e2b.WithExecutionTimeout(timeout))...)...)
				}
			}
			codeexectest.Run(t, with(2*time.Minute), codeexectest.Traits{
				Stateful: name != "fresh for each call", PerID: true, Display: true, Short: with(short), Timeout: short,
				Workspaces: &codeexectest.WorkspaceTraits{Root: e2b.DefaultRemoteWorkspace, MaxOutput: cubby.DefaultMaxOutput},
			})
		})
	}
}
