package kernel_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// TestMain lets the test binary be the Bash kernel, as the guest's binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == kernel.BashArg {
		os.Exit(kernel.BashMain())
	}
	// Under nohup it would be ignored in every kernel, and traps show that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}

// wireKernel is a real kernel process, started as the guest starts one.
type wireKernel struct {
	t      testing.TB
	cmd    *exec.Cmd
	wire   *os.File
	dec    *bufio.Reader
	home   string
	nextID int64
	acks   bool // results are answered

	mu             sync.Mutex // guards what follows, and reads of it
	stdout, stderr strings.Builder
	out            [2]*os.File // they do not block
	exited         chan struct{}
}

// wireCell is all that came of one execute.
type wireCell struct {
	Stdout, Stderr string
	Results        []kernel.Event
	Errors         []kernel.Event
	ExitCode       int
	CommandFailed  bool
	Exited         bool // the kernel ended instead of answering
}

// Text is the text of the main result, or "".
func (c wireCell) Text() string {
	for _, r := range c.Results {
		if r.Main {
			s, _ := formOf(r, "text/plain").(string)
			return s
		}
	}
	return ""
}

// formOf is one form of a result, decoded; nil if it has none.
func formOf(e kernel.Event, mime string) any {
	var v any
	_ = json.Unmarshal(e.Data[mime], &v)
	return v
}

// Err is "Name: value" of the first error, or "".
func (c wireCell) Err() string {
	if len(c.Errors) == 0 {
		return ""
	}
	return c.Errors[0].Name + ": " + c.Errors[0].Value
}

func wireScripts(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	files, err := kernel.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func wireStart(t testing.TB, c kernel.Command) *wireKernel {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := &wireKernel{t: t, home: t.TempDir(), exited: make(chan struct{})}
	// Only a non-blocking descriptor has deadlines.
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	k.wire = os.NewFile(uintptr(fds[0]), "wire")
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	k.dec = bufio.NewReader(k.wire)
	outW, errW := k.pipe(0), k.pipe(1)
	k.cmd = exec.Command(c.Path, c.Args...)
	k.cmd.Dir = k.home
	k.cmd.Env = append([]string{"HOME=" + k.home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}, c.Env...)
	k.cmd.Stdout, k.cmd.Stderr = outW, errW
	k.cmd.ExtraFiles = []*os.File{theirs}
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	outW.Close()
	errW.Close()
	go k.copyFrom(0)
	go k.copyFrom(1)
	go func() { _ = k.cmd.Wait(); close(k.exited) }()
	t.Cleanup(func() {
		k.wire.Close()
		select {
		case <-k.exited:
		case <-time.After(30 * time.Second):
			t.Error("the kernel outlives its wire")
			_ = k.cmd.Process.Kill()
		}
		_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
		for _, f := range k.out {
			f.Close()
		}
	})
	if e, err := k.read(); err != nil || e.Ev != "ready" {
		t.Fatalf("first event %+v, %v; stderr %s", e, err, k.takeStderr())
	}
	return k
}

// pipe returns the end of a pipe that the kernel writes to, and keeps the other.
func (k *wireKernel) pipe(i int) *os.File {
	k.t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		k.t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		k.t.Fatal(err)
	}
	k.out[i] = os.NewFile(uintptr(fds[0]), "output")
	return os.NewFile(uintptr(fds[1]), "theirs")
}

// copyFrom takes what comes on stdout (0) or stderr (1), until its end.
func (k *wireKernel) copyFrom(i int) {
	raw, err := k.out[i].SyscallConn()
	if err != nil {
		return // closed already
	}
	_ = raw.Read(func(uintptr) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.drain(i) // or it waits for more
	})
}

// drain takes what is in a pipe and says whether that was all. The caller holds mu.
func (k *wireKernel) drain(i int) (ended bool) {
	raw, err := k.out[i].SyscallConn()
	if err != nil {
		return true
	}
	to := []*strings.Builder{&k.stdout, &k.stderr}[i]
	buf := make([]byte, 64<<10)
	_ = raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Read(int(fd), buf)
			if err != unix.EINTR && (err != nil || n == 0) {
				ended = err != unix.EAGAIN
				return
			}
			to.Write(buf[:max(n, 0)])
		}
	})
	return ended
}

func (k *wireKernel) read() (kernel.Event, error) {
	_ = k.wire.SetReadDeadline(time.Now().Add(time.Minute))
	line, err := k.dec.ReadBytes('\n')
	if err != nil {
		return kernel.Event{}, err
	}
	var e kernel.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("%q: %w", line, err)
	}
	return e, nil
}

func (k *wireKernel) send(r kernel.Request) {
	k.t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.wire.Write(append(b, '\n')); err != nil {
		k.t.Fatal(err)
	}
}

// execute runs one request to its end.
func (k *wireKernel) execute(r kernel.Request) wireCell {
	k.t.Helper()
	k.start(r)
	return k.finish()
}

func (k *wireKernel) start(r kernel.Request) {
	k.t.Helper()
	k.nextID++
	r.Op, r.ID, r.Ack = "execute", k.nextID, k.acks
	k.send(r)
}

func (k *wireKernel) finish() wireCell {
	k.t.Helper()
	var c wireCell
	for done := false; !done; {
		e, err := k.read()
		if err == io.EOF || err != nil && strings.Contains(err.Error(), "reset") {
			<-k.exited
			c.Exited, c.ExitCode = true, k.cmd.ProcessState.ExitCode()
			break
		}
		if err != nil {
			k.t.Fatalf("read an event: %v; stderr %s", err, k.takeStderr())
		}
		if e.ID != k.nextID {
			k.t.Fatalf("event of another request: %+v", e)
		}
		switch e.Ev {
		case "result":
			c.Results = append(c.Results, e)
			if k.acks && !e.Main {
				k.send(kernel.Request{Op: kernel.OpAck})
			}
		case "error":
			c.Errors = append(c.Errors, e)
		case "done":
			c.ExitCode, c.CommandFailed, done = e.ExitCode, e.CommandFailed, true
		}
	}
	k.mu.Lock()
	k.drain(0) // what was printed is in the pipes by now
	k.drain(1)
	k.mu.Unlock()
	c.Stdout, c.Stderr = k.takeStdout(), k.takeStderr()
	return c
}

func (k *wireKernel) run(code string) wireCell {
	k.t.Helper()
	return k.execute(kernel.Request{Code: code})
}

func (k *wireKernel) interrupt() {
	k.t.Helper()
	if err := k.cmd.Process.Signal(os.Interrupt); err != nil {
		k.t.Fatal(err)
	}
}

// interruptNode interrupts as the guest does.
func (k *wireKernel) interruptNode() {
	k.t.Helper()
	k.send(kernel.Request{Op: kernel.OpInterrupt, ID: k.nextID})
	_ = k.wire.SetReadDeadline(time.Now().Add(kernel.SignalDelay))
	if _, err := k.dec.Peek(1); err != nil {
		k.interrupt()
	}
}

func (k *wireKernel) takeStdout() string { return k.take(&k.stdout) }
func (k *wireKernel) takeStderr() string { return k.take(&k.stderr) }

func (k *wireKernel) take(b *strings.Builder) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := b.String()
	b.Reset()
	return s
}
