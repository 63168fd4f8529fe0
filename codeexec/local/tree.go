package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

const (
	maxLinks = 40   // on the way of one path
	maxSteps = 512  // folders on the way of one path, those of links included
	allLinks = 2000 // that one search follows
	dirBatch = 1000 // entries of a folder that are read at a time
)

// tree is a folder whose contents are hostile and may change at any moment. All
// that is opened goes through root, which does not let go of it; what is decided
// before may be wrong by then, but never leads out.
type tree struct {
	root *os.Root
	path string // as programs see it, absolute
}

var errOutside = fmt.Errorf("%w: a link leads outside", codeexec.ErrBadPath)

// resolve returns the path below the tree, free of links, of what a path leads
// to. Absolute links into the tree count, which root alone would refuse.
func (t tree) resolve(name string) (string, error) {
	pending := strings.Split(name, "/")
	var done []string
	for links, steps := 0, 0; len(pending) > 0; {
		part := pending[0]
		pending = pending[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(done) == 0 {
				return "", errOutside
			}
			done = done[:len(done)-1]
			continue
		}
		if steps++; steps > maxSteps {
			return "", fmt.Errorf("%w: too many folders on its way", codeexec.ErrBadPath)
		}
		at := path.Join(append(done, part)...)
		info, err := t.root.Lstat(filepath.FromSlash(at))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = append(slices.Clip(done), part)
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%w: too many links", codeexec.ErrBadPath)
		}
		to, err := t.root.Readlink(filepath.FromSlash(at))
		if err != nil {
			return "", err
		}
		if path.IsAbs(to) {
			below, ok := t.below(to)
			if !ok {
				return "", errOutside
			}
			to, done = below, nil
		}
		pending = append(strings.Split(to, "/"), pending...)
	}
	if len(done) == 0 {
		return ".", nil
	}
	return path.Join(done...), nil
}

// below takes the tree's own path off an absolute one.
func (t tree) below(to string) (string, bool) {
	if to == t.path {
		return ".", true
	}
	return strings.CutPrefix(to, t.path+"/")
}

// mkdirAll makes a folder and those above it, and returns its path free of
// links.
func (t tree) mkdirAll(name string) (string, error) {
	at := "."
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == "" {
			continue
		}
		next := path.Join(at, part)
		real, err := t.resolve(next)
		if errors.Is(err, fs.ErrNotExist) {
			real, err = next, t.root.Mkdir(next, 0o755)
		}
		if err != nil {
			return "", err
		}
		at = real
	}
	return at, nil
}

// found is a file of the tree: its name, where it is in truth, and what it was
// when it was seen.
type found struct {
	name, real string
	info       fs.FileInfo
}

// find returns the files that match, in order of their names, links last: a file
// that is there under two names goes by its own. What matches and is no file is
// left.
func (t tree) find(ctx context.Context, patterns workdir.Patterns, leave func(name, why string)) ([]found, error) {
	s := &search{tree: t, patterns: patterns, leave: leave}
	for _, base := range patterns.Bases() {
		real, err := t.resolve(base)
		if errors.Is(err, codeexec.ErrBadPath) {
			if patterns.Match(base) {
				leave(base, whyLink)
			}
			continue
		} else if err != nil {
			continue // nothing is there
		}
		info, err := t.root.Lstat(real)
		if err != nil {
			continue
		}
		if info.IsDir() {
			err = s.folder(ctx, base, real)
		} else {
			s.entry(base, real, info)
		}
		if err != nil {
			return nil, err
		}
	}
	byName := func(a, b found) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(s.own, byName)
	slices.SortFunc(s.links, byName)
	seen := map[string]bool{}
	return slices.DeleteFunc(append(s.own, s.links...), func(f found) bool {
		twice := seen[f.real]
		seen[f.real] = true
		return twice
	}), nil
}

const whyLink = "is a symbolic link out of the workspace or to no file"

type search struct {
	tree
	patterns   workdir.Patterns
	leave      func(name, why string)
	own, links []found
	seen       int
	followed   int
}

// folder looks through a folder, which goes by name and is really at real.
func (s *search) folder(ctx context.Context, name, real string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(name) > workdir.MaxPath {
		s.leave(name, fmt.Sprintf("the name has more than %d bytes", workdir.MaxPath))
		return nil
	}
	// A pipe that took its place must not hold this up.
	dir, err := s.root.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil // it is gone, or not to be read: it has no files then
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(dirBatch)
		for _, e := range entries {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if s.seen++; s.seen > workdir.MaxEntries {
				if s.seen == workdir.MaxEntries+1 {
					s.leave(".", fmt.Sprintf("the listing was cut after %d entries", workdir.MaxEntries))
				}
				return nil
			}
			child, at := path.Join(name, e.Name()), path.Join(real, e.Name())
			if e.IsDir() {
				if err := s.folder(ctx, child, at); err != nil {
					return err
				}
				continue
			}
			if !s.patterns.Match(child) {
				continue
			}
			if info, err := s.root.Lstat(at); err == nil {
				s.entry(child, at, info)
			}
		}
		if err != nil {
			return nil
		}
	}
}

// entry takes what is no folder.
func (s *search) entry(name, real string, info fs.FileInfo) {
	if !s.patterns.Match(name) {
		return
	}
	if err := workdir.CheckName(name); err != nil {
		s.leave(name, err.Error())
		return
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		s.own = append(s.own, found{name, real, info})
	case mode&fs.ModeSymlink != 0:
		if s.followed++; s.followed > allLinks {
			s.leave(name, fmt.Sprintf("more than %d symbolic links", allLinks))
			return
		}
		at, err := s.resolve(real)
		if err == nil {
			info, err = s.root.Lstat(at)
		}
		if err != nil || !info.Mode().IsRegular() {
			s.leave(name, whyLink)
			return
		}
		s.links = append(s.links, found{name, at, info})
	default:
		s.leave(name, "is "+workdir.Kind(mode))
	}
}

// collect reads files as far as the collector wants them.
func (t tree) collect(ctx context.Context, c *workdir.Collector, files []found) error {
	for _, f := range files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		want, ok := c.Want(f.name, f.info.Size())
		if !ok {
			continue
		}
		if err := t.read(c, f, want); err != nil {
			why := "vanished or changed while it was collected"
			if errors.Is(err, fs.ErrPermission) {
				why = "may not be read"
			}
			c.Leave(f.name, why)
		}
	}
	c.Sort()
	return nil
}

func (t tree) read(c *workdir.Collector, f found, want int64) error {
	file, err := t.root.OpenFile(f.real, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no file any more")
	}
	return c.Read(f.name, info.Size(), min(want, info.Size()), file)
}

// copyTree copies a file or folder to a place where nothing is: links as links,
// and without the write permission if it is to be read-only.
func (t tree) copyTree(from, to string, readOnly bool, left *int) error {
	if *left--; *left < 0 {
		return fmt.Errorf("more than %d files and folders", workdir.MaxEntries)
	}
	if len(to) > workdir.MaxPath {
		return fmt.Errorf("%w: a name of more than %d bytes", codeexec.ErrBadPath, workdir.MaxPath)
	}
	info, err := t.root.Lstat(from)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if readOnly {
		mode &^= 0o222
	}
	switch {
	case info.Mode().IsRegular():
		return t.copyFile(from, to, mode)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := t.root.Readlink(from)
		if err != nil {
			return err
		}
		return t.root.Symlink(target, to)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is %s", codeexec.ErrBadPath, workdir.Show(from), workdir.Kind(info.Mode()))
	}
	if err := t.root.Mkdir(to, 0o755); err != nil {
		return err
	}
	entries, err := fs.ReadDir(t.root.FS(), from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := t.copyTree(path.Join(from, e.Name()), path.Join(to, e.Name()), readOnly, left); err != nil {
			return err
		}
	}
	if readOnly {
		return t.root.Chmod(to, 0o555)
	}
	return nil
}

func (t tree) copyFile(from, to string, mode fs.FileMode) error {
	src, err := t.root.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s has become %s", codeexec.ErrBadPath, workdir.Show(from), workdir.Kind(info.Mode()))
	}
	dst, err := t.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, io.LimitReader(src, info.Size())) // a file that grows has no end
	return errors.Join(err, dst.Close())
}

// removeTree removes a folder below parent, also what its owner may not write
// to. One that is not there is no error.
func removeTree(parent, name string) error {
	root, err := os.OpenRoot(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer root.Close()
	err = removeAll(root, name)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if info, lerr := root.Lstat(name); lerr != nil || !info.IsDir() {
		return err
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	unlock(sub, ".", workdir.MaxEntries)
	sub.Close()
	return removeAll(root, name)
}

// removeTries bounds how often a folder is removed that is written to meanwhile.
const removeTries = 100

// removeAll removes a folder into which a program that got away may still write.
func removeAll(root *os.Root, name string) (err error) {
	for range removeTries {
		if err = root.RemoveAll(name); !errors.Is(err, fs.ErrExist) { // which says that it is not empty
			break
		}
	}
	return err
}

// unlock makes folders writable for their owner, as far as it may.
func unlock(root *os.Root, name string, left int) int {
	if left <= 0 || root.Chmod(name, 0o700) != nil {
		return left
	}
	entries, err := fs.ReadDir(root.FS(), name)
	if err != nil {
		return left
	}
	for _, e := range entries {
		if left--; e.IsDir() {
			left = unlock(root, path.Join(name, e.Name()), left)
		}
	}
	return left
}
