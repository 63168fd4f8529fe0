package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unfinished ends the name of an image in the making: one without it is whole.
const unfinished = ".new"

// imageOf is the folder of a paused sandbox's memory and files.
func (h *Host) imageOf(id string) string { return filepath.Join(h.cfg.ImageDir, id) }

// makeImage has write fill a new folder, which gets its name when all of it is on
// disk. A failure leaves nothing.
func (h *Host) makeImage(id string, write func(dir string) error) (err error) {
	final := h.imageOf(id)
	dir := final + unfinished
	if err := errors.Join(makeDir(h.cfg.ImageDir), os.RemoveAll(dir), os.RemoveAll(final)); err != nil {
		return fmt.Errorf("image of sandbox %s: %w", id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("image of sandbox %s: %w", id, err), os.RemoveAll(dir))
		}
	}()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := write(dir); err != nil {
		return err
	}
	if err := syncTree(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, final); err != nil {
		return err
	}
	return syncPath(h.cfg.ImageDir)
}

// makeDir makes a folder for the host alone, on disk, if it is not there.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncPath(filepath.Dir(dir))
}

// syncTree waits until a folder and all that is in it are on disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// retireImage takes its name from a sandbox's image, if it has one, so that no start of
// a server takes it for the sandbox: at once, as a removal is not, and on disk. After
// an error the image has its name.
func (h *Host) retireImage(id string) error {
	final := h.imageOf(id)
	if err := os.RemoveAll(final + unfinished); err != nil {
		return err
	}
	err := os.Rename(final, final+unfinished)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := syncPath(h.cfg.ImageDir); err != nil {
		return errors.Join(err, os.Rename(final+unfinished, final))
	}
	return nil
}

// removeImage removes what there is of a sandbox's image.
func (h *Host) removeImage(id string) error {
	if h.cfg.ImageDir == "" {
		return nil
	}
	return errors.Join(h.retireImage(id), os.RemoveAll(h.imageOf(id)), os.RemoveAll(h.imageOf(id)+unfinished))
}

// hasImage reports whether a sandbox's image is there and whole. An error means that
// it is unknown.
func (h *Host) hasImage(id string) (bool, error) {
	if h.cfg.ImageDir == "" {
		return false, errors.New("there is no folder for images")
	}
	info, err := os.Lstat(h.imageOf(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// removeImagesBut removes the images of all sandboxes but those.
func (h *Host) removeImagesBut(keep map[string]bool) error {
	if h.cfg.ImageDir == "" {
		return nil
	}
	entries, err := os.ReadDir(h.cfg.ImageDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if id, half := strings.CutSuffix(entry.Name(), unfinished); half || !keep[id] {
			errs = append(errs, os.RemoveAll(filepath.Join(h.cfg.ImageDir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
