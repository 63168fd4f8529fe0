//go:build linux

package fromenv_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestMain builds the binary that sandboxes run in.
func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
