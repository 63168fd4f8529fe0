//go:build linux

package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const whyName = "why.txt" // in the folder of an image that was set apart

// Apart is an image that was set apart.
type Apart struct {
	Name string // of its folder below Dir/corrupt: the image's id, and when it was
	Why  string
	Disk int64 // bytes on disk
}

func (s *Store) apartDir() string { return filepath.Join(s.dir, apartName) }

// SetApart keeps an image that cannot be used for a human, with a file that says why: in
// Dir/corrupt, where RemoveBut does not touch it. It counts for the budget until
// RemoveApart. It returns the name that it has there.
func (s *Store) SetApart(id string, why error) (string, error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	name, err := s.setApart(id, why)
	if err != nil {
		return "", fmt.Errorf("image %s cannot be set apart: %w", id, err)
	}
	s.log.Warn("image was set apart", "image", id, "dir", filepath.Join(s.apartDir(), name), "err", why)
	return name, nil
}

func (s *Store) setApart(id string, why error) (string, error) {
	im := s.images[id]
	if im == nil {
		return "", ErrNotExist
	}
	folders, err := s.foldersOf(id, im.folder)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(folders, func(folder string) bool { return s.users[folder] > 0 }) {
		return "", errors.New("it is in use")
	}
	if err := s.makeDir(s.apartDir()); err != nil {
		return "", err
	}
	name := id + "-" + time.Now().UTC().Format("20060102T150405.000000Z")
	dir := filepath.Join(s.apartDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := s.writeFile(filepath.Join(dir, whyName), []byte(why.Error()+"\n")); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	// The manifest comes last: without it a start would take the folder for a leftover.
	for _, entry := range append(slices.Clone(folders), id+manifestSuffix) {
		err := os.Rename(filepath.Join(s.dir, entry), filepath.Join(dir, entry))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := errors.Join(s.syncPath(dir), s.syncPath(s.dir)); err != nil {
			return "", err
		}
	}
	delete(s.images, id)
	s.apart, err = heldBelow(s.apartDir())
	return name, errors.Join(err, s.syncPath(s.apartDir()))
}

// ListApart lists what was set apart, by name.
func (s *Store) ListApart() ([]Apart, error) {
	entries, err := os.ReadDir(s.apartDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Apart
	for _, entry := range entries {
		dir := filepath.Join(s.apartDir(), entry.Name())
		held, err := heldBelow(dir)
		if err != nil {
			return nil, err
		}
		why, err := os.ReadFile(filepath.Join(dir, whyName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, Apart{entry.Name(), strings.TrimSpace(string(why)), sum(held)})
	}
	return all, nil
}

// RemoveApart removes an image that was set apart, by the name that ListApart gives.
func (s *Store) RemoveApart(name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return fmt.Errorf("%q: %w", name, ErrNotExist)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(s.apartDir(), name)
	if _, err := os.Lstat(dir); err != nil {
		return err
	}
	err := os.RemoveAll(dir)
	held, heldErr := heldBelow(s.apartDir())
	if heldErr == nil {
		s.apart = held
	}
	return errors.Join(err, heldErr)
}
