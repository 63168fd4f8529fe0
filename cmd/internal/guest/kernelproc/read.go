//go:build linux

package kernelproc

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dropLocked forgets what was said between two cells: it is nobody's, although the
// reading goroutine may not have come to it yet.
func (k *Process) dropLocked() {
	var buf [4 << 10]byte
	for i, fd := range k.out {
		k.streams[i].held = nil
		for total := 0; fd >= 0 && total < drainSize; {
			n, err := unix.Read(fd, buf[:])
			if err != unix.EINTR && (err != nil || n == 0) {
				break
			}
			total += max(n, 0)
		}
	}
}

// read is the kernel's goroutine. Text is always read before the wire is acted
// on, because the kernel flushes the one before it writes the other.
func (k *Process) read() {
	buf := make([]byte, readSize)
	wireOpen := true
	defer func() {
		for i := range k.out {
			k.closeOutput(i)
		}
	}()
	for wireOpen || k.out[0] >= 0 || k.out[1] >= 0 {
		fds := []unix.PollFd{{Fd: int32(k.out[0]), Events: unix.POLLIN},
			{Fd: int32(k.out[1]), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
		timeout := -1
		if wireOpen {
			fds[2].Fd = int32(k.sock)
		} else if timeout = int(deadPoll.Milliseconds()); k.stopped.Load() {
			return
		}
		k.mu.Lock()
		held := len(k.streams[0].held)+len(k.streams[1].held) > 0
		k.mu.Unlock()
		if held {
			timeout = int(coalesce.Milliseconds())
		}
		n, err := unix.Poll(fds, timeout)
		if err == unix.EINTR {
			continue
		}
		if n == 0 && held {
			k.flush(false)
		}
		drain := func() {
			for i := range k.out {
				if !k.drain(i, buf) {
					k.closeOutput(i)
				}
			}
		}
		drain()
		if wireOpen && fds[2].Revents != 0 {
			more := k.readWire(buf)
			drain()
			k.act()
			if !more {
				wireOpen = false
				k.end(drain)
			}
		}
	}
}

// drain forwards what stream i has, up to a bound, and says whether it goes on.
func (k *Process) drain(i int, buf []byte) bool {
	for total := 0; total < drainSize; {
		n, err := k.piece(i, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return true
		case err != nil || n == 0:
			return false
		default:
			total += n
		}
	}
	return true
}

// piece reads from stream i and hands on what comes: at once, lest a cell that
// begins in between gets what was said before it.
func (k *Process) piece(i int, buf []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := unix.Read(k.out[i], buf)
	if n > 0 {
		k.sayLocked(i, buf[:n])
	}
	return n, err
}

func (k *Process) closeOutput(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.out[i] >= 0 {
		unix.Close(k.out[i])
		k.out[i] = -1
	}
}

func (k *Process) sayLocked(i int, b []byte) {
	if k.sink == nil {
		// Nobody asked: what a background job says between cells is dropped.
		k.streams[i].held = nil
		if k.tail = append(k.tail, b...); len(k.tail) > startTail {
			k.tail = append(k.tail[:0], k.tail[len(k.tail)-startTail:]...)
		}
		return
	}
	if text := k.streams[i].add(b); text != "" {
		k.sink.Text(i == 1, text)
	}
}

func (k *Process) flush(all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flushLocked(all)
}

func (k *Process) flushLocked(all bool) {
	for i := range k.streams {
		text := k.streams[i].flush(all)
		if text != "" && k.sink != nil {
			k.sink.Text(i == 1, text)
		}
	}
}

// end waits for the process whose wire has ended and reports its death.
func (k *Process) end(drain func()) {
	select {
	case <-k.exited:
	case <-time.After(closedStatus):
		_ = syscall.Kill(k.PID(), syscall.SIGKILL)
		<-k.exited
	}
	k.wmu.Lock()
	k.closed = true
	unix.Close(k.sock)
	k.wmu.Unlock()
	drain()
	k.mu.Lock()
	k.flushLocked(true)
	if s := k.sink; s != nil {
		k.sink = nil
		s.Died(k.Status)
	}
	k.mu.Unlock()
	close(k.Ended)
}
