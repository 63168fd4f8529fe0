//go:build linux

package channel

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is one direction of a connection: a bounded buffer whose reader and
// writer each have a deadline. Its methods may be called concurrently.
type pipe struct {
	mu    sync.Mutex
	cond  sync.Cond
	max   int
	buf   []byte // unread bytes are buf[start:]
	start int
	werr  error // how the writer ended; the reader gets it after the last byte
	rerr  error // how the reader ended; the writer gets it at once
	rdl   deadline
	wdl   deadline
}

type deadline struct {
	timer  *time.Timer
	gen    int
	passed bool
}

func newPipe(size int) *pipe {
	p := &pipe{max: size}
	p.cond.L = &p.mu
	return p
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.rerr != nil:
			return 0, net.ErrClosed
		case p.rdl.passed:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case p.start < len(p.buf):
			n := copy(b, p.buf[p.start:])
			if p.start += n; p.start == len(p.buf) {
				p.buf, p.start = recycle(p.buf), 0
			}
			p.cond.Broadcast()
			return n, nil
		case p.werr != nil:
			return 0, p.werr
		}
		p.cond.Wait()
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for {
		switch {
		case p.werr != nil:
			return written, net.ErrClosed
		case p.rerr != nil:
			return written, p.rerr
		case p.wdl.passed:
			return written, os.ErrDeadlineExceeded
		case len(b) == 0:
			return written, nil
		}
		if k := min(len(b), p.max-(len(p.buf)-p.start)); k > 0 {
			p.makeRoom(k)
			p.buf = append(p.buf, b[:k]...)
			b, written = b[k:], written+k
			p.cond.Broadcast()
			continue
		}
		p.cond.Wait()
	}
}

// makeRoom makes the buffer hold k bytes more.
func (p *pipe) makeRoom(k int) {
	if len(p.buf)+k <= cap(p.buf) {
		return
	}
	unread := p.buf[p.start:]
	if need := len(unread) + k; need <= cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, unread)]
	} else {
		grown := append(lend(need), unread...)
		recycle(p.buf)
		p.buf = grown
	}
	p.start = 0
}

// closeWrite ends the stream: the reader gets what is buffered, then err (nil:
// io.EOF). Only the first call counts.
func (p *pipe) closeWrite(err error) {
	if err == nil {
		err = io.EOF
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.werr == nil {
		p.werr = err
	}
	p.stop(&p.wdl)
	p.cond.Broadcast()
}

// closeRead drops what is buffered and makes writes fail with err. Only the
// first call counts.
func (p *pipe) closeRead(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rerr == nil {
		p.rerr = err
	}
	recycle(p.buf)
	p.buf, p.start = nil, 0
	p.stop(&p.rdl)
	p.cond.Broadcast()
}

func (p *pipe) stop(d *deadline) {
	d.gen++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (p *pipe) setDeadline(d *deadline, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop(d)
	d.passed = false
	if !t.IsZero() {
		if wait := time.Until(t); wait <= 0 {
			d.passed = true
		} else {
			gen := d.gen
			d.timer = time.AfterFunc(wait, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if d.gen == gen {
					d.passed = true
					p.cond.Broadcast()
				}
			})
		}
	}
	p.cond.Broadcast()
}

// conn is a net.Conn made of two pipes. closed runs once, at the first Close.
type conn struct {
	rx, tx        *pipe
	local, remote addr
	once          sync.Once
	closed        func()
}

func (c *conn) Read(b []byte) (int, error)  { return c.rx.Read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.tx.Write(b) }

// CloseWrite ends what this side sends; the other side may go on sending.
func (c *conn) CloseWrite() error {
	c.tx.closeWrite(nil)
	return nil
}

// Close ends both directions. What was written before is still delivered.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.tx.closeWrite(nil)
		c.rx.closeRead(net.ErrClosed)
		if c.closed != nil {
			c.closed()
		}
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.rx.setDeadline(&c.rx.rdl, t)
	c.tx.setDeadline(&c.tx.wdl, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.rx.setDeadline(&c.rx.rdl, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.tx.setDeadline(&c.tx.wdl, t)
	return nil
}
