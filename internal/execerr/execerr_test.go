package execerr_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/execerr"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

func TestWrap(t *testing.T) {
	gone := &fault.Error{Code: fault.SandboxGone, Err: errors.New("killed")}
	for _, tc := range []struct {
		err  error
		code fault.Code
		text string
	}{
		{errors.New("x"), fault.Internal, "op: x"},
		{execerr.ErrWorkspaceGone, fault.NotFound, "op: the workspace is gone (make it with CreateWorkspace)"},
		{fmt.Errorf("%w: cpus", execerr.ErrLimitNotEnforceable), fault.Unimplemented, "op: the limit cannot be enforced here: cpus (leave the limit out, or use a backend whose Capabilities name it)"},
		{gone, fault.SandboxGone, "op: killed"},
		{fmt.Errorf("while: %w", gone), fault.SandboxGone, "op: while: killed"},
	} {
		err := execerr.Wrap("op", fault.Internal, tc.err)
		if cubby.CodeOf(err) != tc.code || err.Error() != tc.text || !errors.Is(err, tc.err) && tc.err != error(gone) {
			t.Errorf("got %v (%v), want %s (%v)", err, cubby.CodeOf(err), tc.text, tc.code)
		}
	}
	if gone.Op != "" {
		t.Error("an error of the caller's was changed")
	}
	if execerr.Wrap("op", fault.Internal, nil) != nil {
		t.Error("nil became an error")
	}
}
