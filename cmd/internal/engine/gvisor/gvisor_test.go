package gvisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/enginetest"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

func TestMain(m *testing.M) {
	gvisor.Dispatch()
	testenv.RunNamespaced(m)
}

// fixture is an engine with a template to boot from.
type fixture struct {
	dir      string
	engine   *gvisor.Engine
	root     template.Root
	enforces map[string]bool
}

func newFixture(t *testing.T, debugLog string) fixture {
	t.Helper()
	// Not named as a run folder: without a lock such a one is removed by the next
	// start of any cubby beside this test.
	dir, err := os.MkdirTemp("", "cubby-engine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o711)
	for _, d := range []string{"root", "gv"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	tools, err := template.Find(t.Context(), template.Options{Python: "/usr/bin/python3"})
	if err != nil {
		t.Fatal(err)
	}
	root, err := template.Compose(t.Context(), filepath.Join(dir, "root"), tools, template.Additions{
		Programs: template.Programs{Guest: testenv.Guest(t), TypeScript: testenv.TypeScript(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	enforces := map[string]bool{}
	cgroups, err := cgroup.Detect("", "", "")
	if err == nil {
		t.Cleanup(func() { cgroups.Close() })
		for _, c := range cgroups.Available() {
			enforces[c] = true
		}
	} else {
		t.Logf("without cgroups: %v", err)
		cgroups = nil
	}
	eng, err := gvisor.New(engine.Config{
		StateDir: filepath.Join(dir, "gv"), OverlayDir: dir, Helper: testenv.Engine(t), Cgroups: cgroups, DebugLog: debugLog,
	})
	if err != nil {
		t.Fatal(err)
	}
	return fixture{dir, eng, root, enforces}
}

// TestPrecompiledFilters fails when gVisor in go.mod was changed and `go
// generate` forgotten: filters would be compiled at each start, unnoticed.
func TestPrecompiledFilters(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("filters are generated for amd64 only")
	}
	logs := t.TempDir()
	f := newFixture(t, logs)
	m, err := f.engine.Start(t.Context(), engine.Spec{ID: "filters", Root: f.root.Dir, Args: []string{"/bin/true"}})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	loaded := 0
	files, _ := filepath.Glob(filepath.Join(logs, "*"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		loaded += strings.Count(string(b), "Loaded precompiled seccomp instructions")
		if strings.Contains(string(b), "No precompiled program found") {
			t.Errorf("%s compiled its filter: run `go generate ./internal/engine/gvisor/precomp`", filepath.Base(file))
		}
	}
	if loaded < 2 {
		t.Errorf("%d processes loaded a precompiled filter, want sentry and gofer", loaded)
	}
}

func TestSuite(t *testing.T) {
	f := newFixture(t, "")
	root := f.root
	lacks := map[string]string{}
	if !f.enforces["cpu"] {
		for _, test := range []string{"CPULimit", "SetCPULimit"} {
			lacks[test] = "no cgroup bounds processors on this machine"
		}
	}
	ran := enginetest.Suite{
		Engine: f.engine,
		Spec: func(*testing.T) engine.Spec {
			return engine.Spec{
				Root: root.Dir, Args: []string{root.GuestPath}, Hostname: "cubby",
				Env: []string{"PATH=" + root.Path, "CUBBY_PYTHON=" + root.Python, "CUBBY_NODE=" + root.Node, "CUBBY_BASH=" + root.Bash, "CUBBY_TYPESCRIPT=" + root.TypeScriptPath},
			}
		},
		Leaks:     func(t testing.TB) { testenv.CheckLeaksIn(t, f.dir) },
		Powers:    []string{"Checkpointer", "Limiter", "Pauser", "Restorer", "Slower"},
		Lacks:     lacks,
		Contained: contained,
	}.Run(t)
	for test, skipped := range ran {
		if _, lacking := lacks[test]; skipped != lacking {
			t.Errorf("%s was skipped: %v", test, skipped)
		}
	}
}

// contained looks at the host's side of a running machine: whoever breaks out
// of the sentry must be a user that owns nothing and may nothing.
func contained(t *testing.T, _ engine.Machine) {
	found := map[string]int{}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name, _, _ := strings.Cut(string(cmdline), "\x00")
		if name != "runsc-sandbox" && name != "runsc-gofer" {
			continue
		}
		status := readStatus(t, dir)
		if status["PPid"] != strconv.Itoa(os.Getpid()) {
			continue // another test's
		}
		found[name]++
		uidMap, err := os.ReadFile(filepath.Join(dir, "uid_map"))
		if err != nil {
			t.Fatal(err)
		}
		own, _ := os.Readlink("/proc/self/ns/user")
		theirs, err := os.Readlink(filepath.Join(dir, "ns", "user"))
		if err != nil || own == theirs {
			t.Errorf("%s runs in this process's user namespace (%v)", name, err)
		}
		for _, ns := range []string{"mnt", "net", "ipc", "uts", "pid"} {
			own, _ := os.Readlink("/proc/self/ns/" + ns)
			if theirs, err := os.Readlink(filepath.Join(dir, "ns", ns)); err != nil || own == theirs {
				t.Errorf("%s shares the %s namespace with this process (%v)", name, ns, err)
			}
		}
		if status["Seccomp"] != "2" {
			t.Errorf("%s: Seccomp %s, want 2 (filter)", name, status["Seccomp"])
		}
		if os.Getuid() == 0 && initialNamespace() {
			var inside, outside, size int
			fmt.Sscan(string(uidMap), &inside, &outside, &size)
			if outside < 0x70000000 || size != 1 {
				t.Errorf("%s: uid map %q, want one unprivileged user", name, strings.TrimSpace(string(uidMap)))
			}
		}
		if got := status["Groups"]; got != "" {
			t.Logf("%s: groups %q", name, got)
		}
	}
	if found["runsc-sandbox"] != 1 || found["runsc-gofer"] != 1 {
		t.Errorf("found %v, want one sandbox and one gofer", found)
	}
}

func initialNamespace() bool {
	b, _ := os.ReadFile("/proc/self/uid_map")
	return strings.Contains(string(b), "4294967295")
}

func readStatus(t *testing.T, dir string) map[string]string {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	return status
}

// TestCommit fails when gVisor in go.mod was changed and the constant was not:
// checkpoints of the old one would be taken for the new one's.
func TestCommit(t *testing.T) {
	b, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\tgvisor.dev/gvisor " + (*gvisor.Engine)(nil).Commit() + "\n"; !strings.Contains(string(b), want) {
		t.Errorf("go.mod does not require%q", want)
	}
}

// TestOtherBuild restores the files of an image that another build made; its memory
// is refused, and so is what was damaged.
func TestOtherBuild(t *testing.T) {
	f := newFixture(t, "")
	testenv.CheckLeaksIn(t, f.dir)
	spec := engine.Spec{ID: "other", Root: f.root.Dir, Args: []string{"/bin/sh", "-c", "cd /home/user; echo kept > new; mv new kept; exec sleep 1000"}}
	m, err := f.engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	image := t.TempDir()
	for written := false; !written; { // until the shell has
		time.Sleep(10 * time.Millisecond)
		if err := m.(engine.Checkpointer).Checkpoint(t.Context(), image, engine.CheckpointOptions{}); err != nil {
			t.Fatal(err)
		}
		tree, err := os.ReadFile(filepath.Join(image, "files_tree.img"))
		if err != nil {
			t.Fatal(err)
		}
		if written = strings.Contains(string(tree), "home/user/kept"); !written {
			image = t.TempDir()
		}
	}
	change := func(name string, by func(string) string) {
		t.Helper()
		path := filepath.Join(image, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(by(string(b))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change("machine.json", func(s string) string {
		return strings.Replace(s, f.engine.Commit(), "v0.0.0-20990101000000-000000000000", 1)
	})
	spec.ID = "othermemory"
	if m, err := f.engine.Restore(t.Context(), spec, image, engine.RestoreOptions{}); !errors.Is(err, engine.ErrForeign) {
		t.Errorf("the memory of another build: %v, %v", m, err)
	}
	spec.ID, spec.Args = "otherfiles", []string{"/bin/sh", "-c", `read x < /home/user/kept; test "$x" = kept && exit 42`}
	r, err := f.engine.Restore(t.Context(), spec, image, engine.RestoreOptions{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if exit := awaitExit(t, r); exit.Err == nil || !strings.Contains(exit.Err.Error(), "status 42") {
		t.Errorf("with the files of another build: %v", exit.Err)
	}
	// Whole by its sizes, and nonsense: that is the kernel's to find out in its sandbox.
	for _, name := range []string{"files.pb", "files_tree.img", "files_meta.img"} {
		damaged := ""
		change(name, func(s string) string { damaged = s; return strings.Repeat("\xff", len(s)) })
		spec.ID = "damaged" + strings.NewReplacer("_", "", ".", "").Replace(name)
		if r, err := f.engine.Restore(t.Context(), spec, image, engine.RestoreOptions{FilesOnly: true}); err == nil {
			r.Close()
			t.Errorf("%s was nonsense, and was restored", name)
		} else {
			t.Log(err)
		}
		change(name, func(string) string { return damaged })
	}
}
