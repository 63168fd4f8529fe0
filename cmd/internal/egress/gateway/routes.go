//go:build linux

package gateway

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// routes asks the kernel where it would send packets, over one socket that is opened
// when it is needed.
type routes struct {
	mu  sync.Mutex
	fd  int // 0: none yet
	seq uint32
}

// toOthers says whether packets to an address leave for another single machine: false
// if the address is one of this machine's own, is a network's broadcast address, or
// leads nowhere. The error is one of asking.
func (r *routes) toOthers(a netip.Addr) (bool, error) {
	kind, err := r.kind(a)
	if err != nil {
		return false, fmt.Errorf("the kernel's route to %s: %w", a, err)
	}
	return kind == unix.RTN_UNICAST, nil
}

// leadsBack says whether an IPv6 address has one of this machine's own of IPv4 inside, to
// which a translator on the way would lead its packets.
func (r *routes) leadsBack(a netip.Addr) (bool, error) {
	for _, inside := range egress.Embedded(a) {
		switch kind, err := r.kind(inside); {
		case err != nil:
			return false, fmt.Errorf("the kernel's route to %s: %w", inside, err)
		case kind == unix.RTN_LOCAL, kind == unix.RTN_BROADCAST:
			return true, nil
		}
	}
	return false, nil
}

// ipv6 says whether this machine has a route into IPv6's internet.
func (r *routes) ipv6() bool {
	kind, err := r.kind(netip.MustParseAddr("2001:4860:4860::8888")) // any that is public
	return err == nil && kind == unix.RTN_UNICAST
}

// routeTime bounds the wait for the kernel's answer, which is there when the question
// was sent.
var routeTime = unix.Timeval{Sec: 2}

// kind is the route's type, RTN_UNREACHABLE also where there is no route.
func (r *routes) kind(a netip.Addr) (uint8, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd == 0 {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return 0, err
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &routeTime); err != nil {
			unix.Close(fd)
			return 0, err
		}
		r.fd = fd
	}
	r.seq++
	kind, err := r.ask(a)
	if err != nil {
		// What comes late must not be taken for the answer to another question.
		unix.Close(r.fd)
		r.fd = 0
	}
	return kind, err
}

func (r *routes) ask(a netip.Addr) (uint8, error) {
	ip := a.AsSlice()
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	q := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg+unix.SizeofRtAttr+len(ip))
	ne := binary.NativeEndian
	ne.PutUint32(q, uint32(len(q)))
	ne.PutUint16(q[4:], unix.RTM_GETROUTE)
	ne.PutUint16(q[6:], unix.NLM_F_REQUEST)
	ne.PutUint32(q[8:], r.seq)
	q[16], q[17] = family, byte(len(ip)*8)
	attr := q[unix.SizeofNlMsghdr+unix.SizeofRtMsg:]
	ne.PutUint16(attr, uint16(unix.SizeofRtAttr+len(ip)))
	ne.PutUint16(attr[2:], unix.RTA_DST)
	copy(attr[4:], ip)
	if err := unix.Sendto(r.fd, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, from, err := unix.Recvfrom(r.fd, answer, 0)
	if err != nil {
		return 0, err
	}
	if k, ok := from.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
		return 0, unix.EBADMSG
	}
	if answer = answer[:n]; n < unix.SizeofNlMsghdr || ne.Uint32(answer[8:]) != r.seq {
		return 0, unix.EBADMSG
	}
	body := answer[unix.SizeofNlMsghdr:]
	switch ne.Uint16(answer[4:]) {
	case unix.NLMSG_ERROR:
		if len(body) < 4 {
			return 0, unix.EBADMSG
		}
		switch errno := unix.Errno(-int32(ne.Uint32(body))); errno {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAGAIN:
			// The route itself says so: prohibited, black hole, thrown.
			return unix.RTN_UNREACHABLE, nil
		default:
			return 0, errno
		}
	case unix.RTM_NEWROUTE:
		if len(body) < unix.SizeofRtMsg {
			return 0, unix.EBADMSG
		}
		return body[unsafe.Offsetof(unix.RtMsg{}.Type)], nil
	}
	return 0, unix.EBADMSG
}

func (r *routes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd != 0 {
		unix.Close(r.fd)
		r.fd = 0
	}
}
