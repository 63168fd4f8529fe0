//go:build linux

// Package supervisor starts the process in which the sandboxes live, and sees to
// its end: for a program that embeds Cubby, and for `cubby serve`. The process has
// mounts (and without root a user namespace) of its own, which a running program
// cannot give itself.
package supervisor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/namespace"
	"github.com/cubby-sandbox/cubby/internal/rlimit"
	"github.com/cubby-sandbox/cubby/internal/version"
)

const (
	// startTimeout bounds the child's start, in which it only mounts and listens.
	startTimeout = 30 * time.Second
	// outputDelay is how long the last of the child's log is waited for when it
	// has ended.
	outputDelay = 2 * time.Second
)

// Config says what to start.
type Config struct {
	Binary string // absolute path of the cubby to run
	RunDir *RunDir
	// Listener is served by the child; the caller may close its own copy once
	// Start has returned.
	Listener *os.File
	// Args follow those that every child gets.
	Args   []string
	Env    []string // NAME=VALUE beside this process's own
	Python string   // interpreters of the template; empty means to search
	Node   string
	// Output takes what the child writes to its standard error; nil discards
	// it, but for the last of it, which an error tells.
	Output io.Writer
	// StopTimeout bounds how long Close waits before it kills.
	StopTimeout time.Duration
}

// Child is a running child. It is safe for concurrent use.
type Child struct {
	Hello handshake.Hello

	cmd     *exec.Cmd
	runDir  *RunDir
	life    *os.File // closing it ends the child
	exited  chan struct{}
	waitErr error
	swept   chan struct{} // closed when nothing is left in the control groups
	tail    *tail
	timeout time.Duration

	once     sync.Once
	closeErr error
}

// Start returns once the child serves. It takes over cfg.RunDir, also when it
// fails. Its errors have codes: fault.Incompatible for a binary of another build, that
// of the child where that could not start, ctx's, else fault.Unavailable.
func Start(ctx context.Context, cfg Config) (_ *Child, err error) {
	c := &Child{exited: make(chan struct{}), swept: make(chan struct{}), runDir: cfg.RunDir,
		tail: &tail{out: cfg.Output}, timeout: cfg.StopTimeout}
	defer func() {
		if err != nil {
			c.cleanUp()
		}
	}()
	if err := rlimit.Check(); err != nil {
		return nil, err
	}
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer readyR.Close()
	defer readyW.Close()
	lifeR, lifeW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeR.Close()
	c.life = lifeW

	args := []string{handshake.Command, "--" + handshake.FlagPrivate, "--" + handshake.FlagExpect,
		version.Build(), "--" + handshake.FlagRunDir, cfg.RunDir.Path}
	for _, f := range []struct{ flag, value string }{{handshake.FlagPython, cfg.Python}, {handshake.FlagNode, cfg.Node}} {
		if f.value != "" {
			args = append(args, "--"+f.flag, f.value)
		}
	}
	c.cmd = exec.Command(cfg.Binary, append(args, cfg.Args...)...)
	c.cmd.Args[0] = "cubby-engine"
	if len(cfg.Env) > 0 {
		c.cmd.Env = append(os.Environ(), cfg.Env...)
	}
	c.cmd.ExtraFiles = []*os.File{cfg.Listener, readyW, lifeR, cfg.RunDir.lock} // FDListener and on
	c.cmd.Stderr = c.tail
	c.cmd.SysProcAttr = namespace.Attr()
	c.cmd.SysProcAttr.Setpgid = true // a terminal's Ctrl-C is for this program
	// A process of a sandbox that has not ended yet may hold the child's
	// standard error open.
	c.cmd.WaitDelay = outputDelay
	if err := c.cmd.Start(); err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
			if tight := rlimit.Explain(); tight != nil {
				return nil, tight
			}
		}
		hint := namespace.Hint(err)
		if errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ELIBBAD) {
			hint = "it is damaged, or not for this machine: " + remedy()
		}
		return nil, &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("start sandbox process: %w", err), Hint: hint}
	}
	readyW.Close()
	go func() {
		c.waitErr = c.cmd.Wait()
		close(c.exited)
		if !c.cmd.ProcessState.Success() {
			sweepCgroups()
		}
		close(c.swept)
	}()
	c.Hello, err = c.await(ctx, readyR)
	if err == nil {
		err = c.check(c.Hello)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// binary is the path of the program, for people: it may have been started by a
// descriptor.
func (c *Child) binary() string {
	if strings.HasPrefix(c.cmd.Path, "/proc/self/fd/") {
		path, err := os.Readlink(c.cmd.Path)
		switch {
		case strings.HasSuffix(path, " (deleted)"):
			return "cubby-engine" // a file that never had a name
		case err == nil:
			return path
		}
	}
	return c.cmd.Path
}

func (c *Child) check(h handshake.Hello) error {
	switch {
	case h.Version != version.Build():
		return &fault.Error{Code: fault.Incompatible, Err: fmt.Errorf("%s is %.40q, this program needs %s: %s",
			c.binary(), h.Version, version.Build(), version.Differ(version.Build(), fmt.Sprintf("%.40s", h.Version))),
			Hint: "both must be of the same version or source: " + remedy()}
	case h.Error != nil:
		e := h.Error.Fault()
		if e.Hint == "" {
			e.Hint = "run `cubby doctor` to see what this machine lacks"
		}
		return e
	}
	return nil
}

// await reads the child's hello.
func (c *Child) await(ctx context.Context, ready *os.File) (handshake.Hello, error) {
	var h handshake.Hello
	deadline := time.Now().Add(startTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ready.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReaderSize(ready, 64<<10).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	_, otherForm := errors.AsType[*json.UnmarshalTypeError](err) // of a field; the others are there
	switch {
	case err == nil, otherForm && h.Version != "" && h.Version != version.Build():
		return h, nil
	case ctx.Err() != nil:
		return h, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return h, &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("%s did not start within %v", c.binary(), startTimeout), Hint: "run `cubby doctor`"}
	}
	// It ended without a word: an older cubby, or none at all.
	select {
	case <-c.exited:
	case <-time.After(c.timeout):
	}
	if tight := rlimit.Explain(); tight != nil {
		return h, tight
	}
	if _, killed := killedBy(c.cmd.ProcessState); killed || c.crashed() {
		hint := "its file may be damaged, or this machine lacks something (`cubby doctor`): " + remedy()
		if !c.crashed() {
			hint = "somebody killed it, or the machine ran out of memory (`dmesg` says so); start it again"
		}
		return h, &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("%s ended while it started: %w", c.binary(), c.end()), Hint: hint}
	}
	return h, &fault.Error{Code: fault.Incompatible,
		Err:  fmt.Errorf("%s ended at once: %s", c.binary(), cmp.Or(strings.TrimSpace(c.tail.last()), "it said nothing")),
		Hint: "it must be cubby " + version.Version + ": " + remedy()}
}

// Exited is closed when the child has ended, whoever ended it.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Failed reports whether the child ended otherwise than well; only for after Exited is
// closed.
func (c *Child) Failed() bool { return c.cmd.ProcessState == nil || !c.cmd.ProcessState.Success() }

// Err is how the child ended, and what to do about it; only for after Exited is closed.
func (c *Child) Err() error {
	return &fault.Error{Code: fault.Unavailable, Err: c.end(), Hint: c.hint()}
}

// end is how the child ended.
func (c *Child) end() error {
	const who = "the server of the sandboxes"
	state := c.cmd.ProcessState
	if state == nil {
		return fmt.Errorf("%s ended: %w", who, c.waitErr)
	}
	if signal, ok := killedBy(state); ok {
		return fmt.Errorf("%s was killed by signal %d (%s)", who, int(signal), unix.SignalName(signal))
	}
	if line := c.tail.crash(); line != "" {
		return fmt.Errorf("%s ended: %s", who, line)
	}
	if state.Success() {
		return errors.New(who + " ended")
	}
	if last := strings.TrimSpace(c.tail.last()); last != "" {
		return fmt.Errorf("%s ended: %w: %s", who, c.waitErr, last)
	}
	return fmt.Errorf("%s ended: %w", who, c.waitErr)
}

// hint is what to do about the child's end; it may be empty.
func (c *Child) hint() string {
	signal, ok := killedBy(c.cmd.ProcessState)
	switch {
	case ok && signal == unix.SIGKILL:
		return "somebody killed it, or the machine ran out of memory (`dmesg` says so); its sandboxes are gone, start it again"
	case ok && !c.crashed():
		return "its sandboxes are gone, start it again"
	case c.crashed():
		return "its sandboxes are gone, start it again; if that repeats, `cubby doctor` may tell what this machine lacks, else please report it"
	}
	return ""
}

func killedBy(state *os.ProcessState) (syscall.Signal, bool) {
	if state == nil {
		return 0, false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return status.Signal(), ok && status.Signaled()
}

func (c *Child) crashed() bool {
	signal, killed := killedBy(c.cmd.ProcessState)
	return c.tail.crash() != "" || killed && (signal == unix.SIGSEGV || signal == unix.SIGBUS || signal == unix.SIGABRT)
}

// Close asks the child to end, and sees to it. It is idempotent.
func (c *Child) Close() error {
	c.once.Do(func() {
		c.life.Close()
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		select {
		case <-c.exited:
		case <-timer.C:
			// Its sentries die with it.
			c.cmd.Process.Kill()
			<-c.exited
			c.closeErr = fmt.Errorf("the child did not end within %v and was killed", c.timeout)
		}
		<-c.swept
		c.cleanUp()
	})
	return c.closeErr
}

// sweepCgroups removes the control groups of a child that could not do so itself,
// once what was in them has ended. What it does not find, the next start removes.
func sweepCgroups() {
	if groups, err := cgroup.Detect("", "", ""); err == nil {
		_, _ = groups.Sweep()
	}
}

// Kill ends the child without asking.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() }

// cleanUp removes what a child that died or never started has left.
func (c *Child) cleanUp() {
	if c.life != nil {
		c.life.Close()
	}
	c.runDir.Remove()
}

// FindBinary returns the cubby that configured names, else $CUBBY_BINARY, else the
// running program if it is cubby, else `cubby` on PATH.
func FindBinary(configured string) (string, error) {
	for _, c := range []struct{ path, from string }{{configured, "Config.Binary"}, {os.Getenv("CUBBY_BINARY"), "CUBBY_BINARY"}} {
		if c.path == "" {
			continue
		}
		path, err := exec.LookPath(c.path)
		if err != nil {
			hint := remedy()
			if errors.Is(err, syscall.EACCES) {
				hint = "it must be a file that this user may execute, on a file system that is not mounted noexec"
			}
			return "", &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("%s: %w", c.from, err), Hint: hint}
		}
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "cubby" {
		return self, nil
	}
	path, err := exec.LookPath("cubby")
	switch {
	case errors.Is(err, exec.ErrDot):
		return "", &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("the first cubby on PATH is in the current folder: %w", err),
			Hint: "name it with Config.Binary or CUBBY_BINARY"}
	case err != nil:
		return "", &fault.Error{Code: fault.Unavailable, Err: errors.New("there is no cubby on PATH"), Hint: remedy()}
	}
	return filepath.Abs(path)
}

// remedy says how to get the right cubby.
func remedy() string {
	const module = "github.com/cubby-sandbox/cubby/cmd/cubby"
	return fmt.Sprintf("install cubby %s (a release of it, `go install %s@v%[1]s`, or `make build` in its source) "+
		"and put it on PATH, or name it with Config.Binary or CUBBY_BINARY", version.Version, module)
}
