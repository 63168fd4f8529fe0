//go:build linux

package guest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killTime bounds how long a group is killed again and again until it is empty.
const killTime = 2 * time.Second

// groups tells which processes belong to which cell. With a pids controller
// every cell has a control group; without one a cell's processes are those that
// were not there when it began and that descend from its kernel, share its
// session or, if nothing else runs, have lost their parents.
type groups struct {
	dir string // the root of the controller; empty without one

	mu   sync.Mutex
	next int
	live map[*processGroup]bool // of cells that run
	made []string               // control groups, until they are empty
}

type processGroup struct {
	gs     *groups
	dir    string // empty without a controller
	kernel int    // process id
	before map[int]uint64
}

// newGroups keeps groups below controller. They tell processes apart and bound
// none: gVisor charges a new process to any one of its hierarchies, so that
// pids.max would hold by chance.
func newGroups(controller string) *groups {
	gs := &groups{live: map[*processGroup]bool{}}
	if controller == "" {
		return gs
	}
	if _, err := os.Stat(filepath.Join(controller, "cgroup.procs")); err != nil {
		return gs
	}
	gs.dir = controller
	return gs
}

// controlGroup is where a kernel and what its cells start are.
type controlGroup struct {
	dir     string // empty if there is none
	members []int  // the kernel's own processes
}

// quiet reports whether nothing but the kernel is in the group.
func (c controlGroup) quiet() bool {
	pids, err := groupPIDs(c.dir)
	return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return !slices.Contains(c.members, pid) })
}

// begin gives a cell its group. It is the one of the cell before if that has
// left nothing running: making one is a fifth of what a short cell costs.
func (gs *groups) begin(k *kernelProcess, withShell bool) *processGroup {
	g := &processGroup{gs: gs, kernel: k.pid()}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.live[g] = true
	if gs.dir != "" {
		if k.group.dir == "" || !k.group.quiet() {
			k.group = gs.make(g.kernel, withShell)
		}
		g.dir = k.group.dir
	}
	if g.dir == "" {
		g.before = map[int]uint64{}
		for _, p := range processes() {
			g.before[p.pid] = p.started
		}
	}
	return g
}

// make makes a control group and moves the kernel's processes into it. The
// caller holds the lock.
func (gs *groups) make(kernel int, withShell bool) controlGroup {
	// Groups that have become empty go now.
	gs.made = slices.DeleteFunc(gs.made, func(dir string) bool { return os.Remove(dir) == nil })
	gs.next++
	c := controlGroup{dir: filepath.Join(gs.dir, "cell"+strconv.Itoa(gs.next)), members: []int{kernel}}
	if os.Mkdir(c.dir, 0o755) != nil {
		return controlGroup{}
	}
	gs.made = append(gs.made, c.dir)
	if join(c.dir, kernel) != nil {
		return controlGroup{}
	}
	if withShell {
		for _, p := range processes() {
			if p.ppid == kernel && join(c.dir, p.pid) == nil {
				c.members = append(c.members, p.pid)
			}
		}
	}
	return c
}

// groupPIDs lists the processes of a control group.
func groupPIDs(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func join(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// end says that the cell is over; what it left running stays.
func (g *processGroup) end() {
	g.gs.mu.Lock()
	defer g.gs.mu.Unlock()
	delete(g.gs.live, g)
}

// pids returns the processes of the cell, its kernel among them.
func (g *processGroup) pids() []int {
	if g.dir != "" {
		pids, _ := groupPIDs(g.dir) // one that was removed is empty
		return pids
	}
	g.gs.mu.Lock()
	alone := len(g.gs.live) == 1
	g.gs.mu.Unlock()
	all := processes()
	mine := map[int]bool{g.kernel: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if mine[p.pid] || p.pid == os.Getpid() || g.before[p.pid] == p.started && p.pid != g.kernel {
				continue
			}
			orphan := alone && p.ppid == 1 && os.Getpid() == 1
			if mine[p.ppid] || p.session == g.kernel || orphan {
				mine[p.pid] = true
				grown = true
			}
		}
	}
	var pids []int
	for _, p := range all {
		if mine[p.pid] && !p.zombie {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// kill kills the processes of the cell, except those in keep, until none is left
// or killTime is over.
func (g *processGroup) kill(keep ...int) {
	for end := time.Now().Add(killTime); ; time.Sleep(2 * time.Millisecond) {
		left := 0
		for _, pid := range g.pids() {
			if pid == os.Getpid() || contains(keep, pid) {
				continue
			}
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				left++
			}
		}
		if left == 0 || time.Now().After(end) {
			return
		}
	}
}

// interruptOthers interrupts the processes of the cell that are not the user's: the
// kernel, which is, can stop its own children only, and not those of sudo.
func (g *processGroup) interruptOthers(uid int) {
	for _, pid := range g.pids() {
		var st syscall.Stat_t
		if pid != os.Getpid() && syscall.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &st) == nil && int(st.Uid) != uid {
			_ = syscall.Kill(pid, syscall.SIGINT)
		}
	}
}

func contains(s []int, v int) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}

// process is one line of /proc.
type process struct {
	pid, ppid, session int
	name               string
	zombie             bool
	started            uint64 // clock ticks after boot
	rss                int64  // bytes
}

// processes lists what /proc shows; what ends meanwhile is left out.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all
}

func readProcess(pid int) (process, error) {
	p := process{pid: pid}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	// The name is in parentheses and may hold anything, ")" too.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return p, fmt.Errorf("stat of %d: %q", pid, b)
	}
	p.name = string(b[open+1 : end])
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 22 {
		return p, fmt.Errorf("stat of %d: %q", pid, b)
	}
	p.zombie = f[0] == "Z" || f[0] == "X"
	p.ppid, _ = strconv.Atoi(f[1])
	p.session, _ = strconv.Atoi(f[3])
	p.started, _ = strconv.ParseUint(f[19], 10, 64)
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	p.rss = pages * int64(os.Getpagesize())
	return p, nil
}
