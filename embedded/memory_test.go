package embedded_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestEndedSandboxesLeaveNothing kills sandboxes that used memory and looks at the
// child process: it holds nothing of theirs, at once, and a row of them does not
// fill its table of descriptors.
func TestEndedSandboxesLeaveNothing(t *testing.T) {
	c := open(t)
	child := childProcess(t)
	const fill = `data = bytearray(64 << 20)
for i in range(0, len(data), 4096): data[i] = 1`
	for range 4 {
		sbx, err := c.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run(t, sbx, fill)
		if held := memoryFiles(t, child); len(held) != 1 {
			t.Errorf("memory is held of %d sandboxes, and one lives: %q", len(held), held)
		}
		if err := sbx.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if held := memoryFiles(t, child); len(held) > 0 {
		t.Errorf("memory of ended sandboxes is held: %q", held)
	}
	before := len(openFiles(t, child))
	for range 12 {
		sbx, err := c.Create(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := sbx.Kill(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	// Package os keeps a descriptor of each process until the collector runs.
	if after := openFiles(t, child); len(after) > before+6+2*12 {
		t.Errorf("%d descriptors were open, and after twelve sandboxes %d: %q", before, len(after), after)
	}
}

// TestKilledChildLeavesNoCgroups: the program that embeds a child which is killed
// removes the control groups, when it closes at the latest.
func TestKilledChildLeavesNoCgroups(t *testing.T) {
	testenv.CheckLeaks(t)
	c, err := embedded.Open(t.Context(), embedded.Config{Binary: testenv.Cubby(t), Python: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	child := childProcess(t)
	if len(testenv.CgroupsOf(child)) == 0 {
		t.Skip("no control group can be made on this machine")
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.Close() // it says that the child was killed
	if left := testenv.CgroupsOf(child); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// childProcess is the private server of this process.
func childProcess(t *testing.T) int {
	t.Helper()
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range procs {
		cmdline, _ := os.ReadFile(file)
		argv := strings.Split(string(cmdline), "\x00")
		var pid, parent int
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		fmt.Sscanf(filepath.Base(filepath.Dir(file)), "%d", &pid)
		fmt.Sscanf(after, " %1s %d", new(string), &parent)
		if slices.Contains(argv, "serve") && parent == os.Getpid() {
			return pid
		}
	}
	t.Fatal("there is no private server")
	return 0
}

func openFiles(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, fd := range fds {
		if name, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil {
			names = append(names, name)
		}
	}
	return names
}

func memoryFiles(t *testing.T, pid int) []string {
	return slices.DeleteFunc(openFiles(t, pid), func(name string) bool { return !strings.HasPrefix(name, "/memfd:runsc-memory") })
}
