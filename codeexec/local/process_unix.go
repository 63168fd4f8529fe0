//go:build linux || darwin

package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
)

const supported = true

// process is a program that was started, and what it started.
type process struct {
	cmd    *exec.Cmd
	mark   string
	in     *os.File // to its input if it has one, or its terminal
	out    *outputs // nil with a terminal
	copied chan struct{}

	mu     sync.Mutex // of signals against the reaping
	reaped bool
}

// start starts a program as the leader of a session.
func start(p program) (_ *process, err error) {
	cmd := &exec.Cmd{Path: p.path, Args: p.argv, Env: p.env, Dir: p.dir, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if p.folder != nil {
		if dir := folderPath(p.folder); dir != "" {
			cmd.Dir = dir
		}
	}
	proc := &process{cmd: cmd, mark: p.mark, copied: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		closeAllFiles(theirs)
		if err != nil {
			proc.closeFiles()
		}
	}()
	if p.tty {
		ours, tty, err := pty.Open()
		if err != nil {
			return nil, fmt.Errorf("open a terminal: %w", err)
		}
		theirs = append(theirs, tty)
		proc.in = ours
		if err := pty.Setsize(ours, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
			return nil, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr.Setctty = true // descriptor 0
	} else {
		var ours [2]*os.File
		for i, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
			r, w, err := os.Pipe()
			if err != nil {
				closeAllFiles(ours[:i])
				return nil, err
			}
			ours[i], *to = r, w
			theirs = append(theirs, w)
		}
		if proc.out, err = newOutputs(ours[0], ours[1], [2]io.Writer{p.stdout, p.stderr}); err != nil {
			closeAllFiles(ours[:])
			return nil, err
		}
		if p.interactive || p.stdin != "" {
			r, w, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			theirs, proc.in, cmd.Stdin = append(theirs, r), w, r
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	proc.copy(p)
	return proc, nil
}

func closeAllFiles(all []*os.File) {
	for _, f := range all {
		f.Close()
	}
}

// copy starts what moves input and output.
func (p *process) copy(from program) {
	var copying sync.WaitGroup
	if p.out == nil {
		copying.Go(func() {
			// A terminal whose programs are gone ends with EIO: that is its end.
			_, _ = io.Copy(from.stdout, p.in)
		})
	} else {
		copying.Go(func() { p.out.copy(0) })
		copying.Go(func() { p.out.copy(1) })
	}
	if from.stdin != "" && !from.interactive {
		copying.Go(func() {
			// Who does not read all its input is free to.
			_, _ = io.WriteString(p.in, from.stdin)
			p.in.Close()
		})
	}
	go func() {
		copying.Wait()
		close(p.copied)
	}()
}

func (p *process) closeFiles() {
	if p.in != nil {
		p.in.Close()
	}
	if p.out != nil {
		p.out.close()
	}
}

// Write sends input.
func (p *process) Write(b []byte) (int, error) {
	if p.in == nil {
		return 0, errors.New("the program has no input")
	}
	return p.in.Write(b)
}

// Terminate asks the group to end.
func (p *process) Terminate() error { return p.signal(syscall.SIGTERM) }

func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	return syscall.Kill(-p.cmd.Process.Pid, s)
}

// Kill ends the group and what left it.
func (p *process) Kill() error {
	p.kill()
	return nil
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	pid := p.cmd.Process.Pid
	// Descendants are found by their parents, as long as those are there: first
	// look, then kill.
	found := strays(pid, p.mark)
	_ = syscall.Kill(-pid, syscall.SIGKILL) // a group of nothing but zombies is an error to some kernels
	for deadline := time.Now().Add(strayTime); ; {
		for _, s := range found {
			s.kill()
		}
		found = strays(pid, p.mark)
		if len(found) == 0 || time.Now().After(deadline) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Wait implements [session.Process]; a signal is -1.
func (p *process) Wait() (int, error) {
	code, signal, err := p.wait()
	if signal > 0 {
		code = -1
	}
	return code, err
}

// wait waits for the program, ends what it left behind, and reads its output to
// the end.
func (p *process) wait() (code, signal int, err error) {
	// Until it is reaped, its number is its own: no other process can be hit.
	awaitExit(p.cmd.Process.Pid)
	p.kill()
	p.mu.Lock()
	err = p.cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-p.copied:
	case <-timer.C:
	}
	p.closeFiles()
	<-p.copied
	state := p.cmd.ProcessState
	if state == nil {
		return -1, 0, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -1, int(status.Signal()), nil
	}
	return state.ExitCode(), 0, nil
}
