//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// cyclesVar is how many lives TestCycles goes through; `make soak` sets it.
const cyclesVar = "CUBBY_TEST_CYCLES"

const (
	// warmCycles fill what a server keeps for ever: caches, tombstones, idle connections.
	warmCycles = 20
	// atOnce is how many lives there are at a time.
	atOnce = 2
)

// What a server may have more after many cycles than after a few. What package os keeps
// of a process goes with Go's collector, which runs after some dozen machines.
const (
	moreKiB         = 12 << 10
	moreDescriptors = 100
	moreThreads     = 16
	moreGoroutines  = 20
)

// TestCycles: sandboxes that are made, run, paused, resumed, copied and killed leave
// nothing, in the server or beside it.
func TestCycles(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(cyclesVar))
	if err != nil || n <= 0 {
		t.Skipf("%s is not set: how many cycles", cyclesVar)
	}
	few := start(t, "--log-level", "warn")
	few.cycles(t, warmCycles)
	goroutines := few.goroutines(t)

	s := start(t, "--log-level", "warn")
	s.cycles(t, warmCycles)
	before := s.settled(t, nil)
	began := time.Now()
	s.cycles(t, n)
	after := s.settled(t, &before)
	t.Logf("%d cycles in %v\nbefore: %+v\nafter:  %+v", n, time.Since(began).Round(time.Second), before, after)
	if err := after.grown(before); err != nil {
		t.Error(err)
	}
	if got := s.goroutines(t); got > goroutines+moreGoroutines {
		t.Errorf("%d goroutines after %d cycles, %d after %d", got, n, goroutines, warmCycles)
	} else {
		t.Logf("goroutines: %d after %d cycles, %d after %d", got, n, goroutines, warmCycles)
	}
}

// cycles goes through lives of sandboxes.
func (s *server) cycles(t *testing.T, n int) {
	t.Helper()
	client, err := cubby.NewClient(cubby.Config{APIURL: s.URL, APIKey: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				if err := cycle(t.Context(), client); err != nil {
					t.Errorf("after %d cycles: %v", n-int(left.Load())-1, err)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func cycle(ctx context.Context, client *cubby.Client) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	run := func(sbx *cubby.Sandbox, code string) error {
		ex, err := sbx.RunCode(ctx, code)
		if err == nil && ex.Stdout != "42\n" {
			err = fmt.Errorf("it printed %q", ex.Stdout)
		}
		return err
	}
	sbx, err := client.Create(ctx)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, sbx.Kill(ctx)) }()
	if err := run(sbx, "x = 42; print(x)"); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if err := sbx.Pause(ctx); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	if sbx, err = client.Connect(ctx, sbx.ID()); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if err := run(sbx, "print(x)"); err != nil {
		return fmt.Errorf("run in what was resumed: %w", err)
	}
	copies, err := sbx.Fork(ctx, 1)
	for _, c := range copies {
		err = errors.Join(err, run(c, "print(x)"), c.Kill(ctx))
	}
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	return nil
}

// holding is what there is of a server that has no sandboxes.
type holding struct {
	KiB, Descriptors, Threads                        int // of its own processes
	Processes, Cgroups, Mounts, Shm, Data, Temporary int // Data and Temporary: files
}

// grown says what there is more than before, and more than may be.
func (h holding) grown(before holding) error {
	var errs []error
	for _, part := range []struct {
		name            string
		now, then, more int
	}{
		{"private memory, KiB", h.KiB, before.KiB, moreKiB},
		{"descriptors", h.Descriptors, before.Descriptors, moreDescriptors},
		{"threads", h.Threads, before.Threads, moreThreads},
		{"processes", h.Processes, before.Processes, 0},
		{"cgroups", h.Cgroups, before.Cgroups, 0},
		{"mounts", h.Mounts, before.Mounts, 0},
		{"files in /dev/shm", h.Shm, before.Shm, 0},
		{"files in the data folder", h.Data, before.Data, 0},
		{"temporary files", h.Temporary, before.Temporary, 0},
	} {
		if part.now > part.then+part.more {
			errs = append(errs, fmt.Errorf("%s: %d, and %d before", part.name, part.now, part.then))
		}
	}
	return errors.Join(errs...)
}

// settled is what there is of a server once what has ended is gone, or patience is over:
// with before, when it is no more than that; else when it stays the same.
func (s *server) settled(t *testing.T, before *holding) holding {
	t.Helper()
	last := s.holding(t)
	for began := time.Now(); time.Since(began) < patience; {
		time.Sleep(time.Second)
		now := s.holding(t)
		if before != nil && now.grown(*before) == nil || before == nil && now == last {
			return now
		}
		last = now
	}
	return last
}

func (s *server) holding(t *testing.T) (h holding) {
	t.Helper()
	h.KiB, h.Descriptors = s.usage(t)
	own := s.processes(t)
	for _, pid := range own {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		h.Threads += len(threads)
		h.Cgroups += len(testenv.CgroupsOf(pid))
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			t.Fatal(err)
		}
		h.Mounts += strings.Count(string(mounts), "\n")
	}
	h.Processes = len(testenv.Family(s.cmd.Process.Pid))
	for dir, count := range map[string]*int{"/dev/shm": &h.Shm, s.DataDir: &h.Data, os.Getenv("TMPDIR"): &h.Temporary} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil
			}
			// SQLite makes and removes its journals as it likes.
			if !slices.Contains([]string{"-wal", "-shm"}, path[max(0, len(path)-4):]) {
				*count++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

var goroutine = regexp.MustCompile(`(?m)^goroutine \d+ .*\[`)

// goroutines counts those of the process that serves, which ends for it, and with it the
// server.
func (s *server) goroutines(t *testing.T) int {
	t.Helper()
	for _, pid := range s.processes(t) {
		if pid != s.cmd.Process.Pid {
			if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = s.cmd.Wait() // its child was killed
	n := len(goroutine.FindAllString(s.log.tail(16<<20), -1))
	if n == 0 {
		t.Error("the process that serves does not say which goroutines it has")
	}
	return n
}
