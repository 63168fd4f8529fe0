package fault

import (
	"fmt"
	"net/http"
)

// Code says what kind of error an [Error] is. Codes map one to one to HTTP statuses,
// and to the errors of E2B's clients. Their names are what travels; the numbers may
// change between versions.
type Code int

// The codes, in the order of their HTTP statuses. The zero Code is not used.
const (
	InvalidArgument  Code = iota + 1 // 400: the request makes no sense
	Unauthenticated                  // 401: no key or token, or a wrong one
	PermissionDenied                 // 403: known, but not allowed
	NotFound                         // 404: no such sandbox, context, language, template or file
	Timeout                          // 408: it took too long
	Conflict                         // 409: not in this state
	Paused                           // 423: the sandbox is paused
	RateLimited                      // 429: too many requests or sandboxes
	Canceled                         // 499: the caller's context was cancelled
	Internal                         // 500: the server's own fault
	Unimplemented                    // 501: this server cannot do that
	SandboxGone                      // 502: the sandbox ended or cannot be reached
	Unavailable                      // 503: the server is not there, or not now
	Incompatible                     // 505: the two sides are of different versions
	NoSpace                          // 507: the sandbox's disk is full
)

// codes is indexed by Code.
var codes = [...]struct {
	name   string
	status int
}{
	InvalidArgument:  {"invalid_argument", http.StatusBadRequest},
	Unauthenticated:  {"unauthenticated", http.StatusUnauthorized},
	PermissionDenied: {"permission_denied", http.StatusForbidden},
	NotFound:         {"not_found", http.StatusNotFound},
	Timeout:          {"timeout", http.StatusRequestTimeout},
	Conflict:         {"conflict", http.StatusConflict},
	Paused:           {"paused", http.StatusLocked},
	RateLimited:      {"rate_limited", http.StatusTooManyRequests},
	Canceled:         {"canceled", 499},
	Internal:         {"internal", http.StatusInternalServerError},
	Unimplemented:    {"unimplemented", http.StatusNotImplemented},
	SandboxGone:      {"sandbox_gone", http.StatusBadGateway},
	Unavailable:      {"unavailable", http.StatusServiceUnavailable},
	Incompatible:     {"incompatible", http.StatusHTTPVersionNotSupported},
	NoSpace:          {"no_space", http.StatusInsufficientStorage},
}

func (c Code) known() bool { return c > 0 && int(c) < len(codes) }

// String returns the code's name, such as "not_found".
func (c Code) String() string {
	if c.known() {
		return codes[c].name
	}
	return fmt.Sprintf("code(%d)", int(c))
}

// HTTPStatus returns the HTTP status that means c; 500 for an unknown code.
func (c Code) HTTPStatus() int {
	if c.known() {
		return codes[c].status
	}
	return http.StatusInternalServerError
}

// FromHTTP returns the code for an HTTP status of 400 or more.
func FromHTTP(status int) Code {
	for c := Code(1); c.known(); c++ {
		if codes[c].status == status {
			return c
		}
	}
	switch {
	case status == http.StatusGatewayTimeout:
		return Timeout
	case status == http.StatusMethodNotAllowed:
		return Unimplemented // a server that does not know the route
	case status >= 400 && status < 500:
		return InvalidArgument
	}
	return Internal
}

// fromName returns the code with that name, and Internal for a name that this build
// does not know.
func fromName(name string) Code {
	for c := Code(1); c.known(); c++ {
		if codes[c].name == name {
			return c
		}
	}
	return Internal
}
