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
	stdout int // descriptor; -1 after its end
	closed bool
}

func newOutputs(stdout, stderr *os.File, to [2]io.Writer) (*outputs, error) {
	o := &outputs{pipes: [2]*os.File{stdout, stderr}, to: to, stdout: -1}
	conn, err := stdout.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Known before anything is read: stderr may be the first.
	return o, conn.Control(func(fd uintptr) { o.stdout = int(fd) })
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
	if i == 0 {
		o.mu.Lock()
		o.stdout = -1
		o.mu.Unlock()
	}
}

// step takes one chunk if there is one.
func (o *outputs) step(i, fd int, buf []byte) (again, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false, true
	}
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
	for total := 0; o.stdout >= 0 && total < maxDrain; {
		n, err := read(o.stdout, buf)
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
	o.stdout = -1
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
