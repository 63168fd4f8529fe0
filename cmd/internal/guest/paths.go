//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"
)

// account is a user of the sandbox.
type account struct {
	name     string
	uid, gid int
	home     string
}

// account returns the user that name means; empty means the default one.
func (g *Guest) account(name string) (account, error) {
	if name == "" {
		name = g.settings.Load().user
	}
	switch name {
	case "", g.cfg.UserName:
		return account{g.cfg.UserName, int(g.cfg.UID), int(g.cfg.GID), g.cfg.Home}, nil
	case "root":
		return account{"root", 0, 0, "/root"}, nil
	}
	return account{}, fmt.Errorf("invalid username: '%s'", cut(name))
}

// requestUser returns who a call acts as: E2B's clients say so with a basic
// authorisation without a password.
func requestUser(h http.Header) string {
	r := http.Request{Header: h}
	name, _, _ := r.BasicAuth()
	return name
}

// maxPath is the longest path that Linux takes, with its end.
const maxPath = 4096

// path returns the absolute path that p means to the user; an empty one is the
// home folder.
func (a account) path(p string) (string, error) {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", errors.New("the path contains a NUL byte")
	case len(p) >= maxPath:
		return "", errors.New("the path is too long")
	case p == "~":
		return a.home, nil
	case strings.HasPrefix(p, "~/"):
		p = p[2:]
	case strings.HasPrefix(p, "~"):
		// So E2B does; a file that has such a name is called ./~name.
		return "", fmt.Errorf("path '%s': only one's own home folder can be named with '~'", cut(p))
	case strings.HasPrefix(p, "/"):
		return path.Clean(p), nil
	}
	if p = path.Join(a.home, p); len(p) >= maxPath {
		return "", errors.New("the path is too long")
	}
	return p, nil
}

// resolve is path for the default user; what is no path at all stays as it is and
// does not exist.
func (g *Guest) resolve(p string) string {
	a, err := g.account("")
	if err != nil {
		return p
	}
	abs, err := a.path(p)
	if err != nil {
		return p
	}
	return abs
}

// makeDirs makes p and the parents that are missing, all the user's. Where a file
// is in the way the error is ENOTDIR.
func (g *Guest) makeDirs(a account, p string) error {
	if st, err := os.Stat(p); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if parent := path.Dir(p); parent != p {
		if err := g.makeDirs(a, parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(p, 0o755); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Somebody else was quicker, or the name is a link to nothing.
		if st, err := os.Stat(p); err != nil || !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if g.cfg.SwitchUser {
		return os.Lchown(p, a.uid, a.gid)
	}
	return nil
}
