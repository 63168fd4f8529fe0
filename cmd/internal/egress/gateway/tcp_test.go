//go:build linux

package gateway

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/web"
)

// resolver runs a DNS server that knows some names.
func resolver(tb testing.TB, names map[string]netip.Addr) netip.AddrPort {
	tb.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	started := make(chan struct{})
	s := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }}
	s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		a, ok := names[strings.TrimSuffix(strings.ToLower(q.Question[0].Name), ".")]
		if !ok {
			m.Rcode = dns.RcodeNameError
		} else if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: a.AsSlice(),
			}}
		}
		_ = w.WriteMsg(m)
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ActivateAndServe()
	}()
	<-started
	tb.Cleanup(func() { _ = s.Shutdown(); <-done })
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

// lookup asks for a name's address from inside, at any server.
func (b *box) lookup(name string) netip.Addr {
	b.tb.Helper()
	c := b.udp(netip.MustParseAddrPort("10.88.0.1:53"))
	q, err := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA).Pack()
	if err != nil {
		b.tb.Fatal(err)
	}
	if _, err := c.Write(q); err != nil {
		b.tb.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		b.tb.Fatal(err)
	}
	var m dns.Msg
	if err := m.Unpack(buf[:n]); err != nil {
		b.tb.Fatal(err)
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			at, _ := netip.AddrFromSlice(a.A.To4())
			return at
		}
	}
	b.tb.Fatalf("no address of %s: %v", name, m)
	return netip.Addr{}
}

func TestTCPRefused(t *testing.T) {
	own := ownAddr(t)
	open := serve(t, own, echo)
	closed := netip.AddrPortFrom(own, 1) // nobody listens
	g, told := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{closed.String(), "8.8.8.8"}}))
	for to, tells := range map[netip.AddrPort]string{
		open:                                  "the network is closed",
		netip.MustParseAddrPort("1.1.1.1:80"): "the network is closed",
		netip.MustParseAddrPort("169.254.169.254:80"): "credentials",
		netip.MustParseAddrPort("10.88.0.1:80"):       "",
		netip.MustParseAddrPort("198.18.7.7:80"):      "", // stands for no name
	} {
		began := time.Now()
		if _, err := b.dial(to); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", to, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: refused after %v", to, took)
		}
		f := told.wait(t, func(f egress.Flow) bool { return f.Addr == to })
		if f.Allowed || !strings.Contains(f.Reason, tells) || f.Reason == "" || f.Sandbox != "a" {
			t.Errorf("%+v", f)
		}
	}
	// What the server refuses is refused, too, but was allowed.
	if _, err := b.dial(closed); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s: %v", closed, err)
	}
	f := told.wait(t, func(f egress.Flow) bool { return f.Addr == closed && !f.End.IsZero() })
	if !f.Allowed || !strings.Contains(f.Reason, "refused") {
		t.Errorf("%+v", f)
	}
}

// TestOwnAddress: an address of this machine is not reached because rules allow it.
func TestOwnAddress(t *testing.T) {
	own := ownAddr(t)
	var r routes
	t.Cleanup(r.close)
	for addr, want := range map[netip.Addr]bool{
		own: false, loopback: false, netip.MustParseAddr("127.8.8.8"): false, netip.MustParseAddr("255.255.255.255"): false,
		netip.MustParseAddr("::1"): false, netip.MustParseAddr("224.0.0.1"): false,
	} {
		if got, err := r.toOthers(addr); got != want || err != nil {
			t.Errorf("%s: %v, %v", addr, got, err)
		}
	}
	// The machine's neighbours are others.
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr() != own || p.Bits() > 29 {
			continue
		}
		next := p.Masked().Addr().Next()
		if next == own {
			next = next.Next()
		}
		if got, err := r.toOthers(next); !got || err != nil {
			t.Errorf("%s: %v, %v", next, got, err)
		}
	}
	// Whatever rules say, the kernel's answer counts, unless the owner named the address.
	g, _ := newGateway(t, Config{})
	allowed := egress.Decision{Allowed: true}
	to := netip.AddrPortFrom(own, 80)
	if d := g.others(policy(t, g, egress.Rules{Open: true}), to, allowed); d.Allowed || !strings.Contains(d.Reason, "own address") {
		t.Errorf("%+v", d)
	}
	// Nor does it inside IPv6, where a translator would lead back.
	b := own.As4()
	for _, prefix := range []string{"64:ff9b::", "64:ff9b:1::", "::ffff:0:0:0", "2600::5efe:0:0"} {
		inside := netip.MustParseAddr(prefix).As16()
		copy(inside[12:], b[:])
		at := netip.AddrPortFrom(netip.AddrFrom16(inside), 80)
		if d := g.others(policy(t, g, egress.Rules{Open: true}), at, allowed); d.Allowed || !strings.Contains(d.Reason, "inside") {
			t.Errorf("%s: %+v", at, d)
		}
	}
	g.Configure(egress.Operator{Reach: []string{to.String()}})
	if d := g.others(policy(t, g, egress.Rules{Open: true}), to, allowed); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestEnds: how one side ends a connection is how the other sees it end.
func TestEnds(t *testing.T) {
	own := ownAddr(t)
	for name, test := range map[string]struct {
		server func(t *testing.T, c *net.TCPConn)
		client func(t *testing.T, c *gonet.TCPConn)
	}{
		"the sandbox sends nothing more": {
			func(t *testing.T, c *net.TCPConn) {
				got, err := io.ReadAll(c)
				if string(got) != "question" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				_, _ = c.Write([]byte("answer"))
			},
			func(t *testing.T, c *gonet.TCPConn) {
				_, _ = c.Write([]byte("question"))
				_ = c.CloseWrite()
				if got, err := io.ReadAll(c); string(got) != "answer" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			},
		},
		"the server sends nothing more": {
			func(t *testing.T, c *net.TCPConn) {
				_, _ = c.Write([]byte("greeting"))
				_ = c.CloseWrite()
				if got, err := io.ReadAll(c); string(got) != "thanks" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			},
			func(t *testing.T, c *gonet.TCPConn) {
				if got, err := io.ReadAll(c); string(got) != "greeting" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				_, _ = c.Write([]byte("thanks"))
				c.Close()
			},
		},
		"the server resets": {
			func(t *testing.T, c *net.TCPConn) {
				_, _ = io.ReadFull(c, make([]byte, 1))
				_ = c.SetLinger(0)
			},
			func(t *testing.T, c *gonet.TCPConn) {
				_, _ = c.Write([]byte("x"))
				if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
					t.Errorf("%v", err)
				}
			},
		},
		"the sandbox resets": {
			func(t *testing.T, c *net.TCPConn) {
				_, _ = c.Write([]byte("unread"))
				_, _ = io.ReadFull(c, make([]byte, 1))
				if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
					t.Errorf("%v", err)
				}
			},
			func(t *testing.T, c *gonet.TCPConn) {
				time.Sleep(50 * time.Millisecond) // for what is not read
				_, _ = c.Write([]byte("x"))
				time.Sleep(50 * time.Millisecond)
				c.Close()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan struct{})
			server := serve(t, own, func(c *net.TCPConn) {
				defer close(served)
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				test.server(t, c)
			})
			g, told := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
			b := newBox(t, g, "a", policy(t, g, egress.Rules{Open: true}))
			test.client(t, b.mustDial(server))
			<-served
			told.wait(t, func(f egress.Flow) bool { return !f.End.IsZero() })
		})
	}
}

// TestBigTransfer: everything arrives, in both directions at once, through small buffers
// as through big ones, and with a bound of bytes in a second.
func TestBigTransfer(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, echo)
	for name, budgets := range map[string]Budgets{
		"big buffers": {}, "small buffers": {Buffers: 1}, "bounded": {Rate: 16 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			g, told := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}, Budgets: budgets})
			b := newBox(t, g, "a", policy(t, g, egress.Rules{Open: true}))
			c := b.mustDial(server)
			data := make([]byte, 16<<20)
			_, _ = rand.Read(data)
			began := time.Now()
			go func() {
				_, _ = c.Write(data)
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(data), err)
			}
			if took := time.Since(began); budgets.Rate > 0 && took < 600*time.Millisecond {
				t.Errorf("16 MB at 16 MB/s took %v", took)
			}
			c.Close()
			f := told.wait(t, func(f egress.Flow) bool { return !f.End.IsZero() })
			if f.Sent != int64(len(data)) || f.Received != int64(len(data)) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestUpdate: what the new rules do not allow is cut, and what they do goes on.
func TestUpdate(t *testing.T) {
	own := ownAddr(t)
	one, two := serve(t, own, echo), serve(t, own, echo)
	g, told := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Open: true}))
	first, second := b.mustDial(one), b.mustDial(two)
	ask := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	for _, c := range []net.Conn{first, second} {
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Update("a", policy(t, g, egress.Rules{Allow: []string{two.String()}})); err != nil {
		t.Fatal(err)
	}
	if err := ask(first); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("what is no longer allowed: %v", err)
	}
	if err := ask(second); err != nil {
		t.Errorf("what is still allowed: %v", err)
	}
	f := told.wait(t, func(f egress.Flow) bool { return f.Addr == one && !f.End.IsZero() })
	if !strings.Contains(f.Reason, "rules changed") {
		t.Errorf("%+v", f)
	}
	if _, err := b.dial(one); err == nil {
		t.Error("a connection that the new rules refuse")
	}
	if err := g.Update("b", nil); err != ErrUnknown {
		t.Errorf("a sandbox that is not attached: %v", err)
	}
}

// certified runs a server of TLS for a name, and returns the certificate that verifies
// it.
func certified(t *testing.T, at netip.Addr, name string, handle func(*tls.Conn)) (netip.AddrPort, *web.Authority) {
	t.Helper()
	a, err := web.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, at, func(c *net.TCPConn) {
		s := tls.Server(c, a.ServerConfig(name))
		defer s.Close()
		if s.Handshake() == nil {
			handle(s)
		}
	}), a
}

// TestServerName: a connection to an address that stands for a name carries that name,
// wherever it says one.
func TestServerName(t *testing.T) {
	own := ownAddr(t)
	secure, _ := certified(t, own, "ok.test", func(c *tls.Conn) { _, _ = io.Copy(c, c) })
	greets := serve(t, own, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("SSH-2.0-test\r\n"))
		echo(c)
	})
	speaks := func(t *testing.T, c net.Conn, name string) error {
		s := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := s.Handshake(); err != nil {
			return err
		}
		if _, err := s.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(s, make([]byte, 1))
		return err
	}
	for name, https := range map[string]bool{"where TLS has to come": true, "on any port": false} {
		t.Run(name, func(t *testing.T) {
			g, told := newGateway(t, Config{Operator: egress.Operator{
				Reach: []string{own.String()}, Resolvers: []netip.AddrPort{resolver(t, map[string]netip.Addr{"ok.test": own})},
			}})
			if https {
				g.ports.https = secure.Port()
			}
			b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{"ok.test"}}))
			at := b.lookup("ok.test")
			if err := speaks(t, b.mustDial(netip.AddrPortFrom(at, secure.Port())), "ok.test"); err != nil {
				t.Errorf("its own name: %v", err)
			}
			if err := speaks(t, b.mustDial(netip.AddrPortFrom(at, secure.Port())), "OK.test"); err != nil {
				t.Errorf("its own name in capital letters: %v", err)
			}
			for _, other := range []string{"other.test", "", "ok.test.other.test"} {
				if err := speaks(t, b.mustDial(netip.AddrPortFrom(at, secure.Port())), other); err == nil {
					t.Errorf("another name, %q, is led on", other)
				}
			}
			f := told.wait(t, func(f egress.Flow) bool { return strings.Contains(f.Reason, `"other.test"`) })
			if f.Host != "ok.test" || !f.Allowed || f.End.IsZero() {
				t.Errorf("%+v", f)
			}
			if https {
				c := b.mustDial(netip.AddrPortFrom(at, secure.Port()))
				_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"))
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Error("something else than TLS is led on")
				}
			}
			// A server may speak first, and what is no TLS passes.
			c := b.mustDial(netip.AddrPortFrom(at, greets.Port()))
			hello := make([]byte, 14)
			if _, err := io.ReadFull(c, hello); err != nil || !strings.HasPrefix(string(hello), "SSH-") {
				t.Fatalf("%q, %v", hello, err)
			}
			_, _ = c.Write([]byte("SSH"))
			if got := make([]byte, 3); true {
				if _, err := io.ReadFull(c, got); err != nil || string(got) != "SSH" {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
}

// TestNoSuchHost: a name without an address is a host that cannot be reached.
func TestNoSuchHost(t *testing.T) {
	g, told := newGateway(t, Config{Operator: egress.Operator{Resolvers: []netip.AddrPort{resolver(t, nil)}}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{"gone.test"}}))
	var at netip.Addr
	func() {
		// As long as the name was there it may have had its address.
		s := g.sandbox("a")
		q, err := new(dns.Msg).SetQuestion("gone.test.", dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		answer := s.names.Answer(t.Context(), q, 512)
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		if len(m.Answer) == 0 {
			t.Skip("names without an address have no pinned one")
		}
		at, _ = netip.AddrFromSlice(m.Answer[0].(*dns.A).A.To4())
	}()
	if _, err := b.dial(netip.AddrPortFrom(at, 80)); err == nil || !strings.Contains(err.Error(), "no route to host") {
		t.Errorf("%v", err)
	}
	f := told.wait(t, func(f egress.Flow) bool { return !f.End.IsZero() })
	if !strings.Contains(f.Reason, "no such host") {
		t.Errorf("%+v", f)
	}
}

// TestHost: the name of this machine leads to the ports that its owner named.
func TestHost(t *testing.T) {
	server := serve(t, loopback, echo)
	other := serve(t, loopback, echo)
	g, _ := newGateway(t, Config{Operator: egress.Operator{HostPorts: []int{int(server.Port())}}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Open: true}))
	at := b.lookup(egress.HostName)
	c := b.mustDial(netip.AddrPortFrom(at, server.Port()))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.dial(netip.AddrPortFrom(at, other.Port())); err == nil {
		t.Error("a port that the owner has not named")
	}
}

// TestBudgets: beyond them nothing is answered, and another sandbox is not concerned.
func TestBudgets(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, echo)
	g, _ := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}, Budgets: Budgets{Flows: 3, NewFlows: 2}})
	p := policy(t, g, egress.Rules{Open: true})
	b, other := newBox(t, g, "a", p), newBox(t, g, "b", p)
	for range 3 {
		b.mustDial(server)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if c, err := b.dial(server); err == nil {
			c.Close()
			t.Error("a fourth connection of three")
		}
	})
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := g.Stats("a")
		if err != nil {
			t.Fatal(err)
		}
		if s.Limited > 0 && s.Flows == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", s)
		}
	}
	other.mustDial(server)
	b.end() // the fourth gives up
	done.Wait()
}

// TestCutWhileBusy: connections that wait for their servers can be cut in the moment
// when these read on.
func TestCutWhileBusy(t *testing.T) {
	own := ownAddr(t)
	g, _ := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	for range 3 {
		read := make(chan struct{})
		server := serve(t, own, func(c *net.TCPConn) {
			<-read
			_, _ = io.Copy(io.Discard, c)
		})
		b := newBox(t, g, "a", policy(t, g, egress.Rules{Open: true}))
		var sending sync.WaitGroup
		for range 30 {
			c := b.mustDial(server)
			sending.Go(func() { _, _ = c.Write(make([]byte, 32<<20)) })
		}
		time.Sleep(300 * time.Millisecond) // for all buffers to be full
		done := make(chan struct{})
		go func() {
			defer close(done)
			close(read)
			if err := g.Update("a", policy(t, g, egress.Rules{})); err != nil {
				t.Error(err)
			}
			g.Detach("a")
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("they cannot be cut")
		}
		b.end()
		sending.Wait()
	}
}
