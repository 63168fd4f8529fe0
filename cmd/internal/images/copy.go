//go:build linux

package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Copy makes an image with the contents of another: the same files on disk, so that it
// takes room of its own only once the other is gone. about replaces what is said of it.
// It must not have a name yet that an image has.
func (s *Store) Copy(from, to string, about any) (info Info, err error) {
	defer func() { err = s.failed(to, err) }()
	said, err := aboutOf(to, about)
	if err != nil {
		return Info{}, err
	}
	if there, err := s.Has(to); err != nil || there {
		return Info{}, errors.Join(err, fs.ErrExist)
	}
	m, tags, stamps, err := s.begin(from)
	if err != nil {
		return Info{}, err
	}
	defer s.done(m.Folder)
	source := filepath.Join(s.dir, m.Folder)
	m.ID, m.Folder, m.About = to, newFolder(to), said
	final := filepath.Join(s.dir, m.Folder)
	release, err := s.reserve(m.Folder, int64(len(tags)), final, final)
	if err != nil {
		return Info{}, err
	}
	defer release()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(final))
		}
	}()
	if stamps, err = link(source, final, m.Files, stamps); err != nil {
		return Info{}, asCorrupt(from, err)
	}
	if err := s.syncFolders(final); err != nil {
		return Info{}, err
	}
	return s.publish(m, tags, stamps)
}

// link gives files another name each. known are the files' stamps, which change with it;
// the new ones are returned if they were right until then.
func link(from, to string, files []file, known []stamp) (stamps []stamp, err error) {
	opened, err := openExact(from, files)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll(opened)) }()
	before, err := stampsOf(opened)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return nil, err
	}
	if err := makeFolders(to, files); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := os.Link(filepath.Join(from, f.Name), filepath.Join(to, f.Name)); err != nil {
			return nil, err
		}
	}
	if known == nil || !slices.Equal(before, known) {
		return nil, nil
	}
	return stampsOf(opened)
}
