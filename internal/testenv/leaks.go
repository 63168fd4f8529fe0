//go:build linux

package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// CheckLeaks fails the test if, when it ends, the machine holds a process,
// mount, cgroup or temporary file of Cubby's that it did not hold before.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := inventory()
	t.Cleanup(func() {
		var left []string
		// A killed process is gone a moment after its parent has been told.
		for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			left = left[:0]
			for _, item := range inventory() {
				if !slices.Contains(before, item) {
					left = append(left, item)
				}
			}
			if len(left) == 0 || time.Now().After(deadline) {
				break
			}
		}
		for _, item := range left {
			t.Errorf("left behind: %s", item)
		}
	})
}

// inventory lists everything on this machine that can only be Cubby's.
func inventory() []string {
	var items []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		argv := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
		name := filepath.Base(argv[0])
		if strings.HasPrefix(name, "runsc-") || name == "cubby" && slices.Contains(argv, "serve") {
			items = append(items, "process "+filepath.Base(dir)+" "+strings.Join(argv[:min(3, len(argv))], " "))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.Contains(f[4], "cubby") {
			items = append(items, "mount "+f[4])
		}
	}
	for _, pattern := range []string{
		filepath.Join(os.TempDir(), "cubby-run-*"), "/var/tmp/*gvisor*", "/var/tmp/runsc*", "/var/tmp/cubby*",
		"/sys/fs/cgroup/cubby/*/", "/sys/fs/cgroup/*/cubby/*/", "/sys/fs/cgroup/*/*/cubby/*/", "/sys/fs/cgroup/*/*/*/cubby/*/",
	} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			items = append(items, fmt.Sprintf("file %s", path))
		}
	}
	return items
}
