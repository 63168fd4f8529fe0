//go:build linux

package kernelproc

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// InterruptByWire says to the kernel itself that a request is to end.
func (k *Process) InterruptByWire(id int64) {
	if b, err := json.Marshal(kernel.Request{Op: kernel.OpInterrupt, ID: id}); err == nil {
		_ = k.write(append(b, '\n')) // one that has ended needs none
	}
}

// DrawAnewByWire has a JavaScript kernel's generators draw anew. It waits while the
// kernel does not read, but not longer than it lives.
func (k *Process) DrawAnewByWire() {
	if b, err := json.Marshal(kernel.Request{Op: kernel.OpAnew}); err == nil {
		_ = k.write(append(b, '\n')) // one that has ended needs none
	}
}

// Execute hands q to the kernel; s takes what comes until done or died.
func (k *Process) Execute(q kernel.Request, s Sink) error {
	code := q.Code
	q.Code = ""
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	// The source may be large: it is quoted piece by piece, into its place.
	const place = `"code":"`
	at := bytes.Index(b, []byte(place))
	if at < 0 {
		return errors.New("a request without code")
	}
	at += len(place)
	k.mu.Lock()
	k.dropLocked()
	k.sink = s
	k.mu.Unlock()
	k.wmu.Lock()
	defer k.wmu.Unlock()
	pieces := append([]byte(nil), b[:at]...)
	for code != "" {
		n := min(len(code), pieceSize)
		for n < len(code) && n > 0 && !utf8.RuneStart(code[n]) {
			n--
		}
		quoted, err := json.Marshal(code[:n])
		if err != nil {
			return err
		}
		code = code[n:]
		pieces = append(pieces, quoted[1:len(quoted)-1]...)
		if len(pieces) >= pieceSize {
			if err := k.writeLocked(pieces); err != nil {
				return err
			}
			pieces = pieces[:0]
		}
	}
	pieces = append(append(pieces, b[at:]...), '\n')
	return k.writeLocked(pieces)
}

var errEnded = errors.New("the kernel has ended")

func (k *Process) write(b []byte) error {
	k.wmu.Lock()
	defer k.wmu.Unlock()
	return k.writeLocked(b)
}

func (k *Process) writeLocked(b []byte) error {
	for len(b) > 0 {
		if k.closed {
			return errEnded
		}
		n, err := unix.SendmsgN(k.sock, b, nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			b = b[n:]
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			select {
			case <-k.exited:
				return errEnded
			default:
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(k.sock), Events: unix.POLLOUT}}, 50)
		default:
			return errEnded
		}
	}
	return nil
}

// readWire reads what is on the wire, and says whether it goes on.
func (k *Process) readWire(buf []byte) bool {
	for total := 0; total < drainSize; {
		n, err := unix.Read(k.sock, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return true
		case err != nil || n == 0:
			return false
		default:
			total += n
			if len(k.wire)+n > maxEvent {
				k.Stop() // it is no kernel any more
				return true
			}
			k.wire = append(k.wire, buf[:n]...)
		}
	}
	return true
}

var ack = []byte(`{"op":"` + kernel.OpAck + `"}` + "\n")

// act hands on the events that are whole. What is not one is ignored: the code
// can write to the wire too.
func (k *Process) act() {
	rest := k.wire
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			break
		}
		rest = after
		var e kernel.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if e.Ev == "anew" {
			select {
			case k.Drew <- struct{}{}:
			default:
			}
			continue
		}
		if e.Ev == "ready" {
			select {
			case <-k.Ready:
			default:
				close(k.Ready)
			}
			continue
		}
		k.mu.Lock()
		if k.sink != nil {
			k.flushLocked(e.Ev == "done")
			k.sink.Event(e)
		}
		k.mu.Unlock()
		if e.Ev == "result" && !e.Main {
			_ = k.write(ack) // a kernel that has ended waits for nothing
		}
	}
	if len(rest) == 0 && cap(k.wire) > 1<<20 {
		k.wire = nil
		return
	}
	k.wire = append(k.wire[:0], rest...)
}
