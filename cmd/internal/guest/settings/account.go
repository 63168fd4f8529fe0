//go:build linux

package settings

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
)

// Account is a user of the sandbox.
type Account struct {
	Name     string
	UID, GID int
	Home     string
}

// RequestUser returns who a call acts as: E2B's clients say so with a basic
// authorisation without a password.
func RequestUser(h http.Header) string {
	r := http.Request{Header: h}
	name, _, _ := r.BasicAuth()
	return name
}

// MaxPath is the longest path that Linux takes, with its end.
const MaxPath = 4096

// Path returns the absolute path that p means to the user; an empty one is the
// home folder.
func (a Account) Path(p string) (string, error) {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", errors.New("the path contains a NUL byte")
	case len(p) >= MaxPath:
		return "", errors.New("the path is too long")
	case p == "~":
		return a.Home, nil
	case strings.HasPrefix(p, "~/"):
		p = p[2:]
	case strings.HasPrefix(p, "~"):
		// So E2B does; a file that has such a name is called ./~name.
		return "", fmt.Errorf("path '%s': only one's own home folder can be named with '~'", reply.Cut(p))
	case strings.HasPrefix(p, "/"):
		return path.Clean(p), nil
	}
	if p = path.Join(a.Home, p); len(p) >= MaxPath {
		return "", errors.New("the path is too long")
	}
	return p, nil
}
