package codeexec

import (
	"errors"

	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// What can go wrong beside what the codes of package cubby say. Each comes
// wrapped in a *cubby.Error of the code in parentheses; errors.Is finds it.
var (
	// ErrUnsupportedLanguage: the executor does not have the block's language
	// (unimplemented). ExecuteCode does not return it: it tells the model.
	ErrUnsupportedLanguage = execerr.ErrUnsupportedLanguage
	// ErrWorkspaceGone: the workspace's folder is not there any more, or never was
	// (not found).
	ErrWorkspaceGone = execerr.ErrWorkspaceGone
	// ErrWorkspaceStale: what the workspace was in has been replaced, so that its
	// files are lost (sandbox gone). Make it again.
	ErrWorkspaceStale = execerr.ErrWorkspaceStale
	// ErrWorkspaceRetryUnsafe: it is not known how much of an operation on a lost
	// workspace was done (sandbox gone).
	ErrWorkspaceRetryUnsafe = execerr.ErrWorkspaceRetryUnsafe
	// ErrPartialOutputCommit: some of the outputs were saved as artifacts, then
	// one could not be (internal). The manifest tells which have a name.
	ErrPartialOutputCommit = execerr.ErrPartialOutputCommit
	// ErrLimitNotEnforceable: a limit was asked for that cannot be enforced there
	// (unimplemented). Nothing was run.
	ErrLimitNotEnforceable = execerr.ErrLimitNotEnforceable
	// ErrBadPath: a path that is not below the workspace, or a pattern that is
	// none (invalid argument).
	ErrBadPath = execerr.ErrBadPath
	// ErrNoArtifacts: an artifact was named, or outputs were to be saved, and
	// there is no service for it (invalid argument). See [WithArtifactService].
	ErrNoArtifacts = execerr.ErrNoArtifacts
)

// IsWorkspaceRetrySafe reports whether an operation that failed with err may be
// done again in a new workspace: the workspace was lost, and the operation had
// done nothing that would be done twice.
func IsWorkspaceRetrySafe(err error) bool {
	return (errors.Is(err, ErrWorkspaceStale) || errors.Is(err, ErrWorkspaceGone)) &&
		!errors.Is(err, ErrWorkspaceRetryUnsafe) && !errors.Is(err, ErrPartialOutputCommit)
}

// Exit codes that mean something everywhere.
const (
	ExitTimedOut    = 124
	ExitOutOfMemory = 137
)
