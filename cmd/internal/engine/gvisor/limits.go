package gvisor

import (
	"context"
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

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/hostproc"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
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
	// filesForUse is how many of a sentry's descriptors are not for files that nobody
	// uses any more: its own, and those of what code has open or mapped.
	filesForUse = 512
	// descriptorsOfFile is more than a sentry keeps for a file that it has looked at:
	// 2.4 were measured, and it has up to three.
	descriptorsOfFile = 4
	// gvisorsCache is how many such files a sentry keeps unless it is told otherwise.
	gvisorsCache = 1000
	// niceness of a machine that no cgroup holds back.
	niceness = 5
	// maxLooks is how often threads are looked for that are to run elsewhere. Two
	// looks do, unless it is the host that does not let them.
	maxLooks = 20
	// slowed is by how much more processes are held back that take the last of the
	// memory: to a tenth of the guest's share. With less they could hardly be killed on a busy machine,
	// for that they must run once more.
	slowed = 10
)

// cachedFiles is how many files that nobody uses any more a sentry with that limit of
// descriptors may keep open; -1 leaves it to gVisor. A sentry without a descriptor left
// closes none of them. Code that opens a file gets EMFILE then, which Python's import
// takes for a module that is not there.
func cachedFiles(limit uint64) int {
	if limit >= filesForUse+gvisorsCache*descriptorsOfFile {
		return -1
	}
	return int(max(limit, filesForUse)-filesForUse) / descriptorsOfFile
}

// limit places a machine that was made but has not started.
func (m *machine) limit(spec engine.Spec) error {
	pids := []int{m.sentry, m.gofer}
	stubs := hostproc.Descendants(pids[0])
	for _, pid := range stubs {
		// Best effort: without a memory cgroup it only orders the host's victims.
		_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte(stubOOMScore), 0)
	}
	var enforced []string
	if m.engine.cfg.Cgroups != nil {
		group, err := m.engine.cfg.Cgroups.New(spec.ID, groupLimits(spec.Limits))
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
	return m.boundProcessors(spec.Limits.CPUs, enforced)
}

// groupLimits are the walls on the host behind a machine's limits.
func groupLimits(limits engine.Limits) cgroup.Limits {
	group := cgroup.Limits{CPUs: limits.CPUs}
	if limits.Memory > 0 {
		group.Memory = 2*limits.Memory + sentryMemory
	}
	if limits.PIDs > 0 {
		group.PIDs = 4*limits.PIDs + sentryTasks
	}
	return group
}

// SetLimits implements engine.Limiter. Without a cgroup the niceness of a machine
// that had a limit of processors stays when there is none any more: only root could
// take it back.
func (m *machine) SetLimits(ctx context.Context, limits engine.Limits) error {
	if limits.Disk != m.fixed.Disk {
		return fmt.Errorf("gvisor: a disk of %d bytes for one of %d: %w", limits.Disk, m.fixed.Disk, engine.ErrNotSupported)
	}
	return m.change(ctx, "set limits", func() error {
		var enforced []string
		if m.group != nil {
			if err := m.group.SetLimits(groupLimits(limits)); err != nil {
				return err
			}
			enforced = m.group.Enforced()
			for controller, err := range m.group.Problems() {
				m.engine.cfg.Logger.Debug("limit without a cgroup", "machine", m.id, "controller", controller, "err", err)
			}
		}
		return m.boundProcessors(limits.CPUs, enforced)
	})
}

// boundProcessors bounds a machine's processors as well as can be where its cgroup,
// which enforces what is listed, does not; zero is no bound. It keeps what
// Unenforced says.
func (m *machine) boundProcessors(cpus float64, enforced []string) error {
	var unenforced []string
	pinned := 0
	if cpus > 0 && !slices.Contains(enforced, "cpu") {
		pinned = int(math.Ceil(cpus))
		for _, pid := range append([]int{m.sentry}, hostproc.Descendants(m.sentry)...) {
			renice(pid, niceness)
		}
		// Affinity bounds whole processors only.
		if cpus < float64(runtime.NumCPU()) && cpus != math.Trunc(cpus) {
			unenforced = append(unenforced, "cpu")
		}
	}
	if pinned != m.pinned {
		if err := m.pin(pinned); err != nil {
			return err
		}
	}
	m.told.Lock()
	defer m.told.Unlock()
	m.unenforced = unenforced
	return nil
}

// Unenforced implements engine.Machine.
func (m *machine) Unenforced() []string {
	m.told.Lock()
	defer m.told.Unlock()
	return slices.Clone(m.unenforced)
}

// processors chooses n of those that this process may use, the next machine others;
// zero is all of them.
func (e *Engine) processors(n int) (some unix.CPUSet, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return some, fmt.Errorf("affinity: %w", err)
	}
	have := all.Count()
	if n <= 0 || n >= have {
		return all, nil
	}
	allowed := make([]int, 0, have)
	for cpu := 0; len(allowed) < have; cpu++ {
		if all.IsSet(cpu) {
			allowed = append(allowed, cpu)
		}
	}
	first := int(e.nextCPU.Add(uint32(n))) - n
	for i := range n {
		some.Set(allowed[(first+i)%have])
	}
	return some, nil
}

// pin lets a machine use n processors; zero is all. It changes the threads that there
// are: gVisor makes its processes on threads of its own choice, which have nothing
// to hand down. What they start meanwhile is found by the next look.
func (m *machine) pin(n int) error {
	some, err := m.engine.processors(n)
	if err != nil {
		return err
	}
	for range maxLooks {
		moved := false
		for _, pid := range append([]int{m.sentry, m.gofer}, hostproc.Descendants(m.sentry)...) {
			for _, tid := range hostproc.Threads(pid) {
				var now unix.CPUSet
				// An error is that it has ended.
				if unix.SchedGetaffinity(tid, &now) == nil && now != some && unix.SchedSetaffinity(tid, &some) == nil {
					moved = true
				}
			}
		}
		if !moved {
			break
		}
	}
	m.pinned = n
	return nil
}

// Slow implements engine.Slower: a process inside is one on the host, which maps
// the memory that it has touched.
func (m *machine) Slow(bytes int64) {
	_ = m.look(func() error {
		sentry, err := niceOf(m.sentry)
		if err != nil {
			return err
		}
		for _, pid := range hostproc.Descendants(m.sentry) {
			b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
			if f := strings.Fields(string(b)); len(f) > 1 {
				if pages, _ := strconv.ParseInt(f[1], 10, 64); pages*int64(os.Getpagesize()) > bytes {
					renice(pid, sentry+slowed)
				}
			}
		}
		return nil
	})
}

// renice lowers every thread of a process that is not lower already, and so what they
// will start.
func renice(pid, niceness int) {
	for _, tid := range hostproc.Threads(pid) {
		if now, err := niceOf(tid); err == nil && now < niceness { // else it has ended
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, niceness)
		}
	}
}

// niceOf is a thread's niceness. The system call returns 20 less it.
func niceOf(tid int) (int, error) {
	kept, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - kept, err
}
