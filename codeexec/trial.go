package codeexec

import "context"

// Trier is a [CodeExecutor] that can try several ways from the state that an execution
// id is in. Find it by [As].
type Trier interface {
	// Try runs each of the ways in a copy of the execution id's sandbox, all at once: each
	// finds the variables and files that there are, and none sees another. It returns
	// when all have ended, and the sandbox itself is as before. The inputs' own
	// ExecutionID and OnOutput are not used. An error means that nothing was run, as where
	// the server has no room for so many copies (rate limited) or cannot copy
	// (unimplemented).
	Try(ctx context.Context, executionID string, ways []CodeExecutionInput) (Trial, error)
}

// Trial is what became of several ways. The caller closes it.
type Trial interface {
	// Results are in the order of the ways.
	Results() []TrialResult
	// Keep has the execution id go on where way i has ended, with its variables and files:
	// the sandbox is put back to that, and what ran in it since Try is lost, also of other
	// execution ids. It can be called once, and closes the trial.
	Keep(ctx context.Context, i int) error
	// Close ends the copies. Those of a trial that is not closed end with their idle
	// timeout. It is idempotent.
	Close() error
}

// TrialResult is what ExecuteCode would have returned for one way.
type TrialResult struct {
	CodeExecutionResult
	Err error
}
