package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// The errors of this package are *fault.Error. Those with the codes below are about
// what was asked for: their cause and hint are for the client to read, and say nothing
// about the machine. Every other error is the host's own failure, with or without the
// code fault.Internal.
//
//	InvalidArgument  the request makes no sense, or no limit like that is possible here
//	NotFound         no such sandbox or template
//	Conflict         the sandbox is in another state, which a *StateError in it names
//	RateLimited      no room now; RetryAfter says when it is worth asking again
//	Unimplemented    sandboxes cannot be paused here
//	NoSpace          no room for an image
//	Incompatible     an image was made with another template or engine
//	Unavailable      the server is stopping
var (
	// ErrNotFound says that a sandbox does not live, or never did, and nothing else.
	// Of returns another error with the same code where the caller may know the reason.
	ErrNotFound error = &fault.Error{Code: fault.NotFound, Err: errors.New("sandbox not found")}
	// ErrClosing is in the errors of what the end of the host cut off.
	ErrClosing error = &fault.Error{Code: fault.Unavailable, Err: errors.New("the server is stopping")}
)

// IsForClient reports whether the client may read the cause and the hint of err.
func IsForClient(err error) bool {
	switch fault.CodeOf(err) {
	case fault.InvalidArgument, fault.NotFound, fault.Conflict, fault.RateLimited, fault.Unimplemented,
		fault.Incompatible, fault.NoSpace, fault.Unavailable:
		return true
	}
	return false
}

// own makes err a failure of the host itself, whatever code is in it.
func own(err error) error { return &fault.Error{Code: fault.Internal, Err: err} }

// invalid says in the client's words what is wrong with a request.
func invalid(format string, args ...any) error {
	return &fault.Error{Code: fault.InvalidArgument, Err: fmt.Errorf(format, args...)}
}

// allInvalid joins what invalid has returned; nil for nothing.
func allInvalid(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &fault.Error{Code: fault.InvalidArgument, Err: err}
	}
	return nil
}

// unknownTemplate says which template, or which tag of it, there is not.
func unknownTemplate(format string, args ...any) error {
	return &fault.Error{Code: fault.NotFound, Err: fmt.Errorf(format, args...),
		Hint: "this server has the template \"base\", made of its machine's own tools"}
}

// busy says why there is no room for another sandbox, and when it is worth asking
// again, in whole seconds.
func busy(retryAfter time.Duration, format string, args ...any) error {
	return &fault.Error{Code: fault.RateLimited, Err: fmt.Errorf(format, args...), RetryAfter: retryAfter}
}

// notEnforceable says which limit the engine cannot enforce here.
func notEnforceable(limit string) error {
	return &fault.Error{Code: fault.InvalidArgument, Err: fmt.Errorf("limit cannot be enforced here: %s", limit),
		Hint: "without a writable cgroup only whole processors can be given: ask for a whole number, or run as root"}
}

// cannotPause means that the engine cannot pause, or that the host has no folder for
// images.
func cannotPause() error {
	return &fault.Error{Code: fault.Unimplemented, Err: errors.New("sandboxes cannot be paused here")}
}

func noNetwork() error {
	return &fault.Error{Code: fault.Unimplemented, Err: errors.New("sandboxes have no network here, so there is nothing that rules could open")}
}

// foreignImage means that this server cannot restore an image. Where it has memory its
// files may be restored nevertheless.
func foreignImage(why error, files bool) error {
	e := &fault.Error{Code: fault.Incompatible, Err: fmt.Errorf("it cannot go on where it was: %w", why)}
	if files {
		e.Hint = "ask for \"memory\": false, to have its files and boot it anew"
	}
	return e
}

// StateError says that a sandbox is not in a state in which it could be what was
// asked for. It is the cause of an error with the code fault.Conflict.
type StateError struct {
	ID       string
	State    State // that it is in
	Intended State // that it was to be in; the same where none was
}

func (e *StateError) Error() string {
	switch e.Intended {
	case e.State:
		return fmt.Sprintf("sandbox %s is %s", e.ID, e.State)
	case StatePausing:
		return fmt.Sprintf("sandbox %s is %s and cannot be paused", e.ID, e.State)
	case StateResuming:
		return fmt.Sprintf("sandbox %s is %s and cannot be resumed", e.ID, e.State)
	}
	return fmt.Sprintf("sandbox %s is %s and cannot be %s", e.ID, e.State, e.Intended)
}

// wrongState is the error of a sandbox that is in state and was to be in intended.
func wrongState(id string, state, intended State) error {
	return &fault.Error{Code: fault.Conflict, Err: &StateError{ID: id, State: state, Intended: intended}}
}

// End is when and why a sandbox ended.
type End struct {
	ID     string
	At     time.Time // UTC
	Reason string
}

func (e End) String() string {
	return "sandbox " + e.ID + " ended at " + e.At.Format(time.RFC3339) + ": " + e.Reason
}

// err is for a caller that may know of the end.
func (e End) err() error { return &fault.Error{Code: fault.NotFound, Err: errors.New(e.String())} }
