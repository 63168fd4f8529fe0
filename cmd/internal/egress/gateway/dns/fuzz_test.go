package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// seeds are messages of the forms that programs send, and of some that they do not.
func seeds(f *testing.F, add func(b []byte)) {
	for _, name := range []string{"example.com.", "api.example.com.", ".", "localhost.", "1.0.18.198.in-addr.arpa.", "1.1.1.1.in-addr.arpa.",
		egress.HostName + ".", `a\000b.example.com.`, `a\.b.example.com.`} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypePTR, dns.TypeANY} {
			m := new(dns.Msg).SetQuestion(name, qtype)
			add(packed(f, m))
			m.SetEdns0(4096, true)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}}
			add(packed(f, m))
		}
	}
	m := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
	m.SetTsig("key.", dns.HmacSHA256, 300, 0)
	add(packed(f, m))
}

// checkReply is what holds for each reply to each packet.
func checkReply(t *testing.T, message, reply []byte, limit int) {
	if reply == nil {
		return
	}
	if len(message) < headerSize || message[2]&0x80 != 0 {
		t.Fatalf("a reply to what is no question: %x", reply)
	}
	if len(reply) > limit {
		t.Fatalf("the reply has %d bytes and may have %d", len(reply), limit)
	}
	m := new(dns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("the reply %x is malformed: %v", reply, err)
	}
	if m.Id != binary.BigEndian.Uint16(message) || !m.Response {
		t.Fatalf("the reply's header is %v", m.MsgHdr)
	}
	asked, end, err := readAsked(message)
	if err != nil || len(m.Question) == 0 {
		if len(m.Question) > 0 || len(m.Answer) > 0 || m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError {
			t.Fatalf("the reply to a question that cannot be read is %v", m)
		}
		return
	}
	if len(m.Question) != 1 || m.Question[0] != asked || !bytes.HasPrefix(reply[headerSize:], message[headerSize:end]) {
		t.Fatalf("the reply's question is %v", m.Question)
	}
	at := asked.Name
	for _, rr := range m.Answer {
		if rr.Header().Name != at && rr.Header().Rrtype != asked.Qtype {
			t.Fatalf("the reply to %v has the record %v", asked, rr)
		}
		if c, ok := rr.(*dns.CNAME); ok {
			at = c.Target
		}
	}
}

// Whatever a sandbox sends, a closed network asks nobody, and each reply is one.
func FuzzAnswer(f *testing.F) {
	closed := compile(f, egress.Rules{}, egress.Operator{HostPorts: []int{80}})
	some := compile(f, egress.Rules{Allow: []string{"api.example.com"}}, egress.Operator{})
	seeds(f, func(b []byte) {
		f.Add(b, packetSize)
		f.Add(b, MaxMessage)
		f.Add(b, 30)
	})
	f.Fuzz(func(t *testing.T, message []byte, limit int) {
		checkReply(t, message, nobody(t).View(func() *egress.Policy { return closed }).Answer(t.Context(), message, limit), limit)

		// With a rule for one host nobody is asked about another, and nothing but its name goes out.
		r := New(Config{
			Upstream: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")} },
			Dial: func(context.Context, string, netip.AddrPort) (net.Conn, error) {
				asked, _, err := readAsked(message)
				if name, bad := egress.WireName(asked.Name); err != nil || bad != nil || name != "api.example.com" {
					t.Errorf("a resolver was asked because of %q", asked.Name)
				}
				return nil, net.ErrClosed
			},
		})
		checkReply(t, message, r.View(func() *egress.Policy { return some }).Answer(t.Context(), message, limit), limit)
	})
}

// Whatever a resolver says, each reply is one, and has no address that may not be reached
// and no key that hides a name.
func FuzzUpstream(f *testing.F) {
	opened := compile(f, open, egress.Operator{})
	pinnedToo := compile(f, egress.Rules{Allow: []string{"*.example.com"}}, egress.Operator{})
	for _, line := range []string{"a.example.com. 60 A 10.0.0.1", "a.example.com. 60 CNAME b.example.com.", "a.example.com. 60 TXT x",
		`a.example.com. 60 HTTPS 1 . mandatory="alpn" alpn="h2" ech="aGVsbG8=" ipv4hint="10.0.0.1" ipv6hint="::1"`,
		"a.example.com. 60 SRV 1 2 3 b.example.com.", "a.example.com. 60 AAAA ::1"} {
		rr, err := dns.NewRR(line)
		if err != nil {
			f.Fatal(err)
		}
		m := new(dns.Msg).SetQuestion("a.example.com.", rr.Header().Rrtype)
		m.Response, m.Answer = true, []dns.RR{rr, rr}
		f.Add(packed(f, m)[headerSize:], uint16(2), rr.Header().Rrtype)
		m.Compress = true
		f.Add(packed(f, m)[headerSize:], uint16(2), rr.Header().Rrtype)
	}
	f.Fuzz(func(t *testing.T, body []byte, answers, qtype uint16) {
		for _, policy := range []*egress.Policy{opened, pinnedToo} {
			r := New(Config{
				Upstream: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")} },
				Dial: func(context.Context, string, netip.AddrPort) (net.Conn, error) {
					client, server := net.Pipe()
					go func() {
						defer server.Close()
						b := make([]byte, 512)
						if _, err := server.Read(b); err != nil {
							return
						}
						header := binary.BigEndian.AppendUint16(b[:2:2], bitResponse)
						header = append(header, 0, 1)
						header = binary.BigEndian.AppendUint16(header, answers)
						server.Write(append(append(header, 0, 0, 0, 0), body...))
					}()
					return client, nil
				},
			})
			v := r.View(func() *egress.Policy { return policy })
			q := new(dns.Msg).SetQuestion("a.example.com.", qtype)
			q.SetEdns0(4096, false)
			message := packed(t, q)
			reply := v.Answer(t.Context(), message, packetSize)
			if reply == nil {
				t.Fatal("there is no reply")
			}
			checkReply(t, message, reply, packetSize)
			m := new(dns.Msg)
			if err := m.Unpack(reply); err != nil {
				t.Fatal(err)
			}
			for _, rr := range m.Answer {
				var s *dns.SVCB
				switch rr := rr.(type) {
				case *dns.A:
					if a, ok := address(rr); !ok || policy == opened && !policy.Answers(a) || policy != opened && !pinned.Contains(a) {
						t.Errorf("the address %v was passed", a)
					}
				case *dns.AAAA:
					t.Errorf("the address %v was passed", rr.AAAA)
				case *dns.HTTPS:
					s = &rr.SVCB
				case *dns.SVCB:
					s = rr
				}
				if s == nil {
					continue
				}
				for _, kv := range s.Value {
					if kv.Key() == dns.SVCB_ECHCONFIG || kv.Key() == dns.SVCB_IPV6HINT || kv.Key() == dns.SVCB_IPV4HINT && policy != opened {
						t.Errorf("the parameter %v was passed", kv)
					}
				}
			}
		}
	})
}
