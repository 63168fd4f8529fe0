package child

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The end of the process, from the moment that the parent is gone or asks for
// it. Ending its sandboxes in order takes milliseconds; a start that hangs, or a
// sandbox's kernel that was stopped, must not make it longer than this.
const (
	// killAfter is when what is left of the sandboxes is killed. Whoever waits
	// for them then goes on, and cleans up.
	killAfter = time.Second
	// killAfterServing is the same for a server, which lets short requests come
	// to their end first and records why each sandbox ended.
	killAfterServing = finishTimeout + 4*time.Second
	// keepTimeout is what a server is given besides, where it has sandboxes to pause for
	// the next one: E2B's own pause takes four seconds for each GiB of memory. The
	// parent's patience is longer than all of these together.
	keepTimeout = time.Minute
	// exitAfter is when the process ends whatever it is doing, counted from the
	// killing. The kernel then ends its children, and the next start removes its
	// files.
	exitAfter = 5 * time.Second
	killEvery = 50 * time.Millisecond
)

// backstop waits for the end of ctx and sees to it that the process ends, too, and
// before it those of its children that isMachine is true of; nil is of none. They get
// the time that patience says when ctx ends. The result says that the process ended by
// itself.
func backstop(ctx context.Context, log *slog.Logger, patience func() time.Duration, isMachine func(arg0 string) bool) (done func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		wait := patience()
		if over(ended, wait) {
			return
		}
		log.Warn("sandboxes did not end in time and are killed", "after", wait)
		for range int(exitAfter / killEvery) {
			killMachines(isMachine) // again and again: one may have been about to start
			if over(ended, killEvery) {
				return
			}
		}
		log.Error("the process did not end in time and exits")
		os.Exit(1)
	}()
	return func() { close(ended) }
}

// over waits for the end, at most for d.
func over(ended <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// killMachines kills what the engine runs sandboxes in, such as their kernels and file
// servers, all of which are children of this process: stopped ones, too, and those
// whose start nobody has been told of. What they started ends with them.
func killMachines(isMachine func(arg0 string) bool) {
	if isMachine == nil {
		return
	}
	self := strconv.Itoa(os.Getpid())
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it ended
		}
		// The second field may hold spaces and parentheses; it ends at the last ')'.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[1] != self {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		arg0, _, _ := strings.Cut(string(cmdline), "\x00")
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && isMachine(arg0) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
}
