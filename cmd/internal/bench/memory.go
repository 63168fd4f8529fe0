//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// memory is private memory in KB: of the server, of the sandbox's kernel (sentry,
// gofer and stubs), and of all that is in the sandbox.
type memory struct{ server, kernel, guest float64 }

func (m memory) total() float64 { return m.server + m.kernel + m.guest }

// per is what each of n connections added since before.
func (m memory) per(before memory, n float64) memory {
	return memory{(m.server - before.server) / n, (m.kernel - before.kernel) / n, (m.guest - before.guest) / n}
}

// sandboxMemory is the name of the file that holds a sandbox's memory.
const sandboxMemory = "runsc-memory"

// private adds up the private pages of a process, in KB, without those of a
// sandbox's memory file: kernel and stubs share them, see guestMemory.
func private(pid int) (float64, error) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "smaps"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum float64
	skip := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		switch {
		case len(field) >= 5 && !strings.HasSuffix(field[0], ":"): // a mapping begins
			skip = strings.Contains(lines.Text(), sandboxMemory)
		case !skip && len(field) == 3 && strings.HasPrefix(field[0], "Private_"):
			kb, err := strconv.ParseFloat(field[1], 64)
			if err != nil {
				return 0, err
			}
			sum += kb
		}
	}
	return sum, lines.Err()
}

// children lists the processes below pid.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for _, f := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
				all = append(all, children(child)...)
			}
		}
	}
	return all
}

// memory measures the server and the sandbox. Only sentries, gofers and stubs
// are below this process beside those in not.
func (l *lab) memory(ctx context.Context, not ...int) (memory, error) {
	var m memory
	debug.FreeOSMemory()
	var err error
	if m.server, err = private(os.Getpid()); err != nil {
		return m, err
	}
	for _, pid := range children(os.Getpid()) {
		ours := false
		for _, n := range not {
			ours = ours || n == pid
		}
		if ours {
			continue
		}
		kb, err := private(pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return m, err
		}
		m.kernel += kb
	}
	m.guest, err = guestMemory()
	return m, err
}

// guestMemory is the size of the sandbox's memory file, in KB.
func guestMemory() (float64, error) {
	for _, pid := range children(os.Getpid()) {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if name, err := os.Readlink(fd); err != nil || !strings.Contains(name, sandboxMemory) {
				continue
			}
			return allocated(fd)
		}
	}
	return 0, errors.New("no sandbox has a memory file")
}

// helper is another process of this program, in one of its roles.
type helper struct {
	*exec.Cmd
	stdin io.Closer
	line  string // what it said first
}

func start(ctx context.Context, role string, args ...string) (*helper, error) {
	h := &helper{Cmd: exec.CommandContext(ctx, "/proc/self/exe", args...)}
	h.Env = append(os.Environ(), roleVar+"="+role)
	h.Stderr = os.Stderr
	in, err := h.StdinPipe()
	if err != nil {
		return nil, err
	}
	h.stdin = in
	out, err := h.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.Start(); err != nil {
		return nil, err
	}
	if h.line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		h.stop()
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	h.line = strings.TrimSpace(h.line)
	return h, nil
}

func (h *helper) stop() {
	h.stdin.Close()
	_ = h.Process.Kill()
	_ = h.Wait()
}

// idle measures what a connection costs a plain proxy with a plain server behind
// it, and what it costs the server and the sandbox.
func (l *lab) idle(ctx context.Context, path string) (plainKB float64, cubby memory, err error) {
	if plainKB, err = plainIdle(ctx, path); err != nil {
		return 0, cubby, fmt.Errorf("plain proxy: %w", err)
	}
	before, err := l.memory(ctx)
	if err != nil {
		return 0, cubby, err
	}
	client, err := start(ctx, "idle", l.url, path, protocol.HeaderSandboxID, l.box.ID, protocol.HeaderSandboxPort, strconv.Itoa(webPort))
	if err != nil {
		return 0, cubby, err
	}
	defer client.stop()
	after, err := l.memory(ctx, client.Process.Pid)
	return plainKB, after.per(before, idleConns), err
}

func plainIdle(ctx context.Context, path string) (float64, error) {
	backend, err := start(ctx, "backend")
	if err != nil {
		return 0, err
	}
	defer backend.stop()
	target := "http://" + backend.line
	proxy, err := start(ctx, "proxy", target)
	if err != nil {
		return 0, err
	}
	defer proxy.stop()
	base := "http://" + proxy.line
	if err := get(ctx, base+"/"); err != nil {
		return 0, err
	}
	measure := func() (float64, error) {
		if err := errors.Join(get(ctx, base+"/gc"), get(ctx, target+"/gc")); err != nil {
			return 0, err
		}
		a, err := private(proxy.Process.Pid)
		if err != nil {
			return 0, err
		}
		b, err := private(backend.Process.Pid)
		return a + b, err
	}
	before, err := measure()
	if err != nil {
		return 0, err
	}
	client, err := start(ctx, "idle", base, path)
	if err != nil {
		return 0, err
	}
	defer client.stop()
	after, err := measure()
	return (after - before) / idleConns, err
}

// get is a request over a connection of its own.
func get(ctx context.Context, target string) error {
	r, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		return err
	}
	r.Close = true
	return finish(http.DefaultClient.Do(r))
}

// allocated is how much of a file is there, in KB.
func allocated(path string) (float64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return float64(st.Blocks) / 2, err // of 512 bytes
}
