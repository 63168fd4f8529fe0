//go:build linux

package gateway

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// batch is how many packets are read with one system call.
const batch = 8

// card is our end of a sandbox's network card: a socket whose messages are IP packets.
// Who holds the other end may send anything. It waits on Go's poller, so a card that
// is idle takes a goroutine and no thread.
type card struct {
	file *os.File
	raw  syscall.RawConn

	// Of the one reader.
	views [batch]*buffer.View
	iovs  [batch]unix.Iovec
	msgs  [batch]message
}

// message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// newCard takes over f.
func newCard(f *os.File) (*card, error) {
	defer f.Close()
	from, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("network card: %w", err)
	}
	fd := -1
	controlErr := from.Control(func(old uintptr) {
		var kind int
		if kind, err = unix.GetsockoptInt(int(old), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
			return
		}
		if kind != unix.SOCK_SEQPACKET {
			err = fmt.Errorf("a socket of type %d is none", kind)
			return
		}
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return
		}
		err = unix.SetNonblock(fd, true)
	})
	if err = errors.Join(controlErr, err); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("network card: %w", err)
	}
	c := &card{file: os.NewFile(uintptr(fd), "network card")}
	if c.raw, err = c.file.SyscallConn(); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("network card: %w", err)
	}
	return c, nil
}

// read waits for packets and returns how many came: the bytes of packet i are
// c.packet(i), and c.take takes it. It returns io.EOF when the other end is gone.
func (c *card) read() (int, error) {
	n, errno := 0, unix.Errno(0)
	err := c.raw.Read(func(fd uintptr) bool {
		for {
			c.prepare()
			n, errno = receive(fd, &c.msgs)
			if errno == unix.EINTR {
				continue
			}
			if errno == unix.EAGAIN {
				c.release() // what waits holds no memory
				return false
			}
			return true
		}
	})
	switch {
	case err != nil:
		c.release()
		return 0, err
	case errno != 0:
		c.release()
		return 0, errno
	}
	for i := range n {
		if c.msgs[i].length == 0 {
			// A message of no bytes, or the end.
			gone, err := c.gone()
			if err == nil && gone {
				c.release()
				return 0, io.EOF
			}
			break
		}
	}
	return n, nil
}

// prepare makes room for a batch.
func (c *card) prepare() {
	for i := range c.msgs {
		if c.views[i] == nil {
			c.views[i] = buffer.NewViewSize(engine.NetMTU)
			c.iovs[i].Base = unsafe.SliceData(c.views[i].AsSlice())
			c.iovs[i].SetLen(engine.NetMTU)
		}
		c.msgs[i] = message{}
		c.msgs[i].header.Iov = &c.iovs[i]
		c.msgs[i].header.SetIovlen(1)
	}
}

func (c *card) release() {
	for i, v := range c.views {
		if v != nil {
			v.Release()
			c.views[i] = nil
			c.iovs[i] = unix.Iovec{}
		}
	}
}

func receive(fd uintptr, msgs *[batch]message) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(msgs)), batch, unix.MSG_DONTWAIT, 0, 0)
	runtime.KeepAlive(msgs)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// gone says whether the other end is closed.
func (c *card) gone() (bool, error) {
	var events int16
	err := c.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(fds, 0); err == nil {
			events = fds[0].Revents
		}
	})
	return events&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0, err
}

// packet is the bytes of packet i of those that were just read, until the next read;
// nil if it was longer than a packet may be.
func (c *card) packet(i int) []byte {
	if c.msgs[i].header.Flags&unix.MSG_TRUNC != 0 {
		return nil
	}
	return c.views[i].AsSlice()[:c.msgs[i].length]
}

// take returns packet i as netstack wants it. It is the caller's, who drops it with
// DecRef. A short one is copied: what keeps it must not keep a long buffer.
func (c *card) take(i int) *stack.PacketBuffer {
	n, v := int(c.msgs[i].length), c.views[i]
	if n <= engine.NetMTU/2 {
		v = buffer.NewViewWithData(v.AsSlice()[:n])
	} else {
		v.CapLength(n)
		c.views[i] = nil
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(v)})
	// What came over a socket of this machine came as it was sent.
	p.RXChecksumValidated = true
	return p
}

// write sends a packet, of which the parts are given. It waits while the other end does
// not read: what waits is the work of its own sandbox only, and ends when the card is
// closed.
func (c *card) write(parts [][]byte) error {
	var failed error
	err := c.raw.Write(func(fd uintptr) bool {
		_, failed = unix.SendmsgBuffers(int(fd), parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return failed != unix.EAGAIN
	})
	if err != nil {
		return err
	}
	return failed
}

func (c *card) close() error { return c.file.Close() }

// link is a card as a stack sees it. It exists as long as the stack.
type link struct {
	card *card

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
}

var _ stack.LinkEndpoint = (*link)(nil)

// deliver hands a packet to the stack.
func (l *link) deliver(p *stack.PacketBuffer) {
	l.mu.RLock()
	d := l.dispatcher
	l.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(header.IPv4ProtocolNumber, p)
	}
}

func (l *link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	for i, p := range packets.AsSlice() {
		if err := l.card.write(p.AsSlices()); err != nil {
			return i, &tcpip.ErrClosedForSend{}
		}
	}
	return packets.Len(), nil
}

func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

func (l *link) MTU() uint32                      { return engine.NetMTU }
func (l *link) SetMTU(uint32)                    {}
func (l *link) MaxHeaderLength() uint16          { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress   { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}
func (l *link) Wait()                                   {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}
