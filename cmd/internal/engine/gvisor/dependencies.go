package gvisor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// dependency is a file of the root filesystem that a machine with memory has open or mapped.
// A restored machine opens it again, by its path, and goes on with what it finds there.
type dependency struct {
	Path string `json:"path"` // below the root
	Size int64  `json:"size"`
	// Inode and Changed, in nanoseconds of Unix time, are of a file of the host's. Nobody
	// can set the second, so it tells that a file was written to.
	Inode   uint64 `json:"inode,omitempty"`
	Changed int64  `json:"changed,omitempty"`
	// Sum is the content of a file that every start of a server makes anew: one of the
	// root's own file system, and Cubby's programs.
	Sum string `json:"sum,omitempty"`
}

const (
	// rootInside is where the machine's kernel has the root, in its own mount namespace.
	rootInside = "/root/"
	// maxDependencies bounds what is noted of one machine: what its kernel has open is
	// the doing of code inside.
	maxDependencies = 100_000
	// maxSummed is the largest file whose content is looked at, in bytes.
	maxSummed = 256 << 20
)

// ownPrograms is the folder of Cubby's programs below the root.
const ownPrograms = "/.cubby/"

// sums remembers the contents of files as long as they do not change. Its methods are safe
// for concurrent use.
type sums struct {
	mu    sync.Mutex
	known map[sumKey]string
}

type sumKey struct {
	dev, inode uint64
	changed    int64
}

func (s *sums) of(path string, st *unix.Stat_t) (string, error) {
	key := sumKey{st.Dev, st.Ino, st.Ctim.Nano()}
	s.mu.Lock()
	sum, ok := s.known[key]
	s.mu.Unlock()
	if ok {
		return sum, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxSummed)); err != nil {
		return "", err
	}
	sum = hex.EncodeToString(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) > 1000 || s.known == nil {
		s.known = map[sumKey]string{}
	}
	s.known[key] = sum
	return sum, nil
}

// dependencies are the files that the machine's kernel has open.
func (m *machine) dependencies() ([]dependency, error) {
	paths := map[string]bool{}
	err := m.look(func() error {
		dir := filepath.Join("/proc", strconv.Itoa(m.sentry), "fd")
		fds, err := os.ReadDir(dir)
		for _, fd := range fds {
			name, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if rel, inRoot := strings.CutPrefix(name, rootInside); err == nil && inRoot {
				paths["/"+strings.TrimSuffix(rel, " (deleted)")] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(paths) > maxDependencies {
		return nil, fmt.Errorf("the machine has %d files open, more than %d", len(paths), maxDependencies)
	}
	var all []dependency
	for path := range paths {
		d, err := m.engine.dependency(m.root, path)
		if errors.Is(err, unix.ENOENT) {
			// It was removed while it was open: there is nothing to go on with.
			d, err = dependency{Path: path, Size: -1}, nil
		}
		if err != nil {
			return nil, err
		}
		if d.Path != "" {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b dependency) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// dependency describes a file below root as it is now; the zero value is for what is no
// regular file.
func (e *Engine) dependency(root, path string) (dependency, error) {
	var top, st unix.Stat_t
	at := filepath.Join(root, path)
	if err := unix.Stat(root, &top); err != nil {
		return dependency{}, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	if err := unix.Lstat(at, &st); err != nil {
		return dependency{}, &os.PathError{Op: "stat", Path: at, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return dependency{}, nil
	}
	d := dependency{Path: path, Size: st.Size}
	if (st.Dev == top.Dev || strings.HasPrefix(path, ownPrograms)) && st.Size <= maxSummed {
		var err error
		d.Sum, err = e.sums.of(at, &st)
		return d, err
	}
	d.Inode, d.Changed = st.Ino, st.Ctim.Nano()
	return d, nil
}

// unchanged says which of the files that an image depends on is another by now. The error
// wraps engine.ErrChanged.
func (e *Engine) unchanged(root string, all []dependency) error {
	for _, was := range all {
		now, err := e.dependency(root, was.Path)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err != nil || now != was {
			return fmt.Errorf("%.200s: %w", was.Path, engine.ErrChanged)
		}
	}
	return nil
}
