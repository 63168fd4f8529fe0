//go:build linux

package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Describe reads and authenticates an image's manifest, and decodes what Create was told
// about it into about, unless that is nil. Errors are ErrNotExist, a CorruptError, a
// VersionError or of the file system.
func (s *Store) Describe(id string, about any) (Info, error) {
	if !validID(id) {
		return Info{}, fmt.Errorf("image %q: %w", id, ErrNotExist)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, f, err := s.read(id)
	if err != nil {
		return Info{}, err
	}
	if err := f.Close(); err != nil {
		return Info{}, err
	}
	if about != nil {
		if err := json.Unmarshal(m.About, about); err != nil {
			return Info{}, &CorruptError{id, fmt.Sprintf("what its maker says about it cannot be read: %v", err)}
		}
	}
	info := infoOf(m)
	if im := s.images[id]; im != nil {
		info.Disk = im.info.Disk
	}
	return info, nil
}

// Use calls f with a folder that has what write of Create left in its folder, and that f
// must not change. Contents are verified before, unless this process wrote or verified
// them and nobody touched them since. If the image is encrypted, they are in memory, and
// gone when f returns. What loses its name meanwhile stays until f returns. Errors are
// ErrNotExist, a CorruptError, a KeyError, a VersionError, a RoomError (of Plain), f's own
// or of the file system.
func (s *Store) Use(ctx context.Context, id string, f func(dir string) error) (err error) {
	m, tags, stamps, err := s.begin(id)
	if err != nil {
		return err
	}
	defer s.done(m.Folder)
	key, err := s.keys.contents(m)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, m.Folder)
	opened, err := openExact(dir, m.Files)
	if err != nil {
		return asCorrupt(id, err)
	}
	if len(m.Cipher) > 0 {
		dir = filepath.Join(s.plain, newFolder(id))
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		err = s.decryptTo(ctx, key, m, opened, dir, tags)
	} else {
		err = s.trust(ctx, key, m, opened, tags, stamps)
	}
	if err := errors.Join(asCorrupt(id, err), closeAll(opened)); err != nil {
		return err
	}
	return f(dir)
}

// begin reads the manifest of an image that will be used until done.
func (s *Store) begin(id string) (m *manifest, tags []byte, stamps []stamp, err error) {
	if !validID(id) {
		return nil, nil, nil, fmt.Errorf("image %q: %w", id, ErrNotExist)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, f, err := s.read(id)
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	tags = make([]byte, m.chunks()*tagSize)
	if _, err := io.ReadFull(f, tags); err != nil {
		return nil, nil, nil, err
	}
	if !checkTags(m, tags) {
		return nil, nil, nil, &CorruptError{id, "its manifest's tags are not those that were written"}
	}
	if im := s.images[id]; im != nil && im.folder == m.Folder {
		stamps = im.stamps
	}
	s.users[m.Folder]++
	return m, tags, stamps, nil
}

// done ends a use, and removes what lost its name during it.
func (s *Store) done(folder string) {
	s.mu.Lock()
	s.users[folder]--
	if s.users[folder] == 0 {
		delete(s.users, folder)
	}
	var removable []string
	for name, r := range s.gone {
		if r.remove && slices.Contains(r.folders, folder) {
			removable = append(removable, name)
		}
	}
	s.mu.Unlock()
	for _, name := range removable {
		if err := s.removeGone(name); err != nil {
			s.log.Warn("image that was used cannot be removed", "err", err)
		}
	}
}

// trust verifies files, unless their stamps say that it was done, and notes the stamps.
func (s *Store) trust(ctx context.Context, key []byte, m *manifest, opened []*os.File, tags []byte, known []stamp) error {
	before, err := stampsOf(opened)
	if err != nil || known != nil && slices.Equal(before, known) {
		return err
	}
	readAhead(opened)
	if err := verify(ctx, key, m.Files, opened, tags); err != nil {
		return err
	}
	after, err := stampsOf(opened)
	if err != nil || !slices.Equal(before, after) {
		return err // verified, but not known to stay so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if im := s.images[m.ID]; im != nil && im.folder == m.Folder {
		im.stamps = after
	}
	return nil
}

// decryptTo writes the plaintext of opened into a new folder.
func (s *Store) decryptTo(ctx context.Context, key []byte, m *manifest, opened []*os.File, dir string, tags []byte) (err error) {
	free, err := freeBytes(s.plain)
	if err != nil {
		return err
	}
	if need := m.apparent(); need > free {
		return &RoomError{Where: s.plain, Need: need, Free: free}
	}
	to, err := createFiles(dir, m.Files)
	defer func() { err = full(s.plain, errors.Join(err, closeAll(to))) }()
	if err != nil {
		return err
	}
	readAhead(opened)
	return decrypt(ctx, key, m.Files, opened, to, tags)
}
