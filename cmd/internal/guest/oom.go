//go:build linux

package guest

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
)

// smallest is the least memory, in bytes, that makes a process worth killing for
// it: a bare kernel has less.
const smallest = 16 << 20

// kernelInSight is a kernel, which may be at rest. One of Bash is two processes.
type kernelInSight struct {
	*kernelProcess
	withShell bool
}

// handleOOM is told by the host that the sandbox is at its memory limit: the
// largest process goes, or all of the cells that run.
func (g *Guest) handleOOM(w http.ResponseWriter, r *http.Request) {
	var req struct {
		WholeRun bool `json:"whole_run"`
	}
	_ = json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&req)
	g.contexts.mu.Lock()
	all := append([]*codeContext(nil), g.contexts.all...)
	g.contexts.mu.Unlock()
	type running struct {
		run  *cell
		pids []int
	}
	var runs []running
	var kernels []kernelInSight
	for _, c := range all {
		c.mu.Lock()
		run, proc := c.cell, c.proc
		c.mu.Unlock()
		if proc != nil {
			kernels = append(kernels, kernelInSight{proc, c.kernel == bash})
		}
		if run != nil {
			runs = append(runs, running{run, run.group.pids()})
		}
	}
	kernelOf := func(p process) *kernelProcess {
		i := slices.IndexFunc(kernels, func(k kernelInSight) bool { return k.pid() == p.pid || k.withShell && k.pid() == p.ppid })
		if i < 0 {
			return nil
		}
		return kernels[i].kernelProcess
	}
	in := func(p process) func(running) bool {
		return func(x running) bool { return slices.Contains(x.pids, p.pid) }
	}
	var large []process
	for _, p := range processes() {
		// Outside a sandbox the rest of the machine is none of our business.
		ours := g.cfg.Init || slices.ContainsFunc(runs, in(p))
		if ours && p.pid != os.Getpid() && p.pid != 1 && !p.zombie && p.rss >= smallest {
			large = append(large, p)
		}
	}
	if req.WholeRun {
		// A cell that began since the first call is spared, and a kernel that
		// idles: the memory of what was killed is on its way back.
		var spared []running
		for _, x := range runs {
			if !x.run.pressed.Load() {
				spared = append(spared, x)
				continue
			}
			x.run.oom.Store(true)
			x.run.group.kill()
		}
		for _, p := range large {
			if !slices.ContainsFunc(spared, in(p)) && kernelOf(p) == nil {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		writeJSON(w, http.StatusOK, map[string]any{})
		return
	}
	for _, x := range runs {
		x.run.pressed.Store(true)
	}
	var largest process
	for _, p := range large {
		if p.rss > largest.rss {
			largest = p
		}
	}
	if largest.pid == 0 {
		writeJSON(w, http.StatusOK, map[string]any{})
		return
	}
	for _, x := range runs {
		if slices.Contains(x.pids, largest.pid) {
			x.run.oom.Store(true)
		}
	}
	if k := kernelOf(largest); k != nil {
		k.oom.Store(true)
	}
	_ = syscall.Kill(largest.pid, syscall.SIGKILL)
	writeJSON(w, http.StatusOK, map[string]any{"pid": largest.pid, "name": strings.ToValidUTF8(largest.name, "?"), "rss": largest.rss})
}
