// Package cgroup bounds the memory, processor time and processes of a group of
// processes by the kernel's control groups, version 1, version 2 or a mixture.
// It works below the cgroup that this process is in and touches no other.
package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnavailable is wrapped, with the reason, when no controller can be used.
var ErrUnavailable = errors.New("control groups are not available")

// Controllers are the ones this package uses.
var Controllers = []string{"cpu", "memory", "pids"}

// Limits bounds a group. Zero means no bound.
type Limits struct {
	Memory int64   // bytes, swap included
	CPUs   float64 // processors; at least 0.01
	PIDs   int     // processes and threads
}

func (l Limits) check() error {
	if l.Memory < 0 || l.CPUs < 0 || l.PIDs < 0 {
		return errors.New("a cgroup limit is negative")
	}
	return nil
}

// Manager makes groups. It is safe for concurrent use.
type Manager struct {
	hierarchies []*hierarchy // each serves at least one controller
	missing     map[string]string
	proc        string // normally /proc
	owner       string // the beginning of our groups' names
	dirs        directories

	mu       sync.Mutex // guards the making and removing of base directories
	prepared bool
}

// directories makes and removes cgroups. A plain directory, as in tests of
// version 2, does not fill itself with control files.
type directories struct {
	mkdir, rmdir func(dir string) error
}

var kernelDirectories = directories{
	mkdir: func(dir string) error { return os.Mkdir(dir, 0o755) },
	rmdir: func(dir string) error {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		return nil // that it is gone already is fine
	},
}

// hierarchy is one tree of cgroups and what it is used for.
type hierarchy struct {
	v2          bool
	controllers []string
	own         string // the directory that base is made in
	leaf        string // where processes of own must go first; v2, else empty
}

func (h *hierarchy) base() string { return filepath.Join(h.own, "cubby") }

// New makes an empty group. A limit that cannot be set does not fail it: see
// Enforced and Problems. The name is made of letters, digits, "-" and "_".
//
// A group must not be used again after cgroup.kill was written to it: some
// kernels kill whatever is started in it later. Make a new one.
func (m *Manager) New(name string, limits Limits) (*Group, error) {
	if !validName().MatchString(name) {
		return nil, fmt.Errorf("cgroup name %q is not made of at most 64 letters, digits, - and _", name)
	}
	if err := limits.check(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := &Group{m: m}
	if !m.prepared {
		for _, h := range m.hierarchies {
			if err := h.prepare(m.dirs); err != nil {
				return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), m.undo())
			}
		}
		m.prepared = true
	}
	for _, h := range m.hierarchies {
		dir := filepath.Join(h.base(), m.owner+name)
		if err := h.make(m.dirs, dir); err != nil {
			return nil, errors.Join(fmt.Errorf("making a cgroup: %w", err), g.remove())
		}
		g.places = append(g.places, placed{h, dir})
	}
	g.limit(limits, false)
	return g, nil
}

var validName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
})

// Available lists the controllers that can be used, sorted.
func (m *Manager) Available() []string {
	var names []string
	for _, h := range m.hierarchies {
		names = append(names, h.controllers...)
	}
	slices.Sort(names)
	return names
}

// Missing says, for each controller that cannot be used, why.
func (m *Manager) Missing() map[string]string { return m.missing }

// Versions lists the cgroup versions in use: 1, 2 or both.
func (m *Manager) Versions() []int {
	var versions []int
	for _, h := range m.hierarchies {
		v := 1
		if h.v2 {
			v = 2
		}
		if !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions
}

// Close undoes what the first New did to the tree: it moves this process back
// and removes directories that are empty. Groups must have been closed.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.prepared {
		return nil
	}
	m.prepared = false
	return m.undo()
}

func (m *Manager) undo() error {
	var errs []error
	for _, h := range m.hierarchies {
		if err := m.dirs.rmdir(h.base()); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			errs = append(errs, err)
			continue
		}
		if h.leaf == "" {
			continue
		}
		for _, c := range h.controllers {
			// Other groups below own may still need it.
			_ = writeFile(filepath.Join(h.own, "cgroup.subtree_control"), "-"+c)
		}
		if err := writeFile(filepath.Join(h.own, "cgroup.procs"), strconv.Itoa(os.Getpid())); err == nil {
			_ = m.dirs.rmdir(h.leaf)
		}
	}
	return errors.Join(errs...)
}

// prepare readies a v2 directory for child groups. Only a directory without
// processes of its own may hand controllers down, so we step aside into a leaf.
func (h *hierarchy) prepare(dirs directories) error {
	if !h.v2 {
		return nil
	}
	if h.leaf != "" {
		if err := dirs.mkdir(h.leaf); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making a cgroup for ourselves: %w", err)
		}
		if err := writeFile(filepath.Join(h.leaf, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return fmt.Errorf("moving into a cgroup of our own: %w", err)
		}
	}
	return h.handDown(h.own)
}

// handDown lets the children of dir use our controllers.
func (h *hierarchy) handDown(dir string) error {
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := readFile(control)
	if err != nil {
		return err
	}
	for _, c := range h.controllers {
		if slices.Contains(strings.Fields(enabled), c) {
			continue
		}
		if err := writeFile(control, "+"+c); err != nil {
			return fmt.Errorf("enabling the %s controller: %w", c, err)
		}
	}
	return nil
}

// make makes a group, and before it the base directory for all our groups.
// Another process may remove an empty base at any moment, hence the attempts.
func (h *hierarchy) make(dirs directories, dir string) error {
	for attempt := 1; ; attempt++ {
		err := dirs.mkdir(h.base())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if h.v2 {
			err = h.handDown(h.base())
		} else {
			err = nil
		}
		if err == nil {
			err = dirs.mkdir(dir)
		}
		if !errors.Is(err, fs.ErrNotExist) || attempt == 5 {
			return err
		}
	}
}

// Sweep removes the groups of servers that have ended and says how many there
// were. A killed server's processes die a moment after it: it waits for them, a
// second for all groups together. A group that still has processes then stays and
// is an error.
func (m *Manager) Sweep() (removed int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	gone := map[string]bool{}
	deadline := time.Now().Add(time.Second)
	for _, h := range m.hierarchies {
		entries, err := os.ReadDir(h.base())
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		for _, e := range entries {
			dead, err := m.ownerIsDead(e.Name())
			if err != nil {
				errs = append(errs, err)
			}
			if !e.IsDir() || !dead {
				continue
			}
			if err := m.dirs.rmdirUntil(deadline, filepath.Join(h.base(), e.Name())); err != nil {
				errs = append(errs, err)
				continue
			}
			gone[e.Name()] = true
		}
		if len(gone) > 0 {
			_ = m.dirs.rmdir(h.base()) // fails while others use it
		}
	}
	return len(gone), errors.Join(errs...)
}

// ownerName begins a group's name: process id, its start in ticks since boot
// (process ids come again) and its pid namespace (they differ between those).
var ownerName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,10})\.([0-9]{1,20})\.([0-9]{1,20})-`)
})

func ownerPrefix(proc string) (string, error) {
	_, start, err := processStat(filepath.Join(proc, "self", "stat"))
	if err != nil {
		return "", err
	}
	namespace, err := pidNamespace(proc)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%s.%s-", os.Getpid(), start, namespace), nil
}

func (m *Manager) ownerIsDead(name string) (bool, error) {
	parts := ownerName().FindStringSubmatch(name)
	if parts == nil {
		return false, nil
	}
	if namespace, err := pidNamespace(m.proc); err != nil || namespace != parts[3] {
		return false, err
	}
	state, start, err := processStat(filepath.Join(m.proc, parts[1], "stat"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	// In a container nobody may ever wait for a process whose parent is gone.
	return err == nil && (start != parts[2] || state == "Z"), err
}

// processStat reads the state, field 3, and the start time, field 22, of a
// /proc/PID/stat.
func processStat(path string) (state, start string, err error) {
	text, err := readFile(path)
	if err != nil {
		return "", "", err
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "", "", fmt.Errorf("%s: unexpected format", path)
	}
	return fields[0], fields[19], nil
}

func pidNamespace(proc string) (string, error) {
	link, err := os.Readlink(filepath.Join(proc, "self", "ns", "pid"))
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"), nil
}

// rmdirPatiently gives up after two seconds.
func (d directories) rmdirPatiently(dir string) error {
	return d.rmdirUntil(time.Now().Add(2*time.Second), dir)
}

// rmdirUntil waits for the last processes, which leave a cgroup a moment after
// they were reaped.
func (d directories) rmdirUntil(deadline time.Time, dir string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := d.rmdir(dir)
		if err == nil || !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// writeFile writes in one call, as control files need, and never makes a file.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// readFile reads at most 1 MiB.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(text), err
}
