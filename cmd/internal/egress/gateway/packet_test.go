//go:build linux

package gateway

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// packet is one as a sandbox sends it, with a body of a protocol.
func packet(from, to string, proto uint8, body []byte) []byte {
	p := make([]byte, ipHeader+len(body))
	h := header.IPv4(p)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(len(p)), TTL: 64, Protocol: proto})
	src, dst := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	copy(p[ipHeader:], body)
	h.SetChecksum(^h.CalculateChecksum())
	return p
}

// udpBody is a datagram's header and n bytes.
func udpBody(n int) []byte {
	b := make([]byte, 8+n)
	header.UDP(b).Encode(&header.UDPFields{SrcPort: 4000, DstPort: 4001, Length: uint16(len(b))})
	return b
}

func echoRequest() []byte {
	b := make([]byte, 16)
	h := header.ICMPv4(b)
	h.SetType(header.ICMPv4Echo)
	h.SetChecksum(^checksum.Checksum(b, 0))
	return b
}

func with(p []byte, change func([]byte)) []byte {
	change(p)
	return p
}

func TestInspect(t *testing.T) {
	const own, server = "10.88.0.2", "192.0.2.1"
	tcp := make([]byte, header.TCPMinimumSize)
	for name, test := range map[string]struct {
		packet []byte
		want   verdict
	}{
		"UDP":                            {packet(own, server, 17, udpBody(4)), pass},
		"UDP to the gateway":             {packet(own, "10.88.0.1", 17, udpBody(4)), pass},
		"TCP":                            {packet(own, server, 6, tcp), pass},
		"as long as can be":              {packet(own, server, 17, udpBody(engine.NetMTU-28)), pass},
		"an echo request to the gateway": {packet(own, "10.88.0.1", 1, echoRequest()), pass},
		"do not fragment": {with(packet(own, server, 6, tcp), func(p []byte) {
			p[6] = 0x40
		}), pass},

		"an echo request elsewhere": {packet(own, server, 1, echoRequest()), unsupported},
		"SCTP":                      {packet(own, server, 132, udpBody(4)), unsupported},
		"IPv4 in IPv4":              {packet(own, server, 4, packet(own, server, 17, udpBody(4))), unsupported},
		"IPv6 in IPv4":              {packet(own, server, 41, make([]byte, 40)), unsupported},

		"nothing":           {nil, malformed},
		"a byte":            {[]byte{0x45}, malformed},
		"half a header":     {packet(own, server, 17, udpBody(4))[:19], malformed},
		"IPv6":              {append([]byte{0x60}, make([]byte, 60)...), malformed},
		"no version":        {make([]byte, 60), malformed},
		"another's address": {packet("10.88.0.3", server, 17, udpBody(4)), malformed},
		"the gateway's":     {packet("10.88.0.1", server, 17, udpBody(4)), malformed},
		"loopback's":        {packet("127.0.0.1", server, 17, udpBody(4)), malformed},
		"to loopback":       {packet(own, "127.0.0.1", 17, udpBody(4)), malformed},
		"to itself":         {packet(own, own, 17, udpBody(4)), malformed},
		"to a neighbour":    {packet(own, "10.88.0.77", 17, udpBody(4)), malformed},
		"to its network":    {packet(own, "10.88.0.255", 17, udpBody(4)), malformed},
		"to all":            {packet(own, "255.255.255.255", 17, udpBody(4)), malformed},
		"to nobody":         {packet(own, "0.0.0.0", 17, udpBody(4)), malformed},
		"to many":           {packet(own, "224.0.0.251", 17, udpBody(4)), malformed},
		"reserved":          {packet(own, "240.0.0.1", 17, udpBody(4)), malformed},
		"half a datagram":   {packet(own, server, 17, udpBody(4)[:7]), malformed},
		"half a segment":    {packet(own, server, 6, tcp[:19]), malformed},
		"half an echo":      {packet(own, "10.88.0.1", 1, echoRequest()[:7]), malformed},
		"an echo reply": {with(packet(own, "10.88.0.1", 1, echoRequest()), func(p []byte) {
			p[20] = 0
		}), malformed},
		"an error about a flow": {with(packet(own, "10.88.0.1", 1, echoRequest()), func(p []byte) {
			p[20] = 3
		}), malformed},
		"a datagram longer than its packet": {with(packet(own, server, 17, udpBody(4)), func(p []byte) {
			p[25]++
		}), malformed},
		"a datagram shorter than its packet": {with(packet(own, server, 17, udpBody(4)), func(p []byte) {
			p[25]--
		}), malformed},
		"longer than it says":  {append(packet(own, server, 17, udpBody(4)), 0), malformed},
		"shorter than it says": {packet(own, server, 17, udpBody(4))[:31], malformed},
		"longer than can be":   {packet(own, server, 17, udpBody(engine.NetMTU-27)), malformed},
		"options": {with(packet(own, server, 17, udpBody(20)), func(p []byte) {
			p[0] = 0x46
		}), malformed},
		"a header too short": {with(packet(own, server, 17, udpBody(20)), func(p []byte) {
			p[0] = 0x44
		}), malformed},
		"a first fragment": {with(packet(own, server, 17, udpBody(4)), func(p []byte) {
			p[6] = 0x20
		}), malformed},
		"a last fragment": {with(packet(own, server, 17, udpBody(4)), func(p []byte) {
			p[7] = 1
		}), malformed},
		"the evil bit": {with(packet(own, server, 17, udpBody(4)), func(p []byte) {
			p[6] = 0x80
		}), malformed},
	} {
		if got := inspect(test.packet); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(packet("10.88.0.2", "192.0.2.1", 17, udpBody(4)))
	f.Add(packet("10.88.0.2", "10.88.0.1", 1, echoRequest()))
	f.Fuzz(func(t *testing.T, p []byte) {
		if inspect(p) != pass {
			return
		}
		h := header.IPv4(p)
		if !h.IsValid(len(p)) || h.SourceAddress().As4() != sandboxAddr.As4() || h.HeaderLength() != 20 || h.More() || h.FragmentOffset() != 0 {
			t.Errorf("%x passes", p)
		}
	})
}

// TestAnswers: what the gateway makes itself is whole.
func TestAnswers(t *testing.T) {
	about := packet("10.88.0.2", "192.0.2.1", 17, udpBody(400))
	for code, from := range map[header.ICMPv4Code]string{
		header.ICMPv4PortUnreachable: "192.0.2.1", header.ICMPv4AdminProhibited: "10.88.0.1", header.ICMPv4HostUnreachable: "10.88.0.1",
	} {
		p := unreachable(code, about)
		h := header.IPv4(p)
		m := header.ICMPv4(h.Payload())
		if !h.IsValid(len(p)) || !h.IsChecksumValid() || h.SourceAddress().String() != from || h.DestinationAddress().String() != "10.88.0.2" ||
			m.Type() != header.ICMPv4DstUnreachable || m.Code() != code || checksum.Checksum(m, 0) != 0xffff || len(m) != 8+28 {
			t.Errorf("%d: %x", code, p)
		}
	}
	for _, n := range []int{0, 1, 500} {
		p := datagram(netip.MustParseAddrPort("192.0.2.1:53"), 4000, make([]byte, n))
		h := header.IPv4(p)
		u := header.UDP(h.Payload())
		sum := header.PseudoHeaderChecksum(17, h.SourceAddress(), h.DestinationAddress(), uint16(len(u)))
		if !h.IsValid(len(p)) || !h.IsChecksumValid() || u.SourcePort() != 53 || u.DestinationPort() != 4000 || int(u.Length()) != 8+n ||
			checksum.Checksum(u, sum) != 0xffff {
			t.Errorf("%d bytes: %x", n, p)
		}
	}
}

// TestHostileCard: whoever holds the other end sends anything. It is dropped and
// counted, and the sandbox is served on.
func TestHostileCard(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, echo)
	g, _ := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	ours, theirs := cardPair(t)
	if err := g.Attach("a", ours, policy(t, g, egress.Rules{Open: true})); err != nil {
		t.Fatal(err)
	}
	send := func(p []byte) {
		t.Helper()
		if _, err := theirs.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	// Messages of no bytes are no end.
	if err := sendEmpty(theirs); err != nil {
		t.Fatal(err)
	}
	send(make([]byte, engine.NetMTU+1))
	send(make([]byte, 60000))
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	drain := make(chan struct{})
	go func() {
		defer close(drain)
		_, _ = io.Copy(io.Discard, onlyReader{theirs})
	}()
	for range 20000 {
		var p []byte
		switch r.IntN(3) {
		case 0: // noise
			p = make([]byte, 1+r.IntN(200))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
		default: // a packet that passes but for noise in its body, or in a byte of its header
			body := make([]byte, 20+r.IntN(60))
			for i := range body {
				body[i] = byte(r.Uint32())
			}
			proto := []uint8{6, 17, 1}[r.IntN(3)]
			if proto == 17 {
				binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
			}
			if proto == 6 {
				body[12] = byte(5+r.IntN(11)) << 4
			}
			p = packet("10.88.0.2", []string{"192.0.2.1", "10.88.0.1", own.String()}[r.IntN(3)], proto, body)
			if r.IntN(4) == 0 {
				p[r.IntN(len(p))] ^= 1 << r.IntN(8)
			}
		}
		send(p)
	}
	// What it sent has gone through when its last packet has been answered: so the box
	// takes over the card.
	_ = theirs.SetReadDeadline(time.Unix(1, 0))
	<-drain
	_ = theirs.SetReadDeadline(time.Time{})
	b := stackOn(t, theirs)
	c := b.mustDial(server)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s, err := g.Stats("a")
	if err != nil || s.Malformed < 5000 || s.Unsupported == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

type onlyReader struct{ io.Reader }

func sendEmpty(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Write(func(fd uintptr) bool {
		failed = sendNothing(int(fd))
		return true
	}); err != nil {
		return err
	}
	return failed
}
