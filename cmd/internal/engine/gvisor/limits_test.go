package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestSetLimitsWithoutCgroups: where nothing else bounds processors, every thread of
// a machine runs on as many as its limit says, and what that cannot bound is told.
func TestSetLimitsWithoutCgroups(t *testing.T) {
	processors := runtime.NumCPU()
	if processors < 2 {
		t.Skip("there is one processor only")
	}
	f := newFixture(t, "")
	testenv.CheckLeaksIn(t, f.dir)
	eng, err := gvisor.New(engine.Config{StateDir: filepath.Join(f.dir, "gv"), OverlayDir: f.dir, Helper: testenv.Engine(t)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := eng.Start(t.Context(), engine.Spec{ID: "pinned", Root: f.root.Dir, Args: hold, Limits: engine.Limits{CPUs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	awaitMemory(t, m)
	for _, tt := range []struct {
		cpus       float64 // of SetLimits; below 0 leaves those of the start
		pinned     int
		unenforced []string
	}{
		{-1, 1, nil},
		{0, processors, nil},
		{0.5, 1, []string{"cpu"}},
		{float64(processors), processors, nil},
		{1, 1, nil},
		{1, 1, nil},
	} {
		if tt.cpus >= 0 {
			if err := m.(engine.Limiter).SetLimits(t.Context(), engine.Limits{CPUs: tt.cpus}); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.Unenforced(); !slices.Equal(got, tt.unenforced) {
			t.Errorf("%v processors: %q are not enforced, want %q", tt.cpus, got, tt.unenforced)
		}
		// The machine goes on starting threads: those are where the others are, once
		// they run.
		deadline := time.Now().Add(10 * time.Second)
		got := affinities(t)
		for ; !slices.Equal(got, []int{tt.pinned}) && time.Now().Before(deadline); got = affinities(t) {
			time.Sleep(time.Millisecond)
		}
		if !slices.Equal(got, []int{tt.pinned}) {
			t.Errorf("%v processors: its threads run on %v of them, want %d", tt.cpus, got, tt.pinned)
		}
	}
	// Code inside has not more of a busy host than its kernel.
	for pid := range below(unix.Getpid()) {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || strings.HasPrefix(string(cmdline), "runsc-gofer") {
			continue
		}
		if priority, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err == nil && priority > 15 {
			t.Errorf("process %d, %.20q, has the priority of others of the host", pid, cmdline)
		}
	}
}

// affinities lists on how many processors the threads of this process's machines may
// run.
func affinities(t *testing.T) []int {
	t.Helper()
	var all []int
	for pid := range below(unix.Getpid()) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			tid, err := strconv.Atoi(filepath.Base(task))
			if err != nil {
				t.Fatal(err)
			}
			var set unix.CPUSet
			if unix.SchedGetaffinity(tid, &set) == nil {
				all = append(all, set.Count())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
