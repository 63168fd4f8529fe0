//go:build linux

package images

import (
	"errors"
	"io/fs"
	"math"

	"golang.org/x/sys/unix"
)

// Usage is what images take.
type Usage struct {
	Images   int64 // bytes on disk of images, and of what Remove has not removed yet
	Reserved int64 // bytes that images in the making may take
	Corrupt  int64 // bytes on disk of what was set apart
	Free     int64 // bytes that the file system has for images; 256 MiB or a twentieth of it are left to others
	Budget   int64 // bytes that Images, Reserved and Corrupt may be together; 0: no bound
}

// Usage returns what images take now.
func (s *Store) Usage() (Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, err := freeBytes(s.dir)
	return Usage{Images: s.held(), Reserved: s.reserved(), Corrupt: sum(s.apart), Free: free, Budget: s.budget}, err
}

// held is what all images take on disk, in bytes.
func (s *Store) held() int64 {
	var all []held
	for _, im := range s.images {
		all = append(all, im.held...)
	}
	for _, r := range s.gone {
		all = append(all, r.held...)
	}
	return sum(all)
}

func (s *Store) reserved() (n int64) {
	for _, m := range s.making {
		n += m.reserve
	}
	return n
}

// reserve keeps room for a new image, which grows in dirs, until release is called.
// What was shelved goes if there is no other room.
func (s *Store) reserve(folder string, n int64, dirs ...string) (release func(), err error) {
	release, err = s.tryReserve(folder, n, dirs)
	var no *RoomError
	if errors.As(err, &no) && no.Where == s.dir {
		s.unshelve("")
		return s.tryReserve(folder, n, dirs)
	}
	return release, err
}

func (s *Store) tryReserve(folder string, n int64, dirs []string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.inBudget(n); err != nil {
		return nil, err
	}
	where := []string{s.dir}
	if len(s.keys.name) > 0 {
		where = append(where, s.plain)
	}
	for _, dir := range where {
		free, err := freeBytes(dir)
		if err != nil {
			return nil, err
		}
		for _, m := range s.making { // of which some may be written already
			free -= max(0, m.reserve-m.written(dir == s.plain))
		}
		if n > free {
			return nil, &RoomError{Where: dir, Need: n, Free: max(0, free)}
		}
	}
	s.making[folder] = &making{reserve: n, dirs: dirs}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.making, folder)
	}, nil
}

// written is how much of an image in the making is on the file system of plaintext, or
// on the other.
func (m *making) written(plain bool) int64 {
	dir := m.dirs[0]
	if plain {
		dir = m.dirs[1]
	}
	all, err := heldBelow(dir)
	if err != nil {
		return 0 // it is not there yet
	}
	return sum(all)
}

// grow is called when an image turns out to have n bytes.
func (s *Store) grow(folder string, n int64) error {
	err := s.tryGrow(folder, n)
	if err != nil {
		s.unshelve("")
		err = s.tryGrow(folder, n)
	}
	return err
}

func (s *Store) tryGrow(folder string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.making[folder]
	if n <= m.reserve {
		return nil
	}
	if err := s.inBudget(n - m.reserve); err != nil {
		return err
	}
	m.reserve = n
	return nil
}

func (s *Store) inBudget(n int64) error {
	if s.budget == 0 {
		return nil
	}
	if left := s.budget - s.held() - sum(s.apart) - s.reserved(); n > left {
		return &RoomError{Where: s.dir, Need: n, Free: max(0, left), Budget: s.budget}
	}
	return nil
}

// sum counts each file once.
func sum(all []held) (n int64) {
	type key struct{ dev, ino uint64 }
	seen := make(map[key]bool, len(all))
	for _, h := range all {
		if k := (key{h.dev, h.ino}); !seen[k] {
			seen[k] = true
			n += h.bytes
		}
	}
	return n
}

const maxMargin = 256 << 20

// freeBytes is how much room a file system has for images: something is left to others.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if st.Blocks == 0 { // a tmpfs without a bound
		return math.MaxInt64, nil
	}
	block := int64(st.Bsize)
	margin := min(maxMargin, int64(st.Blocks)*block/20)
	return max(0, int64(st.Bavail)*block-margin), nil
}
