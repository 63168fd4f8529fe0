package gvisor

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// cardName is the interface's name inside.
const cardName = "eth0"

// openCard returns a descriptor of its own for a machine's network card; nil for
// none.
func openCard(card *os.File) (*os.File, error) {
	if card == nil {
		return nil, nil
	}
	raw, err := card.SyscallConn() // not Fd, which would make the caller's end blocking
	if err != nil {
		return nil, fmt.Errorf("network card: %w", err)
	}
	fd := -1
	controlErr := raw.Control(func(from uintptr) {
		var kind int
		if kind, err = unix.GetsockoptInt(int(from), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
			return
		}
		if kind != unix.SOCK_SEQPACKET {
			err = fmt.Errorf("a socket of type %d is none: %w", kind, engine.ErrNotSupported)
			return
		}
		fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3)
	})
	if controlErr != nil {
		err = controlErr
	}
	if err != nil {
		return nil, fmt.Errorf("network card: %w", err)
	}
	return os.NewFile(uintptr(fd), "network card"), nil
}

// links are the interfaces inside: a loopback, and one that leads to card if that is
// not nil. It has no link address, so its packets have no link header.
func links(card *os.File) (*boot.CreateLinksAndRoutesArgs, error) {
	args := &boot.CreateLinksAndRoutesArgs{LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink}}
	if card == nil {
		return args, nil
	}
	address, err := netip.ParsePrefix(engine.NetAddress)
	if err != nil {
		return nil, err
	}
	gateway, err := netip.ParseAddr(engine.NetGateway)
	if err != nil {
		return nil, err
	}
	args.FilePayload = urpc.FilePayload{Files: []*os.File{card}}
	args.FDBasedLinks = []boot.FDBasedLink{{
		Name: cardName, MTU: engine.NetMTU, NumChannels: 1, IsPacket: []bool{false}, PreConfigured: true,
		// Nothing on the way changes a packet. Those that leave are complete.
		RXChecksumOffload: true,
		Addresses:         []boot.IPWithPrefix{{Address: address.Addr().AsSlice(), PrefixLen: address.Bits()}},
		Routes:            []boot.Route{{Destination: ipNet(address.Masked())}},
	}}
	args.Defaultv4Gateway = boot.DefaultRoute{Name: cardName, Route: boot.Route{
		Destination: ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), Gateway: gateway.AsSlice(),
	}}
	return args, nil
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
