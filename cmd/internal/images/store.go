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
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

	"golang.org/x/sync/errgroup"
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

	Logger *slog.Logger // nil: none
}

// Store is a folder of images. Its methods are safe for concurrent use.
type Store struct {
	dir, plain string
	budget     int64
	log        *slog.Logger
	keys       keys

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
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("image %s: %w", id, ErrNotExist)
	case err != nil:
		return nil, nil, err
	}
	if err := private(path, 0o600); err != nil {
		return nil, nil, asCorrupt(id, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, asCorrupt(id, err)
	}
	m, err := s.keys.open(id, f)
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

// Options modify Store.Create.
type Options struct {
	Reserve int64 // bytes that the image will need at most; it may turn out larger
	About   any   // what Describe gives back: JSON of at most 1 MiB, not encrypted
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
	if len(m.Cipher) > 0 {
		tags, err = s.writeEncrypted(ctx, key, m, opened, final)
	} else {
		tags, err = s.tagAndSync(ctx, key, m, opened)
	}
	if err != nil {
		return Info{}, err
	}
	if err := s.syncFolders(final); err != nil {
		return Info{}, err
	}
	var stamps []stamp
	if len(m.Cipher) == 0 {
		if stamps, err = stampsOf(opened); err != nil {
			return Info{}, err
		}
	}
	return s.publish(m, tags, stamps)
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

// tagAndSync computes the tags of files while they go to the disk.
func (s *Store) tagAndSync(ctx context.Context, key []byte, m *manifest, opened []*os.File) (tags []byte, err error) {
	var group errgroup.Group
	for _, f := range opened {
		group.Go(func() error { return s.sync(f) })
	}
	tags, err = tagFiles(ctx, key, m.Files, opened)
	return tags, errors.Join(err, group.Wait())
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
	s.gone[name] = &retired{id: id, folders: folders, held: im.held}
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
	var errs []error
	for _, name := range names {
		errs = append(errs, s.removeGone(name))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image %s: %w", id, err)
	}
	return nil
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
