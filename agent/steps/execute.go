package steps

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Execute runs code in a state of its own: variables and files of earlier code
// are not there. Files are put beside it first. How long it may run, and with how
// much memory, is the executor's; so is what the error means. Code that fails is
// no error: see the result's Outcome, and [ExplainResult].
//
// That state is an execution id that is used once. Executors that keep a kernel
// for each id keep it until they need the room, and may then end that of a session
// that rests: use [InSession], or another executor, beside sessions that matter.
func Execute(ctx context.Context, executor codeexec.CodeExecutor, code codeexec.CodeBlock,
	files ...codeexec.File) (codeexec.CodeExecutionResult, error) {
	return executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		CodeBlocks: []codeexec.CodeBlock{code}, InputFiles: files, ExecutionID: newID("run"),
	})
}

// newID makes an execution id that nothing else uses.
func newID(what string) string {
	return "steps-" + what + "-" + strings.ToLower(rand.Text()[:16])
}

// InSession returns an executor for which all code is of one execution id, so
// that variables and files last from step to step. Close does nothing: executor
// stays its owner's.
func InSession(executor codeexec.CodeExecutor, id string) codeexec.CodeExecutor {
	return session{executor, id}
}

type session struct {
	codeexec.CodeExecutor
	id string
}

func (s session) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	in.ExecutionID = s.id
	return s.CodeExecutor.ExecuteCode(ctx, in)
}

func (s session) Close() error { return nil }

// Unwrap implements [codeexec.Unwrapper].
func (s session) Unwrap() codeexec.CodeExecutor { return s.CodeExecutor }
