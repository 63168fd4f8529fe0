package cubby

import (
	"errors"
	"io/fs"
	"net/http"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Code says what kind of error an [Error] is. The codes map one to one to HTTP
// statuses and to the errors of E2B's clients. Its methods: String returns the code's
// name, such as "not_found", and HTTPStatus the status that means it. Compare codes
// with the constants: the numbers may change between versions.
type Code = fault.Code

// The codes, in the order of their HTTP statuses. The zero Code is not used.
const (
	CodeInvalidArgument  = fault.InvalidArgument  // 400: the request makes no sense
	CodeUnauthenticated  = fault.Unauthenticated  // 401: no key or token, or a wrong one
	CodePermissionDenied = fault.PermissionDenied // 403: known, but not allowed
	CodeNotFound         = fault.NotFound         // 404: no such sandbox, context, language, template or file
	CodeTimeout          = fault.Timeout          // 408: it took too long
	CodeConflict         = fault.Conflict         // 409: not in this state
	CodePaused           = fault.Paused           // 423: the sandbox is paused; Client.Connect resumes it
	CodeRateLimited      = fault.RateLimited      // 429: too many requests or sandboxes
	CodeCanceled         = fault.Canceled         // 499: the caller's context was cancelled
	CodeInternal         = fault.Internal         // 500: the server's own fault
	CodeUnimplemented    = fault.Unimplemented    // 501: this server cannot do that
	CodeSandboxGone      = fault.SandboxGone      // 502: the sandbox ended or cannot be reached
	CodeUnavailable      = fault.Unavailable      // 503: the server is not there, or not now
	CodeIncompatible     = fault.Incompatible     // 505: the two sides are of different versions
	CodeNoSpace          = fault.NoSpace          // 507: the sandbox's disk is full
)

// CodeFromHTTP returns the code for an HTTP status of 400 or more.
func CodeFromHTTP(status int) Code { return fault.FromHTTP(status) }

// codeFromConnect maps the error codes of the Connect protocol, which the
// filesystem calls speak.
func codeFromConnect(name string) (Code, bool) {
	switch name {
	case "invalid_argument", "out_of_range":
		return CodeInvalidArgument, true
	case "unauthenticated":
		return CodeUnauthenticated, true
	case "permission_denied":
		return CodePermissionDenied, true
	case "not_found":
		return CodeNotFound, true
	case "already_exists", "failed_precondition", "aborted":
		return CodeConflict, true
	case "resource_exhausted":
		return CodeNoSpace, true
	case "deadline_exceeded":
		return CodeTimeout, true
	case "canceled":
		return CodeCanceled, true
	case "unimplemented":
		return CodeUnimplemented, true
	case "unavailable":
		return CodeUnavailable, true
	case "internal", "unknown", "data_loss":
		return CodeInternal, true
	}
	return 0, false
}

// Error is the one error type of this package, and of all packages of this module:
//
//	type Error struct {
//		Op         string        // what was being done, such as "run code"; may be empty
//		Code       Code          // what kind of error it is
//		Err        error         // the cause, which Unwrap returns; never nil
//		Hint       string        // what to do about it; may be empty
//		RetryAfter time.Duration // when to try again; 0 where the server does not say
//	}
//
// Its Error method returns operation, cause and hint; Message leaves the hint out. Get
// it with errors.AsType[*cubby.Error](err), or only its code with [CodeOf]. errors.Is
// finds in the errors of [Files] what package io/fs has for them, too:
// fs.ErrNotExist, fs.ErrExist and fs.ErrPermission.
//
// An error may be known to several goroutines: do not change one, copy it.
type Error = fault.Error

// CodeOf returns the code of the first [*Error] in err's tree, and 0 when there
// is none.
func CodeOf(err error) Code { return fault.CodeOf(err) }

// fail wraps err as an *Error unless it already is one, which it may name after
// op, but leaves as it is: it may be somebody else's, too. Errors of a context
// become CodeCanceled and CodeTimeout, whatever code says.
func fail(op string, code Code, err error) error { return fault.Wrap(op, code, err) }

// recoded returns err with code to where it has code from.
func recoded(err error, from, to Code) error {
	e := fault.In(err)
	if e == nil || e.Code != from {
		return err
	}
	other := *e
	other.Code = to
	return &other
}

// answered is the cause of an error that a server answered.
type answered struct {
	status  int // of HTTP
	message string
}

func (a *answered) Error() string { return a.message }

// statusOf is the HTTP status of the answer that err comes from; 0 if none did.
func statusOf(err error) int {
	if a, ok := errors.AsType[*answered](err); ok {
		return a.status
	}
	return 0
}

// fileError is the cause of an error about a file, which errors.Is finds to be of
// that kind.
type fileError struct {
	error
	kind error // fs.ErrNotExist, fs.ErrExist or fs.ErrPermission
}

func (e fileError) Unwrap() error { return e.error }

func (e fileError) Is(target error) bool { return target == e.kind }

// ofFile makes an error about a file known to errors.Is as package io/fs has it.
func ofFile(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	var kind error
	switch {
	case e.Code == CodeNotFound:
		kind = fs.ErrNotExist
	case e.Code == CodePermissionDenied:
		kind = fs.ErrPermission
	case e.Code == CodeConflict && statusOf(e) == http.StatusConflict: // not one of the other reasons for a conflict
		kind = fs.ErrExist
	default:
		return err
	}
	known := *e
	known.Err = fileError{e.Err, kind}
	return &known
}
