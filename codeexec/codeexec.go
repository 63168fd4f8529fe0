// Package codeexec runs the code blocks of a language model's reply: blocks in,
// text and files out. A [CodeExecutor] is one place where code can run; the
// sub-packages are those places:
//
//   - codeexec/sandbox: a private Cubby on this machine, started by itself
//   - codeexec/e2b: any server that speaks E2B's protocol: Cubby, E2B, Cube
//   - codeexec/container: Docker (a module of its own)
//   - codeexec/local: this machine without any wall, for code that is trusted
//
// and codeexec/fromenv chooses by CODE_EXECUTOR_TYPE. What they run it on is also
// a workspace: see [Engine].
//
// Names are those of tRPC-Agent's executors where those have one.
package codeexec

import (
	"context"
	"time"
)

// CodeExecutor runs code blocks. Implementations are safe for concurrent use;
// executions that share state (variables, files) wait for each other.
type CodeExecutor interface {
	// ExecuteCode runs the blocks in order, once each: an executor never runs
	// code again by itself. A block that fails does not keep the next from
	// running. Code that fails, times out or is of a language that the executor
	// does not have is no error: the result says so, for the model to read. An
	// error means that the executor could not do its work; it is a *cubby.Error,
	// and the result then holds what was known. Without blocks and files nothing is
	// run, and the result's Instance says what there is for the execution id now.
	ExecuteCode(ctx context.Context, in CodeExecutionInput) (CodeExecutionResult, error)
	// CodeBlockDelimiters tell what of a reply is code for this executor; none
	// means every fence in a language that it has. See [ExtractCodeBlocks].
	CodeBlockDelimiters() []CodeBlockDelimiter
	// Languages are what it runs, by their normalised names.
	Languages() []string
	// Close ends what the executor started. It is idempotent.
	Close() error
}

// ErrorRetryAttempts is how many executions may fail in a row before a loop
// should stop running what the model writes.
const ErrorRetryAttempts = 2

// CodeExecutionInput is what to run.
type CodeExecutionInput struct {
	CodeBlocks []CodeBlock `json:"code_blocks"`
	// Code is Python to run when there are no blocks.
	Code string `json:"code,omitempty"`
	// InputFiles are put into the working directory first. Their names are
	// relative paths below it.
	InputFiles []File `json:"input_files,omitempty"`
	// ExecutionID names the conversation. Executors that keep a state for each
	// (see their options) keep it under this name; empty is a name like others.
	ExecutionID string `json:"execution_id,omitempty"`
	// OnOutput, if set, is told what the blocks print, as it comes: stream is
	// "stdout" or "stderr", text is valid UTF-8. It is not told what is beyond the
	// bound of the kept output, nor tracebacks and what code showed, which the
	// result has. ExecuteCode calls it on the goroutine of its caller. It may be
	// slow and may use the executor: the code does not wait for it, only
	// ExecuteCode's return does.
	OnOutput func(stream, text string) `json:"-"`
	// Collect are patterns as those of [OutputSpec], relative to the working
	// directory. Regular files there that match one and are new, or not as they
	// were when the blocks began, come as OutputFiles, with their relative paths as
	// names, within the limits of [WorkspaceFS]. What was put there as an input and
	// was not changed does not come back. Wildcards do not mean hidden files and
	// folders, nor __pycache__.
	Collect []string `json:"collect,omitempty"`
}

// Blocks returns the blocks to run: CodeBlocks, else Code as one of Python.
func (in CodeExecutionInput) Blocks() []CodeBlock {
	if len(in.CodeBlocks) == 0 && in.Code != "" {
		return []CodeBlock{{Code: in.Code, Language: Python}}
	}
	return in.CodeBlocks
}

// CodeBlock is one piece of code. Language is as the model wrote it; see
// [NormalizeLanguage].
type CodeBlock struct {
	Code     string `json:"code"`
	Language string `json:"language"`
}

// Outcome is how an execution ended.
type Outcome string

// Outcomes. A failed block outweighs those that did not fail, and a timeout
// outweighs a failure.
const (
	OutcomeOK               Outcome = "ok"
	OutcomeFailed           Outcome = "failed"
	OutcomeDeadlineExceeded Outcome = "deadline_exceeded"
)

// CodeExecutionResult is what became of the blocks.
type CodeExecutionResult struct {
	// Output is what the blocks printed and showed as text, and their errors, in
	// the order in which it came, for a model to read.
	Output string `json:"output"`
	// OutputFiles are pictures and documents that the code showed, decoded, and
	// then what was collected.
	OutputFiles []File  `json:"output_files,omitempty"`
	Outcome     Outcome `json:"outcome"`
	// ExitCode is that of the first block that failed, else 0. 124 is a timeout,
	// 137 out of memory, 1 an uncaught error.
	ExitCode int `json:"exit_code"`
	// Error is the first block's that failed with one.
	Error    *ExecutionError `json:"error,omitempty"`
	Duration time.Duration   `json:"duration"` // of all blocks, in nanoseconds
	TimedOut bool            `json:"timed_out,omitempty"`
	// Truncated says that output or files were dropped.
	Truncated bool `json:"truncated,omitempty"`
	// Left says which files are not among OutputFiles, or not whole, and why: those
	// that the code showed and those to be collected, up to 100 of them. What the
	// code showed has the name that its file would have, without a number.
	Left []LeftFile `json:"left,omitempty"`
	// Limit names the bound that was hit: "time", "memory", "output", "disk",
	// "processes" or "".
	Limit string `json:"limit,omitempty"`
	// StateLost says that variables or files that earlier executions of this id
	// left are gone. It is said once: by the first result after the loss, also by one
	// of nothing to run. FilesLost says that files are among it, those that were put
	// in included.
	StateLost bool `json:"state_lost,omitempty"`
	FilesLost bool `json:"files_lost,omitempty"`
	// Instance tells the same to who compares it with an earlier result's. It is
	// the zero value where the executor keeps no state, and where an error kept it
	// from finding out.
	Instance Instance `json:"instance,omitzero"`
	// Blocks are the same by block.
	Blocks []BlockResult `json:"blocks,omitempty"`
}

// BlockResult is what became of one block.
type BlockResult struct {
	Language  string          `json:"language"` // normalised
	Stdout    string          `json:"stdout"`
	Stderr    string          `json:"stderr"`
	Text      string          `json:"text,omitempty"` // of what it showed
	ExitCode  int             `json:"exit_code"`
	Error     *ExecutionError `json:"error,omitempty"`
	Duration  time.Duration   `json:"duration"`
	TimedOut  bool            `json:"timed_out,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	// Unsupported says that the block did not run: the executor does not have
	// its language. Error tells the model which it has.
	Unsupported bool `json:"unsupported,omitempty"`
}

// ExecutionError is an uncaught error of the code.
type ExecutionError struct {
	Type    string `json:"type"` // such as "ZeroDivisionError"
	Message string `json:"message"`
	// Line is where in the block it happened, from 1; 0 if that cannot be told.
	Line      int    `json:"line,omitempty"`
	Traceback string `json:"traceback,omitempty"` // without escape codes
}

// Error returns type and message.
func (e *ExecutionError) Error() string {
	if e.Message == "" {
		return e.Type
	}
	return e.Type + ": " + e.Message
}

// File is a file that goes in or came out.
type File struct {
	Name     string `json:"name"` // a relative path with slashes
	Content  []byte `json:"content"`
	MIMEType string `json:"mime_type,omitempty"`
	// SizeBytes is the whole file's size, and Truncated says that Content is
	// less than that.
	SizeBytes int64 `json:"size_bytes"`
	Truncated bool  `json:"truncated,omitempty"`
}
