//go:build linux

package gateway

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

var (
	sandboxAddr = netip.MustParsePrefix(engine.NetAddress).Addr()
	cardNet     = netip.MustParsePrefix(engine.NetAddress).Masked()
	gatewayAddr = netip.MustParseAddr(engine.NetGateway)
	loopbackNet = netip.MustParsePrefix("127.0.0.0/8")
	thisNet     = netip.MustParsePrefix("0.0.0.0/8")
	reservedNet = netip.MustParsePrefix("240.0.0.0/4") // and broadcast
)

// verdict is what becomes of a packet that came out of a sandbox.
type verdict int

const (
	pass        verdict = iota // to the stack
	malformed                  // dropped and counted
	unsupported                // counted, and answered with "administratively prohibited"
)

const ipHeader = header.IPv4MinimumSize

// inspect looks at a packet before anything else does. What passes is a whole IPv4
// packet without options, from the sandbox's address to another single host, of TCP or
// UDP or an echo request to the gateway.
func inspect(p []byte) verdict {
	if len(p) < ipHeader || len(p) > engine.NetMTU || p[0] != 4<<4|ipHeader/4 {
		return malformed // IPv6 and options among them
	}
	if int(binary.BigEndian.Uint16(p[2:])) != len(p) {
		return malformed
	}
	if binary.BigEndian.Uint16(p[6:])&^(1<<14) != 0 {
		return malformed // a fragment; only "don't fragment" may be set
	}
	from, to := netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	if from != sandboxAddr {
		return malformed
	}
	switch {
	case to == sandboxAddr, to.IsMulticast(), reservedNet.Contains(to), loopbackNet.Contains(to), thisNet.Contains(to):
		return malformed
	case cardNet.Contains(to) && to != gatewayAddr:
		return malformed // there is nobody else, and the last one is broadcast
	}
	switch tcpip.TransportProtocolNumber(p[9]) {
	case header.TCPProtocolNumber:
		if len(p) < ipHeader+header.TCPMinimumSize {
			return malformed
		}
	case header.UDPProtocolNumber:
		if len(p) < ipHeader+header.UDPMinimumSize || int(binary.BigEndian.Uint16(p[24:])) != len(p)-ipHeader {
			return malformed
		}
	case header.ICMPv4ProtocolNumber:
		if len(p) < ipHeader+header.ICMPv4MinimumSize {
			return malformed
		}
		if header.ICMPv4Type(p[20]) != header.ICMPv4Echo {
			return malformed // errors about what was sent to it, answers nobody asked for
		}
		if to != gatewayAddr {
			return unsupported
		}
	default:
		return unsupported
	}
	return pass
}

// ipPacket begins a packet from the gateway's side to the sandbox, with room for n
// bytes of payload, which it returns as well.
func ipPacket(from netip.Addr, proto tcpip.TransportProtocolNumber, n int) (packet, payload []byte) {
	packet = make([]byte, ipHeader+n)
	h := header.IPv4(packet)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(packet)), TTL: 64, Protocol: uint8(proto),
		SrcAddr: tcpip.AddrFrom4(from.As4()), DstAddr: tcpip.AddrFrom4(sandboxAddr.As4()),
	})
	h.SetChecksum(^h.CalculateChecksum())
	return packet, packet[ipHeader:]
}

// unreachable is the ICMP message that says that what was sent with the header that
// about begins with did not reach its host. It comes from the gateway, but "port
// unreachable" comes from the host itself.
func unreachable(code header.ICMPv4Code, about []byte) []byte {
	from := gatewayAddr
	if code == header.ICMPv4PortUnreachable {
		from = netip.AddrFrom4([4]byte(about[16:]))
	}
	about = about[:min(len(about), ipHeader+header.ICMPv4MinimumErrorPayloadSize)]
	packet, payload := ipPacket(from, header.ICMPv4ProtocolNumber, header.ICMPv4MinimumSize+len(about))
	h := header.ICMPv4(payload)
	h.SetType(header.ICMPv4DstUnreachable)
	h.SetCode(code)
	copy(payload[header.ICMPv4MinimumSize:], about)
	h.SetChecksum(^checksum.Checksum(h, 0))
	return packet
}

// datagram is a UDP packet to the sandbox.
func datagram(from netip.AddrPort, port uint16, data []byte) []byte {
	packet, payload := ipPacket(from.Addr(), header.UDPProtocolNumber, header.UDPMinimumSize+len(data))
	h := header.UDP(payload)
	h.Encode(&header.UDPFields{SrcPort: from.Port(), DstPort: port, Length: uint16(len(payload))})
	copy(payload[header.UDPMinimumSize:], data)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber,
		tcpip.AddrFrom4(from.Addr().As4()), tcpip.AddrFrom4(sandboxAddr.As4()), uint16(len(payload)))
	if sum = ^checksum.Checksum(payload, sum); sum == 0 {
		sum = 0xffff // zero stands for none
	}
	h.SetChecksum(sum)
	return packet
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(a.As4()), port)
}
