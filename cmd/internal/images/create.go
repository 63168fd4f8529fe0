//go:build linux

package images

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options modify Store.Create.
type Options struct {
	Reserve int64 // bytes that the image will need at most; it may turn out larger
	About   any   // what Describe gives back: JSON of at most 1 MiB, not encrypted

	// Like is the id of an image of which much is likely the same: the new one shares that
	// part's room, where files of one name can share it (Sharing). Empty is what was shelved
	// of the new image's own id, if anything was.
	Like string
}

// Create makes an image of what write puts into a folder: files and folders with files,
// at most 256, whose modes become 0600 and 0700. It returns when all of it is on disk, or
// with nothing left of it. Room for Reserve is kept from the beginning, and missing room
// is a RoomError then; a file system that turns out full is one later. An image of that id
// that is there already is replaced at the end, by one rename. What write has to end when
// ctx does is its own matter.
func (s *Store) Create(ctx context.Context, id string, opts Options, write func(dir string) error) (info Info, err error) {
	defer func() { err = s.failed(id, err) }()
	about, err := aboutOf(id, opts.About)
	if err != nil {
		return Info{}, err
	}
	m := &manifest{ID: id, Folder: newFolder(id), Cipher: s.keys.name, About: about, salt: newSalt()}
	key, err := s.keys.contents(m)
	if err != nil {
		return Info{}, err
	}
	final, filled := filepath.Join(s.dir, m.Folder), filepath.Join(s.dir, m.Folder)
	if len(m.Cipher) > 0 {
		filled = filepath.Join(s.plain, m.Folder)
		defer func() { err = errors.Join(err, os.RemoveAll(filled)) }()
	}
	release, err := s.reserve(m.Folder, opts.Reserve, final, filled)
	if err != nil {
		return Info{}, err
	}
	defer release()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(final))
		}
	}()
	if err := os.Mkdir(filled, 0o700); err != nil {
		return Info{}, err
	}
	if err := write(filled); err != nil {
		return Info{}, err
	}
	if m.Files, err = tidy(filled); err != nil {
		return Info{}, fmt.Errorf("what was written: %w", err)
	}
	if err := errors.Join(m.checkFiles(), s.grow(m.Folder, m.apparent())); err != nil {
		return Info{}, err
	}
	opened, err := openExact(filled, m.Files)
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, closeAll(opened)) }()
	var tags []byte
	var stamps []stamp
	if len(m.Cipher) > 0 {
		tags, err = s.writeEncrypted(ctx, key, m, opened, final)
	} else {
		tags, stamps, err = s.tagAndSync(ctx, key, m, opened, opts.Like)
	}
	if err != nil {
		return Info{}, err
	}
	if err := s.syncFolders(final); err != nil {
		return Info{}, err
	}
	if info, err = s.publish(m, tags, stamps); err == nil {
		s.unshelve(id)
	}
	return info, err
}

// failed adds to an error which image it is of.
func (s *Store) failed(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("image %s: %w", id, full(s.dir, err))
}

func aboutOf(id string, about any) (json.RawMessage, error) {
	if !validID(id) {
		return nil, fmt.Errorf("%q is no id of an image", id)
	}
	b, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	if len(b) > maxAbout {
		return nil, fmt.Errorf("%d bytes about it, at most %d", len(b), maxAbout)
	}
	return b, nil
}

func newFolder(id string) string {
	b := make([]byte, 8)
	rand.Read(b)
	return id + folderMark + hex.EncodeToString(b)
}

// checkFiles is check for a manifest whose tags are not known yet.
func (m *manifest) checkFiles() error {
	whole := *m
	whole.Tags = make([]byte, sha256.Size)
	return whole.check()
}

// tidy lists the files of a folder that was filled, and gives all in it their modes.
func tidy(root string) ([]file, error) {
	files, dirs, err := scan(root)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := os.Chmod(filepath.Join(root, dir), 0o700); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(root, f.Name), 0o600); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// tagAndSync computes the tags of files while they go to the disk, as far as it has not
// got them in the image like.
func (s *Store) tagAndSync(ctx context.Context, key []byte, m *manifest, opened []*os.File, like string) (
	tags []byte, stamps []stamp, err error,
) {
	final := slices.Clone(opened)
	var made []*os.File
	defer func() { err = errors.Join(err, closeAll(made)) }()
	if base, done := s.base(m.ID, like); base != "" {
		defer done()
		for i, f := range opened {
			to, err := s.share(f, m.Files[i], base)
			if err != nil {
				return nil, nil, err
			}
			if to != nil {
				final[i] = to
				made = append(made, to)
			}
		}
	}
	var group errgroup.Group
	for _, f := range final {
		group.Go(func() error { return s.sync(f) })
	}
	tags, err = tagFiles(ctx, key, m.Files, opened)
	if err := errors.Join(err, group.Wait()); err != nil {
		return nil, nil, err
	}
	stamps, err = stampsOf(final)
	return tags, stamps, err
}

// writeEncrypted writes the encrypted form of opened into the folder final, to disk.
func (s *Store) writeEncrypted(ctx context.Context, key []byte, m *manifest, opened []*os.File, final string) (tags []byte, err error) {
	to, err := createFiles(final, m.Files)
	defer func() { err = errors.Join(err, closeAll(to)) }()
	if err != nil {
		return nil, err
	}
	if tags, err = encrypt(ctx, key, m.Files, opened, to); err != nil {
		return nil, err
	}
	for _, f := range to {
		if err := s.sync(f); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// createFiles makes a folder with empty files, which are returned also after an error.
func createFiles(root string, files []file) (created []*os.File, err error) {
	if err := os.Mkdir(root, 0o700); err != nil {
		return nil, err
	}
	if err := makeFolders(root, files); err != nil {
		return nil, err
	}
	for _, f := range files {
		file, err := os.OpenFile(filepath.Join(root, f.Name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return created, err
		}
		created = append(created, file)
	}
	return created, nil
}

// syncFolders waits until a folder's names are on disk, and those below.
func (s *Store) syncFolders(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return s.syncPath(path)
	})
}

func stampsOf(files []*os.File) (stamps []stamp, err error) {
	stamps = make([]stamp, len(files))
	for i, f := range files {
		if stamps[i], err = stampOf(f); err != nil {
			return nil, err
		}
	}
	return stamps, nil
}

// publish gives an image its name, in place of an older one. Its files are on disk. After
// an error the older one has it.
func (s *Store) publish(m *manifest, tags []byte, stamps []stamp) (info Info, err error) {
	sum256 := sha256.Sum256(tags)
	m.Tags, m.Created = sum256[:], time.Now().UTC().Truncate(time.Microsecond)
	head, err := s.keys.seal(m)
	if err != nil {
		return Info{}, err
	}
	draft := filepath.Join(s.dir, "."+m.Folder+newSuffix)
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(draft))
		}
	}()
	if err := s.writeFile(draft, head, tags); err != nil {
		return Info{}, err
	}
	// The folder's own name comes to disk before the manifest's.
	if err := s.syncPath(s.dir); err != nil {
		return Info{}, err
	}
	im := &image{info: infoOf(m), folder: m.Folder, stamps: stamps}
	if im.held, err = s.heldBy(draft, []string{m.Folder}); err != nil {
		return Info{}, err
	}
	im.info.Disk = sum(im.held)
	old, err := s.rename(m, draft, im)
	if err != nil {
		return Info{}, err
	}
	if old != "" {
		if err := s.removeGone(old); err != nil {
			s.log.Warn("image that was replaced cannot be removed", "image", m.ID, "err", err)
		}
	}
	return im.info, nil
}

func (s *Store) writeFile(path string, parts ...[]byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := f.Write(part); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(s.sync(f), f.Close())
}

// rename gives the manifest in draft its name, on disk. It returns the name that an older
// image has then among the gone ones.
func (s *Store) rename(m *manifest, draft string, im *image) (old string, err error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	final := s.manifestPath(m.ID)
	old = "." + newFolder(m.ID) + goneSuffix
	switch err := os.Link(final, filepath.Join(s.dir, old)); {
	case errors.Is(err, fs.ErrNotExist):
		old = ""
	case err != nil:
		return "", err
	}
	err = os.Rename(draft, final)
	if err == nil {
		err = s.syncPath(s.dir)
	}
	switch {
	case err != nil && old != "":
		return "", errors.Join(err, os.Rename(filepath.Join(s.dir, old), final))
	case err != nil:
		return "", errors.Join(err, removeIfThere(final))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.images[m.ID]; before != nil && old != "" {
		folders, err := s.foldersOf(m.ID, before.folder)
		if err != nil {
			s.log.Warn("image that was replaced stays until the next start", "image", m.ID, "err", err)
		}
		folders = slices.DeleteFunc(folders, func(name string) bool { return name == m.Folder })
		s.gone[old] = &retired{id: m.ID, folders: folders, held: before.held}
	}
	s.images[m.ID] = im
	return old, nil
}
