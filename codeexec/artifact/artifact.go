// Package artifact keeps what an agent's code made: named, versioned, for each
// application, user and session. [Memory] keeps it in memory, [Dir] in a folder;
// other stores implement [Service].
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
)

// Bounds of names, in bytes.
const (
	maxName = 1024
	maxPart = 512
)

// userPrefix marks a name that all sessions of a user share.
const userPrefix = "user:"

// SessionInfo says whose an artifact is. An artifact whose name begins with
// "user:" belongs to all sessions of the user.
type SessionInfo struct {
	AppName   string
	UserID    string
	SessionID string
}

// Artifact is one version of a file.
type Artifact struct {
	Data     []byte `json:"data,omitempty"`
	MIMEType string `json:"mime_type,omitempty"`
	URL      string `json:"url,omitempty"` // where it can be fetched, if anywhere
	Name     string `json:"name,omitempty"`
}

// Service stores artifacts. Implementations are safe for concurrent use. Their
// errors are *cubby.Error: not_found for what is not there, invalid_argument for
// a bad name, no_space for too much.
type Service interface {
	// Save stores a new version and returns its number, from 0 on. The data is
	// not kept by reference.
	Save(ctx context.Context, info SessionInfo, name string, a *Artifact) (version int, err error)
	// Load returns a version, the newest if version is nil. The artifact is the
	// caller's.
	Load(ctx context.Context, info SessionInfo, name string, version *int) (*Artifact, error)
	// ListKeys returns the names that info can load, sorted.
	ListKeys(ctx context.Context, info SessionInfo) ([]string, error)
	// Delete removes every version. A name that is not there is no error.
	Delete(ctx context.Context, info SessionInfo, name string) error
	// ListVersions returns the versions of a name in order; none is not_found.
	ListVersions(ctx context.Context, info SessionInfo, name string) ([]int, error)
}

// ParseRef splits "name@3" into name and version; without a version the newest
// is meant and version is nil. An @ that no number follows is part of the name.
func ParseRef(ref string) (name string, version *int, err error) {
	name = ref
	if at := strings.LastIndexByte(ref, '@'); at > 0 {
		digits := ref[at+1:]
		if digits != "" && strings.Trim(digits, "0123456789") == "" {
			n, err := strconv.ParseInt(digits, 10, 31)
			if err != nil {
				return "", nil, fail("parse artifact reference", cubby.CodeInvalidArgument, fmt.Errorf("version %.20s is too large", digits))
			}
			name, version = ref[:at], new(int(n))
		}
	}
	if err := checkName(name); err != nil {
		return "", nil, fail("parse artifact reference", cubby.CodeInvalidArgument, err)
	}
	return name, version, nil
}

func checkName(name string) error {
	switch {
	case name == "" || name == userPrefix:
		return errors.New("an artifact needs a name")
	case len(name) > maxName:
		return fmt.Errorf("an artifact's name of more than %d bytes", maxName)
	case !utf8.ValidString(name):
		return errors.New("an artifact's name that is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("an artifact's name with control characters: %q", name)
	}
	return nil
}

// scope is where an artifact lives: application, user, session; the session is
// absent for what the user's sessions share.
type scope struct {
	app, user, session string
	shared             bool
}

func scopeOf(info SessionInfo, name string) (scope, error) {
	if err := checkName(name); err != nil {
		return scope{}, err
	}
	if err := checkInfo(info); err != nil {
		return scope{}, err
	}
	s := scope{app: info.AppName, user: info.UserID, session: info.SessionID}
	if strings.HasPrefix(name, userPrefix) {
		s.session, s.shared = "", true
	}
	return s, nil
}

func checkInfo(info SessionInfo) error {
	for what, part := range map[string]string{"application": info.AppName, "user": info.UserID, "session": info.SessionID} {
		if len(part) > maxPart {
			return fmt.Errorf("the name of the %s has more than %d bytes", what, maxPart)
		}
	}
	return nil
}

func fail(op string, code cubby.Code, err error) error {
	if e, ok := errors.AsType[*cubby.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		code = cubby.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = cubby.CodeTimeout
	}
	return &cubby.Error{Op: op, Code: code, Err: err}
}

func notFound(op, name string, version *int) error {
	if version != nil {
		return fail(op, cubby.CodeNotFound, missingError(fmt.Sprintf("no version %d of the artifact %q", *version, name)))
	}
	return fail(op, cubby.CodeNotFound, missingError(fmt.Sprintf("no artifact %q", name)))
}

// missingError says that an artifact is not there, which errors.Is finds to be
// fs.ErrNotExist.
type missingError string

func (e missingError) Error() string { return string(e) }

func (e missingError) Is(target error) bool { return target == fs.ErrNotExist }
