//go:build linux

package reaper_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
)

// TestReaper makes the test the parent of orphans, as a process 1 is.
func TestReaper(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	var c reaper.Children
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); c.Reap(ctx) }()
	defer func() { cancel(); <-stopped }()

	for i := range 20 {
		cmd := exec.Command("/bin/sh", "-c", "(sleep .01; exit 5) & (sleep .02) & exit "+strconv.Itoa(i))
		if err := c.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if ws := c.Wait(cmd); ws.ExitStatus() != i {
			t.Fatalf("status %d instead of %d: %v", ws.ExitStatus(), i, ws)
		}
	}
	guesttest.WaitFor(t, "the orphans' end", func() bool {
		for _, p := range procfs.Processes() {
			if p.PPID == os.Getpid() {
				return false
			}
		}
		return true
	})
	killed := exec.Command("/bin/sleep", "60")
	if err := c.Start(killed); err != nil {
		t.Fatal(err)
	}
	_ = killed.Process.Kill()
	if ws := c.Wait(killed); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Fatal(ws)
	}
}
