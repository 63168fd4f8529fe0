package egress

import "net/netip"

// special is a block of addresses that is not public.
type special struct {
	prefix netip.Prefix
	is     string // completes "ADDRESS is ..."
	never  bool   // no machine has such an address: not even Reach opens it
}

// The tables follow IANA's registries of special-purpose addresses (RFC 6890,
// https://www.iana.org/assignments/iana-ipv4-special-registry and
// iana-ipv6-special-registry): what they do not call globally reachable is here.
// 192.0.0.0/24 and 2001::/23 are here as a whole, with the few anycast addresses
// in them that are marked reachable: the nearest network answers those (RFC 7723,
// RFC 8155), which is not the public one.
var special4 = []special{
	{netip.MustParsePrefix("0.0.0.0/8"), "for \"this network\" (RFC 791)", true},
	{netip.MustParsePrefix("10.0.0.0/8"), "for private use (RFC 1918)", false},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared address space (RFC 6598)", false},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122)", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (RFC 3927)", false},
	{netip.MustParsePrefix("172.16.0.0/12"), "for private use (RFC 1918)", false},
	{netip.MustParsePrefix("192.0.0.0/24"), "for protocol assignments (RFC 6890)", false},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation (RFC 5737)", false},
	{netip.MustParsePrefix("192.88.99.0/24"), "a former 6to4 relay (RFC 7526)", false},
	{netip.MustParsePrefix("192.168.0.0/16"), "for private use (RFC 1918)", false},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks (RFC 2544)", false},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation (RFC 5737)", false},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation (RFC 5737)", false},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 5771)", true},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast (RFC 919)", true},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved (RFC 1112)", false},
}

// Of IPv6, 2000::/3 is global unicast (RFC 4291, IANA's registry of the address
// space): what is outside of it needs no line to be refused, only for its name.
var global6 = netip.MustParsePrefix("2000::/3")

var special6 = []special{
	{netip.MustParsePrefix("::/128"), "unspecified (RFC 4291)", true},
	{netip.MustParsePrefix("::1/128"), "loopback (RFC 4291)", false},
	{netip.MustParsePrefix("::/96"), "an IPv4-compatible address (RFC 4291)", true},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "for local IPv4/IPv6 translation (RFC 8215)", false},
	{netip.MustParsePrefix("100::/64"), "for discarding (RFC 6666)", false},
	{netip.MustParsePrefix("100:0:0:1::/64"), "a dummy prefix (RFC 9780)", false},
	{netip.MustParsePrefix("2001::/32"), "Teredo (RFC 4380)", false},
	{netip.MustParsePrefix("2001::/23"), "for protocol assignments (RFC 2928)", false},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation (RFC 3849)", false},
	{netip.MustParsePrefix("2002::/16"), "6to4 (RFC 7526)", false},
	{netip.MustParsePrefix("3fff::/20"), "for documentation (RFC 9637)", false},
	{netip.MustParsePrefix("5f00::/16"), "for segment routing (RFC 9602)", false},
	{netip.MustParsePrefix("fc00::/7"), "unique local (RFC 4193)", false},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291)", false},
	{netip.MustParsePrefix("fec0::/10"), "site-local (RFC 3879)", false},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291)", true},
}

// metadata are the addresses at which clouds tell a machine its credentials and
// configuration. Some are in public space, and some in networks that an owner may
// want to name as a whole.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"),    // AWS, Azure, Google Cloud, OpenStack, DigitalOcean, Oracle
	netip.MustParseAddr("169.254.169.253"),    // AWS: resolver
	netip.MustParseAddr("169.254.170.2"),      // AWS ECS: credentials of a task
	netip.MustParseAddr("169.254.170.23"),     // AWS EKS: credentials of a pod
	netip.MustParseAddr("169.254.0.23"),       // Tencent
	netip.MustParseAddr("168.63.129.16"),      // Azure: wire server
	netip.MustParseAddr("100.100.100.200"),    // Alibaba
	netip.MustParseAddr("100.96.0.96"),        // Volcano Engine
	netip.MustParseAddr("192.0.0.192"),        // Oracle Cloud Classic
	netip.MustParseAddr("fd00:ec2::254"),      // AWS
	netip.MustParseAddr("fd00:ec2::253"),      // AWS: resolver
	netip.MustParseAddr("fd00:ec2::23"),       // AWS EKS
	netip.MustParseAddr("fd20:ce::254"),       // Google Cloud
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"), // Oracle
	netip.MustParseAddr("fe80::a9fe:a9fe"),    // OpenStack
	netip.MustParseAddr("fd00:42::42"),        // Scaleway
}

// nat64 is the well-known prefix of IPv4 addresses inside IPv6 (RFC 6052). What it
// contains is judged as the IPv4 address that it leads to.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

var (
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	compatible = netip.MustParsePrefix("::/96")
	siit       = netip.MustParsePrefix("::ffff:0:0:0/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// plain is the address that a packet to a would get to: IPv4 where IPv6 only
// wraps it. An address with a zone is none.
func plain(a netip.Addr) (netip.Addr, bool) {
	if !a.IsValid() || a.Zone() != "" {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a, true
}

// specialOf says in which block a plain address lies that is not public.
func specialOf(a netip.Addr) (special, bool) {
	table := special4
	if a.Is6() {
		table = special6
	}
	for _, s := range table {
		if s.prefix.Contains(a) {
			return s, true
		}
	}
	if a.Is6() && !global6.Contains(a) {
		return special{prefix: netip.PrefixFrom(a, 128), is: "no public address (RFC 4291)"}, true
	}
	return special{}, false
}

// Embedded returns the IPv4 addresses inside an IPv6 address, to which translators
// (RFC 6052, RFC 8215, RFC 2765), 6to4, Teredo and ISATAP may lead its packets. A prefix
// that a network has made its own for translation looks like any other and is not known
// here. For IPv4, also as IPv6, it is nothing.
func Embedded(a netip.Addr) []netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case nat64.Contains(a), compatible.Contains(a), siit.Contains(a):
		return []netip.Addr{at(12)}
	case nat64Local.Contains(a):
		// The prefix of a translator may have any of these lengths (RFC 6052, 2.2): 48,
		// 56, 64, 96. Bits 64 to 71 are left out.
		return []netip.Addr{
			netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}), netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}), at(9), at(12),
		}
	case sixToFour.Contains(a):
		return []netip.Addr{at(2)}
	case teredo.Contains(a):
		return []netip.Addr{at(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case b[8]&^3 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return []netip.Addr{at(12)}
	}
	return nil
}
