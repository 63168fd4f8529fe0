//go:build linux

package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Retire takes its name from an image, if there is one: at once, as a removal is not, and
// on disk. No later process finds it. After an error the image has its name. Its room is
// free after Remove.
func (s *Store) Retire(id string) error {
	if err := s.retire(id); err != nil {
		return fmt.Errorf("image %s: %w", id, err)
	}
	return nil
}

func (s *Store) retire(id string) error {
	if !validID(id) {
		return nil
	}
	s.naming.Lock()
	defer s.naming.Unlock()
	s.mu.Lock()
	im := s.images[id]
	var folders []string
	var err error
	if im != nil {
		folders, err = s.foldersOf(id, im.folder)
	}
	s.mu.Unlock()
	if im == nil || err != nil {
		return err
	}
	final, name := s.manifestPath(id), "."+newFolder(id)+goneSuffix
	away := filepath.Join(s.dir, name)
	if err := os.Rename(final, away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if err == nil {
		if err := s.syncPath(s.dir); err != nil {
			return errors.Join(err, os.Rename(away, final))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, id)
	s.gone[name] = &retired{id: id, folders: folders, held: im.held, encrypted: im.info.Encrypted}
	return nil
}

// Remove retires an image, if there is one, and frees its room, and that of what was
// retired before: at once, or when the last call of Use that has it returns.
func (s *Store) Remove(id string) error {
	if err := s.Retire(id); err != nil {
		return err
	}
	s.mu.Lock()
	var names []string
	for name, r := range s.gone {
		if r.id == id {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	if err := s.removeAll(names); err != nil {
		return fmt.Errorf("image %s: %w", id, err)
	}
	return nil
}

func (s *Store) removeAll(gone []string) error {
	var errs []error
	for _, name := range gone {
		errs = append(errs, s.removeGone(name))
	}
	return errors.Join(errs...)
}

// removeGone frees the room of an image without a name, or notes that its last user does.
func (s *Store) removeGone(name string) error {
	s.mu.Lock()
	r := s.gone[name]
	if r == nil {
		s.mu.Unlock()
		return nil
	}
	r.remove = true
	used := slices.ContainsFunc(r.folders, func(folder string) bool { return s.users[folder] > 0 })
	s.mu.Unlock()
	if used {
		return nil
	}
	for _, path := range append(s.paths(r.folders), filepath.Join(s.dir, name)) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	s.mu.Lock()
	delete(s.gone, name)
	s.mu.Unlock()
	return nil
}

// RemoveBut removes all images but those, and what versions of Cubby before this form left
// for ids that are not kept: folders with nothing but an id for a name. What was set apart
// stays.
func (s *Store) RemoveBut(keep map[string]bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && validID(name) && !keep[name] {
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, name)))
		}
	}
	for _, info := range s.List() {
		if !keep[info.ID] {
			errs = append(errs, s.Remove(info.ID))
		}
	}
	return errors.Join(errs...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
