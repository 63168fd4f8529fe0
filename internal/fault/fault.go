// Package fault is the one error type of Cubby, from the engine's process to the
// client: what was being done, of which kind the error is, its cause, and what to do
// about it. Package cubby has it as its own Error.
//
// An error may be known to several goroutines once it was returned. Nobody edits one
// that exists: what is to be said otherwise is said by a copy.
package fault

import (
	"context"
	"errors"
	"time"
)

// Error is an error with a code. Every layer decides by the code, and by what the
// cause is, never by the text.
type Error struct {
	Op   string // what was being done, such as "run code"; may be empty
	Code Code
	Err  error  // the cause; never nil
	Hint string // what to do about it; may be empty
	// RetryAfter is when it is worth trying again, counted from the error; 0 where
	// nobody knows.
	RetryAfter time.Duration
}

// Error returns the operation, the cause and, in parentheses, the hint.
func (e *Error) Error() string {
	s := e.Message()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Message returns the operation and the cause, for those who show the hint in a place
// of its own.
func (e *Error) Message() string {
	if e.Op != "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// In returns the first *Error in err's tree, or nil. It is not to be changed.
func In(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

// CodeOf returns the code of the first *Error in err's tree, and 0 if there is none.
func CodeOf(err error) Code {
	if e := In(err); e != nil {
		return e.Code
	}
	return 0
}

// Wrap returns the first *Error in err's tree, which stands for all of it, with op if
// it has none. Where there is no *Error it makes one of err, with code, or the code of
// a context's error in the tree. It returns nil for nil.
func Wrap(op string, code Code, err error) error {
	if err == nil {
		return nil
	}
	e := In(err)
	switch {
	case e == nil:
		return &Error{Op: op, Code: codeOfContext(err, code), Err: err}
	case e.Op == "":
		named := *e
		named.Op = op
		return &named
	}
	return e
}

// Within is Wrap, but puts op before an operation that the error has: the error came
// up in a step of what is called op.
func Within(op string, code Code, err error) error {
	e := In(err)
	if e == nil || e.Op == "" {
		return Wrap(op, code, err)
	}
	named := *e
	named.Op = op + ": " + e.Op
	return &named
}

// codeOfContext is the code of a context's error in err's tree, else code.
func codeOfContext(err error, code Code) Code {
	switch {
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return code
}
