package host

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing of a host may go on running after Close.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
