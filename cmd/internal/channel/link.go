//go:build linux

package channel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Types of messages.
const (
	msgData    = 0
	msgSession = 1 // what came before is void; the guest answers with the same payload
	msgEnd     = 2 // the session is over
)

// idSeparator stands in a session's name between the host's own and the rest: who
// serves sessions learns by it that another host has come.
const idSeparator = "/"

// Pair returns the two ends of a new channel, non-blocking and close-on-exec.
// The caller owns both.
func Pair() (host, guest *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("channel: %w", os.NewSyscallError("socketpair", err))
	}
	for _, fd := range fds {
		// A few full messages must fit; more than the system allows is cut.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	return os.NewFile(uintptr(fds[0]), "channel-host"), os.NewFile(uintptr(fds[1]), "channel-guest"), nil
}

// pollable returns f itself if it has deadlines (is non-blocking and known to
// the runtime's poller), else a file for the same socket that has, and closes f.
func pollable(f *os.File) (*os.File, error) {
	if f.SetReadDeadline(time.Time{}) == nil {
		return f, nil
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var nfd int
	var ferr error
	if err := raw.Control(func(fd uintptr) {
		if nfd, ferr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); ferr == nil {
			ferr = unix.SetNonblock(nfd, true)
		}
	}); err != nil {
		return nil, err
	}
	if ferr != nil {
		return nil, ferr
	}
	return os.NewFile(uintptr(nfd), f.Name()), nil
}

// link is one end of the socket. At most one session is current.
type link struct {
	f     *os.File
	stall time.Duration           // that a peer gets to take the start of a session; 0 is for ever
	cur   atomic.Pointer[session] // set with wmu held, cleared by anyone

	wmu     sync.Mutex // held while a message is written, so never by readers
	scratch []byte
}

// session is the byte stream of one session as a net.Conn.
type session struct {
	*conn
	l     *link
	id    string // chosen by the host
	acked bool   // host only, and only its reading goroutine's
	guard guard  // likewise
}

// start makes a new session current, ends the one before and tells the peer.
func (l *link) start(name, id string) (*session, error) {
	s := &session{l: l, id: id, conn: &conn{rx: newPipe(4 * maxPayload), tx: newPipe(0), local: addr(name), remote: addr("peer-of-" + name)}}
	// A write of the old session may hold the lock on a full socket; it must
	// not delay the new one.
	_ = l.f.SetWriteDeadline(time.Unix(1, 0))
	l.wmu.Lock()
	defer l.wmu.Unlock()
	_ = l.f.SetWriteDeadline(time.Time{})
	if old := l.cur.Swap(s); old != nil {
		old.drop(ErrReset)
	}
	if l.stall > 0 {
		_ = l.f.SetWriteDeadline(time.Now().Add(l.stall))
	}
	_, err := l.f.Write(append([]byte{msgSession}, id...))
	_ = l.f.SetWriteDeadline(time.Time{})
	if err != nil {
		l.cur.CompareAndSwap(s, nil)
		return nil, err
	}
	return s, nil
}

// drop ends the session without a word to the peer.
func (s *session) drop(err error) {
	s.rx.closeWrite(err)
	s.tx.closeWrite(nil)
}

// Write sends b in as many messages as it takes.
func (s *session) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		k := min(len(b), maxPayload)
		if err := s.send(b[:k]); err != nil {
			return written, err
		}
		b, written = b[k:], written+k
	}
	return written, nil
}

func (s *session) send(b []byte) error {
	l := s.l
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if l.cur.Load() != s {
		return net.ErrClosed
	}
	if l.scratch == nil {
		l.scratch = make([]byte, maxPayload+1)
	}
	l.scratch[0] = msgData
	n := copy(l.scratch[1:], b)
	_, err := l.f.Write(l.scratch[:n+1])
	if err != nil {
		// Half a stream is of no use: a message that was lost ends it.
		l.cur.CompareAndSwap(s, nil)
		s.drop(err)
	}
	return err
}

// Close ends the session and says so to the peer.
func (s *session) Close() error {
	s.once.Do(func() {
		s.rx.closeRead(net.ErrClosed)
		l := s.l
		l.wmu.Lock()
		defer l.wmu.Unlock()
		if !l.cur.CompareAndSwap(s, nil) {
			return
		}
		// A peer that reads nothing must not hold a Close up.
		_ = l.f.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = l.f.Write([]byte{msgEnd})
		_ = l.f.SetWriteDeadline(time.Time{})
	})
	return nil
}

// SetWriteDeadline bounds writes. A write that misses it ends the session.
func (s *session) SetWriteDeadline(t time.Time) error {
	if s.l.cur.Load() != s {
		return net.ErrClosed // the socket is another session's
	}
	return s.l.f.SetWriteDeadline(t)
}

func (s *session) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

// read reads one message into buf, which must hold maxPayload+1 bytes. An empty
// message, which only a peer that is gone sends, is an error.
func (l *link) read(buf []byte) (kind byte, payload []byte, err error) {
	n, err := l.f.Read(buf)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 {
		return 0, nil, errors.New("channel: empty message")
	}
	return buf[0], buf[1:n], nil
}

// end drops the current session, if any.
func (l *link) end(err error) {
	if s := l.cur.Swap(nil); s != nil {
		s.drop(err)
	}
}
