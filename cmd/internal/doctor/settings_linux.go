package doctor

import (
	"fmt"
	"slices"
	"strconv"
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
	if len(problems) > 0 {
		c.Detail, c.Remedy = strings.Join(problems, "; "), strings.Join(remedies, "; ")
	}
	return c
}

const (
	fewSandboxes  = 32   // a number that a server soon has
	mostSandboxes = 4096 // what a server holds at most, unless it is told to hold more
)

// limits tells whether the limits that this user's processes inherit are enough
// for a sandbox (tight says which is not), and for how many of them there
// are descriptors.
func limits(tight error, most int) Check {
	c := Check{Name: "process limits", Status: OK, Detail: "enough for " + strconv.Itoa(most) + " sandboxes"}
	if most >= mostSandboxes {
		c.Detail = "enough for as many sandboxes as memory holds"
	}
	switch {
	case tight != nil:
		c.Status = Fail
		c.Detail, c.Remedy = split(tight)
	case most < fewSandboxes:
		c.Status, c.Remedy = Warn, "a server can hold more with a higher limit of open files: ulimit -n 4096"
	}
	return c
}
