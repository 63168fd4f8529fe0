package dns

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// upstream is a DNS server on loopback, over UDP and TCP, that says what a test wants.
type upstream struct {
	addr  netip.AddrPort
	asked atomic.Int64
}

func serve(t testing.TB, handler func(w dns.ResponseWriter, r *dns.Msg)) *upstream {
	t.Helper()
	packets, streams := listen(t)
	u := &upstream{addr: netip.MustParseAddrPort(packets.LocalAddr().String())}
	counted := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		u.asked.Add(1)
		handler(w, r)
	})
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: counted}, {Listener: streams, Handler: counted}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	return u
}

// listen returns sockets of a port that is free for packets and streams.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	var failed error
	for range 20 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		streams, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			t.Cleanup(func() { packets.Close(); streams.Close() })
			return packets, streams
		}
		packets.Close()
		failed = err
	}
	t.Fatal(failed)
	return nil, nil
}

// zone answers with the records of the name and type asked for and with the aliases of the
// name, as a resolver does.
func zone(t testing.TB, lines ...string) func(w dns.ResponseWriter, r *dns.Msg) {
	t.Helper()
	var records []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		records = append(records, rr)
	}
	return func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		at, known := r.Question[0].Name, false
		for range 20 {
			alias := ""
			for _, rr := range records {
				if rr.Header().Name != at {
					continue
				}
				known = true
				if c, ok := rr.(*dns.CNAME); ok {
					alias = c.Target
				} else if rr.Header().Rrtype != r.Question[0].Qtype {
					continue
				}
				m.Answer = append(m.Answer, rr)
			}
			if at = alias; alias == "" {
				break
			}
		}
		if !known {
			m.Rcode = dns.RcodeNameError
		}
		if w.RemoteAddr().Network() == "udp" {
			m.Truncate(packetSize)
		}
		w.WriteMsg(m)
	}
}

func compile(t testing.TB, rules egress.Rules, op egress.Operator) *egress.Policy {
	t.Helper()
	p, err := egress.Compile(rules, op)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func resolver(servers ...netip.AddrPort) *Resolver {
	var d net.Dialer
	return New(Config{
		Upstream: func() []netip.AddrPort { return servers },
		Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, network, to.String())
		},
	})
}

func view(t testing.TB, rules egress.Rules, servers ...netip.AddrPort) *View {
	t.Helper()
	p := compile(t, rules, egress.Operator{Reach: []string{"10.9.0.0/16:443"}, HostPorts: []int{8080}})
	return resolver(servers...).View(func() *egress.Policy { return p })
}

var open = egress.Rules{Open: true}

// ask asks in a packet, as a program inside does that takes packets of 1232 bytes.
func ask(t testing.TB, v *View, name string, qtype uint16) *dns.Msg {
	t.Helper()
	q := new(dns.Msg).SetQuestion(name, qtype)
	q.SetEdns0(packetSize, false)
	m := send(t, v, q, packetSize)
	if m == nil {
		t.Fatalf("%s: no answer", name)
	}
	return m
}

func send(t testing.TB, v *View, q *dns.Msg, limit int) *dns.Msg {
	t.Helper()
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	reply := v.Answer(t.Context(), b, limit)
	if reply == nil {
		return nil
	}
	if len(reply) > limit {
		t.Errorf("the reply has %d bytes and may have %d", len(reply), limit)
	}
	m := new(dns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("the reply to %v is malformed: %v", q.Question, err)
	}
	return m
}

// said is what an answer says, for comparing.
func said(m *dns.Msg) []string {
	out := []string{dns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		out = append(out, rr.String())
	}
	return out
}
