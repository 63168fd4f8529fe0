package child

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cubby-sandbox/cubby/cmd/internal/guestbin"
	"github.com/cubby-sandbox/cubby/cmd/internal/images"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
)

// programsDir is the folder, in the data folder, of the programs that paused sandboxes
// run: a folder for each build, with the id of its programs as its name.
const programsDir = "programs"

// programsID stands for the content of the programs that this build puts into sandboxes.
func programsID() string {
	sum := sha256.Sum256([]byte(guestbin.Content()))
	return hex.EncodeToString(sum[:8])
}

// keptPrograms are the programs of images, of this build and of earlier ones: what a machine
// runs is not in its image, and a resume needs the same.
type keptPrograms struct {
	dir   string // "": nothing outlives the process
	files []*packed.Located
	all   []template.Programs // of earlier builds
	keep  func() error        // has those of this build there
}

// openKeptPrograms finds those of earlier builds. Close is called in any case.
func openKeptPrograms(dataDir, runDir string, current guestPrograms) (k *keptPrograms, err error) {
	k = &keptPrograms{keep: func() error { return nil }}
	if dataDir == "" {
		return k, nil
	}
	k.dir = filepath.Join(dataDir, programsDir)
	var mu sync.Mutex
	k.keep = func() error { // again after an error: a full disk may have room by now
		mu.Lock()
		defer mu.Unlock()
		return k.copyCurrent(current)
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == newSuffix {
			err = errors.Join(err, os.RemoveAll(filepath.Join(k.dir, e.Name())))
		} else if e.Name() != programsID() {
			err = k.open(e.Name(), runDir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return k, fmt.Errorf("programs of paused sandboxes: %w", err)
		}
	}
	return k, nil
}

// newSuffix ends the name of a folder in the making.
const newSuffix = ".new"

func (k *keptPrograms) open(id, runDir string) error {
	p := template.Programs{ID: id}
	for name, path := range map[string]*string{guestName: &p.Guest, typeScriptName: &p.TypeScript} {
		at := filepath.Join(k.dir, id, name)
		file, err := os.Open(at)
		if err != nil {
			return err
		}
		located := &packed.Located{File: file, Path: at, From: packed.FromBeside}
		k.files = append(k.files, located)
		if *path, err = everybodys(located, filepath.Join(runDir, guestDir), id+"-"+name); err != nil {
			return err
		}
	}
	k.all = append(k.all, p)
	return nil
}

// copyCurrent copies the programs of this build, unless they are there.
func (k *keptPrograms) copyCurrent(current guestPrograms) error {
	final := filepath.Join(k.dir, programsID())
	if _, err := os.Stat(final); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := final + newSuffix
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	for i, name := range []string{guestName, typeScriptName} {
		if err := copyFile(filepath.Join(dir, name), current.files[i].File); err != nil {
			return errors.Join(fmt.Errorf("programs of paused sandboxes: %w", err), os.RemoveAll(dir))
		}
	}
	return os.Rename(dir, final)
}

func copyFile(path string, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	// Not by its offset, which others may use.
	_, err = io.Copy(to, io.NewSectionReader(from, 0, info.Size()))
	return errors.Join(err, to.Sync(), to.Close())
}

// removeUnused removes those of earlier builds of which there is no image any more. They
// are in the root that is composed already, which keeps them as long as it is there.
func (k *keptPrograms) removeUnused(store *images.Store) error {
	if k.dir == "" {
		return nil
	}
	used := map[string]bool{programsID(): true}
	for _, info := range store.List() {
		var about struct {
			Programs string `json:"programs"`
		}
		if _, err := store.Describe(info.ID, &about); err != nil {
			return nil // whose that is, is not known: nothing is removed
		}
		used[about.Programs] = true
	}
	var errs []error
	for _, p := range k.all {
		if !used[p.ID] {
			errs = append(errs, os.RemoveAll(filepath.Join(k.dir, p.ID)))
		}
	}
	return errors.Join(errs...)
}

// ids are those of all programs that a machine can be restored with.
func (k *keptPrograms) ids() []string {
	ids := []string{programsID()}
	for _, p := range k.all {
		ids = append(ids, p.ID)
	}
	return ids
}

// Close lets the files go.
func (k *keptPrograms) Close() error {
	if k == nil {
		return nil
	}
	var errs []error
	for _, file := range k.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
