//go:build linux

// Package cellgroup tells which processes belong to which cell of a kernel.
package cellgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
)

// killTime bounds how long a group is killed again and again until it is empty.
const killTime = 2 * time.Second

// Groups tells which processes belong to which cell. With a pids controller
// every cell has a control group; without one a cell's processes are those that
// were not there when it began and that descend from its kernel, share its
// session or, if nothing else runs, have lost their parents.
type Groups struct {
	dir string // the root of the controller; empty without one

	mu   sync.Mutex
	next int
	live map[*Group]bool // of cells that run
	made []string        // control groups, until they are empty
}

// Group is the processes of one cell.
type Group struct {
	gs     *Groups
	Dir    string // empty without a controller
	kernel int    // process id
	before map[int]uint64
}

// New keeps groups below controller. They tell processes apart and bound
// none: gVisor charges a new process to any one of its hierarchies, so that
// pids.max would hold by chance.
func New(controller string) *Groups {
	gs := &Groups{live: map[*Group]bool{}}
	if controller == "" {
		return gs
	}
	if _, err := os.Stat(filepath.Join(controller, "cgroup.procs")); err != nil {
		return gs
	}
	gs.dir = controller
	return gs
}

// Home is where a kernel and what its cells start are.
type Home struct {
	dir     string // empty if there is none
	members []int  // the kernel's own processes
}

// quiet reports whether nothing but the kernel is in the group.
func (c Home) quiet() bool {
	pids, err := groupPIDs(c.dir)
	return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return !slices.Contains(c.members, pid) })
}

// Begin gives a cell of the kernel with that process id, which is at home, its group. It is the one of the cell before if that has
// left nothing running: making one is a fifth of what a short cell costs.
func (gs *Groups) Begin(kernel int, home *Home, withShell bool) *Group {
	g := &Group{gs: gs, kernel: kernel}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.live[g] = true
	if gs.dir != "" {
		if home.dir == "" || !home.quiet() {
			*home = gs.make(g.kernel, withShell)
		}
		g.Dir = home.dir
	}
	if g.Dir == "" {
		g.before = map[int]uint64{}
		for _, p := range procfs.Processes() {
			g.before[p.PID] = p.Started
		}
	}
	return g
}

// make makes a control group and moves the kernel's processes into it. The
// caller holds the lock.
func (gs *Groups) make(kernel int, withShell bool) Home {
	// Groups that have become empty go now.
	gs.made = slices.DeleteFunc(gs.made, func(dir string) bool { return os.Remove(dir) == nil })
	gs.next++
	c := Home{dir: filepath.Join(gs.dir, "cell"+strconv.Itoa(gs.next)), members: []int{kernel}}
	if os.Mkdir(c.dir, 0o755) != nil {
		return Home{}
	}
	gs.made = append(gs.made, c.dir)
	if join(c.dir, kernel) != nil {
		return Home{}
	}
	if withShell {
		for _, p := range procfs.Processes() {
			if p.PPID == kernel && join(c.dir, p.PID) == nil {
				c.members = append(c.members, p.PID)
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

// End says that the cell is over; what it left running stays.
func (g *Group) End() {
	g.gs.mu.Lock()
	defer g.gs.mu.Unlock()
	delete(g.gs.live, g)
}

// PIDs returns the processes of the cell, its kernel among them.
func (g *Group) PIDs() []int {
	if g.Dir != "" {
		pids, _ := groupPIDs(g.Dir) // one that was removed is empty
		return pids
	}
	g.gs.mu.Lock()
	alone := len(g.gs.live) == 1
	g.gs.mu.Unlock()
	all := procfs.Processes()
	mine := map[int]bool{g.kernel: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if mine[p.PID] || p.PID == os.Getpid() || g.before[p.PID] == p.Started && p.PID != g.kernel {
				continue
			}
			orphan := alone && p.PPID == 1 && os.Getpid() == 1
			if mine[p.PPID] || p.Session == g.kernel || orphan {
				mine[p.PID] = true
				grown = true
			}
		}
	}
	var pids []int
	for _, p := range all {
		if mine[p.PID] && !p.Zombie {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// Kill kills the processes of the cell, except those in keep, until none is left
// or killTime is over.
func (g *Group) Kill(keep ...int) {
	for end := time.Now().Add(killTime); ; time.Sleep(2 * time.Millisecond) {
		left := 0
		for _, pid := range g.PIDs() {
			if pid == os.Getpid() || slices.Contains(keep, pid) {
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

// InterruptOthers interrupts the processes of the cell that are not the user's: the
// kernel, which is, can stop its own children only, and not those of sudo.
func (g *Group) InterruptOthers(uid int) {
	for _, pid := range g.PIDs() {
		var st syscall.Stat_t
		if pid != os.Getpid() && syscall.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &st) == nil && int(st.Uid) != uid {
			_ = syscall.Kill(pid, syscall.SIGINT)
		}
	}
}
