package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// The files of a checkpoint. Memory is the first three, whose names are gVisor's. What
// was written below "/" is the others, which gVisor calls a filesystem checkpoint; its
// pages are in the memory's file if there is one.
const (
	stateFile     = checkpointfiles.StateFileName
	pagesMetaFile = checkpointfiles.PagesMetadataFileName
	pagesFile     = checkpointfiles.PagesFileName
	filesManifest = "files.pb"
	filesTree     = "files_tree.img"
	filesMetaFile = "files_meta.img"
	// imageFile describes the others and is written last: a folder without it is no
	// checkpoint.
	imageFile = "machine.json"
)

// maxImageFile is the most that is read of a description, in bytes.
const maxImageFile = 32 << 20

// What a checkpoint holds.
const (
	kindMemory = "memory" // and files
	kindFiles  = "files"
)

// image says what a checkpoint is of.
type image struct {
	Engine string       `json:"engine"`
	Commit string       `json:"commit"`
	Kind   string       `json:"kind"`
	Fixed  engine.Fixed `json:"fixed"`
	// Features are those of the processor that code inside was shown, by their
	// names in /proc/cpuinfo, if there is memory: programs may have chosen their
	// code by them.
	Features []string `json:"features,omitempty"`
	// Dependencies are the files of the root filesystem that were open, if there is memory.
	Dependencies []dependency `json:"dependencies,omitempty"`
	// Sizes are the bytes of the other files.
	Sizes map[string]int64 `json:"sizes"`
}

// hostFeatures are those of this processor, sorted.
func hostFeatures() []string {
	cpuid.Initialize()
	host := cpuid.HostFeatureSet()
	var names []string
	for _, f := range cpuid.AllFeatures() {
		if host.HasFeature(f) {
			names = append(names, f.String())
		}
	}
	slices.Sort(names)
	return names
}

func writeImage(dir string, i image) error {
	i.Engine, i.Commit = Name, commit
	b, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, imageFile), b, 0o600)
}

// readImage returns the description of a checkpoint that can be restored like that.
func (e *Engine) readImage(dir string, opts engine.RestoreOptions) (image, error) {
	i, err := describe(dir)
	if err != nil {
		return image{}, err
	}
	if err := i.restorable(opts, e.features); err != nil {
		return image{}, fmt.Errorf("%s: %w", dir, err)
	}
	if opts.FilesOnly && !e.keepsFiles() {
		return image{}, fmt.Errorf("restore files: there is no folder for what is written: %w", engine.ErrNotSupported)
	}
	return i, i.whole(dir)
}

func describe(dir string) (image, error) {
	f, err := os.Open(filepath.Join(dir, imageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return image{}, fmt.Errorf("%s holds no whole checkpoint: %w", dir, engine.ErrForeign)
	}
	if err != nil {
		return image{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxImageFile))
	if err != nil {
		return image{}, err
	}
	var i image
	if err := json.Unmarshal(b, &i); err != nil {
		return image{}, fmt.Errorf("%s: %w: %w", imageFile, engine.ErrForeign, err)
	}
	return i, nil
}

// restorable says whether an engine of this build can restore i on a processor that
// has those features.
func (i image) restorable(opts engine.RestoreOptions, has []string) error {
	switch {
	case i.Engine != Name || i.Kind != kindMemory && i.Kind != kindFiles:
		return fmt.Errorf("it is of %.40q, kind %.40q: %w", i.Engine, i.Kind, engine.ErrForeign)
	case opts.FilesOnly && i.Sizes[filesManifest] == 0:
		return fmt.Errorf("it has no files: what was written was kept in memory: %w", engine.ErrNotSupported)
	case opts.FilesOnly:
		return nil
	case i.Kind == kindFiles:
		return fmt.Errorf("it cannot go on where it was: %w", engine.ErrFilesOnly)
	case i.Commit != commit:
		return fmt.Errorf("its memory is of %s %.80q, this is %s: %w", Name, i.Commit, commit, engine.ErrForeign)
	}
	missing := slices.DeleteFunc(slices.Clone(i.Features), func(f string) bool { return slices.Contains(has, f) })
	if len(missing) > 0 {
		return fmt.Errorf("its programs may need of the processor what this one has not: %.200s: %w",
			strings.Join(missing, " "), engine.ErrForeign)
	}
	return nil
}

// whole says whether the files have the sizes that they had: gVisor's kernel may
// crash over others.
func (i image) whole(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(i.Sizes)) {
		if name != filepath.Base(name) {
			return fmt.Errorf("%s: it names a file %.80q: %w", dir, name, engine.ErrDamaged)
		}
		info, err := os.Lstat(filepath.Join(dir, name))
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is no regular file")
		}
		if err == nil && info.Size() != i.Sizes[name] {
			err = fmt.Errorf("it has %d bytes, and had %d", info.Size(), i.Sizes[name])
		}
		if err != nil {
			return fmt.Errorf("%s: %.80s: %w: %w", dir, name, engine.ErrDamaged, err)
		}
	}
	for _, name := range i.needs() {
		if _, has := i.Sizes[name]; !has {
			return fmt.Errorf("%s: it has no %s: %w", dir, name, engine.ErrDamaged)
		}
	}
	return nil
}

// needs are files that a checkpoint of its kind has.
func (i image) needs() []string {
	if i.Kind == kindFiles {
		return []string{filesManifest, filesTree, filesMetaFile, pagesFile}
	}
	return []string{stateFile, pagesMetaFile, pagesFile}
}

// asGVisors makes folder, with the files of the filesystem checkpoint in dir under the
// names that gVisor opens.
func asGVisors(dir, folder string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	errs := []error{os.Mkdir(folder, 0o700)}
	for to, from := range map[string]string{
		checkpointfiles.FSCheckpointManifestFileName: filesManifest,
		checkpointfiles.FSCheckpointMultiTarFileName: filesTree,
		checkpointfiles.PagesMetadataFileName:        filesMetaFile,
		checkpointfiles.PagesFileName:                pagesFile,
	} {
		errs = append(errs, os.Symlink(filepath.Join(dir, from), filepath.Join(folder, to)))
	}
	return errors.Join(errs...)
}
