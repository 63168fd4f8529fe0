package gvisor_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// TestDescriptors starts a machine from a process that has more descriptors than
// a sentry has room for, as one with many machines has: some of gVisor's own are
// not close-on-exec, and would lead from one machine into another. There is one
// machine before, for gVisor sees to what is open at its first start.
func TestDescriptors(t *testing.T) {
	f := newFixture(t, "")
	first, err := f.engine.Start(t.Context(), engine.Spec{ID: "first", Root: f.root.Dir, Args: []string{f.root.GuestPath}})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for range 300 {
		fd, err := unix.MemfdCreate("another-machines", 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
	}
	before := below(os.Getpid())
	m, err := f.engine.Start(t.Context(), engine.Spec{ID: "descriptors", Root: f.root.Dir, Args: []string{f.root.GuestPath}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	looked := 0
	for pid := range below(os.Getpid()) {
		if before[pid] {
			continue
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			looked++
			if name, err := os.Readlink(fd); err == nil && strings.Contains(name, "another-machines") {
				t.Errorf("%s is another machine's", fd)
			}
		}
	}
	if looked == 0 {
		t.Error("no descriptor of the machine's processes can be looked at")
	}
}

// below returns every process below pid.
func below(pid int) map[int]bool {
	all := children(pid)
	for child := range children(pid) {
		maps.Copy(all, below(child))
	}
	return all
}

func children(pid int) map[int]bool {
	all := map[int]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, text := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(text); err == nil {
				all[child] = true
			}
		}
	}
	return all
}
