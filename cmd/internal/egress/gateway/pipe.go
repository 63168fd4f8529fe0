//go:build linux

package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A connection is copied in chunks. Between them, when it waits, it holds no memory
// but what could not be written yet.
const (
	bigChunk   = 64 << 10
	smallChunk = 16 << 10
	// bigFlow is what a connection with big buffers takes of Budgets.Buffers: its own,
	// and as much in the kernel.
	bigFlow = 4 * bigBuffer
)

var bigChunks, smallChunks = chunks(bigChunk), chunks(smallChunk)

func chunks(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// pipe copies both ways between a sandbox and what was dialled for it.
//
// Whatever takes time on the processor, which is each read and write, is done with one
// of the sandbox's few tokens, and nothing is waited for with one: so the scheduler
// never has many goroutines of one sandbox before it.
type pipe struct {
	flow   *flow
	inner  *inner
	outer  *net.TCPConn
	raw    syscall.RawConn // of outer
	chunks *sync.Pool
}

// errReset is that one side reset the connection, which the other one is told.
var errReset = errors.New("the connection was reset")

// copyBoth copies until both sides have ended. What the sandbox has sent already is
// sent first.
func (f *flow) copyBoth(c *inner, up *net.TCPConn, first []byte) {
	p := &pipe{flow: f, inner: c, outer: up, chunks: smallChunks}
	if f.big {
		p.chunks = bigChunks
	}
	var err error
	if p.raw, err = up.SyscallConn(); err != nil {
		f.fail(err)
		return
	}
	p.both(func() error { return p.up(first) })
}

// both runs up beside down, and ends the connections as they ended.
func (p *pipe) both(up func() error) {
	f := p.flow
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := up(); err != nil {
			p.abort(err)
			return
		}
		_ = p.outer.CloseWrite()
	}()
	if err := p.down(); err != nil {
		p.abort(err)
	} else {
		_ = p.inner.ep.Shutdown(tcpip.ShutdownWrite)
	}
	<-sent
	if f.ctx.Err() == nil {
		p.outer.Close()
		p.inner.Close()
	}
}

// abort resets both connections.
func (p *pipe) abort(err error) {
	p.flow.fail(err)
	p.flow.cut()
	reset(p.outer)
	p.inner.abort()
}

func (p *pipe) lock()   { p.flow.sandbox.work <- struct{}{} }
func (p *pipe) unlock() { <-p.flow.sandbox.work }

// pay waits until n bytes may pass. It is called with the token, and returns with it.
func (p *pipe) pay(l *rate.Limiter, n int) error {
	if l == nil {
		return nil
	}
	p.unlock()
	defer p.lock()
	return l.WaitN(p.flow.ctx, n)
}

// down copies to the sandbox until the outer side has ended.
func (p *pipe) down() error {
	entry, writable := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	p.inner.wq.EventRegister(&entry)
	defer p.inner.wq.EventUnregister(&entry)
	var chunk *[]byte
	var n int
	var readErr error
	read := func(fd uintptr) bool {
		p.lock()
		chunk = p.chunks.Get().(*[]byte)
		for {
			n, readErr = unix.Read(int(fd), *chunk)
			if readErr == unix.EINTR {
				continue
			}
			break
		}
		if readErr == unix.EAGAIN {
			p.chunks.Put(chunk)
			p.unlock()
			return false
		}
		return true
	}
	var payload bytes.Reader
	for {
		if err := p.raw.Read(read); err != nil {
			return err
		}
		if readErr == nil && n > 0 {
			readErr = p.pay(p.flow.sandbox.down, n)
		}
		for at := 0; at < n && readErr == nil; {
			if p.flow.ctx.Err() != nil {
				readErr = p.flow.ctx.Err()
				break
			}
			payload.Reset((*chunk)[at:n])
			wrote, err := p.inner.ep.Write(&payload, tcpip.WriteOptions{})
			at += int(wrote)
			p.flow.received.Add(wrote)
			switch err.(type) {
			case nil:
			case *tcpip.ErrWouldBlock:
				p.unlock()
				select {
				case <-writable:
				case <-p.flow.ctx.Done():
				}
				p.lock()
			default:
				readErr = errReset
			}
		}
		p.chunks.Put(chunk)
		p.unlock()
		switch {
		case errors.Is(readErr, unix.ECONNRESET):
			return errReset
		case readErr != nil:
			return readErr
		case n == 0:
			return nil
		}
	}
}

// up copies from the sandbox until its side has ended.
func (p *pipe) up(first []byte) error {
	entry, readable := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	p.inner.wq.EventRegister(&entry)
	defer p.inner.wq.EventUnregister(&entry)
	p.lock()
	if err := p.send(first); err != nil {
		p.unlock()
		return err
	}
	for {
		chunk := p.chunks.Get().(*[]byte)
		w := tcpip.SliceWriter(*chunk)
		res, err := p.inner.ep.Read(&w, tcpip.ReadOptions{})
		if err == nil {
			p.inner.ep.ModerateRecvBuf(res.Count)
			failed := p.pay(p.flow.sandbox.up, res.Count)
			if failed == nil {
				failed = p.send((*chunk)[:res.Count])
			}
			p.chunks.Put(chunk)
			if failed != nil {
				p.unlock()
				return failed
			}
			continue
		}
		p.chunks.Put(chunk)
		p.unlock()
		switch err.(type) {
		case *tcpip.ErrWouldBlock:
			select {
			case <-readable:
			case <-p.flow.ctx.Done():
				return p.flow.ctx.Err()
			}
		case *tcpip.ErrClosedForReceive:
			return nil
		default:
			return errReset
		}
		p.lock()
	}
}

// send writes to the outer side. It is called with the token, and returns with it.
func (p *pipe) send(b []byte) error {
	var failed error
	for len(b) > 0 {
		waited := false
		err := p.raw.Write(func(fd uintptr) bool {
			if waited {
				p.lock()
				waited = false
			}
			if failed = p.flow.ctx.Err(); failed != nil {
				return true
			}
			var n int
			n, failed = unix.Write(int(fd), b)
			if failed == unix.EINTR {
				n, failed = 0, nil
			}
			if failed == unix.EAGAIN {
				p.unlock()
				waited = true
				return false
			}
			if failed == nil {
				b = b[n:]
				p.flow.sent.Add(int64(n))
			}
			return true
		})
		if waited {
			p.lock() // the wait was ended
		}
		if err != nil {
			return err
		}
		if failed != nil {
			return errReset
		}
	}
	return nil
}

// counted is the sandbox's end of a connection that is read by something else than a
// pipe: its bytes are the flow's, and are limited as the sandbox's are.
type counted struct {
	*inner
	flow *flow
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.inner.Read(b[:min(len(b), bigChunk)])
	c.flow.sent.Add(int64(n))
	return n, errors.Join(err, wait(c.flow.ctx, c.flow.sandbox.up, n))
}

func (c *counted) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		part := b[done:min(len(b), done+bigChunk)]
		if err := wait(c.flow.ctx, c.flow.sandbox.down, len(part)); err != nil {
			return done, err
		}
		n, err := c.inner.Write(part)
		done += n
		c.flow.received.Add(int64(n))
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// Close also ends what waits for the sandbox, which the end of its connection alone
// does not.
func (c *counted) Close() error {
	_ = c.SetDeadline(time.Unix(1, 0))
	return c.inner.Close()
}

func wait(ctx context.Context, l *rate.Limiter, n int) error {
	if l == nil || n == 0 {
		return nil
	}
	return l.WaitN(ctx, n)
}

// recorded keeps what is read of a connection.
type recorded struct {
	net.Conn
	read []byte
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.read = append(r.read, b[:n]...)
	return n, err
}
