package dns

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	// maxChain bounds the aliases between a name and its records.
	maxChain = 8
	// maxRecords bounds the records of an answer, without its aliases.
	maxRecords = 64
	// maxTTL is the longest time in seconds for which an answer is kept, here and inside.
	maxTTL = 60
)

var errChain = errors.New("the name's aliases are too many or go in a circle")

// found is what the resolvers say to a question: the aliases that lead from the name asked
// for to the name that has the records, in order, and the records.
type found struct {
	rcode   int // RcodeSuccess or RcodeNameError
	chain   []*dns.CNAME
	records []dns.RR
}

// choose returns what of a resolver's message answers the question. Records of names that
// the question does not lead to are nobody's business, and neither is what follows the
// answer section.
func choose(m *dns.Msg, name string, qtype uint16) (found, error) {
	f := found{rcode: m.Rcode}
	if m.Rcode != dns.RcodeSuccess {
		return f, nil
	}
	at := dns.Fqdn(name)
	for {
		var alias *dns.CNAME
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || h.Rdlength == 0 || !strings.EqualFold(h.Name, at) {
				continue
			}
			h.Ttl = min(h.Ttl, maxTTL)
			if h.Rrtype == qtype && len(f.records) < maxRecords {
				f.records = append(f.records, rr)
			}
			if c, ok := rr.(*dns.CNAME); ok {
				alias = c
			}
		}
		if alias == nil || len(f.records) > 0 {
			return f, nil
		}
		if len(f.chain) == maxChain {
			return found{}, errChain
		}
		f.chain = append(f.chain, alias)
		at = alias.Target
	}
}

// passed returns the records of an answer to a sandbox: the aliases, and what keep says
// true to. The first one's owner is the name as it was asked for.
func passed(f found, asked dns.Question, keep func(dns.RR) bool) []dns.RR {
	var out []dns.RR
	owner := asked.Name
	for _, c := range f.chain {
		c.Hdr.Name, owner = owner, c.Target
		out = append(out, c)
	}
	for _, rr := range f.records {
		if rr.Header().Rrtype == asked.Qtype && keep(rr) {
			rr.Header().Name = owner
			out = append(out, rr)
		}
	}
	return out
}

// address returns the address that a record holds.
func address(rr dns.RR) (netip.Addr, bool) {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A.To4()
	case *dns.AAAA:
		ip = rr.AAAA
	}
	return netip.AddrFromSlice(ip)
}

// pinnedService says whether a service's record may be passed for a pinned name, and takes
// out of it what would lead past the pinned address. A record that leads to another name
// is not passed: the gateway expects the name of the connection's address in what is sent.
func pinnedService(s *dns.SVCB, name string) bool {
	if s.Priority == 0 || s.Target != "." && !strings.EqualFold(s.Target, dns.Fqdn(name)) {
		return false
	}
	return without(s, dns.SVCB_ECHCONFIG, dns.SVCB_IPV4HINT, dns.SVCB_IPV6HINT)
}

// realService is the same for a name of an open network: addresses that may not be reached
// are taken out.
func realService(s *dns.SVCB, mayReach func(netip.Addr) bool) bool {
	out := []dns.SVCBKey{dns.SVCB_ECHCONFIG, dns.SVCB_IPV6HINT}
	for _, kv := range s.Value {
		hint, ok := kv.(*dns.SVCBIPv4Hint)
		if !ok {
			continue
		}
		hint.Hint = slices.DeleteFunc(hint.Hint, func(ip net.IP) bool {
			a, ok := netip.AddrFromSlice(ip.To4())
			return !ok || !mayReach(a)
		})
		if len(hint.Hint) == 0 {
			out = append(out, dns.SVCB_IPV4HINT)
		}
	}
	return without(s, out...)
}

// without takes parameters out of a service's record. It returns false if the record says
// that a client must understand one of them: without it the record means nothing.
func without(s *dns.SVCB, keys ...dns.SVCBKey) bool {
	for _, kv := range s.Value {
		if m, ok := kv.(*dns.SVCBMandatory); ok && slices.ContainsFunc(m.Code, func(k dns.SVCBKey) bool { return slices.Contains(keys, k) }) {
			return false
		}
	}
	s.Value = slices.DeleteFunc(s.Value, func(kv dns.SVCBKeyValue) bool { return slices.Contains(keys, kv.Key()) })
	return true
}
