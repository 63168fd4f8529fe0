package gvisor

import "testing"

// TestCachedFiles: what a sentry keeps leaves room for what code uses.
func TestCachedFiles(t *testing.T) {
	for limit, want := range map[uint64]int{
		0: 0, 511: 0, 512: 0, 515: 0, 516: 1, 1024: 128, 4096: 896, 4511: 999, 4512: -1, 1 << 20: -1, 1<<64 - 1: -1,
	} {
		if got := cachedFiles(limit); got != want {
			t.Errorf("%d descriptors: %d files, want %d", limit, got, want)
		}
	}
}
