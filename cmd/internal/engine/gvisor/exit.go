package gvisor

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// goferGrace is how long a gofer may take to end after its sentry. It takes
// milliseconds, unless it was stopped.
const goferGrace = 2 * time.Second

// goferPoll is how often a gofer is looked at, and goferlessPolls how many of these
// looks its sentry is given to end without it.
const (
	goferPoll      = time.Second
	goferlessPolls = 3
)

// watch reports the machine's end.
func (m *machine) watch() {
	ended := make(chan struct{})
	m.watcher.Go(func() { m.watchGofer(ended) })
	m.watcher.Go(func() {
		defer close(ended)
		err := m.awaitEnd()
		if m.ending.Load() {
			err = nil
		}
		m.exit <- engine.Exit{Err: err}
		close(m.exit)
	})
}

// watchGofer ends a sentry that goes on without its gofer. One that notices ends by
// itself at once; one that waits for an answer at that moment may do so for ever.
func (m *machine) watchGofer(ended <-chan struct{}) {
	ticker := time.NewTicker(goferPoll)
	defer ticker.Stop()
	for goferless := 0; goferless < goferlessPolls; {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		err := m.look(func() error {
			_, err := processEnd(m.gofer, unix.WNOHANG)
			return err
		})
		if err == nil {
			goferless++
		}
	}
	m.kill()
}

// awaitEnd returns when the sentry has ended, and says what ended first: the
// gofer, the sentry or the process inside. It reaps none of them.
func (m *machine) awaitEnd() error {
	var first unix.WaitStatus
	asked := call(context.Background(), m.socket, boot.ContMgrWait, &m.id, &first)
	kernel, err := processEnd(m.sentry, 0)
	if err != nil {
		return fmt.Errorf("the sandbox's kernel cannot be waited for: %w", err)
	}
	// A gofer goes on until the sentry has ended, and then ends well. If it does
	// not, the sentry ends what runs inside, and can be gone before the gofer is:
	// its connections are closed first, its threads end one after the other.
	if files, err := processEndWithin(m.gofer, goferGrace); err == nil && files.bad() {
		return fmt.Errorf("the sandbox's file server %s", files)
	}
	if kernel.signal != 0 {
		return fmt.Errorf("the sandbox's kernel %s%s", kernel, m.outOfMemory())
	}
	if asked != nil {
		// It ended before it could be asked, with the first process's status (or
		// its own: 2 is a crash, 128 a failure).
		if kernel.status == 2 || kernel.status == 128 {
			return fmt.Errorf("the sandbox's kernel %s", kernel)
		}
		return fmt.Errorf("the sandbox's first process %s", kernel)
	}
	return fmt.Errorf("the sandbox's first process %s", endOf(first))
}

// outOfMemory names the host's limit if that is what killed the sentry.
func (m *machine) outOfMemory() string {
	if m.group == nil {
		return ""
	}
	if kills, err := m.group.OOMKills(); err != nil || kills == 0 {
		return ""
	}
	return ": the host's limit of its memory was reached"
}

// end is how a process ended.
type end struct {
	signal unix.Signal // zero if it ended by itself
	status int         // else
}

func endOf(s unix.WaitStatus) end {
	if s.Signaled() {
		return end{signal: s.Signal()}
	}
	return end{status: s.ExitStatus()}
}

func (e end) bad() bool { return e.signal != 0 || e.status != 0 }

func (e end) String() string {
	if e.signal != 0 {
		return "was killed by " + unix.SignalName(e.signal)
	}
	return fmt.Sprintf("ended with exit status %d", e.status)
}

// cldExited is the code of waitid(2) for a process that ended by itself.
const cldExited = 1

// errAlive says that a process has not ended.
var errAlive = errors.New("it has not ended")

// processEndWithin is processEnd for at most d: then it is errAlive.
func processEndWithin(pid int, d time.Duration) (end, error) {
	// The number is the process's own until it is reaped, which is after this.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // a kernel or a filter that does not have it
		return processEnd(pid, unix.WNOHANG)
	}
	defer unix.Close(fd)
	deadline := time.Now().Add(d)
	for {
		left := max(0, time.Until(deadline))
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if err != unix.EINTR {
			return processEnd(pid, unix.WNOHANG)
		}
	}
}

// processEnd waits for the end of a child process and leaves it to be reaped. With
// unix.WNOHANG one that lives is errAlive.
func processEnd(pid, options int) (end, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return end{}, fmt.Errorf("waiting for process %d: %w", pid, err)
		case info.Signo == 0:
			return end{}, errAlive
		}
		// waitid(2) says it after signal, error, code, process and user, in a union
		// that package unix does not name.
		status := *(*int32)(unsafe.Add(unsafe.Pointer(&info), 24))
		if info.Code == cldExited {
			return end{status: int(status)}, nil
		}
		return end{signal: unix.Signal(status)}, nil
	}
}
