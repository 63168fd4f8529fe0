package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Group is one set of processes with limits. Its methods are safe for
// concurrent use; Add and SetLimits must not be called after Close.
type Group struct {
	m      *Manager
	places []placed

	mu       sync.Mutex // guards the limits, and what is said of them
	enforced []string
	problems map[string]error
}

// placed is a group's directory in one hierarchy.
type placed struct {
	h   *hierarchy
	dir string
}

// Enforced lists those of "cpu", "memory" and "pids" that were asked for and
// hold, sorted.
func (g *Group) Enforced() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.enforced)
}

// Problems says, for each limit that was asked for and does not hold, why.
func (g *Group) Problems() map[string]error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.problems)
}

// setting is one value for one control file.
type setting struct {
	file, value string
	optional    bool // the kernel may be built without it
}

// SetLimits replaces the group's limits; zero ends one. As in New, one that cannot be
// set does not fail it: see Enforced and Problems. The old one may hold then.
func (g *Group) SetLimits(limits Limits) error {
	if err := limits.check(); err != nil {
		return err
	}
	g.limit(limits, true)
	return nil
}

// limit sets those limits that are asked for and, if there may be others before, ends
// the rest.
func (g *Group) limit(limits Limits, before bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enforced, g.problems = nil, map[string]error{}
	wanted := map[string]bool{"cpu": limits.CPUs > 0, "memory": limits.Memory > 0, "pids": limits.PIDs > 0}
	for _, c := range Controllers {
		if !wanted[c] && !before {
			continue
		}
		place, ok := g.place(c)
		if !ok {
			if wanted[c] {
				g.problems[c] = errors.New(g.m.missing[c])
			}
			continue
		}
		if err := place.set(settings(c, place.h.v2, limits)); err != nil {
			g.problems[c] = err
			continue
		}
		if wanted[c] {
			g.enforced = append(g.enforced, c)
		}
	}
}

// settings are what a limit means in the control files, in order.
func settings(controller string, v2 bool, limits Limits) []setting {
	switch controller {
	case "memory":
		if v2 {
			return []setting{
				{file: "memory.max", value: orNone(limits.Memory, "max")},
				{file: "memory.swap.max", value: "0", optional: true},
				{file: "memory.oom.group", value: "0", optional: true}, // one process dies, not all
			}
		}
		bytes := orNone(limits.Memory, "-1")
		return []setting{
			// The one with swap is never below the one without: it is raised before
			// that and lowered after it.
			{file: "memory.memsw.limit_in_bytes", value: bytes, optional: true},
			{file: "memory.limit_in_bytes", value: bytes},
			{file: "memory.memsw.limit_in_bytes", value: bytes, optional: true},
			{file: "memory.swappiness", value: "0", optional: true},
		}
	case "cpu":
		const period = 100_000 // microseconds
		var quota int64
		if limits.CPUs > 0 {
			quota = max(1000, int64(limits.CPUs*period))
		}
		if v2 {
			return []setting{{file: "cpu.max", value: fmt.Sprintf("%s %d", orNone(quota, "max"), period)}}
		}
		return []setting{
			{file: "cpu.cfs_period_us", value: strconv.Itoa(period)},
			{file: "cpu.cfs_quota_us", value: orNone(quota, "-1")},
		}
	default:
		return []setting{{file: "pids.max", value: orNone(int64(limits.PIDs), "max")}}
	}
}

// orNone is what a control file takes for a limit, or for none.
func orNone(limit int64, none string) string {
	if limit == 0 {
		return none
	}
	return strconv.FormatInt(limit, 10)
}

func (p placed) set(all []setting) error {
	for _, s := range all {
		err := writeFile(filepath.Join(p.dir, s.file), s.value)
		if err != nil && !s.optional {
			return fmt.Errorf("setting %s to %s: %w", s.file, s.value, err)
		}
	}
	return nil
}

func (g *Group) place(controller string) (placed, bool) {
	for _, p := range g.places {
		if slices.Contains(p.h.controllers, controller) {
			return p, true
		}
	}
	return placed{}, false
}

// Add moves processes, all their threads included, into the group. Children
// that they start afterwards are born in it. A process that has ended is
// skipped.
func (g *Group) Add(pids ...int) error {
	var errs []error
	for _, p := range g.places {
		for _, pid := range pids {
			if pid <= 0 { // zero would mean this process
				errs = append(errs, fmt.Errorf("%d is not a process id", pid))
				continue
			}
			err := writeFile(filepath.Join(p.dir, "cgroup.procs"), strconv.Itoa(pid))
			if err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("moving process %d into a cgroup: %w", pid, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Procs lists the processes in the group.
func (g *Group) Procs() ([]int, error) {
	seen := map[int]bool{}
	for _, p := range g.places {
		text, err := readFile(filepath.Join(p.dir, "cgroup.procs"))
		if err != nil {
			return nil, err
		}
		for _, field := range strings.Fields(text) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.dir, err)
			}
			seen[pid] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// OOMKills counts the processes that the kernel killed because the group's
// memory was used up.
func (g *Group) OOMKills() (int, error) {
	p, ok := g.place("memory")
	if !ok {
		return 0, fmt.Errorf("%w: %s", ErrUnavailable, g.m.missing["memory"])
	}
	file := "memory.oom_control"
	if p.h.v2 {
		file = "memory.events"
	}
	text, err := readFile(filepath.Join(p.dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("%s does not count kills: the kernel is too old", file)
}

// Close removes the group, whose processes must have ended: it kills none. It
// waits up to two seconds for those that are just leaving. It is idempotent.
func (g *Group) Close() error {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.remove()
}

// remove needs the manager's lock, so that no base directory vanishes between
// its making and the making of a group in it.
func (g *Group) remove() error {
	var errs []error
	for _, p := range g.places {
		if err := g.m.dirs.rmdirPatiently(p.dir); err != nil {
			errs = append(errs, err)
			continue
		}
		_ = g.m.dirs.rmdir(p.h.base()) // fails while another group is in it
	}
	return errors.Join(errs...)
}
