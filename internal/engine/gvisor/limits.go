package gvisor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/engine"
)

const (
	// maxOverhead is what a sentry may hold itself, in bytes. A flood of files,
	// sockets or processes grows it; a data analysis takes some 60 MiB; 170,000 files
	// could be made before it was reached.
	maxOverhead = 320 << 20
	// sentryMemory is what a machine may hold on the host beside its memory: the
	// sentry's and gofer's heaps and the stubs' stacks. The machine's own limit
	// is watched by package host, which needs time to choose a victim and ends
	// the machine at twice the limit and 256 MiB; the cgroup is the wall behind
	// that, for its own victim might be the sentry.
	sentryMemory = 640 << 20
	// sentryTasks is the host's pids limit above four tasks for each process
	// inside: the sentry's threads, and stubs that are being replaced. Reaching
	// it ends the machine, for Go cannot go on without a thread.
	sentryTasks = 1024
	// stubOOMScore makes the host's out-of-memory killer choose the processes of
	// code inside before it chooses their kernel.
	stubOOMScore = "1000"
	// niceness of a machine that no cgroup holds back.
	niceness = 5
	// slowed is that of processes that take the last of the memory: a tenth of
	// the guest's share. With less they could hardly be killed on a busy machine,
	// for that they must run once more.
	slowed = 10
)

// limit places a machine that was made but has not started.
func (m *machine) limit(spec engine.Spec) error {
	pids := []int{m.sentry, m.gofer}
	stubs := descendants(pids[0])
	for _, pid := range stubs {
		// Best effort: without a memory cgroup it only orders the host's victims.
		_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte(stubOOMScore), 0)
	}
	var enforced []string
	if m.engine.cfg.Cgroups != nil {
		limits := cgroup.Limits{CPUs: spec.Limits.CPUs}
		if spec.Limits.Memory > 0 {
			limits.Memory = 2*spec.Limits.Memory + sentryMemory
		}
		if spec.Limits.PIDs > 0 {
			limits.PIDs = 4*spec.Limits.PIDs + sentryTasks
		}
		group, err := m.engine.cfg.Cgroups.New(spec.ID, limits)
		switch {
		case errors.Is(err, cgroup.ErrUnavailable):
			// Found out only now: as if there were none, and said below.
			m.engine.cfg.Logger.Warn("no cgroup", "machine", spec.ID, "err", err)
		case err != nil:
			return err
		default:
			m.group = group
			if err := group.Add(append(pids, stubs...)...); err != nil {
				return err
			}
			enforced = group.Enforced()
		}
	}
	if n := spec.Limits.CPUs; n > 0 && !slices.Contains(enforced, "cpu") {
		renice(pids[0], niceness)
		// Affinity (see pinned) bounds whole processors only, and was left out
		// where a cgroup had promised to do it.
		if n < float64(runtime.NumCPU()) && (n != math.Trunc(n) || m.engine.cgroupsBoundCPU()) {
			m.unenforced = append(m.unenforced, "cpu")
		}
	}
	return nil
}

func (e *Engine) cgroupsBoundCPU() bool {
	return e.cfg.Cgroups != nil && slices.Contains(e.cfg.Cgroups.Available(), "cpu")
}

// pinned runs start, whose child processes may use ⌈cpus⌉ processors, when no
// cgroup will bound them.
func (e *Engine) pinned(cpus float64, start func() error) error {
	if cpus <= 0 || e.cgroupsBoundCPU() {
		return start()
	}
	// Affinity is a thread's, and inherited by what the thread starts.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("affinity: %w", err)
	}
	want, have := int(math.Ceil(cpus)), all.Count()
	if want >= have {
		return start()
	}
	allowed := make([]int, 0, have)
	for cpu := 0; len(allowed) < have; cpu++ {
		if all.IsSet(cpu) {
			allowed = append(allowed, cpu)
		}
	}
	first := int(e.nextCPU.Add(uint32(want))) - want
	for i := range want {
		some.Set(allowed[(first+i)%have])
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return fmt.Errorf("affinity: %w", err)
	}
	defer unix.SchedSetaffinity(0, &all)
	return start()
}

// Slow implements engine.Slower: a process inside is one on the host, which maps
// the memory that it has touched.
func (m *machine) Slow(bytes int64) {
	_ = m.look(func() error {
		for _, pid := range descendants(m.sentry) {
			b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
			if f := strings.Fields(string(b)); len(f) > 1 {
				if pages, _ := strconv.ParseInt(f[1], 10, 64); pages*int64(os.Getpagesize()) > bytes {
					renice(pid, slowed)
				}
			}
		}
		return nil
	})
}

// renice lowers every thread of a process, and so what they will start.
func renice(pid, niceness int) {
	tasks, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, niceness) // it may have ended
		}
	}
}

// descendants lists the processes below pid.
func descendants(pid int) []int {
	var all []int
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for _, s := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(s); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}
