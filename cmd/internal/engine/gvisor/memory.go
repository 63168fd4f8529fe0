package gvisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"
)

// memory is the file that holds the memory of code inside, and the page in which
// the sentry counts the host's files that are mapped there. Both are the sentry's:
// they are looked at, never mapped, for a sentry that somebody broke into could
// shorten them. Whoever holds them open keeps what the sandbox left in memory, so
// they are closed when the machine ends, not when Go's collector finds them.
type memory struct {
	mu    sync.Mutex
	stats *os.File // nil once closed
	pages *os.File
}

// openMemory asks a sentry for its files. gVisor's own record of them cannot be
// closed.
func openMemory(ctx context.Context, socket string) (_ *memory, err error) {
	var files control.MemoryUsageFile
	defer func() {
		if err != nil {
			for _, f := range files.Files {
				f.Close()
			}
		}
	}()
	if err := call(ctx, socket, boot.UsageUsageFD, &control.MemoryUsageFileOpts{Version: 1}, &files); err != nil {
		return nil, err
	}
	if n := len(files.Files); n != 2 {
		return nil, fmt.Errorf("the kernel gave %d files, not 2", n)
	}
	for _, f := range files.Files {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
			return nil, err
		}
		if st.Type != unix.TMPFS_MAGIC && st.Type != unix.HUGETLBFS_MAGIC {
			return nil, errors.New("the kernel gave a file that is not memory")
		}
	}
	return &memory{stats: files.Files[0], pages: files.Files[1]}, nil
}

// read returns the bytes of memory in use and of the host's files that are mapped.
// After close it is os.ErrClosed.
func (m *memory) read() (used, mapped int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		return 0, 0, os.ErrClosed
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.pages.Fd()), &st); err != nil {
		return 0, 0, err
	}
	// usage.RTMemoryStats: one counter, in the byte order of the machine.
	var counter [8]byte
	if _, err := m.stats.ReadAt(counter[:], 0); err != nil {
		return 0, 0, err
	}
	return st.Blocks * 512, max(0, int64(binary.NativeEndian.Uint64(counter[:]))), nil
}

// close is idempotent; a nil memory has nothing to close.
func (m *memory) close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		return nil
	}
	err := errors.Join(m.stats.Close(), m.pages.Close())
	m.stats, m.pages = nil, nil
	return err
}
