// Package execerr is what can go wrong where code is run for a model: the errors
// that package codeexec names, and how any error of an executor becomes a
// *fault.Error of the right code. It stands apart from codeexec because executors,
// tools and agents need it, and their users do not.
package execerr

import (
	"context"
	"errors"
	"io/fs"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// See the variables of package codeexec of the same names.
var (
	ErrUnsupportedLanguage  = errors.New("unsupported language")
	ErrWorkspaceGone        = errors.New("the workspace is gone")
	ErrWorkspaceStale       = errors.New("the workspace was lost with its sandbox")
	ErrWorkspaceRetryUnsafe = errors.New("it is unknown what was done before the workspace was lost")
	ErrPartialOutputCommit  = errors.New("some outputs were saved, not all")
	ErrLimitNotEnforceable  = errors.New("the limit cannot be enforced here")
	ErrBadPath              = errors.New("not a path in the workspace")
	ErrNoArtifacts          = errors.New("there is no artifact service")
)

var known = []struct {
	err  error
	code fault.Code
	hint string
}{
	{ErrUnsupportedLanguage, fault.Unimplemented, ""},
	{ErrWorkspaceRetryUnsafe, fault.SandboxGone, ""},
	{ErrWorkspaceStale, fault.SandboxGone, "make the workspace again"},
	{ErrWorkspaceGone, fault.NotFound, "make it with CreateWorkspace"},
	{ErrPartialOutputCommit, fault.Internal, ""},
	{ErrLimitNotEnforceable, fault.Unimplemented, "leave the limit out, or use a backend whose Capabilities name it"},
	{ErrBadPath, fault.InvalidArgument, ""},
	{ErrNoArtifacts, fault.InvalidArgument, "give one with codeexec.WithArtifactService"},
	{context.Canceled, fault.Canceled, ""},
	{context.DeadlineExceeded, fault.Timeout, ""},
	{fs.ErrNotExist, fault.NotFound, ""},
	{fs.ErrPermission, fault.PermissionDenied, ""},
}

// Wrap returns err as a *fault.Error, which it may be already; op says what was
// being done. The code is that of a *fault.Error in err's tree, else of one of this
// package's errors there, of a context's or of a file's, else code. What err says
// stays part of the text. It returns nil for nil.
func Wrap(op string, code fault.Code, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		if error(e) == err && e.Op == "" {
			named := *e
			named.Op = op
			return &named
		}
		if error(e) == err {
			return err
		}
		return &fault.Error{Op: op, Code: e.Code, Err: err}
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return &fault.Error{Op: op, Code: k.code, Err: err, Hint: k.hint}
		}
	}
	return &fault.Error{Op: op, Code: code, Err: err}
}
