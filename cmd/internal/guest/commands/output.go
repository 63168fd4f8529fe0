//go:build linux

package commands

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

// output is one stream of what a command says.
type output struct {
	f     *os.File
	chunk int
	event func([]byte) *envd.ProcessEvent
}

var chunks = sync.Pool{New: func() any { return new([pipeChunk]byte) }}

// next returns what the stream has next; it holds no buffer while it waits. With
// keep false it returns nothing, only whether the stream goes on.
func (o *output) next(keep bool) ([]byte, error) {
	raw, err := o.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var b []byte
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		b, failed = o.take(int(fd), keep)
		return failed != unix.EAGAIN
	})
	return b, errors.Join(err, failed)
}

// left returns what the stream has at once; at its end, or if it has nothing, an
// error.
func (o *output) left() ([]byte, error) {
	raw, err := o.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var b []byte
	var failed error
	err = raw.Control(func(fd uintptr) { b, failed = o.take(int(fd), true) })
	return b, errors.Join(err, failed)
}

var errEnd = errors.New("the output has ended")

func (o *output) take(fd int, keep bool) ([]byte, error) {
	buf := chunks.Get().(*[pipeChunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := unix.Read(fd, buf[:o.chunk])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err // a terminal that everybody has closed says EIO
		case n == 0:
			return nil, errEnd
		case keep:
			return bytes.Clone(buf[:n]), nil
		default:
			return nil, nil
		}
	}
}

// read hands on what o has until it ends, or until the command has ended and
// lingered, and says whether o is still open.
func (c *command) read(o *output) bool {
	for {
		b, err := o.next(true)
		if err == nil {
			c.tell(o.event(b))
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		for total := 0; total < maxLeft; total += len(b) {
			if b, err = o.left(); err != nil {
				return errors.Is(err, unix.EAGAIN)
			}
			c.tell(o.event(b))
		}
		return true
	}
}

// drain throws away what o says, so that who holds it open is neither held up nor
// killed by it.
func (c *command) drain(o *output) {
	_ = o.f.SetReadDeadline(time.Time{})
	for {
		if _, err := o.next(false); err != nil {
			return
		}
	}
}
