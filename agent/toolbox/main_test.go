//go:build linux

package toolbox_test

import (
	"fmt"
	"os"
	"testing"

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

// executor is a sandbox for the calls of one test.
func executor(t *testing.T, cfg e2b.Config) *e2b.CodeExecutor {
	t.Helper()
	testenv.CheckLeaks(t)
	e, err := sandbox.New(t.Context(), sandbox.Config{
		Embedded: embedded.Config{Binary: testenv.Cubby(t), Python: "/usr/bin/python3"}, Executor: cfg,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}
