package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leafName is the v2 group that this process steps aside into.
const leafName = "cubby-self"

// mountPoint is one mounted cgroup file system.
type mountPoint struct {
	v2          bool
	dir         string   // where it is mounted
	root        string   // the cgroup that is visible there
	controllers []string // v1
}

// Detect finds out which controllers this process can use, and changes nothing.
// The arguments are normally empty: root is then /sys/fs/cgroup, self
// /proc/self/cgroup and mountinfo /proc/self/mountinfo. Mounts outside root are
// ignored unless root is empty. The error wraps ErrUnavailable and says why.
func Detect(root, self, mountinfo string) (*Manager, error) {
	return detect(root, or(self, "/proc/self/cgroup"), or(mountinfo, "/proc/self/mountinfo"), "/proc")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func detect(root, self, mountinfo, proc string) (*Manager, error) {
	mounts, err := readMounts(root, mountinfo)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	ours, err := readSelf(self)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	m := &Manager{missing: map[string]string{}, proc: proc, dirs: kernelDirectories}
	if m.owner, err = ownerPrefix(proc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if len(mounts) == 0 {
		return nil, fmt.Errorf("%w: no cgroup file system is mounted", ErrUnavailable)
	}

	unified := unifiedHierarchy(mounts, ours)
	for _, c := range Controllers {
		i := slices.IndexFunc(mounts, func(mp mountPoint) bool { return !mp.v2 && slices.Contains(mp.controllers, c) })
		if i < 0 {
			if unified.problem != "" {
				m.missing[c] = unified.problem
			} else if !slices.Contains(unified.available, c) {
				m.missing[c] = "the " + c + " controller is not handed down to " + unified.own
			} else {
				unified.controllers = append(unified.controllers, c)
			}
			continue
		}
		h := &hierarchy{own: mounts[i].locate(ours[c])}
		if err := unix.Access(h.own, unix.W_OK); err != nil {
			m.missing[c] = fmt.Sprintf("cannot write to %s: %v", h.own, err)
			continue
		}
		// cpu and cpuacct, say, may share one tree.
		if j := slices.IndexFunc(m.hierarchies, func(o *hierarchy) bool { return o.own == h.own }); j >= 0 {
			h = m.hierarchies[j]
		} else {
			m.hierarchies = append(m.hierarchies, h)
		}
		h.controllers = append(h.controllers, c)
	}
	if len(unified.controllers) > 0 {
		m.hierarchies = append(m.hierarchies, &unified.hierarchy)
	}
	if len(m.hierarchies) == 0 {
		var reasons []string
		for _, c := range Controllers {
			if !slices.Contains(reasons, m.missing[c]) {
				reasons = append(reasons, m.missing[c])
			}
		}
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, strings.Join(reasons, "; "))
	}
	return m, nil
}

// unified is what was found out about version 2.
type unified struct {
	hierarchy
	available []string
	problem   string // why it cannot be used; empty if it can
}

func unifiedHierarchy(mounts []mountPoint, ours map[string]string) (u unified) {
	u.v2 = true
	i := slices.IndexFunc(mounts, func(mp mountPoint) bool { return mp.v2 })
	path, in := ours[""]
	if i < 0 || !in {
		u.problem = "no hierarchy with this controller is mounted"
		return u
	}
	own := mounts[i].locate(path)
	if filepath.Base(own) == leafName {
		own = filepath.Dir(own) // a process of ours stepped aside before
	}
	problem := u.use(own)
	if problem == "" {
		return u
	}
	// Others live in our group: our parent process at least, or a terminal's
	// shell. A group further up will do where that is ours to write and hands
	// down controllers already; the nearest of those that hand down the most.
	// Bounds that were set for our own group do not hold there.
	best := 0
	for dir := own; dir != mounts[i].dir && under(dir, mounts[i].dir); {
		dir = filepath.Dir(dir)
		if writable(dir) != nil {
			break
		}
		text, err := readFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			break
		}
		enabled := slices.DeleteFunc(strings.Fields(text), func(c string) bool { return !slices.Contains(Controllers, c) })
		if len(enabled) > best {
			best = len(enabled)
			u.own, u.leaf, u.available = dir, "", enabled
		}
	}
	if best == 0 {
		u.own, u.problem = own, problem
	}
	return u
}

// use fills in u for groups below dir, or says why there can be none.
func (u *unified) use(dir string) (problem string) {
	if err := writable(dir); err != nil {
		return fmt.Sprintf("cannot write to %s, which is not delegated to this user: %v", dir, err)
	}
	available, err := readFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err.Error()
	}
	u.own, u.available = dir, strings.Fields(available)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); os.IsNotExist(err) {
		return "" // the kernel's own root may have processes and children
	}
	enabled, err := readFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err.Error()
	}
	procs, err := readFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err.Error()
	}
	pids := strings.Fields(procs)
	switch {
	case len(pids) == 0:
		return ""
	case len(pids) == 1 && pids[0] == strconv.Itoa(os.Getpid()):
		u.leaf = filepath.Join(dir, leafName)
		return ""
	case strings.TrimSpace(enabled) != "":
		return "" // a threaded or otherwise special group; the kernel decides
	default:
		return fmt.Sprintf("%s has other processes, so that it cannot hand down controllers: "+
			"start the program in a group of its own (systemd-run --user --scope -p Delegate=yes)", dir)
	}
}

// writable checks what making and filling groups below a v2 directory needs.
func writable(dir string) error {
	for _, path := range []string{dir, filepath.Join(dir, "cgroup.procs"), filepath.Join(dir, "cgroup.subtree_control")} {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return err
		}
	}
	return nil
}

// locate returns the directory of a cgroup given as in /proc/self/cgroup.
func (mp mountPoint) locate(cgroup string) string {
	if under(cgroup, mp.root) {
		dir := filepath.Join(mp.dir, strings.TrimPrefix(cgroup, mp.root))
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	// In a container the path may be told from outside while only our own
	// group is mounted.
	return mp.dir
}

func under(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

func readMounts(root, mountinfo string) ([]mountPoint, error) {
	text, err := readFile(mountinfo)
	if err != nil {
		return nil, err
	}
	var mounts []mountPoint
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f, s := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(s) < 3 || (s[0] != "cgroup" && s[0] != "cgroup2") {
			continue
		}
		if dir := f[4]; root == "" || under(dir, root) {
			mounts = append(mounts, mountPoint{v2: s[0] == "cgroup2", dir: dir, root: f[3], controllers: strings.Split(s[2], ",")})
		}
	}
	return mounts, nil
}

// readSelf maps each v1 controller, and "" for v2, to this process's cgroup.
func readSelf(path string) (map[string]string, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	ours := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s: unexpected line %.100q", path, line)
		}
		for _, c := range strings.Split(parts[1], ",") {
			ours[c] = filepath.Clean("/" + parts[2])
		}
	}
	return ours, nil
}
