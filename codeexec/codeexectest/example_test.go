package codeexectest_test

import (
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
	"github.com/cubby-sandbox/cubby/codeexec/local"
)

// The test of a backend is one call.
func Example() {
	var t *testing.T // of func TestSuite(t *testing.T)
	open := func(timeout time.Duration) func(*testing.T) codeexec.CodeExecutor {
		return func(t *testing.T) codeexec.CodeExecutor {
			e, err := local.NewUnsafe(t.Context(), local.Config{Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	}
	codeexectest.Run(t, open(time.Minute), codeexectest.Traits{Files: true, Short: open(3 * time.Second), Timeout: 3 * time.Second})
}
