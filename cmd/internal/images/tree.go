//go:build linux

package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// errChanged means that files are not those that were sealed.
type errChanged struct{ reason string }

func (e *errChanged) Error() string { return e.reason }

func differs(format string, args ...any) error { return &errChanged{fmt.Sprintf(format, args...)} }

// stamp tells whether a file is the one that was there before, and was not touched since.
type stamp struct {
	dev, ino, size int64
	changed        unix.Timespec
	modified       unix.Timespec
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return stamp{int64(st.Dev), int64(st.Ino), st.Size, st.Ctim, st.Mtim}, nil
}

// held is what a file takes on disk. Names of the same file are counted once.
type held struct {
	dev, ino uint64
	bytes    int64
}

// heldBelow is what a file, or a folder with all that is in it, takes on disk.
func heldBelow(path string) ([]held, error) {
	var all []held
	err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		all = append(all, held{uint64(st.Dev), st.Ino, st.Blocks * 512})
		return nil
	})
	return all, err
}

// scan lists what is in a folder: files by name, and folders. What is neither is an
// error, and so is a folder without files: no manifest could name it.
func scan(root string) (files []file, dirs []string, err error) {
	used := map[string]bool{".": true}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			dirs = append(dirs, name)
		case info.Mode().IsRegular():
			files = append(files, file{name, info.Size()})
			for dir := filepath.Dir(name); !used[dir]; dir = filepath.Dir(dir) {
				used[dir] = true
			}
		default:
			return differs("%s is no file: %s", name, info.Mode().Type())
		}
		if len(files)+len(dirs) > 2*maxFiles {
			return differs("more than %d files", maxFiles)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, dir := range dirs {
		if !used[dir] {
			return nil, nil, differs("folder %s is empty", dir)
		}
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Name < files[j].Name })
	return files, dirs, nil
}

// openExact opens the files of an image, which must be exactly those that its manifest
// names, ours alone.
func openExact(root string, want []file) (opened []*os.File, err error) {
	if err := private(root, fs.ModeDir|0o700); err != nil {
		return nil, err
	}
	files, dirs, err := scan(root)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := private(filepath.Join(root, dir), fs.ModeDir|0o700); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(files) || i < len(want); i++ {
		switch {
		case i == len(want) || i < len(files) && files[i].Name < want[i].Name:
			return nil, differs("file %s is not of it", files[i].Name)
		case i == len(files) || files[i].Name > want[i].Name:
			return nil, differs("file %s is missing", want[i].Name)
		case files[i].Size != want[i].Size:
			return nil, differs("file %s has %d bytes instead of %d", want[i].Name, files[i].Size, want[i].Size)
		}
	}
	for _, f := range want {
		path := filepath.Join(root, f.Name)
		if err := private(path, 0o600); err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		opened = append(opened, file)
	}
	return opened, nil
}

// private is whether something is this process's user's, with that mode.
func private(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	name := filepath.Base(path)
	switch {
	case info.Mode() != mode:
		return differs("%s has mode %s instead of %s", name, info.Mode(), mode)
	case int(st.Uid) != os.Geteuid():
		return differs("%s belongs to user %d", name, st.Uid)
	}
	return nil
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// makeFolders makes the folders that files need below root, which is there.
func makeFolders(root string, files []file) error {
	for _, f := range files {
		if i := strings.LastIndexByte(f.Name, '/'); i > 0 {
			if err := os.MkdirAll(filepath.Join(root, f.Name[:i]), 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}
