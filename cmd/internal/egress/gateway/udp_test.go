//go:build linux

package gateway

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// echoUDP runs a server of UDP.
func echoUDP(tb testing.TB, at netip.Addr) netip.AddrPort {
	tb.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	tb.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestUDP(t *testing.T) {
	own := ownAddr(t)
	server := echoUDP(t, own)
	g, told := newGateway(t, Config{Operator: egress.Operator{
		Reach: []string{own.String()}, Resolvers: []netip.AddrPort{resolver(t, map[string]netip.Addr{"ok.test": own})},
	}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{server.String(), "ok.test"}}))
	named := netip.AddrPortFrom(b.lookup("ok.test"), server.Port())
	for _, to := range []netip.AddrPort{server, named} {
		c := b.udp(to)
		for _, n := range []int{1, 1400, 16000, 40000} {
			if _, err := c.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			if n > maxDatagram {
				continue // in fragments, which are lost
			}
			got := make([]byte, 1<<16)
			if m, err := c.Read(got); m != n || err != nil {
				t.Errorf("%s: %d bytes of %d, %v", to, m, n, err)
			}
		}
	}
	if err := g.Update("a", policy(t, g, egress.Rules{})); err != nil {
		t.Fatal(err)
	}
	f := told.wait(t, func(f egress.Flow) bool { return f.Addr == named && !f.End.IsZero() })
	if f.Sent != 17401 || f.Received != 17401 || f.Host != "ok.test" || f.Proto != egress.UDP {
		t.Errorf("%+v", f)
	}
}

// TestUDPRefused: what is refused is so at once, as QUIC is in an open network.
func TestUDPRefused(t *testing.T) {
	own := ownAddr(t)
	g, told := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	for name, test := range map[string]struct {
		rules egress.Rules
		to    string
	}{
		"closed":         {egress.Rules{}, "8.8.8.8:123"},
		"QUIC":           {egress.Rules{Open: true}, "8.8.8.8:443"},
		"metadata":       {egress.Rules{Open: true}, "169.254.169.254:123"},
		"nobody listens": {egress.Rules{Open: true}, netip.AddrPortFrom(own, 9).String()},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, g, name, policy(t, g, test.rules))
			c := b.udp(netip.MustParseAddrPort(test.to))
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			var err error
			for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
				// A read that waits is not woken by an error.
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				if _, err = c.Read(make([]byte, 1)); !isTimeout(err) {
					break
				}
			}
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%v", err)
			}
			told.wait(t, func(f egress.Flow) bool { return f.Sandbox == name })
		})
	}
}

// TestDNS: questions to any server are answered by ours, over UDP and TCP.
func TestDNS(t *testing.T) {
	g, _ := newGateway(t, Config{Operator: egress.Operator{
		Resolvers: []netip.AddrPort{resolver(t, map[string]netip.Addr{"ok.test": netip.MustParseAddr("8.8.8.8")})},
	}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{"ok.test"}}))
	at := b.lookup("ok.test")
	if !netip.MustParsePrefix("198.18.0.0/15").Contains(at) {
		t.Errorf("ok.test is at %s", at)
	}
	q, err := new(dns.Msg).SetQuestion("ok.test.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"8.8.4.4:53", "10.88.0.1:53"} {
		c := b.udp(netip.MustParseAddrPort(server))
		if _, err := c.Write(q); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4096)
		n, err := c.Read(answer)
		if err != nil {
			t.Fatal(err)
		}
		hasAddress(t, answer[:n], at)

		s := b.mustDial(netip.MustParseAddrPort(server))
		for range 3 {
			if _, err := s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)); err != nil {
				t.Fatal(err)
			}
			var length [2]byte
			if _, err := io.ReadFull(s, length[:]); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(s, answer); err != nil {
				t.Fatal(err)
			}
			hasAddress(t, answer, at)
		}
	}
}

func hasAddress(t *testing.T, answer []byte, want netip.Addr) {
	t.Helper()
	var m dns.Msg
	if err := m.Unpack(answer); err != nil {
		t.Fatal(err)
	}
	if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != want.String() {
		t.Errorf("%v", m)
	}
}

// TestRefusedName: what is asked for and does not exist is told, once for the questions
// that a resolver asks about one name.
func TestRefusedName(t *testing.T) {
	g, told := newGateway(t, Config{})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{}))
	c := b.udp(netip.MustParseAddrPort("10.88.0.1:53"))
	for _, name := range []string{"pypi.org.", "pypi.org.", "PyPI.org.", "other.test.", "nodots."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			q, err := new(dns.Msg).SetQuestion(name, kind).Pack()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(q); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
		}
	}
	told.wait(t, func(f egress.Flow) bool { return f.Host == "other.test" })
	told.mu.Lock()
	defer told.mu.Unlock()
	if len(told.all) != 2 {
		t.Errorf("%d flows: %+v", len(told.all), told.all)
	}
	f := told.all[0]
	if f.Sandbox != "a" || f.Host != "pypi.org" || f.Allowed || f.Entry != "@pypi" || f.Addr.String() != "10.88.0.1:53" || f.Proto != egress.UDP {
		t.Errorf("%+v", f)
	}
}
