package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits bound the work on one question. Zero is the default, a negative number
// no bound.
type Limits struct {
	Turns       int           // replies of the model; 20
	Executions  int           // runs of code, and calls of tools; 30
	Tokens      int           // of all requests and replies together; 400,000
	Time        time.Duration // 10 minutes
	OutputChars int           // of a run's or a tool's output that the model is shown; 10,000
	Failures    int           // failed runs in a row, after which no more code runs; 3
	ReplyTokens int           // of one reply, what it thinks included; 16,384
}

func (l Limits) withDefaults() Limits {
	l.Turns = cmp.Or(l.Turns, 20)
	l.Executions = cmp.Or(l.Executions, 30)
	l.Tokens = cmp.Or(l.Tokens, 400_000)
	l.Time = cmp.Or(l.Time, 10*time.Minute)
	l.OutputChars = cmp.Or(l.OutputChars, 10_000)
	l.Failures = cmp.Or(l.Failures, 3)
	l.ReplyTokens = cmp.Or(l.ReplyTokens, 16_384)
	return l
}

// Bound names a bound of [Limits].
type Bound string

// Bounds. A model that reaches BoundExecutions or BoundFailures is asked for an
// answer without more code; the others end the work at once.
const (
	BoundTurns      Bound = "turns"
	BoundExecutions Bound = "executions"
	BoundTokens     Bound = "tokens"
	BoundTime       Bound = "time"
	BoundFailures   Bound = "failures"
)

// LimitError says that a bound ended the work on a question before the model had
// answered. A BoundTime's is also a context.DeadlineExceeded.
type LimitError struct {
	Bound Bound
	Limit string // its value, for people
}

// Error says which bound it was, and how to raise it.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the agent stopped without an answer: its bound of %s was reached; raise Limits.%s, or ask for less at once", e.Limit, e.field())
}

// Is makes a bound of time a context.DeadlineExceeded.
func (e *LimitError) Is(target error) bool {
	return e.Bound == BoundTime && target == context.DeadlineExceeded
}

func (e *LimitError) field() string {
	switch e.Bound {
	case BoundTurns:
		return "Turns"
	case BoundExecutions:
		return "Executions"
	case BoundTokens:
		return "Tokens"
	case BoundTime:
		return "Time"
	}
	return "Failures"
}

// ErrFatal, wrapped in a [Tool]'s error, ends the answer with that error.
var ErrFatal = errors.New("fatal")

// ErrClosed is the error of a session that was closed.
var ErrClosed = errors.New("agent: the session is closed")
