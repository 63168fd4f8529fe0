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

	"github.com/cubby-sandbox/cubby/internal/guest/kernel"
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

	mu             sync.Mutex
	stdout, stderr strings.Builder
	exited         chan struct{}
}

// wireCell is all that came of one execute.
type wireCell struct {
	Stdout, Stderr string
	Results        []kernel.Event
	Errors         []kernel.Event
	ExitCode       int
	Exited         bool // the kernel ended instead of answering
}

// Text is the text of the main result, or "".
func (c wireCell) Text() string {
	for _, r := range c.Results {
		if r.Main {
			s, _ := r.Data["text/plain"].(string)
			return s
		}
	}
	return ""
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
	outR, outW, _ := os.Pipe()
	errR, errW, _ := os.Pipe()
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
	copyTo := func(b *strings.Builder, r io.Reader) {
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			k.mu.Lock()
			b.Write(buf[:n])
			k.mu.Unlock()
			if err != nil {
				return
			}
		}
	}
	go copyTo(&k.stdout, outR)
	go copyTo(&k.stderr, errR)
	go func() { _ = k.cmd.Wait(); close(k.exited) }()
	t.Cleanup(func() {
		k.wire.Close()
		select {
		case <-k.exited:
		case <-time.After(5 * time.Second):
			t.Error("the kernel outlives its wire")
			_ = k.cmd.Process.Kill()
		}
		_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
	})
	if e, err := k.read(); err != nil || e.Ev != "ready" {
		t.Fatalf("first event %+v, %v; stderr %s", e, err, k.takeStderr())
	}
	return k
}

func (k *wireKernel) read() (kernel.Event, error) {
	_ = k.wire.SetReadDeadline(time.Now().Add(20 * time.Second))
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
			c.ExitCode, done = e.ExitCode, true
		}
	}
	// What was printed is in the pipes by now; give the copiers a moment.
	time.Sleep(15 * time.Millisecond)
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

func (k *wireKernel) takeStdout() string { return k.take(&k.stdout) }
func (k *wireKernel) takeStderr() string { return k.take(&k.stderr) }

func (k *wireKernel) take(b *strings.Builder) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := b.String()
	b.Reset()
	return s
}
