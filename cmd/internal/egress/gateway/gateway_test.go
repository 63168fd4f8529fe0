//go:build linux

package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

func TestMain(m *testing.M) {
	if os.Getenv(busyEnv) != "" {
		busy()
		return
	}
	goleak.VerifyTestMain(m)
}

// cardPair returns both ends of a network card.
func cardPair(tb testing.TB) (gateway, sandbox *os.File) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for _, fd := range fds {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
		}
	}
	return os.NewFile(uintptr(fds[0]), "gateway"), os.NewFile(uintptr(fds[1]), "sandbox")
}

// box is a sandbox's kernel: a stack at the other end of a card.
type box struct {
	tb    testing.TB
	stack *stack.Stack
	card  *card
	link  *link
	end   func()
}

// newBox attaches a sandbox with a stack of its own.
func newBox(tb testing.TB, g *Gateway, id string, p *egress.Policy) *box {
	tb.Helper()
	ours, theirs := cardPair(tb)
	if err := g.Attach(id, ours, p); err != nil {
		tb.Fatal(err)
	}
	return stackOn(tb, theirs)
}

func stackOn(tb testing.TB, end *os.File) *box {
	tb.Helper()
	c, err := newCard(end)
	if err != nil {
		tb.Fatal(err)
	}
	b := &box{tb: tb, card: c, link: &link{card: c}}
	b.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	sack, delay := tcpip.TCPSACKEnabled(true), tcpip.TCPDelayEnabled(false)
	b.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	b.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &delay)
	if err := b.stack.CreateNIC(1, b.link); err != nil {
		tb.Fatal(err)
	}
	addr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{
		Address: tcpip.AddrFrom4(sandboxAddr.As4()), PrefixLen: cardNet.Bits(),
	}}
	if err := b.stack.AddProtocolAddress(1, addr, stack.AddressProperties{}); err != nil {
		tb.Fatal(err)
	}
	b.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			n, err := c.read()
			if err != nil {
				return
			}
			for i := range n {
				p := c.take(i)
				b.link.deliver(p)
				p.DecRef()
			}
		}
	}()
	b.end = sync.OnceFunc(func() {
		c.close()
		<-done
		b.stack.Destroy()
	})
	tb.Cleanup(b.end)
	return b
}

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4(a.Addr().As4()), Port: a.Port()}
}

// dial connects from inside.
func (b *box) dial(to netip.AddrPort) (*gonet.TCPConn, error) {
	return b.dialWithin(to, 10*time.Second)
}

func (b *box) dialWithin(to netip.AddrPort, d time.Duration) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c, err := gonet.DialContextTCP(ctx, b.stack, full(to), ipv4.ProtocolNumber)
	if err == nil {
		b.tb.Cleanup(func() { c.Close() })
	}
	return c, err
}

func (b *box) mustDial(to netip.AddrPort) *gonet.TCPConn {
	b.tb.Helper()
	c, err := b.dial(to)
	if err != nil {
		b.tb.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func (b *box) udp(to netip.AddrPort) *gonet.UDPConn {
	b.tb.Helper()
	remote := full(to)
	c, err := gonet.DialUDP(b.stack, nil, &remote, ipv4.ProtocolNumber)
	if err != nil {
		b.tb.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	b.tb.Cleanup(func() { c.Close() })
	return c
}

// flows keeps what a gateway tells.
type flows struct {
	mu  sync.Mutex
	all []egress.Flow
}

func (f *flows) add(one egress.Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
}

// wait returns the first flow that match is true for.
func (f *flows) wait(tb testing.TB, match func(egress.Flow) bool) egress.Flow {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		for _, one := range f.all {
			if match(one) {
				f.mu.Unlock()
				return one
			}
		}
		all := fmt.Sprintf("%+v", f.all)
		f.mu.Unlock()
		if time.Now().After(deadline) {
			tb.Fatalf("no such flow among %s", all)
		}
	}
}

func newGateway(tb testing.TB, cfg Config) (*Gateway, *flows) {
	tb.Helper()
	var f flows
	cfg.OnFlow = f.add
	g, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return g, &f
}

func policy(tb testing.TB, g *Gateway, r egress.Rules) *egress.Policy {
	tb.Helper()
	p, err := egress.Compile(r, *g.operator.Load())
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// ownAddr is an address of this machine at which servers can be, and that packets of a
// sandbox can have: none of loopback.
func ownAddr(tb testing.TB) netip.Addr {
	tb.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		tb.Fatal(err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			return p.Addr()
		}
	}
	tb.Skip("this machine has no address but its loopback's")
	return netip.Addr{}
}

// serve runs a server of TCP at an address of this machine.
func serve(tb testing.TB, at netip.Addr, handle func(*net.TCPConn)) netip.AddrPort {
	tb.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err != nil {
		tb.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			running.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

func TestTCP(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, echo)
	g, told := newGateway(t, Config{Operator: egress.Operator{Reach: []string{server.String()}}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{server.String()}}))
	c := b.mustDial(server)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if string(got) != "hello" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	c.Close()
	end := told.wait(t, func(f egress.Flow) bool { return !f.End.IsZero() })
	if end.Sent != 5 || end.Received != 5 || !end.Allowed || end.Addr != server || end.Rule != server.String() || end.Reason != "" {
		t.Errorf("%+v", end)
	}
}
