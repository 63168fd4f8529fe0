package egress

import (
	"net/netip"
	"slices"
)

// Answers says whether an address may be the answer to a question about a name that
// resolves to its own addresses: some port of it passes Reach. Whether a flow to it is
// allowed is for Dial to decide.
func (p *Policy) Answers(a netip.Addr) bool {
	at, ok := plain(a)
	if !ok {
		return false
	}
	block, isSpecial := specialOf(at)
	switch {
	case isSpecial && block.never:
		return false
	case slices.Contains(metadata, at):
		return p.reach.prefixes.ports[netip.PrefixFrom(at, at.BitLen())] != nil
	}
	return !isSpecial || p.reach.prefixes.contains(at)
}

// contains says whether some port of the address is named.
func (t *prefixes) contains(a netip.Addr) bool {
	bits := t.bits4
	if a.Is6() {
		bits = t.bits6
	}
	return slices.ContainsFunc(bits, func(n int) bool {
		p, err := a.Prefix(n)
		return err == nil && t.ports[p] != nil
	})
}
