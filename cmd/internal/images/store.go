//go:build linux

// Package images keeps whole machines' memory and files on disk: paused sandboxes and
// snapshots. It does not know what is in an image: it is a folder that somebody fills.
//
// An image is there with all of its content or not at all, whenever the process is killed,
// and what is used of it is what was written: contents are authenticated under a key that
// is not beside them. In the store's folder an image is a manifest, ID.image, and the
// folder that it names, ID.RANDOM. The manifest gets its name last and loses it first, by
// one rename each; a folder that no manifest names is a leftover, which Open removes.
package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// Config says where a Store is, and with which keys.
type Config struct {
	// Dir is the store's folder, of one process alone. It is made, with mode 0700, in a
	// folder that is there; one that other users may enter is refused.
	Dir string

	// Key is the data folder's: images are authenticated with it. nil is a random one,
	// with which no other process reads the images.
	Key *secret.Key

	// Cipher is the operator's key. New images are encrypted with it; without it they are
	// not. Each image says which it is, and what was made without is read with it, too.
	Cipher *secret.Key

	// Plain is a folder, on a tmpfs of this process alone, for the plaintext of an encrypted
	// image while it is written or used: as much memory as the image has bytes. Open removes
	// what is in it. It is needed with Cipher. Its mount should have the option noswap
	// where the kernel knows it: a tmpfs may be swapped out.
	Plain string

	// Budget is how many bytes all images together may take on disk, those that are set
	// apart included. 0 is no bound but the file system.
	Budget int64

	// Passing is for images that need not outlive this process: nothing waits until they
	// are on disk.
	Passing bool

	Logger *slog.Logger // nil: none
}

// Store is a folder of images. Its methods are safe for concurrent use.
type Store struct {
	dir, plain string
	budget     int64
	log        *slog.Logger
	keys       keys
	sharing    bool // files can share room

	// sync waits until a file or folder is on disk.
	sync func(*os.File) error

	// naming is held by who gives or takes a name on disk, which may take long. It is
	// locked before mu. Who takes a name changes the maps afterwards: a use that found the
	// name is counted by then.
	naming sync.Mutex

	mu     sync.Mutex
	images map[string]*image   // by id
	making map[string]*making  // by folder
	gone   map[string]*retired // by the name of what was the manifest
	users  map[string]int      // by folder: calls of Use
	apart  []held              // what was set apart
}

// image is what is known of one that has its name.
type image struct {
	info   Info
	folder string // "": unknown, as its manifest is not ours
	held   []held
	stamps []stamp // of files that this process has written or verified, by name; nil: it has not
}

// making is an image in the making.
type making struct {
	reserve int64
	dirs    []string // where it grows
}

// retired is an image that lost its name.
type retired struct {
	id      string
	folders []string
	held    []held
	remove  bool // once nobody uses it

	encrypted bool
	shelved   bool // until a new image of the id is made
}

const (
	manifestSuffix = ".image"
	newSuffix      = ".new"  // of a manifest in the making
	goneSuffix     = ".gone" // of one that lost its name
	folderMark     = "."     // between an image's id and what makes its folder's name unique
	apartName      = "corrupt"
)

var (
	idPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)
	folderPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}\.[0-9a-f]{16}$`)
)

func validID(id string) bool { return idPattern.MatchString(id) && id != apartName }

// Info is what is known of an image without its contents.
type Info struct {
	ID        string
	Created   time.Time
	Encrypted bool
	Apparent  int64 // bytes of its files
	Disk      int64 // bytes that it takes on disk
	Err       error // in a list: why it cannot be used, as far as its manifest tells
}

// Open opens a store, and removes what was in the making or half removed when the
// process before was killed.
func Open(cfg Config) (*Store, error) {
	s := &Store{
		dir: cfg.Dir, plain: cfg.Plain, budget: cfg.Budget, log: cfg.Logger,
		sync:   (*os.File).Sync,
		images: map[string]*image{}, making: map[string]*making{}, gone: map[string]*retired{}, users: map[string]int{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Passing {
		s.sync = func(*os.File) error { return nil }
	}
	key := cfg.Key
	if key == nil {
		key = secret.New()
	}
	s.keys = newKeys(key, cfg.Cipher)
	if cfg.Cipher != nil {
		if err := emptyPlain(cfg.Plain); err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
	}
	err := s.makeDir(s.dir)
	if err == nil {
		err = s.load()
	}
	if err == nil && cfg.Cipher == nil {
		s.sharing, err = canShare(s.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return s, nil
}

// makeDir makes a folder for this process's user alone, if it is not there.
func (s *Store) makeDir(dir string) error {
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		return s.syncPath(filepath.Dir(dir))
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if err := private(dir, fs.ModeDir|0o700); err != nil {
		return fmt.Errorf("%s must be a folder that nobody else may enter: %w", dir, err)
	}
	return nil
}

// emptyPlain is whether plaintext can be in dir without being written to a disk.
func emptyPlain(dir string) error {
	if dir == "" {
		return errors.New("encrypted images need a folder for plaintext")
	}
	if err := private(dir, fs.ModeDir|0o700); err != nil {
		return fmt.Errorf("the folder for plaintext, %s: %w", dir, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if st.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("the folder for plaintext, %s, is not on a tmpfs", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// load takes up what is in the folder. Of an image whose manifest is not authentic
// nothing is removed.
func (s *Store) load() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), manifestSuffix); ok && validID(id) {
			if err := s.take(id); err != nil {
				return err
			}
		}
	}
	leftovers := 0
	for _, entry := range entries {
		name := entry.Name()
		id, _, _ := strings.Cut(name, folderMark)
		owner := s.images[id]
		ours := folderPattern.MatchString(name) || strings.HasSuffix(name, newSuffix) || strings.HasSuffix(name, goneSuffix)
		if !ours || owner != nil && (owner.folder == "" || owner.folder == name) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			return err
		}
		leftovers++
	}
	if leftovers > 0 {
		s.log.Info("leftovers of images were removed", "dir", s.dir, "files", leftovers)
	}
	s.apart, err = heldBelow(s.apartDir())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// take notes an image that is on disk.
func (s *Store) take(id string) error {
	m, f, err := s.read(id)
	if f != nil {
		defer f.Close()
	}
	if m == nil && !unusable(err) {
		return err
	}
	im := &image{info: Info{ID: id, Err: err}}
	if m != nil {
		im.folder, im.info = m.Folder, infoOf(m)
	}
	folders, err := s.foldersOf(id, im.folder)
	if err != nil {
		return err
	}
	if im.held, err = s.heldBy(s.manifestPath(id), folders); err != nil {
		return err
	}
	im.info.Disk = sum(im.held)
	s.images[id] = im
	return nil
}

// unusable is whether an error is of the image, and not of what reads it.
func unusable(err error) bool {
	var corrupt *CorruptError
	var version *VersionError
	return errors.As(err, &corrupt) || errors.As(err, &version)
}

func infoOf(m *manifest) Info {
	return Info{ID: m.ID, Created: m.Created, Encrypted: len(m.Cipher) > 0, Apparent: m.apparent()}
}

// foldersOf are the folders of an image whose manifest names folder: all that could be its
// own if that is unknown.
func (s *Store) foldersOf(id, folder string) ([]string, error) {
	if folder != "" {
		return []string{folder}, nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, id+folderMark) && folderPattern.MatchString(name) && s.making[name] == nil && !s.isGone(name) {
			folders = append(folders, name)
		}
	}
	return folders, nil
}

func (s *Store) isGone(folder string) bool {
	for _, r := range s.gone {
		if slices.Contains(r.folders, folder) {
			return true
		}
	}
	return false
}

// heldBy is what a manifest and folders take. What is not there takes nothing.
func (s *Store) heldBy(manifest string, folders []string) ([]held, error) {
	var all []held
	for _, path := range append([]string{manifest}, s.paths(folders)...) {
		h, err := heldBelow(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, h...)
	}
	return all, nil
}

func (s *Store) paths(names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(s.dir, name)
	}
	return paths
}

func (s *Store) manifestPath(id string) string { return filepath.Join(s.dir, id+manifestSuffix) }

func (s *Store) syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(s.sync(f), f.Close())
}

// read reads an image's manifest up to its tags, which come next in the file. The file is
// nil after an error.
func (s *Store) read(id string) (*manifest, *os.File, error) {
	path := s.manifestPath(id)
	var f *os.File
	err := private(path, 0o600)
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // also if it loses its name in between
		return nil, nil, fmt.Errorf("image %s: %w", id, ErrNotExist)
	case err != nil:
		return nil, nil, asCorrupt(id, err)
	}
	var m *manifest
	info, err := f.Stat()
	if err == nil {
		m, err = s.keys.open(id, f)
	}
	if err == nil {
		at, seekErr := f.Seek(0, io.SeekCurrent)
		if want := at + m.chunks()*tagSize; seekErr != nil || info.Size() != want {
			err = errors.Join(&CorruptError{id, fmt.Sprintf("its manifest has %d bytes instead of %d", info.Size(), want)}, seekErr)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return m, f, nil
}

// asCorrupt makes a CorruptError of what is wrong with an image's files, but not of an
// error that says nothing about them.
func asCorrupt(id string, err error) error {
	var differs *errChanged
	switch {
	case errors.As(err, &differs):
		return &CorruptError{id, differs.reason}
	case errors.Is(err, fs.ErrNotExist):
		return &CorruptError{id, "its files are missing"}
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return &CorruptError{id, err.Error()}
	}
	return err
}

// Has reports whether there is an image with that id, whole or corrupt. An error means
// that it is unknown.
func (s *Store) Has(id string) (bool, error) {
	if !validID(id) {
		return false, nil
	}
	_, err := os.Lstat(s.manifestPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List lists the images, by id. Info.Err says which of them cannot be used.
func (s *Store) List() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]Info, 0, len(s.images))
	for _, im := range s.images {
		infos = append(infos, im.info)
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.ID, b.ID) })
	return infos
}
