package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Images is a host's images in a folder, without what makes the real ones safe. It is safe
// for concurrent use; the fields are set before the first call.
type Images struct {
	Dir string
	// Fail, if it is not nil, is asked before each call, by the name of the method.
	Fail func(method string) error

	mu   sync.Mutex
	used sync.RWMutex // held while an image is used
}

const unfinished, description, apart = ".new", "about.json", ".apart"

func (i *Images) path(id string) string { return filepath.Join(i.Dir, id) }

func (i *Images) fails(method string) error {
	i.mu.Lock()
	fail := i.Fail
	i.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(method)
}

// SetFail replaces Fail while calls are under way.
func (i *Images) SetFail(fail func(method string) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Fail = fail
}

// Names are those of all images, and of what is unfinished or set apart, sorted.
func (i *Images) Names() []string {
	entries, err := os.ReadDir(i.Dir)
	if err != nil {
		return []string{err.Error()}
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Create implements host.Images.
func (i *Images) Create(_ context.Context, id string, _ int64, _ string, about any, write func(dir string) error) (err error) {
	if err := i.fails("Create"); err != nil {
		return err
	}
	dir := i.path(id) + unfinished
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := write(dir); err != nil {
		return err
	}
	b, err := json.Marshal(about)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, description), b, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(dir, i.path(id))
}

// Describe implements host.Images.
func (i *Images) Describe(id string, about any) (int64, error) {
	if err := i.fails("Describe"); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join(i.path(id), description))
	if err == nil && about != nil {
		err = json.Unmarshal(b, about)
	}
	return 1 << 20, err
}

// Use implements host.Images. What is beside the image is not in the folder.
func (i *Images) Use(_ context.Context, id string, f func(dir string) error) error {
	if err := i.fails("Use"); err != nil {
		return err
	}
	i.used.RLock()
	defer i.used.RUnlock()
	dir, remove, err := i.Scratch(0)
	if err != nil {
		return err
	}
	defer remove()
	entries, err := os.ReadDir(i.path(id))
	for _, e := range entries {
		if e.Name() != description {
			err = errors.Join(err, os.Link(filepath.Join(i.path(id), e.Name()), filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return f(dir)
}

// Scratch implements host.Images.
func (i *Images) Scratch(int64) (string, func(), error) {
	if err := i.fails("Scratch"); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp(i.Dir, "scratch-*"+unfinished)
	return dir, func() { os.RemoveAll(dir) }, err
}

// Retire implements host.Images.
func (i *Images) Retire(id string) error {
	if err := i.fails("Retire"); err != nil {
		return err
	}
	if err := os.Rename(i.path(id), i.path(id)+unfinished); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Copy implements host.Images.
func (i *Images) Copy(ctx context.Context, from, to string, about any) error {
	if err := i.fails("Copy"); err != nil {
		return err
	}
	return i.Use(ctx, from, func(dir string) error {
		return i.Create(ctx, to, 0, "", about, func(into string) error { return os.CopyFS(into, os.DirFS(dir)) })
	})
}

// Shelve implements host.Images. It keeps nothing.
func (i *Images) Shelve(id string) error {
	if err := i.fails("Shelve"); err != nil {
		return err
	}
	return i.remove(id)
}

// Remove implements host.Images.
func (i *Images) Remove(id string) error {
	if err := i.fails("Remove"); err != nil {
		return err
	}
	return i.remove(id)
}

func (i *Images) remove(id string) error {
	i.used.Lock()
	defer i.used.Unlock()
	return errors.Join(os.RemoveAll(i.path(id)), os.RemoveAll(i.path(id)+unfinished))
}

// Has implements host.Images.
func (i *Images) Has(id string) (bool, error) {
	if err := i.fails("Has"); err != nil {
		return false, err
	}
	_, err := os.Stat(i.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// SetApart implements host.Images.
func (i *Images) SetApart(id string, _ error) error {
	return errors.Join(i.fails("SetApart"), os.Rename(i.path(id), i.path(id)+apart))
}

// RemoveBut implements host.Images.
func (i *Images) RemoveBut(keep map[string]bool) error {
	if err := i.fails("RemoveBut"); err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.DeleteFunc(i.Names(), func(name string) bool { return keep[name] || strings.HasSuffix(name, apart) }) {
		errs = append(errs, os.RemoveAll(filepath.Join(i.Dir, name)))
	}
	return errors.Join(errs...)
}

// Usage implements host.Images: each image has a megabyte.
func (i *Images) Usage() (protocol.DiskUsage, error) {
	if err := i.fails("Usage"); err != nil {
		return protocol.DiskUsage{}, err
	}
	return protocol.DiskUsage{Images: int64(len(i.Names())) << 20}, nil
}
