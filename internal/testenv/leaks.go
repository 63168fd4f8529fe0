//go:build linux

package testenv

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CheckLeaks gives the test a folder for temporary files of its own and fails
// it if, when it ends, a process, mount or file of Cubby's below that folder is
// left, a cgroup of a process that is gone, or memory of a sandbox that has ended
// in a process that has not.
func CheckLeaks(t testing.TB) {
	t.Helper()
	// Not t.TempDir: gVisor's processes are other users and must get through.
	dir, err := os.MkdirTemp("", "ct-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() { os.RemoveAll(dir) })
	CheckLeaksIn(t, dir)
}

// CheckLeaksIn does the same for what carries dir in its arguments or path, and
// was not there when the test began.
func CheckLeaksIn(t testing.TB, dir string) {
	t.Helper()
	began := uptime(t)
	before := inventory(dir, began)
	t.Cleanup(func() {
		var left []string
		// A killed process is gone a moment after its parent has been told. A cgroup
		// may be that of a server which a test of another package has killed, and
		// which is there until that test starts the next.
		start := time.Now()
		for ; ; time.Sleep(20 * time.Millisecond) {
			left = left[:0]
			for _, item := range inventory(dir, began) {
				if !slices.Contains(before, item) {
					left = append(left, item)
				}
			}
			foreign := !slices.ContainsFunc(left, func(item string) bool { return !strings.HasPrefix(item, "cgroup ") })
			if waited := time.Since(start); len(left) == 0 || waited > time.Minute || waited > 20*time.Second && !foreign {
				break
			}
		}
		for _, item := range left {
			t.Errorf("left behind: %s", item)
		}
	})
}

// uptime is the time since the system's start, in the ticks of /proc: 100 a second
// on Linux.
func uptime(t testing.TB) int64 {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	seconds, _, _ := strings.Cut(string(text), " ")
	f, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(f * 100)
}

// inventory lists what is there. Of cgroups it takes those whose owner began after
// began: another package's server that was killed may leave one for as long as
// nobody reaps its processes.
func inventory(dir string, began int64) []string {
	var items []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		cmdline, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || filepath.Base(proc) == strconv.Itoa(os.Getpid()) {
			continue
		}
		argv := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
		name := filepath.Base(argv[0])
		if (strings.HasPrefix(name, "runsc-") || slices.Contains(argv, "serve")) && strings.Contains(string(cmdline), dir) {
			items = append(items, "process "+filepath.Base(proc)+" "+name)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir) {
			items = append(items, "mount "+f[4])
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*cubby*"))
	for _, path := range files {
		items = append(items, "file "+path)
	}
	items = append(items, sandboxMemory()...)
	for _, group := range cgroups() {
		owner, rest, _ := strings.Cut(filepath.Base(group), ".")
		start, _, _ := strings.Cut(rest, ".")
		if ticks, err := strconv.ParseInt(start, 10, 64); err == nil && ticks < began {
			continue
		}
		if _, err := os.Stat("/proc/" + owner); err != nil {
			items = append(items, "cgroup "+group)
		}
	}
	return items
}

// sandboxMemory lists memory files of sandboxes, and files that they wrote, that
// this process or one below it holds, and no sandbox's kernel.
func sandboxMemory() []string {
	type file struct{ device, inode uint64 }
	alive, held := map[file]bool{}, map[file]string{}
	for _, pid := range Family(os.Getpid()) {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		fds, _ := os.ReadDir(filepath.Join(dir, "fd"))
		for _, fd := range fds {
			path := filepath.Join(dir, "fd", fd.Name())
			name, _ := os.Readlink(path)
			if !strings.HasPrefix(name, "/memfd:runsc-memory") && !strings.HasPrefix(filepath.Base(name), "runsc-filestore-") {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil {
				continue // closed just now
			}
			f := file{uint64(st.Dev), st.Ino}
			if bytes.HasPrefix(cmdline, []byte("runsc-")) {
				alive[f] = true
			} else {
				held[f] = fmt.Sprintf("memory %s of %d bytes in process %d", name, st.Blocks*512, pid)
			}
		}
	}
	maps.DeleteFunc(held, func(f file, _ string) bool { return alive[f] })
	return slices.Collect(maps.Values(held))
}

// Family is a process and all that are below it.
func Family(pid int) []int {
	all := []int{pid}
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, field := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, Family(child)...)
			}
		}
	}
	return all
}

// CgroupsOf lists the groups of the server with that process id.
func CgroupsOf(pid int) []string {
	return slices.DeleteFunc(cgroups(), func(group string) bool {
		return !strings.HasPrefix(filepath.Base(group), strconv.Itoa(pid)+".")
	})
}

// cgroups lists Cubby's groups: they are in folders named cubby, below the cgroup
// of this process. Those below others are other people's.
func cgroups() []string {
	own, _ := os.ReadFile("/proc/self/cgroup") // lines like "4:memory:/path"
	var found []string
	pattern := "/sys/fs/cgroup"
	for range 5 {
		groups, _ := filepath.Glob(pattern + "/cubby/[0-9]*")
		for _, group := range groups {
			for line := range strings.Lines(string(own)) {
				f := strings.SplitN(strings.TrimSpace(line), ":", 3)
				if len(f) == 3 && strings.Contains(group, strings.TrimSuffix(f[2], "/")+"/") {
					found = append(found, group)
					break
				}
			}
		}
		pattern += "/*"
	}
	return found
}
