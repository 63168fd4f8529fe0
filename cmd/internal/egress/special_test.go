package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestSpecial has the first and the last address of each block, and those beside
// it. A line is the block; what follows is public.
func TestSpecial(t *testing.T) {
	for _, test := range []struct{ first, last, before, after string }{
		{"0.0.0.0", "0.255.255.255", "", "1.0.0.0"},
		{"10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"},
		{"100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0"},
		{"127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"},
		{"169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"},
		{"172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0"},
		{"192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"},
		{"192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0"},
		{"192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"},
		{"192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0"},
		{"198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0"},
		{"198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0"},
		{"203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0"},
		{"224.0.0.0", "255.255.255.255", "223.255.255.255", ""},
		{"168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"},

		{"::", "::ffff:ffff", "", ""},
		{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"100::", "100:0:0:1:ffff:ffff:ffff:ffff", "", ""},
		{"::1:0:0:0", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", "2000::"},
		{"2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::"},
		{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"},
		{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2003::"},
		{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"},
		{"4000::", "5f00::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
		{"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
		{"fe80::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""},
	} {
		p := compile(t, Rules{Open: true, Allow: []string{"0.0.0.0/0", "::/0", "*"}}, Operator{})
		for addr, want := range map[string]bool{test.first: false, test.last: false, test.before: true, test.after: true} {
			if addr == "" {
				continue
			}
			for _, form := range forms(netip.MustParseAddr(addr)) {
				a := netip.AddrPortFrom(form, 8080)
				for _, d := range []Decision{p.Addr(a, TCP), p.Addr(a, UDP), p.Dial(a, ""), p.Dial(a, "example.com"), p.Reach(a)} {
					if d.Allowed != want {
						t.Errorf("%s as %s is %+v", addr, form, d)
					}
				}
			}
		}
	}
}

// forms are an address and, for IPv4, the IPv6 addresses that lead to it.
func forms(a netip.Addr) []netip.Addr {
	if !a.Is4() {
		return []netip.Addr{a}
	}
	b := a.As4()
	translated := nat64.Addr().As16()
	copy(translated[12:], b[:])
	return []netip.Addr{a, netip.AddrFrom16(a.As16()), netip.AddrFrom16(translated)}
}

// TestIPv4InsideIPv6 that is not judged as IPv4 is closed, whatever is inside.
func TestIPv4InsideIPv6(t *testing.T) {
	p := compile(t, Rules{Open: true}, Operator{})
	for _, s := range []string{
		"2002:808:808::1",           // 6to4 of 8.8.8.8
		"2001:0:808:808::1",         // Teredo
		"::808:808",                 // IPv4-compatible
		"64:ff9b:1::808:808",        // local translation
		"::ffff:0:808:808",          // SIIT, RFC 2765
		"fe80::5efe:808:808",        // ISATAP
		"2002:7f00:1::", "::7f00:1", // with loopback inside
		"64:ff9b::7f00:1", "fd00::1%eth0",
	} {
		if d := p.Addr(netip.AddrPortFrom(netip.MustParseAddr(s), 8080), TCP); d.Allowed {
			t.Errorf("%s is %+v", s, d)
		}
	}
}

// TestEmbedded has each way in which an IPv6 address can hold one of IPv4.
func TestEmbedded(t *testing.T) {
	wide := compile(t, Rules{Open: true}, Operator{Reach: []string{"0.0.0.0/0", "::/0"}})
	for addr, want := range map[string]string{
		"64:ff9b::a9fe:a9fe":           "[169.254.169.254]",                                   // RFC 6052
		"64:ff9b:1:a9fe:a9:fe00::":     "[169.254.169.254 254.169.254.0 169.254.0.0 0.0.0.0]", // RFC 8215 with 48 bits
		"64:ff9b:1:a9:fe:a9fe::":       "[0.169.254.169 169.254.169.254 254.169.254.0 0.0.0.0]",
		"64:ff9b:1::a9:fea9:fe00:0":    "[0.0.169.254 0.169.254.169 169.254.169.254 254.0.0.0]",
		"64:ff9b:1:0:0:0:a9fe:a9fe":    "[0.0.0.0 0.0.0.0 0.0.0.169 169.254.169.254]",
		"::169.254.169.254":            "[169.254.169.254]",
		"::ffff:0:169.254.169.254":     "[169.254.169.254]",
		"2002:a9fe:a9fe::1":            "[169.254.169.254]",
		"2001:0:a9fe:a9fe::":           "[169.254.169.254 255.255.255.255]",
		"2001:0:808:808:0:0:5601:5601": "[8.8.8.8 169.254.169.254]", // Teredo turns each bit of a client's
		"2600::5efe:a9fe:a9fe":         "[169.254.169.254]",         // ISATAP
		"2600::200:5efe:a9fe:a9fe":     "[169.254.169.254]",
		"2600::1":                      "[]",
		"169.254.169.254":              "[]",
		"::ffff:169.254.169.254":       "[]",
	} {
		a := netip.MustParseAddr(addr)
		if got := fmt.Sprint(Embedded(a)); got != want {
			t.Errorf("%s has %s inside, want %s", addr, got, want)
		}
		if d := wide.Dial(netip.AddrPortFrom(a, 80), ""); d.Allowed != (addr == "2600::1") {
			t.Errorf("%s is %+v", addr, d)
		}
	}
}

// TestMetadata: each address is closed, the owner's networks do not open it, and
// its own name does.
func TestMetadata(t *testing.T) {
	wide := compile(t, Rules{Open: true}, Operator{Reach: []string{"0.0.0.0/0", "::/0", "169.254.169.0/24", "168.63.129.16/31"}})
	for _, s := range []string{
		"169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23", "169.254.0.23", "168.63.129.16", "100.100.100.200", "100.96.0.96",
		"192.0.0.192", "fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe", "fd00:42::42",
	} {
		a := netip.MustParseAddr(s)
		at := netip.AddrPortFrom(a, 80)
		if d := wide.Dial(at, ""); d.Allowed || !strings.Contains(d.Reason, "credentials") {
			t.Errorf("%s is %+v", a, d)
		}
		if wide.Reaches(at) {
			t.Errorf("%s is reached", a)
		}
		own := compile(t, Rules{Open: true}, Operator{Reach: []string{a.String()}})
		if d := own.Dial(at, ""); !d.Allowed {
			t.Errorf("%s is %+v", a, d)
		}
	}
}
