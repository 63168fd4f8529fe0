package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// controlFiles are what the kernel puts into a v2 group.
var controlFiles = map[string]string{
	"cgroup.type": "domain\n", "cgroup.procs": "", "cgroup.controllers": "", "cgroup.subtree_control": "",
	"memory.max": "max\n", "memory.swap.max": "max\n", "memory.oom.group": "1\n", "memory.events": "oom 0\noom_kill 3\n",
	"cpu.max": "max 100000\n", "pids.max": "max\n",
}

// fakeTree is a v2 tree of plain files. Directories get control files when they
// are made, as the kernel does; controllers are inherited from what is asked for.
type fakeTree struct {
	t    *testing.T
	root string
}

func (f fakeTree) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, content := range controlFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (f fakeTree) rmdir(dir string) error {
	for name := range controlFiles {
		_ = os.Remove(filepath.Join(dir, name))
	}
	err := os.Remove(dir)
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func (f fakeTree) file(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.root, path))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

func (f fakeTree) write(path, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.root, path), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// newFakeTree makes a tree with /user/session, in which we are.
func newFakeTree(t *testing.T) (fakeTree, func() (*Manager, error)) {
	f := fakeTree{t, t.TempDir()}
	for _, dir := range []string{"user", "user/session"} {
		if err := f.mkdir(filepath.Join(f.root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range controlFiles {
		if name != "cgroup.type" {
			f.write(name, content)
		}
	}
	f.write("user/session/cgroup.controllers", "cpuset cpu io memory pids\n")
	self, mountinfo := filepath.Join(t.TempDir(), "self"), filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(self, []byte("0::/user/session\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mountinfo, []byte("31 23 0:26 / "+f.root+" rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return f, func() (*Manager, error) {
		m, err := detect(f.root, self, mountinfo, "/proc")
		if err == nil {
			m.dirs = directories{f.mkdir, f.rmdir}
		}
		return m, err
	}
}

func TestV2Group(t *testing.T) {
	f, detect := newFakeTree(t)
	f.write("user/session/cgroup.procs", strconv.Itoa(os.Getpid())+"\n")
	m, err := detect()
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Available(); !slices.Equal(got, Controllers) {
		t.Errorf("available %v", got)
	}
	if got := m.Versions(); !slices.Equal(got, []int{2}) {
		t.Errorf("versions %v", got)
	}
	g, err := m.New("x", Limits{Memory: 1 << 29, CPUs: 1.5, PIDs: 300})
	if err != nil {
		t.Fatal(err)
	}
	if got := g.Enforced(); !slices.Equal(got, Controllers) {
		t.Errorf("enforced %v; %v", got, g.Problems())
	}
	if err := g.Add(4711); err != nil {
		t.Error(err)
	}
	group := "user/session/cubby/" + m.owner + "x/"
	for file, want := range map[string]string{
		"user/session/cubby-self/cgroup.procs":      strconv.Itoa(os.Getpid()),
		"user/session/cgroup.subtree_control":       "+pids", // the last of three writes
		"user/session/cubby/cgroup.subtree_control": "+pids",
		group + "memory.max":                        "536870912",
		group + "memory.swap.max":                   "0",
		group + "memory.oom.group":                  "0",
		group + "cpu.max":                           "150000 100000",
		group + "pids.max":                          "300",
		group + "cgroup.procs":                      "4711",
	} {
		if got := f.file(file); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if err := g.SetLimits(Limits{Memory: 1 << 28, CPUs: 0.5}); err != nil {
		t.Fatal(err)
	}
	if got := g.Enforced(); !slices.Equal(got, []string{"cpu", "memory"}) || len(g.Problems()) > 0 {
		t.Errorf("after a change: enforced %v; %v", got, g.Problems())
	}
	for file, want := range map[string]string{
		"memory.max": "268435456", "memory.swap.max": "0", "cpu.max": "50000 100000", "pids.max": "max",
	} {
		if got := f.file(group + file); !strings.HasPrefix(got, want) { // a real file holds no more
			t.Errorf("after a change: %s: %q, want %q", file, got, want)
		}
	}
	if err := g.SetLimits(Limits{PIDs: -1}); err == nil {
		t.Error("a negative limit was taken")
	}
	if n, err := g.OOMKills(); n != 3 || err != nil {
		t.Errorf("kills %d, %v", n, err)
	}
	if pids, err := g.Procs(); err != nil || !slices.Equal(pids, []int{4711}) {
		t.Errorf("processes %v, %v", pids, err)
	}
	if err := errors.Join(g.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"user/session/cubby", "user/session/cubby-self"} {
		if _, err := os.Stat(filepath.Join(f.root, dir)); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestV2Detect(t *testing.T) {
	for _, tt := range []struct {
		name      string
		prepare   func(f fakeTree)
		available []string
		own       string // below the tree
		err       string
	}{
		{
			name: "an empty delegated group", prepare: func(fakeTree) {},
			available: Controllers, own: "user/session",
		},
		{
			name:      "only some controllers are handed down",
			prepare:   func(f fakeTree) { f.write("user/session/cgroup.controllers", "memory pids\n") },
			available: []string{"memory", "pids"}, own: "user/session",
		},
		{
			name: "others live in our group, the parent hands down",
			prepare: func(f fakeTree) {
				f.write("user/session/cgroup.procs", "1\n2\n")
				f.write("user/cgroup.subtree_control", "memory pids\n")
			},
			available: []string{"memory", "pids"}, own: "user",
		},
		{
			name: "others live in our group, one further up hands down more",
			prepare: func(f fakeTree) {
				f.write("user/session/cgroup.procs", "1\n2\n")
				f.write("user/cgroup.subtree_control", "pids io\n")
				f.write("cgroup.subtree_control", "cpuset cpu io memory pids\n")
			},
			available: Controllers, own: "",
		},
		{
			name:    "others live in our group, the parent does not hand down",
			prepare: func(f fakeTree) { f.write("user/session/cgroup.procs", "1\n2\n") },
			err:     "has other processes",
		},
		{
			name:    "no controllers",
			prepare: func(f fakeTree) { f.write("user/session/cgroup.controllers", "hugetlb\n") },
			err:     "the memory controller is not handed down",
		},
		{
			name: "not ours to write",
			prepare: func(f fakeTree) {
				if os.Getuid() == 0 {
					f.t.Skip("root may write everywhere")
				}
				os.Chmod(filepath.Join(f.root, "user/session"), 0o555)
				os.Chmod(filepath.Join(f.root, "user"), 0o555)
			},
			err: "not delegated to this user",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, detect := newFakeTree(t)
			tt.prepare(f)
			m, err := detect()
			os.Chmod(filepath.Join(f.root, "user"), 0o755)
			os.Chmod(filepath.Join(f.root, "user/session"), 0o755)
			if tt.err != "" {
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Available(); !slices.Equal(got, tt.available) {
				t.Errorf("available %v, want %v; missing %v", got, tt.available, m.Missing())
			}
			if got := m.hierarchies[0].own; got != filepath.Join(f.root, tt.own) {
				t.Errorf("groups below %s", got)
			}
		})
	}
}

func TestDetectWithoutCgroups(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][2]string{
		"no file systems": {empty, empty},
		"no proc":         {"/nonexistent", "/nonexistent"},
	} {
		if _, err := Detect("", args[0], args[1]); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
