package codeexec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cubby-sandbox/cubby"
)

// What can go wrong beside what the codes of package cubby say. Each comes
// wrapped in a *cubby.Error of the code in parentheses; errors.Is finds it.
var (
	// ErrUnsupportedLanguage: the executor does not have the block's language
	// (unimplemented). ExecuteCode does not return it: it tells the model.
	ErrUnsupportedLanguage = errors.New("unsupported language")
	// ErrWorkspaceGone: the workspace's folder is not there any more, or never was
	// (not found).
	ErrWorkspaceGone = errors.New("the workspace is gone")
	// ErrWorkspaceStale: what the workspace was in has been replaced, so that its
	// files are lost (sandbox gone). Make it again.
	ErrWorkspaceStale = errors.New("the workspace was lost with its sandbox")
	// ErrWorkspaceRetryUnsafe: it is not known how much of an operation on a lost
	// workspace was done (sandbox gone).
	ErrWorkspaceRetryUnsafe = errors.New("it is unknown what was done before the workspace was lost")
	// ErrPartialOutputCommit: some of the outputs were saved as artifacts, then
	// one could not be (internal). The manifest tells which have a name.
	ErrPartialOutputCommit = errors.New("some outputs were saved, not all")
	// ErrLimitNotEnforceable: a limit was asked for that cannot be enforced there
	// (unimplemented). Nothing was run.
	ErrLimitNotEnforceable = errors.New("the limit cannot be enforced here")
	// ErrBadPath: a path that is not below the workspace, or a pattern that is
	// none (invalid argument).
	ErrBadPath = errors.New("not a path in the workspace")
	// ErrNoArtifacts: an artifact was named, or outputs were to be saved, and
	// there is no service for it (invalid argument). See [WithArtifactService].
	ErrNoArtifacts = errors.New("there is no artifact service")
)

var sentinelCodes = []struct {
	err  error
	code cubby.Code
	hint string
}{
	{ErrUnsupportedLanguage, cubby.CodeUnimplemented, ""},
	{ErrWorkspaceRetryUnsafe, cubby.CodeSandboxGone, ""},
	{ErrWorkspaceStale, cubby.CodeSandboxGone, "make the workspace again"},
	{ErrWorkspaceGone, cubby.CodeNotFound, "make it with CreateWorkspace"},
	{ErrPartialOutputCommit, cubby.CodeInternal, ""},
	{ErrLimitNotEnforceable, cubby.CodeUnimplemented, "leave the limit out, or use a backend whose Capabilities name it"},
	{ErrBadPath, cubby.CodeInvalidArgument, ""},
	{ErrNoArtifacts, cubby.CodeInvalidArgument, "give one with codeexec.WithArtifactService"},
	{context.Canceled, cubby.CodeCanceled, ""},
	{context.DeadlineExceeded, cubby.CodeTimeout, ""},
	{fs.ErrNotExist, cubby.CodeNotFound, ""},
	{fs.ErrPermission, cubby.CodePermissionDenied, ""},
}

// Fail returns err as a *cubby.Error, which it may be already; op says what was
// being done. The code is that of the sentinel in err's tree, of a context's or a
// file's error there, else code. It returns nil for nil. Backends use it.
func Fail(op string, code cubby.Code, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		if error(e) == err && e.Op == "" {
			named := *e
			named.Op = op
			return &named
		}
		if error(e) == err {
			return err
		}
		return &cubby.Error{Op: op, Code: e.Code, Err: err}
	}
	for _, s := range sentinelCodes {
		if errors.Is(err, s.err) {
			return &cubby.Error{Op: op, Code: s.code, Err: err, Hint: s.hint}
		}
	}
	return &cubby.Error{Op: op, Code: code, Err: err}
}

// IsWorkspaceRetrySafe reports whether an operation that failed with err may be
// done again in a new workspace: the workspace was lost, and the operation had
// done nothing that would be done twice.
func IsWorkspaceRetrySafe(err error) bool {
	return (errors.Is(err, ErrWorkspaceStale) || errors.Is(err, ErrWorkspaceGone)) &&
		!errors.Is(err, ErrWorkspaceRetryUnsafe) && !errors.Is(err, ErrPartialOutputCommit)
}

// UnsupportedBlock returns the result of a block that did not run because the
// executor does not have its language. Its error is for the model to read.
func UnsupportedBlock(language string, have []string) BlockResult {
	language = clipLanguage(language)
	why := fmt.Sprintf("%q cannot be run here; write the code in one of: %s", language, strings.Join(have, ", "))
	if IsDataLanguage(language) {
		why = fmt.Sprintf("%q is data, not code; what can be run here: %s", language, strings.Join(have, ", "))
	}
	return BlockResult{
		Language: NormalizeLanguage(language), Unsupported: true, ExitCode: 1,
		Error: &ExecutionError{Type: "UnsupportedLanguage", Message: why},
	}
}

// clipLanguage bounds what a model wrote as a language before it goes into
// messages and logs.
func clipLanguage(s string) string {
	const most = 40
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
