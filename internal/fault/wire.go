package fault

import (
	"errors"
	"time"
)

// Wire is an Error as JSON, for a process that hands it to another one. Of the cause
// only the text travels.
type Wire struct {
	Code       string `json:"code"` // its name
	Op         string `json:"op,omitempty"`
	Message    string `json:"message"` // of the cause
	Hint       string `json:"hint,omitempty"`
	RetryAfter int64  `json:"retry_after_ms,omitempty"`
}

// ToWire returns err for another process; an err without an *Error in its tree has
// the code that is given.
func ToWire(code Code, err error) *Wire {
	e := In(Wrap("", code, err))
	return &Wire{Code: e.Code.String(), Op: e.Op, Message: e.Err.Error(), Hint: e.Hint, RetryAfter: e.RetryAfter.Milliseconds()}
}

// Fault returns the error that the other process had. A code that this build does not
// know becomes Internal.
func (w *Wire) Fault() *Error {
	return &Error{
		Op: w.Op, Code: fromName(w.Code), Err: errors.New(w.Message), Hint: w.Hint,
		RetryAfter: time.Duration(w.RetryAfter) * time.Millisecond,
	}
}
