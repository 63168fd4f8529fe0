//go:build linux

package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// makeDirs makes p and the parents that are missing, all the user's. Where a file
// is in the way the error is ENOTDIR.
func (s *Service) makeDirs(a settings.Account, p string) error {
	if st, err := os.Stat(p); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if parent := path.Dir(p); parent != p {
		if err := s.makeDirs(a, parent); err != nil {
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
	if s.settings.Config.SwitchUser {
		return os.Lchown(p, a.UID, a.GID)
	}
	return nil
}
