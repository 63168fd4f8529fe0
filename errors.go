package cubby

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
)

// Code says what kind of error an [Error] is. The codes map one to one to HTTP
// statuses and to the errors of E2B's clients.
type Code int

// The codes. The zero Code is not used.
const (
	CodeInvalidArgument  Code = iota + 1 // 400: the request makes no sense
	CodeUnauthenticated                  // 401: no key or token, or a wrong one
	CodePermissionDenied                 // 403: known, but not allowed
	CodeNotFound                         // 404: no such sandbox, context, language, template or file
	CodeTimeout                          // 408: it took too long
	CodeConflict                         // 409: not in this state
	CodeRateLimited                      // 429: too many requests or sandboxes
	CodeCanceled                         // 499: the caller's context was cancelled
	CodeInternal                         // 500: the server's own fault
	CodeUnimplemented                    // 501: this server cannot do that
	CodeSandboxGone                      // 502: the sandbox ended or cannot be reached
	CodeUnavailable                      // 503: the server is not there, or not now
	CodeIncompatible                     // 505: the two sides are of different versions
	CodeNoSpace                          // 507: the sandbox's disk is full
	CodePaused                           // 423: the sandbox is paused; Client.Connect resumes it
)

var codes = map[Code]struct {
	name   string
	status int
}{
	CodeInvalidArgument:  {"invalid_argument", http.StatusBadRequest},
	CodeUnauthenticated:  {"unauthenticated", http.StatusUnauthorized},
	CodePermissionDenied: {"permission_denied", http.StatusForbidden},
	CodeNotFound:         {"not_found", http.StatusNotFound},
	CodeTimeout:          {"timeout", http.StatusRequestTimeout},
	CodeConflict:         {"conflict", http.StatusConflict},
	CodeRateLimited:      {"rate_limited", http.StatusTooManyRequests},
	CodeCanceled:         {"canceled", 499},
	CodeInternal:         {"internal", http.StatusInternalServerError},
	CodeUnimplemented:    {"unimplemented", http.StatusNotImplemented},
	CodeSandboxGone:      {"sandbox_gone", http.StatusBadGateway},
	CodeUnavailable:      {"unavailable", http.StatusServiceUnavailable},
	CodeIncompatible:     {"incompatible", http.StatusHTTPVersionNotSupported},
	CodeNoSpace:          {"no_space", http.StatusInsufficientStorage},
	CodePaused:           {"paused", http.StatusLocked},
}

// String returns the code's name, such as "not_found".
func (c Code) String() string {
	if k, ok := codes[c]; ok {
		return k.name
	}
	return fmt.Sprintf("code(%d)", int(c))
}

// HTTPStatus returns the HTTP status that means c; 500 for an unknown code.
func (c Code) HTTPStatus() int {
	if k, ok := codes[c]; ok {
		return k.status
	}
	return http.StatusInternalServerError
}

// CodeFromHTTP returns the code for an HTTP status of 400 or more.
func CodeFromHTTP(status int) Code {
	for c, k := range codes {
		if k.status == status {
			return c
		}
	}
	switch {
	case status == http.StatusGatewayTimeout:
		return CodeTimeout
	case status == http.StatusMethodNotAllowed:
		return CodeUnimplemented // a server that does not know the route
	case status >= 400 && status < 500:
		return CodeInvalidArgument
	}
	return CodeInternal
}

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

// Error is the one error type of this package. errors.Is finds in the errors of
// [Files] what package io/fs has for them, too: fs.ErrNotExist, fs.ErrExist and
// fs.ErrPermission. It does not change once it was returned.
type Error struct {
	Op   string // what was being done, such as "run code"
	Code Code
	Err  error  // never nil
	Hint string // what to do about it; may be empty

	status int // of the HTTP answer that said so; 0 if none did
}

// Error returns the operation, the cause and, in parentheses, the hint.
func (e *Error) Error() string {
	s := e.Err.Error()
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first [*Error] in err's tree, and 0 when there
// is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// fail wraps err as an *Error unless it already is one, which it may name after
// op, but leaves as it is: it may be somebody else's, too. Errors of a context
// become CodeCanceled and CodeTimeout, whatever code says.
func fail(op string, code Code, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Op == "" {
			e = e.copied()
			e.Op = op
		}
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		code = CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = CodeTimeout
	}
	return &Error{Op: op, Code: code, Err: err}
}

// copied returns a copy that can be changed: an error may be known to others.
func (e *Error) copied() *Error {
	c := *e
	return &c
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
	case e.Code == CodeConflict && e.status == http.StatusConflict: // not one of the other reasons for a conflict
		kind = fs.ErrExist
	default:
		return err
	}
	e = e.copied()
	e.Err = fileError{e.Err, kind}
	return e
}
