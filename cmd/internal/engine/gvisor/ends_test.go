package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// hold is a first process that writes 32 MiB into memory and stays.
var hold = []string{"/bin/bash", "-c", "head -c 33554432 /dev/zero | tr '\\0' x > /dev/shm/held; exec sleep 1000"}

// TestEnds ends machines in every way that there is. Each says what ended it, and
// nothing of it is left in this process: no memory, no descriptor, although Go's
// collector does not run.
func TestEnds(t *testing.T) {
	f := newFixture(t, "")
	kill := func(name string) func(*testing.T, engine.Machine) {
		return func(t *testing.T, _ engine.Machine) {
			for _, pid := range processes(name) {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, tt := range []struct {
		name    string
		args    []string
		end     func(*testing.T, engine.Machine)
		restore bool
		exit    string // what Wait says; empty for no error
	}{
		{name: "closed", end: func(*testing.T, engine.Machine) {}},
		{name: "its first process ends", args: []string{"/bin/sh", "-c", "exit 3"}, exit: "first process ended with exit status 3"},
		{name: "its first process is killed", args: []string{"/bin/sh", "-c", "read x"}, exit: "first process ended with exit status 1"},
		{name: "its kernel is killed", end: kill("runsc-sandbox"), exit: "kernel was killed by SIGKILL"},
		{name: "its file server is killed", end: kill("runsc-gofer"), exit: "file server was killed by SIGKILL"},
		{name: "its file server is killed, and its kernel does not notice", end: func(t *testing.T, m engine.Machine) {
			for _, pid := range processes("runsc-sandbox") {
				if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
					t.Error(err)
				}
			}
			kill("runsc-gofer")(t, m)
		}, exit: "file server was killed by SIGKILL"},
		{name: "checkpointed, then closed", end: checkpoint},
		{name: "restored, then closed", end: func(*testing.T, engine.Machine) {}, restore: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testenv.CheckLeaksIn(t, f.dir)
			before := descriptors(t)
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			spec := engine.Spec{ID: "ends", Root: f.root.Dir, Args: hold, Limits: engine.Limits{Memory: 256 << 20}}
			if tt.args != nil {
				spec.Args = tt.args
			}
			m, err := f.engine.Start(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if tt.restore {
				awaitMemory(t, m)
				image := t.TempDir()
				if err := m.(engine.Checkpointer).Checkpoint(t.Context(), image, engine.CheckpointOptions{}); err != nil {
					t.Fatal(err)
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if m, err = f.engine.Restore(t.Context(), spec, image, engine.RestoreOptions{}); err != nil {
					t.Fatal(err)
				}
				defer m.Close()
			}
			if tt.end != nil {
				awaitMemory(t, m)
				tt.end(t, m)
			}
			if tt.exit != "" {
				exit := awaitExit(t, m)
				if exit.Err == nil || !strings.Contains(exit.Err.Error(), tt.exit) {
					t.Errorf("it says %v, want %q", exit.Err, tt.exit)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if tt.exit == "" {
				if exit := awaitExit(t, m); exit.Err != nil {
					t.Errorf("it says %v", exit.Err)
				}
			}
			if left := without(descriptors(t), before); len(left) > 0 {
				t.Errorf("left open: %q", left)
			}
		})
	}
}

func checkpoint(t *testing.T, m engine.Machine) {
	if err := m.(engine.Checkpointer).Checkpoint(t.Context(), t.TempDir(), engine.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
}

func awaitExit(t *testing.T, m engine.Machine) engine.Exit {
	t.Helper()
	select {
	case exit := <-m.Wait():
		return exit
	case <-time.After(time.Minute):
		t.Fatal("its end is not reported")
		return engine.Exit{}
	}
}

// awaitMemory returns when hold has written what it writes.
func awaitMemory(t *testing.T, m engine.Machine) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		u, err := m.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.Memory >= 32<<20 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it holds %d bytes", u.Memory)
		}
	}
}

// TestFailedStarts: neither is anything left of machines that could not start.
func TestFailedStarts(t *testing.T) {
	f := newFixture(t, "")
	for name, spec := range map[string]engine.Spec{
		"no such program": {Root: f.root.Dir, Args: []string{"/no/such/program"}},
		"no such root":    {Root: "/no/such/root", Args: hold},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.CheckLeaksIn(t, f.dir)
			for range 3 {
				spec.ID = "failed"
				if m, err := f.engine.Start(t.Context(), spec); err == nil {
					m.Close()
					t.Fatal("it started")
				}
			}
			for _, name := range descriptors(t) {
				if strings.Contains(name, "memfd:") {
					t.Errorf("left open: %s", name)
				}
			}
		})
	}
}

// TestManyEnds: a long row of machines does not fill the table of descriptors.
// What only the collector can close, a descriptor of each process that package os
// started for gVisor, it closes in time.
func TestManyEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 48 machines")
	}
	f := newFixture(t, "")
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := len(openFiles(t))
	most := 0
	for i := range 48 {
		m, err := f.engine.Start(t.Context(), engine.Spec{ID: fmt.Sprintf("many%d", i), Root: f.root.Dir, Args: []string{"/bin/true"}})
		if err == nil {
			err = m.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(openFiles(t))-before)
	}
	if most > 84 { // two a machine, 32 machines, and some while the collector runs
		t.Errorf("up to %d descriptors of ended machines were open", most)
	}
}

// TestStartGivenUp ends the wait for machines whose start hangs: their processes
// are stopped as soon as they appear: before they execute anything, before gVisor
// knows them, or after it.
func TestStartGivenUp(t *testing.T) {
	f := newFixture(t, "")
	for _, tt := range []struct {
		name  string
		after time.Duration // that the process lives before it is stopped
	}{
		{"", 0}, {"runsc-gofer", 0}, {"runsc-sandbox", 0}, {"runsc-gofer", 20 * time.Millisecond}, {"runsc-sandbox", 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(tt.name, " after ", tt.after), func(t *testing.T) {
			testenv.CheckLeaksIn(t, f.dir)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := make(chan bool, 1)
			go func() {
				stopped <- stopWhenBorn(ctx, tt.name, tt.after)
				cancel()
			}()
			m, err := f.engine.Start(ctx, engine.Spec{ID: "stopped", Root: f.root.Dir, Args: hold})
			cancel()
			if err == nil {
				// It was past what can be held up.
				if err := m.Close(); err != nil {
					t.Error(err)
				}
				t.Skip("it had started before it was stopped")
			}
			if !<-stopped {
				t.Fatalf("it could not be stopped: %v", err)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the error is not the context's: %v", err)
			}
			for _, name := range []string{"runsc-gofer", "runsc-sandbox"} {
				if pids := processes(name); len(pids) > 0 {
					t.Errorf("left: %s %v", name, pids)
				}
			}
		})
	}
	// The engine is as good as before.
	m, err := f.engine.Start(t.Context(), engine.Spec{ID: "next", Root: f.root.Dir, Args: hold})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// stopWhenBorn stops a process of a machine of this one as soon as there is one.
func stopWhenBorn(ctx context.Context, name string, after time.Duration) bool {
	for ctx.Err() == nil {
		if pids := processes(name); len(pids) > 0 {
			time.Sleep(after)
			return unix.Kill(pids[0], unix.SIGSTOP) == nil
		}
	}
	return false
}

// TestStartsGivenUpAnywhere gives starts up after longer and longer times, some at
// a time: each has begun or is given up, and nothing is left of any.
func TestStartsGivenUpAnywhere(t *testing.T) {
	f := newFixture(t, "")
	testenv.CheckLeaksIn(t, f.dir)
	var wg sync.WaitGroup
	places := make(chan struct{}, 4)
	var begun atomic.Int32
	for i := range 32 {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*8*time.Millisecond)
			defer cancel()
			m, err := f.engine.Start(ctx, engine.Spec{ID: fmt.Sprintf("anywhere%d", i), Root: f.root.Dir, Args: hold})
			switch {
			case err == nil:
				begun.Add(1)
				if err := m.Close(); err != nil {
					t.Errorf("start %d: close: %v", i, err)
				}
			case !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("start %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d of 32 began", begun.Load())
	if pids := processes(""); len(pids) > 0 {
		t.Errorf("left: %v", pids)
	}
}

// TestStartsBehindOneThatHangs: who waits behind a start that hangs, waits as long
// as its own context lets it.
func TestStartsBehindOneThatHangs(t *testing.T) {
	f := newFixture(t, "")
	testenv.CheckLeaksIn(t, f.dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hung := make(chan error, 1)
	stopped := make(chan bool, 1)
	go func() { stopped <- stopWhenBorn(ctx, "runsc-gofer", 0) }()
	go func() {
		m, err := f.engine.Start(ctx, engine.Spec{ID: "hangs", Root: f.root.Dir, Args: hold})
		if err == nil {
			m.Close()
		}
		hung <- err
	}()
	if !<-stopped {
		t.Fatal("it could not be stopped")
	}
	short, cancelShort := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancelShort()
	if _, err := f.engine.Start(short, engine.Spec{ID: "behind", Root: f.root.Dir, Args: hold}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the one behind: %v", err)
	}
	cancel()
	if err := <-hung; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that hangs: %v", err)
	}
}

// TestClosesWhatHangs: the sentry hangs during a checkpoint. Its memory can be
// looked at all the while, and Close ends both.
func TestClosesWhatHangs(t *testing.T) {
	f := newFixture(t, "")
	testenv.CheckLeaksIn(t, f.dir)
	m, err := f.engine.Start(t.Context(), engine.Spec{ID: "hangs", Root: f.root.Dir, Args: hold})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	awaitMemory(t, m)
	if err := m.(engine.Pauser).Pause(t.Context()); err != nil { // or it would hang before there are files
		t.Fatal(err)
	}
	for _, pid := range processes("runsc-sandbox") {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	image := t.TempDir()
	saved := make(chan error, 1)
	go func() {
		saved <- m.(engine.Checkpointer).Checkpoint(t.Context(), image, engine.CheckpointOptions{})
	}()
	for { // until it has begun
		if files, _ := os.ReadDir(image); len(files) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	done := make(chan error, 1)
	go func() {
		_, err := m.Usage(t.Context())
		_, err2 := m.CPUTime(t.Context())
		done <- errors.Join(err, err2)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("its usage cannot be told during a checkpoint")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := <-saved; !errors.Is(err, engine.ErrEnded) {
		t.Errorf("the checkpoint says %v", err)
	}
	if _, err := m.Usage(t.Context()); !errors.Is(err, engine.ErrEnded) {
		t.Errorf("usage after Close: %v", err)
	}
}

// processes lists the children of this process that execute under a name, or all.
func processes(name string) []int {
	var pids []int
	for pid := range children(os.Getpid()) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if name == "" || strings.HasPrefix(string(cmdline), name+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// openFiles says what the descriptors of this process lead to.
func openFiles(t *testing.T) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, fd := range fds {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// descriptors are the open files without those that package os keeps of processes
// (see TestManyEnds), which hold nothing else.
func descriptors(t *testing.T) []string {
	return slices.DeleteFunc(openFiles(t), func(name string) bool { return name == "anon_inode:[pidfd]" })
}

// without returns what is in all and not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(some, name) })
}
