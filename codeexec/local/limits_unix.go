//go:build linux || darwin

package local

import "golang.org/x/sys/unix"

// lower returns 0 for each limit that this process has already, or a lower one:
// its children inherit that, and asking for more would fail.
func (limits) lower(memory, blocks, files int64) (int64, int64, int64) {
	keep := func(resource int, want, unit int64) int64 {
		var have unix.Rlimit
		if err := unix.Getrlimit(resource, &have); err == nil && have.Max/uint64(unit) <= uint64(want) {
			return 0
		}
		return want
	}
	return keep(unix.RLIMIT_AS, memory, 1024), keep(unix.RLIMIT_FSIZE, blocks, 512), keep(unix.RLIMIT_NOFILE, files, 1)
}
