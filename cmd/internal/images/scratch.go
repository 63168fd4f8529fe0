//go:build linux

package images

import (
	"errors"
	"os"
	"path/filepath"
)

// Scratch makes a folder for an image that is used at once and by this process alone, as
// for the copies of a sandbox: nothing in it is sealed or synced, and the next Open
// removes it. Room for reserve bytes is kept until remove is called, or there is a
// RoomError. With Cipher the folder is below Plain.
func (s *Store) Scratch(reserve int64) (dir string, remove func(), err error) {
	folder := newFolder("scratch")
	dir = filepath.Join(s.dir, folder)
	if len(s.keys.name) > 0 {
		dir = filepath.Join(s.plain, folder)
	}
	release, err := s.reserve(folder, reserve, dir, dir)
	if err != nil {
		return "", nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		release()
		return "", nil, err
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.log.Warn("an image that is not needed cannot be removed", "path", dir, "err", err)
		}
		release()
	}, nil
}
