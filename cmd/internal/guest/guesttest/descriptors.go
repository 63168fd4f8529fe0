//go:build linux

package guesttest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// WithoutDescriptors calls start, which needs several descriptors, while this process
// can open none, one, two, … of them until it succeeds: what fails leaves none open.
func WithoutDescriptors(t *testing.T, start func() error) {
	t.Helper()
	for n := 0; ; n++ {
		before := len(descriptors(t))
		var err error
		withFree(t, n, func() { err = start() })
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.EMFILE) && !strings.Contains(err.Error(), syscall.EMFILE.Error()) {
			t.Fatalf("with %d: %v", n, err)
		}
		if after := len(descriptors(t)); after != before {
			t.Fatalf("%d descriptors were open before a start with %d free ones, and %d after", before, n, after)
		}
	}
}

// descriptors are those that this process has open, by number.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[int]bool{}
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		if _, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // not the folder's own, which is closed
			open[n] = true
		}
	}
	return open
}

// withFree calls f while this process can open n more descriptors and no more.
func withFree(t *testing.T, n int, f func()) {
	t.Helper()
	open, limit := descriptors(t), 0
	for free := 0; ; limit++ {
		if open[limit] {
			continue
		}
		if free == n {
			break
		}
		free++
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(limit), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	f()
}
