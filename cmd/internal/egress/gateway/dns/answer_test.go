package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

func nobody(t testing.TB) *Resolver {
	return New(Config{
		Upstream: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")} },
		Dial: func(context.Context, string, netip.AddrPort) (net.Conn, error) {
			t.Error("a resolver was asked")
			return nil, net.ErrClosed
		},
	})
}

// What a sandbox asks stays here unless its policy lets it out: the names themselves
// would carry data.
func TestAnswersWithoutAsking(t *testing.T) {
	op := egress.Operator{HostPorts: []int{8080}}
	closed := compile(t, egress.Rules{Allow: []string{"api.example.com", "*.cdn.example.net", egress.HostName + ":8080"}}, op)
	opened := compile(t, egress.Rules{Open: true, Deny: []string{"denied.example"}}, op)
	unnamed := compile(t, egress.Rules{Open: true}, egress.Operator{})
	pin := func(name string) string {
		var p pins
		a, _ := p.addrOf(name)
		return fmt.Sprintf("%s.\t30\tIN\tA\t%s", name, a)
	}
	none, missing, refused := []string{"NOERROR"}, []string{"NXDOMAIN"}, []string{"REFUSED"}
	for _, tt := range []struct {
		policy *egress.Policy
		name   string
		qtype  uint16
		want   []string
	}{
		{closed, "api.example.com.", dns.TypeA, []string{"NOERROR", pin("api.example.com")}},
		{closed, "x.cdn.example.net.", dns.TypeA, []string{"NOERROR", pin("x.cdn.example.net")}},
		{closed, "api.example.com.", dns.TypeAAAA, none},
		{closed, "api.example.com.", dns.TypeCNAME, none},
		{closed, "example.com.", dns.TypeA, missing},
		{closed, "secret.data.attacker.example.", dns.TypeA, missing},
		{closed, "secret.data.attacker.example.", dns.TypeAAAA, missing},
		{closed, "secret.data.attacker.example.", dns.TypeTXT, missing},
		{closed, "secret.data.attacker.example.", dns.TypeHTTPS, missing},
		{closed, "api.example.com.evil.example.", dns.TypeA, missing},
		{closed, "evilapi.example.com.", dns.TypeA, missing},
		{closed, `api.example.com\000.`, dns.TypeA, missing},
		{closed, `x\.cdn.example.net.`, dns.TypeA, missing},
		{closed, `x\000.cdn.example.net.`, dns.TypeA, missing},
		{closed, "4.4.8.8.in-addr.arpa.", dns.TypePTR, missing},
		{closed, "1.0.18.198.in-addr.arpa.", dns.TypePTR, missing},
		{closed, egress.HostName + ".", dns.TypeA, []string{"NOERROR", pin(egress.HostName)}},
		{opened, egress.HostName + ".", dns.TypeA, []string{"NOERROR", pin(egress.HostName)}},
		{opened, egress.HostName + ".", dns.TypeTXT, none},
		{unnamed, egress.HostName + ".", dns.TypeA, missing},
		{opened, "denied.example.", dns.TypeA, missing},
		{opened, "printer.", dns.TypeA, missing},
		{opened, "com.", dns.TypeNS, missing},
		{opened, ".", dns.TypeNS, refused},
		{opened, "printer.local.", dns.TypeA, missing},
		{opened, "abcdef.onion.", dns.TypeA, missing},
		{opened, "no.invalid.", dns.TypeA, missing},
		{opened, "localhost.", dns.TypeA, []string{"NOERROR", "localhost.\t60\tIN\tA\t127.0.0.1"}},
		{opened, "x.LocalHost.", dns.TypeAAAA, []string{"NOERROR", "x.LocalHost.\t60\tIN\tAAAA\t::1"}},
		{closed, "localhost.", dns.TypeMX, none},
		{closed, "1.0.0.127.in-addr.arpa.", dns.TypePTR, []string{"NOERROR", "1.0.0.127.in-addr.arpa.\t30\tIN\tPTR\tlocalhost."}},
		{opened, "1.0.0.10.in-addr.arpa.", dns.TypePTR, missing},
		{opened, "254.169.254.169.in-addr.arpa.", dns.TypePTR, missing},
		{opened, "01.1.1.1.in-addr.arpa.", dns.TypePTR, missing},
		{opened, "1.1.1.in-addr.arpa.", dns.TypePTR, missing},
		{opened, "1.1.1.1.in-addr.arpa.", dns.TypeTXT, missing},
		{opened, strings.Repeat("0.", 32) + "ip6.arpa.", dns.TypePTR, missing},
		{opened, "example.com.", dns.TypeANY, refused},
		{opened, "example.com.", dns.TypeAXFR, refused},
		{opened, "example.com.", dns.TypeIXFR, refused},
		{opened, "example.com.", dns.TypeDNSKEY, []string{"NOTIMP"}},
		{opened, "example.com.", dns.TypeNULL, []string{"NOTIMP"}},
		{nil, "example.com.", dns.TypeA, missing},
	} {
		t.Run(fmt.Sprintf("%s %s", tt.name, dns.TypeToString[tt.qtype]), func(t *testing.T) {
			v := nobody(t).View(func() *egress.Policy { return tt.policy })
			m := ask(t, v, tt.name, tt.qtype)
			if got := said(m); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if !m.Response || m.Authoritative || !m.RecursionAvailable || !m.RecursionDesired || len(m.Ns) > 0 {
				t.Errorf("the header is %v", m.MsgHdr)
			}
			if m.Question[0].Name != tt.name {
				t.Errorf("the question comes back as %q", m.Question[0].Name)
			}
		})
	}
}

// A message that is no plain question is answered with what is wrong, or not at all.
func TestQuestionsMalformed(t *testing.T) {
	message := func(change func(*dns.Msg)) []byte {
		m := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
		m.Id = 77
		change(m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	plain := message(func(*dns.Msg) {})
	withRR := func(line string) dns.RR {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		return rr
	}
	opt := func(version uint8) *dns.OPT {
		o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		o.SetVersion(version)
		return o
	}
	counts := func(at int, n byte) []byte {
		b := slices.Clone(plain)
		b[at+1] = n
		return b
	}
	pointer := slices.Concat(plain[:headerSize], []byte{1, 'a', 0xc0, 12, 0, 1, 0, 1})
	longLabel := slices.Concat(plain[:headerSize], []byte{64}, make([]byte, 64), []byte{0, 0, 1, 0, 1})
	longName := plain[:headerSize:headerSize]
	for range 128 {
		longName = append(longName, 1, 'a')
	}
	longName = append(longName, 0, 0, 1, 0, 1)

	const dropped = -1
	for name, tt := range map[string]struct {
		message []byte
		want    int
	}{
		"nothing":           {nil, dropped},
		"half a header":     {plain[:11], dropped},
		"a reply":           {message(func(m *dns.Msg) { m.Response = true }), dropped},
		"a header":          {plain[:headerSize], dns.RcodeFormatError},
		"half a name":       {plain[:headerSize+3], dns.RcodeFormatError},
		"no class":          {plain[:len(plain)-2], dns.RcodeFormatError},
		"more than it says": {append(slices.Clone(plain), 0), dns.RcodeFormatError},
		"no question":       {message(func(m *dns.Msg) { m.Question = nil }), dns.RcodeFormatError},
		"two questions":     {message(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		"two counted":       {counts(4, 2), dns.RcodeFormatError},
		"an answer counted": {counts(6, 1), dns.RcodeFormatError},
		"an answer":         {message(func(m *dns.Msg) { m.Answer = []dns.RR{withRR("a.example. A 1.1.1.1")} }), dns.RcodeFormatError},
		"an authority":      {message(func(m *dns.Msg) { m.Ns = []dns.RR{withRR("a.example. A 1.1.1.1")} }), dns.RcodeFormatError},
		"an extra record":   {message(func(m *dns.Msg) { m.Extra = []dns.RR{withRR("a.example. A 1.1.1.1")} }), dns.RcodeFormatError},
		"two options":       {message(func(m *dns.Msg) { m.Extra = []dns.RR{opt(0), opt(0)} }), dns.RcodeFormatError},
		"a later EDNS":      {message(func(m *dns.Msg) { m.Extra = []dns.RR{opt(1)} }), dns.RcodeBadVers},
		"truncated":         {message(func(m *dns.Msg) { m.Truncated = true }), dns.RcodeFormatError},
		"an update":         {message(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		"a notification":    {message(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		"another class":     {message(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		"any class":         {message(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		"a pointer":         {pointer, dns.RcodeFormatError},
		"a long label":      {longLabel, dns.RcodeFormatError},
		"a long name":       {longName, dns.RcodeFormatError},
	} {
		t.Run(name, func(t *testing.T) {
			p := compile(t, open, egress.Operator{})
			b := nobody(t).View(func() *egress.Policy { return p }).Answer(t.Context(), tt.message, packetSize)
			if b == nil || tt.want == dropped {
				if b != nil || tt.want != dropped {
					t.Errorf("the reply is %x", b)
				}
				return
			}
			m := new(dns.Msg)
			if err := m.Unpack(b); err != nil {
				t.Fatal(err)
			}
			if m.Rcode != tt.want || m.Id != 77 || !m.Response {
				t.Errorf("the reply is %v", m)
			}
		})
	}
}

// What resolvers say is passed only as far as it answers what was asked.
func TestUpstreamLies(t *testing.T) {
	chain := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, fmt.Sprintf("c%d.example.com. 60 CNAME c%d.example.com.", i, i+1))
		}
		return append(lines, fmt.Sprintf("c%d.example.com. 60 A 1.1.1.1", n))
	}
	deny := egress.Rules{Open: true, Deny: []string{"tracker.example"}}
	pinnedRules := egress.Rules{Allow: []string{"www.example.com", "_db._tcp.example.com"}}
	for name, tt := range map[string]struct {
		rules egress.Rules
		zone  []string
		extra []string // in each answer, whatever is asked
		ask   string
		qtype uint16
		want  []string
	}{
		"plain": {open, []string{"www.example.com. 20 A 1.1.1.1"}, nil, "www.example.com.", dns.TypeA,
			[]string{"NOERROR", "www.example.com.\t20\tIN\tA\t1.1.1.1"}},
		"mixed case": {open, []string{"www.example.com. 20 A 1.1.1.1"}, nil, "wWw.eXample.com.", dns.TypeA,
			[]string{"NOERROR", "wWw.eXample.com.\t20\tIN\tA\t1.1.1.1"}},
		"no such name":       {open, nil, nil, "www.example.com.", dns.TypeA, []string{"NXDOMAIN"}},
		"no such name, IPv6": {open, nil, nil, "www.example.com.", dns.TypeAAAA, []string{"NXDOMAIN"}},
		"IPv6": {open, []string{"www.example.com. 20 A 1.1.1.1", "www.example.com. 20 AAAA 2606:4700::1"}, nil, "www.example.com.",
			dns.TypeAAAA, []string{"NOERROR"}},
		"long life": {open, []string{"www.example.com. 999999 A 1.1.1.1"}, nil, "www.example.com.", dns.TypeA,
			[]string{"NOERROR", "www.example.com.\t60\tIN\tA\t1.1.1.1"}},
		"rebinding": {open, []string{"www.example.com. 0 A 127.0.0.1", "www.example.com. 0 A 10.0.0.1", "www.example.com. 0 A 1.1.1.1",
			"www.example.com. 0 A 169.254.169.254", "www.example.com. 0 A 168.63.129.16", "www.example.com. 0 A 198.18.0.7",
			"www.example.com. 0 A 0.0.0.0", "www.example.com. 0 A 10.9.1.1"}, nil, "www.example.com.", dns.TypeA,
			[]string{"NOERROR", "www.example.com.\t0\tIN\tA\t1.1.1.1", "www.example.com.\t0\tIN\tA\t10.9.1.1"}},
		"private only": {open, []string{"www.example.com. 0 A 192.168.1.1"}, nil, "www.example.com.", dns.TypeA, []string{"NOERROR"}},
		"aliases": {open, chain(2), nil, "c0.example.com.", dns.TypeA, []string{"NOERROR", "c0.example.com.\t60\tIN\tCNAME\tc1.example.com.",
			"c1.example.com.\t60\tIN\tCNAME\tc2.example.com.", "c2.example.com.\t60\tIN\tA\t1.1.1.1"}},
		"too many aliases": {open, chain(9), nil, "c0.example.com.", dns.TypeA, []string{"SERVFAIL"}},
		"a circle": {open, []string{"a.example.com. 60 CNAME b.example.com.", "b.example.com. 60 CNAME a.example.com."}, nil,
			"a.example.com.", dns.TypeA, []string{"SERVFAIL"}},
		"itself": {open, []string{"a.example.com. 60 CNAME a.example.com."}, nil, "a.example.com.", dns.TypeA, []string{"SERVFAIL"}},
		"an alias of a denied name": {deny, []string{"a.example.com. 60 CNAME Tracker.example.", "Tracker.example. 60 A 1.1.1.1"}, nil,
			"a.example.com.", dns.TypeA, []string{"NXDOMAIN"}},
		"others' records": {open, []string{"www.example.com. 60 A 1.1.1.1"}, []string{"bank.example. 60 A 6.6.6.6",
			"www.example.com. 60 TXT stray", "example.com. 60 CNAME evil.example.", "www.example.com. 60 CH A 6.6.6.6"},
			"www.example.com.", dns.TypeA, []string{"NOERROR", "www.example.com.\t60\tIN\tA\t1.1.1.1"}},
		"only others' records": {open, []string{"www.example.com. 60 TXT there"}, []string{"bank.example. 60 A 6.6.6.6"},
			"www.example.com.", dns.TypeA, []string{"NOERROR"}},
		"text": {open, []string{`www.example.com. 60 TXT "a" "b"`}, nil, "www.example.com.", dns.TypeTXT,
			[]string{"NOERROR", "www.example.com.\t60\tIN\tTXT\t\"a\" \"b\""}},
		"service": {open, []string{"_x._tcp.example.com. 60 SRV 1 2 443 a.example."}, nil, "_x._tcp.example.com.", dns.TypeSRV,
			[]string{"NOERROR", "_x._tcp.example.com.\t60\tIN\tSRV\t1 2 443 a.example."}},
		"name of an address": {open, []string{"1.1.1.1.in-addr.arpa. 60 PTR one.one.one.one."}, nil, "1.1.1.1.in-addr.arpa.", dns.TypePTR,
			[]string{"NOERROR", "1.1.1.1.in-addr.arpa.\t60\tIN\tPTR\tone.one.one.one."}},
		"name of an address, delegated": {open, []string{"1.1.1.1.in-addr.arpa. 60 CNAME 1.0/25.1.1.1.in-addr.arpa.",
			"1.0/25.1.1.1.in-addr.arpa. 60 PTR a.example."}, nil, "1.1.1.1.in-addr.arpa.", dns.TypePTR,
			[]string{"NOERROR", "1.1.1.1.in-addr.arpa.\t60\tIN\tCNAME\t1.0/25.1.1.1.in-addr.arpa.",
				"1.0/25.1.1.1.in-addr.arpa.\t60\tIN\tPTR\ta.example."}},
		"HTTPS": {open, []string{`www.example.com. 60 HTTPS 1 . alpn="h2" ech="aGVsbG8=" ipv4hint="1.1.1.1,10.0.0.1" ipv6hint="2606:4700::1"`},
			nil, "www.example.com.", dns.TypeHTTPS, []string{"NOERROR", "www.example.com.\t60\tIN\tHTTPS\t1 . alpn=\"h2\" ipv4hint=\"1.1.1.1\""}},
		"HTTPS, private": {open, []string{`www.example.com. 60 HTTPS 1 . alpn="h2" ipv4hint="10.0.0.1"`},
			nil, "www.example.com.", dns.TypeHTTPS, []string{"NOERROR", "www.example.com.\t60\tIN\tHTTPS\t1 . alpn=\"h2\""}},
		"HTTPS, ech mandatory": {open, []string{`www.example.com. 60 HTTPS 1 . mandatory="ech" ech="aGVsbG8="`,
			`www.example.com. 60 HTTPS 2 . mandatory="alpn" alpn="h2"`}, nil, "www.example.com.", dns.TypeHTTPS,
			[]string{"NOERROR", "www.example.com.\t60\tIN\tHTTPS\t2 . mandatory=\"alpn\" alpn=\"h2\""}},
		"SVCB": {open, []string{`_x.example.com. 60 SVCB 1 a.example. alpn="h2" ech="aGVsbG8="`}, nil, "_x.example.com.", dns.TypeSVCB,
			[]string{"NOERROR", "_x.example.com.\t60\tIN\tSVCB\t1 a.example. alpn=\"h2\""}},
		"HTTPS, pinned": {pinnedRules, []string{`www.example.com. 60 HTTPS 1 . alpn="h2" ech="aGVsbG8=" ipv4hint="1.1.1.1" ipv6hint="2606:4700::1"`,
			`www.example.com. 60 HTTPS 2 other.example. alpn="h2"`, `www.example.com. 60 HTTPS 3 www.example.com. port="8443"`}, nil,
			"www.example.com.", dns.TypeHTTPS, []string{"NOERROR", "www.example.com.\t60\tIN\tHTTPS\t1 . alpn=\"h2\"",
				"www.example.com.\t60\tIN\tHTTPS\t3 www.example.com. port=\"8443\""}},
		"HTTPS, pinned, elsewhere": {pinnedRules, []string{`www.example.com. 60 HTTPS 0 other.example.`}, nil,
			"www.example.com.", dns.TypeHTTPS, []string{"NOERROR"}},
		"service, pinned": {pinnedRules, []string{"_db._tcp.example.com. 60 SRV 1 2 443 a.example."}, nil, "_db._tcp.example.com.",
			dns.TypeSRV, []string{"NOERROR", "_db._tcp.example.com.\t60\tIN\tSRV\t1 2 443 a.example."}},
	} {
		t.Run(name, func(t *testing.T) {
			honest := zone(t, tt.zone...)
			var extra []dns.RR
			for _, line := range tt.extra {
				rr, err := dns.NewRR(line)
				if err != nil {
					t.Fatal(err)
				}
				extra = append(extra, rr)
			}
			u := serve(t, func(w dns.ResponseWriter, r *dns.Msg) { honest(&adding{w, extra}, r) })
			v := view(t, tt.rules, u.addr)
			for _, from := range []string{"the resolver", "the cache"} {
				m := ask(t, v, tt.ask, tt.qtype)
				if got := said(m); !slices.Equal(got, tt.want) {
					t.Errorf("from %s: got %q, want %q", from, got, tt.want)
				}
				if len(m.Ns) > 0 || len(m.Extra) > 1 {
					t.Errorf("from %s: beside the answer there are %v and %v", from, m.Ns, m.Extra)
				}
			}
		})
	}
}

// Even where the owner lets the network of pinned addresses be reached, nobody else says
// which name has one.
func TestPinnedAddressFromOutside(t *testing.T) {
	u := serve(t, zone(t, "www.example.com. 60 A 198.18.0.7", "www.example.com. 60 A 10.1.1.1"))
	p := compile(t, open, egress.Operator{Reach: []string{"198.18.0.0/15", "10.0.0.0/8"}})
	want := []string{"NOERROR", "www.example.com.\t60\tIN\tA\t10.1.1.1"}
	if got := said(ask(t, resolver(u.addr).View(func() *egress.Policy { return p }), "www.example.com.", dns.TypeA)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A record without data says nothing.
func TestEmptyRecords(t *testing.T) {
	u := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		q := r.Question[0]
		m.Answer = []dns.RR{&dns.RFC3597{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 60}}}
		w.WriteMsg(m)
	})
	v := view(t, open, u.addr)
	for qtype := range answered {
		if qtype == dns.TypePTR {
			continue
		}
		if got := said(ask(t, v, "www.example.com.", qtype)); !slices.Equal(got, []string{"NOERROR"}) {
			t.Errorf("%s: %q", dns.TypeToString[qtype], got)
		}
	}
}

// adding puts records into each section of what is written.
type adding struct {
	dns.ResponseWriter
	records []dns.RR
}

func (a *adding) WriteMsg(m *dns.Msg) error {
	m.Answer = append(slices.Clone(a.records), m.Answer...)
	m.Ns = append(m.Ns, a.records...)
	m.Extra = append(m.Extra, a.records...)
	return a.ResponseWriter.WriteMsg(m)
}

// Only name and type of a question go out, in their canonical form.
func TestWhatIsAsked(t *testing.T) {
	asked := make(chan *dns.Msg, 1)
	u := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		asked <- r
		w.WriteMsg(new(dns.Msg).SetReply(r))
	})
	q := new(dns.Msg).SetQuestion("sEcReT.Example.com.", dns.TypeTXT)
	q.SetEdns0(4096, true)
	q.Zero, q.AuthenticatedData, q.CheckingDisabled = true, true, true
	opt := q.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte("data that goes out")},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.IPv4(1, 2, 3, 4)})
	send(t, view(t, open, u.addr), q, packetSize)
	got := <-asked
	if got.Question[0].Name != "secret.example.com." || got.Question[0].Qtype != dns.TypeTXT {
		t.Errorf("asked for %v", got.Question)
	}
	if got.Zero || got.AuthenticatedData || got.CheckingDisabled || !got.RecursionDesired {
		t.Errorf("asked with the header %v", got.MsgHdr)
	}
	if opt := got.IsEdns0(); opt == nil || len(opt.Option) > 0 || opt.Do() || opt.UDPSize() != packetSize {
		t.Errorf("asked with the options %v", opt)
	}
}

func TestReplySize(t *testing.T) {
	lines := []string{}
	for i := range 200 {
		lines = append(lines, fmt.Sprintf("big.example.com. 60 A 1.1.1.%d", i))
		lines = append(lines, fmt.Sprintf("big.example.com. 60 TXT %s", strings.Repeat("x", 250)))
	}
	u := serve(t, zone(t, lines...))
	v := view(t, open, u.addr)
	for _, tt := range []struct {
		qtype       uint16
		edns, limit int
		most, exact int
		truncated   bool
	}{
		{dns.TypeA, 0, packetSize, 512, -1, true},
		{dns.TypeA, 100, packetSize, 512, -1, true},
		{dns.TypeA, 4096, packetSize, packetSize, maxRecords, false},
		{dns.TypeA, 700, packetSize, 700, -1, true},
		{dns.TypeA, 0, MaxMessage, MaxMessage, maxRecords, false},
		{dns.TypeA, 512, MaxMessage, MaxMessage, maxRecords, false},
		{dns.TypeTXT, 65535, packetSize, packetSize, -1, true},
		{dns.TypeTXT, 0, MaxMessage, MaxMessage, maxRecords, false},
		{dns.TypeTXT, 0, MaxMessage + 5, MaxMessage, maxRecords, false},
		{dns.TypeA, 0, 40, 40, 0, true},
	} {
		q := new(dns.Msg).SetQuestion("big.example.com.", tt.qtype)
		if tt.edns > 0 {
			q.SetEdns0(uint16(tt.edns), false)
		}
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		reply := v.Answer(t.Context(), b, tt.limit)
		m := new(dns.Msg)
		if err := m.Unpack(reply); err != nil {
			t.Fatal(err)
		}
		if len(reply) > tt.most || m.Truncated != tt.truncated || tt.exact >= 0 && len(m.Answer) != tt.exact || m.Rcode != 0 {
			t.Errorf("%+v: %d bytes, %d records, truncated %v, %s", tt, len(reply), len(m.Answer), m.Truncated, dns.RcodeToString[m.Rcode])
		}
	}
	b, _ := new(dns.Msg).SetQuestion("big.example.com.", dns.TypeA).Pack()
	if reply := v.Answer(t.Context(), b, 20); reply != nil {
		t.Errorf("a reply of %d bytes has no room in 20", len(reply))
	}
}

// A program that asks with dig is told that a rule is the reason.
func TestReasonOfRefusal(t *testing.T) {
	m := ask(t, view(t, egress.Rules{}), "example.com.", dns.TypeA)
	opt := m.IsEdns0()
	if opt == nil || len(opt.Option) != 1 {
		t.Fatalf("the options are %v", opt)
	}
	if e, ok := opt.Option[0].(*dns.EDNS0_EDE); !ok || e.InfoCode != dns.ExtendedErrorCodeBlocked {
		t.Errorf("the option is %v", opt.Option[0])
	}
	if m := send(t, view(t, egress.Rules{}), new(dns.Msg).SetQuestion("example.com.", dns.TypeA), packetSize); len(m.Extra) > 0 {
		t.Errorf("options that nobody asked for: %v", m.Extra)
	}
}

// The policy is asked for each question.
func TestPolicyChanges(t *testing.T) {
	u := serve(t, zone(t, "www.example.com. 60 A 1.1.1.1"))
	policy := compile(t, egress.Rules{}, egress.Operator{})
	v := resolver(u.addr).View(func() *egress.Policy { return policy })
	for _, tt := range []struct {
		rules egress.Rules
		want  string
	}{
		{egress.Rules{}, "NXDOMAIN"},
		{open, "1.1.1.1"},
		{egress.Rules{Allow: []string{"www.example.com"}}, "198.1"},
		{egress.Rules{}, "NXDOMAIN"},
	} {
		policy = compile(t, tt.rules, egress.Operator{})
		if got := said(ask(t, v, "www.example.com.", dns.TypeA)); !strings.Contains(strings.Join(got, " "), tt.want) {
			t.Errorf("with %+v: %q", tt.rules, got)
		}
	}
}
