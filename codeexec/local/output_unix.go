//go:build linux || darwin

package local

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

const (
	chunk    = 32 << 10
	maxDrain = 1 << 20 // bytes of one stream that go before a chunk of the other
)

// outputs reads a program's two pipes. What was printed before an error comes
// before it: when stderr has something, all that stdout has by then is older or
// as old, and goes first. (The other way round the kernel does not tell.)
type outputs struct {
	pipes [2]*os.File
	to    [2]io.Writer

	mu     sync.Mutex
	fds    [2]int // -1 before it is known and after the end
	closed bool
}

func newOutputs(stdout, stderr *os.File, to [2]io.Writer) *outputs {
	return &outputs{pipes: [2]*os.File{stdout, stderr}, to: to, fds: [2]int{-1, -1}}
}

// copy reads one of the pipes to its end.
func (o *outputs) copy(i int) {
	conn, err := o.pipes[i].SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, chunk)
	// The only error is that close was called.
	_ = conn.Read(func(fd uintptr) (ended bool) {
		for {
			if again, ended := o.step(i, int(fd), buf); !again {
				return ended
			}
		}
	})
	o.mu.Lock()
	o.fds[i] = -1
	o.mu.Unlock()
}

// step takes one chunk if there is one.
func (o *outputs) step(i, fd int, buf []byte) (again, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false, true
	}
	o.fds[i] = fd
	n, err := read(fd, buf)
	if errors.Is(err, syscall.EAGAIN) {
		return false, false
	}
	if n <= 0 {
		return false, true
	}
	if i == 1 {
		o.drain()
	}
	_, _ = o.to[i].Write(buf[:n]) // it does not fail
	return true, false
}

// drain takes what stdout has now.
func (o *outputs) drain() {
	buf := make([]byte, chunk)
	for total := 0; o.fds[0] >= 0 && total < maxDrain; {
		n, err := read(o.fds[0], buf)
		if err != nil || n <= 0 {
			return
		}
		_, _ = o.to[0].Write(buf[:n])
		total += n
	}
}

func (o *outputs) close() {
	o.mu.Lock()
	o.closed = true
	o.fds = [2]int{-1, -1}
	o.mu.Unlock()
	for _, f := range o.pipes {
		f.Close()
	}
}

func read(fd int, buf []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, buf)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
