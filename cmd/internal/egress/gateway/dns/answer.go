package dns

import (
	"context"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

const (
	// pinnedTTL is how many seconds a program may keep a pinned address. It is short, as
	// a change of the policy can give the name another one.
	pinnedTTL = 30
	localTTL  = 60
)

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// nowhere are domains that mean nothing to a resolver (RFC 6761, RFC 6762, RFC 7686,
// RFC 9476). An open network does not ask for them; a rule may name one below "local",
// where some offices have their servers.
var nowhere = []string{"invalid", "local", "onion", "alt"}

// answered are the types of records that are passed. What is not here either asks for a
// whole zone, or is of no use without DNSSEC, which is not spoken.
var answered = map[uint16]bool{
	dns.TypeA: true, dns.TypeAAAA: true, dns.TypeCNAME: true, dns.TypePTR: true,
	dns.TypeTXT: true, dns.TypeMX: true, dns.TypeSRV: true, dns.TypeNAPTR: true,
	dns.TypeHTTPS: true, dns.TypeSVCB: true, dns.TypeNS: true, dns.TypeSOA: true, dns.TypeCAA: true,
}

// Answer returns the reply to a sandbox's message. limit is the most bytes that the reply
// may have: for a packet, what a packet can hold; MaxMessage for a message over TCP, which
// comes and goes without its length. A reply to a packet also has no more bytes than the
// question says that its sender takes. Answer returns nil for what is no question, and for
// questions over the sandbox's share: then nothing is sent. It takes at most four seconds.
//
// No policy is so open that IPv6 addresses are answered: the sandbox's network has none.
func (v *View) Answer(ctx context.Context, message []byte, limit int) []byte {
	q, err := readQuestion(message)
	if len(message) < headerSize || q.flags&bitResponse != 0 || !v.questions.Allow() {
		return nil
	}
	limit = min(limit, MaxMessage)
	switch err {
	case nil:
	case errOpcode:
		return q.reply(answer{rcode: dns.RcodeNotImplemented}, limit)
	case errVersion:
		return q.reply(answer{rcode: dns.RcodeBadVers}, limit)
	default:
		return q.reply(answer{rcode: dns.RcodeFormatError}, limit)
	}
	select {
	case v.inWork <- struct{}{}:
		defer func() { <-v.inWork }()
	default:
		return nil
	}
	return q.reply(v.answer(ctx, q.asked[0]), limit)
}

func (v *View) answer(ctx context.Context, asked dns.Question) answer {
	switch {
	case asked.Qclass != dns.ClassINET, asked.Name == ".":
		return answer{rcode: dns.RcodeRefused, extended: dns.ExtendedErrorCodeNotSupported}
	case asked.Qtype == dns.TypeANY, asked.Qtype == dns.TypeAXFR, asked.Qtype == dns.TypeIXFR,
		asked.Qtype == dns.TypeMAILA, asked.Qtype == dns.TypeMAILB:
		return answer{rcode: dns.RcodeRefused, extended: dns.ExtendedErrorCodeNotSupported}
	case !answered[asked.Qtype]:
		return answer{rcode: dns.RcodeNotImplemented, extended: dns.ExtendedErrorCodeNotSupported}
	}
	name, err := egress.WireName(asked.Name)
	if err != nil {
		return blocked()
	}
	if under(name, "localhost") {
		return local(asked, loopback4, loopback6)
	}
	policy := v.policy()
	if policy == nil || !strings.Contains(name, ".") {
		// A single label is a name of the local network, or a whole top-level domain.
		return blocked()
	}
	if under(name, "in-addr.arpa") || under(name, "ip6.arpa") {
		return v.reverse(ctx, policy, name, asked)
	}
	resolution := policy.Name(name)
	switch {
	case resolution == egress.Refused:
		if v.Refused != nil {
			v.Refused(name)
		}
		return blocked()
	case name == egress.HostName, resolution == egress.Pinned:
		return v.pinned(ctx, name, asked)
	}
	for _, domain := range nowhere {
		if under(name, domain) {
			return answer{rcode: dns.RcodeNameError}
		}
	}
	return v.real(ctx, policy, name, asked)
}

// blocked answers that there is no such name: a program gives up at once, where after a
// refusal it would ask again.
func blocked() answer {
	return answer{rcode: dns.RcodeNameError, extended: dns.ExtendedErrorCodeBlocked}
}

func failed() answer {
	return answer{rcode: dns.RcodeServerFailure, extended: dns.ExtendedErrorCodeNoReachableAuthority}
}

// local answers a question for a name that means the sandbox itself.
func local(asked dns.Question, addrs ...netip.Addr) answer {
	var a answer
	for _, addr := range addrs {
		if rr := record(asked.Name, addr, localTTL); rr.Header().Rrtype == asked.Qtype {
			a.records = append(a.records, rr)
		}
	}
	return a
}

// pinned answers a question for a name that a rule names. The resolvers are not asked for
// its addresses: that happens when it is dialled. Its other records come from them, as
// services are found by some (SRV, TXT); this machine has none.
func (v *View) pinned(ctx context.Context, name string, asked dns.Question) answer {
	switch {
	case asked.Qtype == dns.TypeA:
		addr, ok := v.pin(name)
		if !ok {
			return answer{rcode: dns.RcodeServerFailure, extended: dns.ExtendedErrorCodeOther}
		}
		return answer{records: []dns.RR{record(asked.Name, addr, pinnedTTL)}}
	case asked.Qtype == dns.TypeAAAA, asked.Qtype == dns.TypeCNAME, name == egress.HostName:
		return answer{}
	}
	found, err := v.lookup(ctx, name, asked.Qtype)
	if err != nil {
		return failed()
	}
	return answer{rcode: found.rcode, records: passed(found, asked, func(rr dns.RR) bool {
		switch rr := rr.(type) {
		case *dns.HTTPS:
			return pinnedService(&rr.SVCB, name)
		case *dns.SVCB:
			return pinnedService(rr, name)
		}
		return true
	})}
}

// real answers a question for a name of an open network.
func (v *View) real(ctx context.Context, policy *egress.Policy, name string, asked dns.Question) answer {
	qtype := asked.Qtype
	if qtype == dns.TypeAAAA {
		// That a name does not exist must be said for both of its questions.
		qtype = dns.TypeA
	}
	found, err := v.lookup(ctx, name, qtype)
	if err != nil {
		return failed()
	}
	for _, alias := range found.chain {
		// Rules name host names: an alias that is none, as in delegated reverse zones, is
		// in no rule.
		if target, err := egress.WireName(alias.Target); err == nil && policy.Name(target) == egress.Refused {
			return blocked()
		}
	}
	mayReach := func(a netip.Addr) bool { return policy.Answers(a) && !pinned.Contains(a) }
	return answer{rcode: found.rcode, records: passed(found, asked, func(rr dns.RR) bool {
		switch rr := rr.(type) {
		case *dns.A:
			a, ok := address(rr)
			return ok && asked.Qtype == dns.TypeA && mayReach(a)
		case *dns.HTTPS:
			return realService(&rr.SVCB, mayReach)
		case *dns.SVCB:
			return realService(rr, mayReach)
		}
		return true
	})}
}

// reverse answers a question for the name of an address: those that we gave have one, and
// an open network may ask for those that it may reach. What the resolvers call others
// concerns the operator's own network.
func (v *View) reverse(ctx context.Context, policy *egress.Policy, name string, asked dns.Question) answer {
	addr, ok := reverseAddr(name)
	switch {
	case !ok || asked.Qtype != dns.TypePTR:
		return blocked()
	case addr.IsLoopback():
		return answer{records: []dns.RR{pointer(asked.Name, "localhost.")}}
	case pinned.Contains(addr):
		if host, ok := v.NameOf(addr); ok {
			return answer{records: []dns.RR{pointer(asked.Name, dns.Fqdn(host))}}
		}
		return blocked()
	case policy.Name(name) != egress.Real || !policy.Answers(addr):
		return blocked()
	}
	return v.real(ctx, policy, name, asked)
}

// reverseAddr returns the IPv4 address whose name is asked for.
func reverseAddr(name string) (netip.Addr, bool) {
	digits, ok := strings.CutSuffix(name, ".in-addr.arpa")
	if !ok {
		return netip.Addr{}, false
	}
	parts := strings.Split(digits, ".")
	if len(parts) != 4 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
	return a, err == nil && a.Is4()
}

func record(owner string, a netip.Addr, ttl uint32) dns.RR {
	h := dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}
	if a.Is4() {
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	h.Rrtype = dns.TypeAAAA
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}

func pointer(owner, name string) dns.RR {
	return &dns.PTR{Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: pinnedTTL}, Ptr: name}
}
