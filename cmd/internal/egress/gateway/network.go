//go:build linux

package gateway

import (
	"errors"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

const (
	nic     = 1
	dnsPort = 53
)

// A sandbox is a millisecond away, so little has to be under way to keep the card
// busy, and what was closed cannot come back late.
const (
	bigBuffer   = 1 << 20  // bytes of a connection's buffer in each direction
	smallBuffer = 64 << 10 // its least: two packets in each direction of the buffer's window
	timeWait    = 500 * time.Millisecond
	finWait     = 10 * time.Second // for the sandbox's side to close, too
)

// network is the stack that a sandbox's packets go to: it is every other host of the
// sandbox's network. Only the goroutine that reads the card delivers packets.
type network struct {
	sandbox   *sandbox
	link      *link
	stack     *stack.Stack
	forwarder *tcp.Forwarder

	mu   sync.Mutex
	syns map[stack.TransportEndpointID][]byte // of connections that are being made, the first packet's header
}

func newNetwork(s *sandbox) (*network, error) {
	n := &network{sandbox: s, link: &link{card: s.card}, syns: map[stack.TransportEndpointID][]byte{}}
	n.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := n.set(); err != nil {
		n.stack.Destroy()
		return nil, errors.New(err.String())
	}
	n.forwarder = tcp.NewForwarder(n.stack, smallBuffer, 1<<20, n.connect) // how many is for begin to say
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, n.tcpPacket)
	n.stack.SetTransportProtocolHandler(udp.ProtocolNumber, n.udpPacket)
	return n, nil
}

func (n *network) set() tcpip.Error {
	sack, delay, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPDelayEnabled(false), tcpip.TCPModerateReceiveBufferOption(true)
	wait, linger := tcpip.TCPTimeWaitTimeoutOption(timeWait), tcpip.TCPLingerTimeoutOption(finWait)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &delay, &moderate, &wait, &linger,
		&tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: smallBuffer, Max: bigBuffer},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: smallBuffer, Max: bigBuffer},
	} {
		if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return err
		}
	}
	if err := n.stack.CreateNIC(nic, n.link); err != nil {
		return err
	}
	own := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(gatewayAddr.As4()), PrefixLen: cardNet.Bits()},
	}
	if err := n.stack.AddProtocolAddress(nic, own, stack.AddressProperties{}); err != nil {
		return err
	}
	// It takes what is sent to any address, and answers from there.
	if err := n.stack.SetPromiscuousMode(nic, true); err != nil {
		return err
	}
	if err := n.stack.SetSpoofing(nic, true); err != nil {
		return err
	}
	n.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return nil
}

func (n *network) close() {
	n.stack.Destroy()
}

// tcpPacket is called with packets of no connection. What it does not handle is
// answered with a reset.
func (n *network) tcpPacket(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
	h := header.TCP(p.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize || h.Flags()&(header.TCPFlagSyn|header.TCPFlagAck|header.TCPFlagRst) != header.TCPFlagSyn {
		return false
	}
	t := n.sandbox.target(addrPort(id.LocalAddress, id.LocalPort), egress.TCP)
	if t.addr.Port() != dnsPort {
		if d := t.decide(n.sandbox.policy.Load()); !d.Allowed {
			n.sandbox.refuse(t, d)
			return false
		}
	}
	n.mu.Lock()
	if _, again := n.syns[id]; again {
		n.mu.Unlock()
		return true
	}
	if len(n.syns) >= n.sandbox.gateway.budgets.Flows {
		n.mu.Unlock()
		n.sandbox.limited.Add(1)
		return true
	}
	n.syns[id] = firstHeader(p)
	n.mu.Unlock()
	if !n.forwarder.HandlePacket(id, p) {
		n.takeSYN(id)
		return false
	}
	return true
}

func (n *network) syn(id stack.TransportEndpointID) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.syns[id]
}

func (n *network) takeSYN(id stack.TransportEndpointID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.syns, id)
}

// firstHeader is what an ICMP message about a packet quotes of it.
func firstHeader(p *stack.PacketBuffer) []byte {
	h := append([]byte{}, p.NetworkHeader().Slice()...)
	return append(h, p.TransportHeader().Slice()[:header.ICMPv4MinimumErrorPayloadSize]...)
}

// report sends an ICMP message about a packet.
func (s *sandbox) report(code header.ICMPv4Code, about []byte) {
	_ = s.card.write([][]byte{unreachable(code, about)})
}
