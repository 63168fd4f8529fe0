//go:build linux

package guest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
	dir string // the parent control group; empty without a controller

	mu   sync.Mutex
	next int
	live map[*processGroup]bool // of cells that run
	old  []string               // of cells that ended, until they are empty
}

type processGroup struct {
	gs     *groups
	dir    string // empty without a controller
	kernel int    // process id
	before map[int]uint64
}

// newGroups makes the parent group, with a bound on all that the code starts.
func newGroups(controller string, pids int) *groups {
	gs := &groups{live: map[*processGroup]bool{}}
	if controller == "" {
		return gs
	}
	dir := filepath.Join(controller, "cubby")
	if _, err := os.Stat(filepath.Join(controller, "cgroup.procs")); err != nil {
		return gs
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return gs
	}
	if pids > 0 {
		// Refused where the controller cannot bound: RLIMIT_NPROC still does.
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(pids)), 0o644)
	}
	gs.dir = dir
	return gs
}

// begin makes the group of a cell and moves the kernel's processes into it.
func (gs *groups) begin(kernel int, withShell bool) *processGroup {
	g := &processGroup{gs: gs, kernel: kernel}
	gs.mu.Lock()
	gs.live[g] = true
	gs.next++
	n := gs.next
	gs.sweep()
	gs.mu.Unlock()
	if gs.dir != "" {
		dir := filepath.Join(gs.dir, "cell"+strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o755); err == nil && join(dir, kernel) == nil {
			g.dir = dir
			if withShell {
				for _, p := range processes() {
					if p.ppid == kernel {
						_ = join(dir, p.pid)
					}
				}
			}
			return g
		}
		_ = os.Remove(dir)
	}
	g.before = map[int]uint64{}
	for _, p := range processes() {
		g.before[p.pid] = p.started
	}
	return g
}

func join(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// end says that the cell is over; what it left running stays.
func (g *processGroup) end() {
	g.gs.mu.Lock()
	defer g.gs.mu.Unlock()
	delete(g.gs.live, g)
	if g.dir != "" {
		g.gs.old = append(g.gs.old, g.dir)
	}
}

// sweep removes groups that are empty. The caller holds the lock.
func (gs *groups) sweep() {
	kept := gs.old[:0]
	for _, dir := range gs.old {
		if os.Remove(dir) != nil {
			kept = append(kept, dir)
		}
	}
	gs.old = kept
}

// pids returns the processes of the cell, its kernel among them.
func (g *processGroup) pids() []int {
	if g.dir != "" {
		b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		if err != nil {
			return nil
		}
		var pids []int
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
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
