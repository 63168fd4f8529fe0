//go:build linux

package images

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files of a new image share room on disk with an older image where both have the same
// bytes, on file systems that can (Btrfs, XFS). A machine's pages are written anew each
// time, in about the same order, so that equal stretches begin elsewhere, but at a
// multiple of a page. Each stretch is compared byte by byte.
const (
	pageSize    = 4096
	sampleSize  = 64 << 10 // of the older file, one page of so many bytes is looked up
	minShared   = 64 << 10 // bytes of a stretch that is worth an extent of its own
	minShare    = 1 << 20  // bytes of a file that is worth the look
	maxExtents  = 1 << 16  // of one file
	windowBytes = 1 << 20
)

// Sharing is whether images of this store can share room on disk: whether Options.Like and
// Shelve are of use.
func (s *Store) Sharing() bool { return s.sharing }

// base is the folder of the image that a new one of id is like, or of what was shelved of
// id, until done is called; empty: there is none.
func (s *Store) base(id, like string) (folder string, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sharing {
		return "", nil
	}
	if im := s.images[like]; im != nil {
		folder = im.folder
	}
	for _, r := range s.gone {
		if like == "" && r.id == id && r.shelved && !r.remove {
			folder = r.folders[0]
		}
	}
	if folder == "" {
		return "", nil
	}
	s.users[folder]++
	return folder, func() { s.done(folder) }
}

// share puts another file in the place of f, a new image's, that shares room with the file
// of that name in a folder. It returns nil if f stays: what cannot be shared is only larger.
func (s *Store) share(f *os.File, as file, folder string) (*os.File, error) {
	if as.Size < minShare {
		return nil, nil
	}
	base, err := os.OpenFile(filepath.Join(s.dir, folder, as.Name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil
	}
	defer base.Close()
	to, shared, err := sharedFile(f, base, as.Size)
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		s.log.Warn("image shares nothing with an older one", "file", as.Name, "err", err)
		return nil, nil
	}
	if to != nil {
		s.log.Debug("image shares room with an older one", "file", as.Name, "shared", shared, "size", as.Size)
	}
	return to, err
}

// Shelve is Retire for an image that the next one of its id will be like: where files can
// share room, its files are kept for that Create, and else removed. They go when that image
// is made, with Remove, at the next Open, or when there is no room otherwise.
func (s *Store) Shelve(id string) error {
	if !s.sharing {
		return s.Remove(id)
	}
	if err := s.Retire(id); err != nil {
		return err
	}
	s.mu.Lock()
	var others []string
	newest := ""
	for name, r := range s.gone {
		switch {
		case r.id != id || r.remove:
		case !r.shelved && newest == "" && len(r.folders) == 1 && !r.encrypted:
			r.shelved, newest = true, name
		default:
			others = append(others, name)
		}
	}
	s.mu.Unlock()
	return s.removeAll(others)
}

// unshelve removes what was shelved of an id.
func (s *Store) unshelve(id string) {
	s.mu.Lock()
	var names []string
	for name, r := range s.gone {
		if r.shelved && (id == "" || r.id == id) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	if err := s.removeAll(names); err != nil {
		s.log.Warn("image that was shelved cannot be removed", "image", id, "err", err)
	}
}

// canShare is whether files in a folder can share room.
func canShare(dir string) (ok bool, err error) {
	open := func(name string) *os.File {
		f, openErr := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if openErr == nil {
			openErr = os.Remove(f.Name())
		}
		err = errors.Join(err, openErr)
		return f
	}
	a, b := open(".probe1"+newSuffix), open(".probe2"+newSuffix)
	defer a.Close()
	defer b.Close()
	if err != nil {
		return false, err
	}
	if _, err := a.Write(make([]byte, pageSize)); err != nil {
		return false, err
	}
	return unix.IoctlFileClone(int(b.Fd()), int(a.Fd())) == nil, nil
}

// stretch is a part of a file that is the same elsewhere.
type stretch struct {
	at    int64 // in the new file
	older int64 // in the older one; below zero: it is in the new one only
	n     int64
}

// sharedFile makes the file named name, in place of from, which has its contents, with as
// much of base's room as it can. It returns how many bytes it shares, and the new file;
// nil if from is as good.
func sharedFile(from, base *os.File, size int64) (to *os.File, shared int64, err error) {
	stretches, err := compare(from, base, size)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range stretches {
		if p.older >= 0 {
			shared += p.n
		}
	}
	if shared < minShare || len(stretches) > maxExtents {
		return nil, 0, nil
	}
	// It gets from's name when it is whole. What from has not written to the disk yet of
	// what is shared is then never written.
	path := from.Name() + newSuffix
	to, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range stretches {
		if p.older < 0 {
			// Not cloned: Btrfs would write, and keep, all that from has around it.
			_, err = io.Copy(io.NewOffsetWriter(to, p.at), io.NewSectionReader(from, p.at, p.n))
		} else {
			err = os.NewSyscallError("clone a range", unix.IoctlFileCloneRange(int(to.Fd()), &unix.FileCloneRange{
				Src_fd: int64(base.Fd()), Src_offset: uint64(p.older), Src_length: uint64(p.n), Dest_offset: uint64(p.at)}))
		}
		if err != nil {
			return nil, 0, errors.Join(err, to.Close(), os.Remove(path))
		}
	}
	if err := os.Rename(path, from.Name()); err != nil {
		return nil, 0, errors.Join(err, to.Close(), os.Remove(path))
	}
	return to, shared, nil
}

// compare divides a file into what base has, too, and what it has not. The last page, which
// may be cut off, counts as not.
func compare(from, base *os.File, size int64) (stretches []stretch, err error) {
	info, err := base.Stat()
	if err != nil {
		return nil, err
	}
	olderSize := info.Size() / pageSize * pageSize
	seed := maphash.MakeSeed()
	index := make(map[uint64]int64, olderSize/sampleSize+1)
	page := make([]byte, pageSize)
	for at := int64(0); at < olderSize; at += sampleSize {
		if _, err := base.ReadAt(page, at); err != nil {
			return nil, err
		}
		index[maphash.Bytes(seed, page)] = at
	}
	newer, older := window{f: from}, window{f: base}
	add := func(p stretch) {
		if n := len(stretches); n > 0 {
			last := &stretches[n-1]
			if (last.older < 0) == (p.older < 0) && (p.older < 0 || last.older+last.n == p.older) {
				last.n += p.n
				return
			}
			// A short one is not worth an extent.
			if last.older >= 0 && last.n < minShared {
				last.older = -1
				if n > 1 && stretches[n-2].older < 0 {
					stretches[n-2].n += last.n
					stretches = stretches[:n-1]
					last = &stretches[n-2]
				}
				if p.older < 0 {
					last.n += p.n
					return
				}
			}
		}
		stretches = append(stretches, p)
	}
	same := func(b []byte, at int64) (bool, error) {
		if at < 0 || at >= olderSize {
			return false, nil
		}
		o, err := older.page(at)
		return bytes.Equal(b, o), err
	}
	at, moved := int64(0), int64(0) // by how much the last equal page had moved
	for ; at < size/pageSize*pageSize; at += pageSize {
		b, err := newer.page(at)
		if err != nil {
			return nil, err
		}
		p := stretch{at: at, older: at + moved, n: pageSize}
		equal, err := same(b, p.older)
		if !equal && err == nil {
			var sampled bool
			if p.older, sampled = index[maphash.Bytes(seed, b)]; sampled {
				equal, err = same(b, p.older)
			}
		}
		if err != nil {
			return nil, err
		}
		if equal {
			moved = p.older - at
		} else {
			p.older = -1
		}
		add(p)
	}
	if n := len(stretches); n > 0 && stretches[n-1].older >= 0 && stretches[n-1].n < minShared {
		stretches[n-1].older = -1
	}
	if at < size {
		add(stretch{at: at, older: -1, n: size - at})
	}
	return stretches, nil
}

// window reads a file's pages, some at once.
type window struct {
	f   *os.File
	at  int64
	buf []byte
}

// page returns the page at a multiple of a page that is whole in the file. It is good until
// the next call.
func (w *window) page(at int64) ([]byte, error) {
	if at < w.at || at+pageSize > w.at+int64(len(w.buf)) {
		if w.buf == nil {
			w.buf = make([]byte, windowBytes)
		}
		n, err := w.f.ReadAt(w.buf[:windowBytes], at)
		if err != nil && !(errors.Is(err, io.EOF) && n >= pageSize) {
			return nil, err
		}
		w.at, w.buf = at, w.buf[:n]
	}
	return w.buf[at-w.at:][:pageSize], nil
}
