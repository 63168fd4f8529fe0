package doctor

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultDisk is what a sandbox may write if nothing else was asked for.
const defaultDisk = 1 << 30

// disk tells whether sandboxes have room for what they write.
func disk(dir string) Check {
	if dir == "" {
		dir = "/var/tmp"
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Check{Name: "disk", Status: Fail, Detail: dir + ": " + err.Error(), Remedy: "make it, with room for what sandboxes write"}
	}
	return diskSpace(dir, int64(fs.Bavail)*fs.Bsize, fs.Type == unix.TMPFS_MAGIC, unix.Access(dir, unix.W_OK))
}

func diskSpace(dir string, free int64, memory bool, access error) Check {
	c := Check{Name: "disk", Status: OK, Detail: size(free) + " free in " + dir}
	switch {
	case access != nil:
		c.Status, c.Detail, c.Remedy = Warn, fmt.Sprintf("cannot write to %s: %v", dir, access), "let this user write there: sandboxes keep their files in it"
	case free < 64<<20:
		c.Status, c.Remedy = Fail, "free some space there: sandboxes keep their files in it"
	case free < 2*defaultDisk:
		c.Status, c.Remedy = Warn, "one sandbox may write "+size(defaultDisk)+" unless --disk says otherwise: free some space there"
	case memory:
		c.Status, c.Detail = Warn, c.Detail+", which is memory: what sandboxes write counts against it"
	}
	return c
}

// settings looks at kernel settings and limits that stop sandboxes, or many of
// them.
func (h host) settings() Check {
	c := Check{Name: "kernel settings", Status: OK, Detail: "nothing in the way"}
	var problems, remedies []string
	add := func(status Status, problem, remedy string) {
		problems, remedies = append(problems, problem), append(remedies, remedy)
		if c.Status != Fail {
			c.Status = status
		}
	}
	if n, ok := h.number("/proc/sys/kernel/yama/ptrace_scope"); ok && n >= 3 {
		add(Fail, "kernel.yama.ptrace_scope is 3, which forbids what the engine builds on", "set it to 2 or less and start the machine anew")
	}
	if actions := h.read("/proc/sys/kernel/seccomp/actions_avail"); !slices.Contains(strings.Fields(actions), "trap") {
		add(Fail, "this kernel has no seccomp filters that trap", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	if n, ok := h.number("/proc/sys/vm/overcommit_memory"); ok && n == 2 {
		add(Warn, "vm.overcommit_memory is 2: sandboxes may fail to reserve memory", "sudo sysctl -w vm.overcommit_memory=0")
	}
	for _, minimum := range []struct {
		name string
		want int64
		why  string
	}{
		{"vm.max_map_count", 65530, "programs with many mappings will fail"},
		{"kernel.pid_max", 32768, "few sandboxes will run at a time"},
		{"kernel.threads-max", 10000, "few sandboxes will run at a time"},
		{"fs.file-max", 50000, "few sandboxes will run at a time"},
	} {
		path := "/proc/sys/" + strings.ReplaceAll(minimum.name, ".", "/")
		if n, ok := h.number(path); ok && n < minimum.want {
			add(Warn, fmt.Sprintf("%s is %d: %s", minimum.name, n, minimum.why),
				fmt.Sprintf("sudo sysctl -w %s=%d", minimum.name, minimum.want))
		}
	}
	if n, ok := h.limit("Max open files"); ok && n < 1024 {
		add(Warn, fmt.Sprintf("this user may open %d files", n), "ulimit -n 4096")
	}
	if n, ok := h.limit("Max processes"); ok && n < 512 && h.uid != 0 {
		add(Warn, fmt.Sprintf("this user may have %d processes and threads; one sandbox can use about 100", n), "ulimit -u 4096")
	}
	if len(problems) > 0 {
		c.Detail, c.Remedy = strings.Join(problems, "; "), strings.Join(remedies, "; ")
	}
	return c
}

// limit reads one soft limit of this process; ok is false if it is unlimited.
func (h host) limit(name string) (n int64, ok bool) {
	for line := range strings.Lines(h.read("/proc/self/limits")) {
		if rest, found := strings.CutPrefix(line, name); found {
			_, err := fmt.Sscan(rest, &n)
			return n, err == nil
		}
	}
	return 0, false
}
