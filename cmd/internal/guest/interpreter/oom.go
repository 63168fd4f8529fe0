//go:build linux

package interpreter

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernelproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// smallest is the least memory, in bytes, that makes a process worth killing for
// it: a bare kernel has less.
const smallest = 16 << 20

// kernelInSight is a kernel, which may be at rest. One of Bash is two processes.
type kernelInSight struct {
	*kernelproc.Process
	withShell bool
}

// OutOfMemory is told by the host that the sandbox is at its memory limit: the
// largest process goes, or all of the cells that run.
func (ip *Interpreter) OutOfMemory(w http.ResponseWriter, r *http.Request) {
	var req struct {
		WholeRun bool `json:"whole_run"`
	}
	_ = json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&req)
	ip.contexts.mu.Lock()
	all := append([]*codeContext(nil), ip.contexts.all...)
	ip.contexts.mu.Unlock()
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
			kernels = append(kernels, kernelInSight{proc, c.kernel == settings.Bash})
		}
		if run != nil {
			runs = append(runs, running{run, run.group.PIDs()})
		}
	}
	kernelOf := func(p procfs.Process) *kernelproc.Process {
		i := slices.IndexFunc(kernels, func(k kernelInSight) bool { return k.PID() == p.PID || k.withShell && k.PID() == p.PPID })
		if i < 0 {
			return nil
		}
		return kernels[i].Process
	}
	in := func(p procfs.Process) func(running) bool {
		return func(x running) bool { return slices.Contains(x.pids, p.PID) }
	}
	var large []procfs.Process
	for _, p := range procfs.Processes() {
		// Outside a sandbox the rest of the machine is none of our business.
		ours := ip.settings.Config.Init || slices.ContainsFunc(runs, in(p))
		if ours && p.PID != os.Getpid() && p.PID != 1 && !p.Zombie && p.RSS >= smallest {
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
			x.run.group.Kill()
		}
		for _, p := range large {
			if !slices.ContainsFunc(spared, in(p)) && kernelOf(p) == nil {
				_ = syscall.Kill(p.PID, syscall.SIGKILL)
			}
		}
		reply.JSON(w, http.StatusOK, map[string]any{})
		return
	}
	for _, x := range runs {
		x.run.pressed.Store(true)
	}
	var largest procfs.Process
	for _, p := range large {
		if p.RSS > largest.RSS {
			largest = p
		}
	}
	if largest.PID == 0 {
		reply.JSON(w, http.StatusOK, map[string]any{})
		return
	}
	for _, x := range runs {
		if slices.Contains(x.pids, largest.PID) {
			x.run.oom.Store(true)
		}
	}
	if k := kernelOf(largest); k != nil {
		k.OOM.Store(true)
	}
	_ = syscall.Kill(largest.PID, syscall.SIGKILL)
	reply.JSON(w, http.StatusOK, map[string]any{"pid": largest.PID, "name": strings.ToValidUTF8(largest.Name, "?"), "rss": largest.RSS})
}
