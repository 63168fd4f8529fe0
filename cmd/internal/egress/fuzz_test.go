package egress

import (
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// inetAton reads an address as inet_aton(3) does, and the many programs that
// follow it: one to four numbers, each decimal, octal or hexadecimal, of which the
// last one fills what is left.
func inetAton(s string) (netip.Addr, bool) {
	s = strings.TrimSuffix(strings.TrimRight(s, " \t\n"), ".")
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, part := range parts {
		base, digits := 10, part
		switch {
		case strings.HasPrefix(part, "0x"), strings.HasPrefix(part, "0X"):
			base, digits = 16, part[2:]
			if digits == "" {
				digits = "0"
			}
		case len(part) > 1 && part[0] == '0':
			base, digits = 8, part[1:]
		}
		n, err := strconv.ParseUint(digits, base, 64)
		last := i == len(parts)-1
		if err != nil || !last && n > 255 || last && n >= 1<<(8*(5-len(parts))) {
			return netip.Addr{}, false
		}
		if last {
			sum += n
		} else {
			sum += n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

func TestInetAton(t *testing.T) {
	for s, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "127.1": "127.0.0.1", "2130706433": "127.0.0.1", "0x7f.1": "127.0.0.1", "0177.0.0.01": "127.0.0.1", "1.2.0x304": "1.2.3.4",
	} {
		if a, ok := inetAton(s); !ok || a.String() != want {
			t.Errorf("%s is %s %v", s, a, ok)
		}
	}
	for _, s := range []string{"", "1.2.3.4.5", "256.1.1.1", "4294967296", "08", "1.2.3.256", "a"} {
		if a, ok := inetAton(s); ok {
			t.Errorf("%s is %s", s, a)
		}
	}
}

// FuzzCanonicalName: what comes out is a host name in one form, and no program
// reads an address in it.
func FuzzCanonicalName(f *testing.F) {
	for _, s := range notations {
		f.Add(s)
	}
	for _, s := range []string{"Example.COM.", "evil.com\x00.ok.com", "MÜNCHEN.de", "xn--mnchen-3ya.de", "a\u3002b", "*.x", "xn--a-ecp.ru", "\u2100.com", "..", "ß.de"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := CanonicalName(s)
		if err != nil {
			if name != "" {
				t.Errorf("%q is %q and %v", s, name, err)
			}
			return
		}
		if again, err := CanonicalName(name); err != nil || again != name {
			t.Errorf("%q is %q, which is %q, %v", s, name, again, err)
		}
		if wire, err := WireName(name); err != nil || wire != name {
			t.Errorf("%q is %q, on a wire %q, %v", s, name, wire, err)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > maxName || name == "" {
			t.Errorf("%q is %q", s, name)
		}
		for label := range strings.SplitSeq(name, ".") {
			if label == "" || len(label) > maxLabel {
				t.Errorf("%q is %q", s, name)
			}
		}
		for _, text := range []string{s, name, name + "."} {
			if a, ok := inetAton(text); ok {
				t.Errorf("%q is the name %q and the address %s", s, name, a)
			}
			if net.ParseIP(text) != nil {
				t.Errorf("%q is the name %q and an address", s, name)
			}
		}
		if isASCII(s) && name != lower(strings.TrimSuffix(s, ".")) {
			t.Errorf("%q is %q", s, name)
		}
	})
}

// FuzzParseEntry: an entry is one thing, and an address is the one that others
// read in it.
func FuzzParseEntry(f *testing.F) {
	for _, s := range notations {
		f.Add(s)
		f.Add(s + ":80")
		f.Add("*." + s)
	}
	for _, s := range []string{"a.com", "*.a.com:1-2", "*", "@pypi", "10.0.0.0/8:443", "[2001:db8::/32]:1", "2001:db8::1", "a.com:", "[", "]", "@", "/", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEntry(s)
		if err != nil {
			return
		}
		if e.preset != "" {
			if s != "@"+e.preset || presets[e.preset] == nil {
				t.Errorf("%q is %+v", s, e)
			}
			return
		}
		if e.ports.low == 0 || e.ports.low > e.ports.high {
			t.Errorf("%q has the ports %+v", s, e.ports)
		}
		host, _, _, err := splitPorts(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if !e.prefix.IsValid() {
			if name, err := CanonicalName(e.name); (err != nil || name != e.name) && (e.name != "" || !e.below) {
				t.Errorf("%q is %+v", s, e)
			}
			if a, ok := inetAton(host); ok || net.ParseIP(host) != nil {
				t.Errorf("%q is %+v and the address %s", s, e, a)
			}
			return
		}
		if e.name != "" || e.below || e.prefix != e.prefix.Masked() || e.prefix.Addr().Zone() != "" || e.prefix.Addr().Is4In6() {
			t.Errorf("%q is %+v", s, e)
		}
		a, ok := inetAton(host)
		if ok && netip.PrefixFrom(a, 32) != e.prefix || !ok && !strings.Contains(host, ":") && !strings.Contains(host, "/") {
			t.Errorf("%q is %s and %s", s, e.prefix, a)
		}
	})
}

// FuzzCompile: a policy says what a look at each rule says, and nothing opens an
// address that is not public.
func FuzzCompile(f *testing.F) {
	f.Add("a.com\n*.b.com:443\n8.8.8.0/24", "evil.com", "x.b.com", uint16(443), uint32(0x08080808), false)
	f.Add("*\n0.0.0.0/0\n::/0", "", "a.com", uint16(80), uint32(0x7f000001), true)
	f.Add("@github\n@huggingface", "0.0.0.0/0", "cdn.hf.co", uint16(443), uint32(0xa9fea9fe), true)
	f.Add("a.com:1-5\na.com:3-9\na.com:20", "a.com:4-30\n9.0.0.0/8:7", "a.com", uint16(9), uint32(0x09000001), true)
	f.Fuzz(func(t *testing.T, allow, deny, name string, port uint16, addr uint32, open bool) {
		if len(allow)+len(deny) > 2000 {
			return
		}
		r := Rules{Open: open, Allow: fields(allow), Deny: fields(deny)}
		p, err := Compile(r, Operator{})
		if err != nil {
			if p != nil {
				t.Error("there is a policy beside the error")
			}
			return
		}
		allowed, denied := expanded(t, r.Allow), expanded(t, r.Deny)
		for _, e := range denied {
			if e.prefix == netip.MustParsePrefix(allTraffic) && e.ports.all() {
				open = false
			}
		}
		for _, e := range allowed {
			if e.prefix == netip.MustParsePrefix(allTraffic) && e.ports.all() {
				open = true
			}
		}
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(addr >> 24), byte(addr >> 16), byte(addr >> 8), byte(addr)}), port)
		canonical, err := CanonicalName(name)
		usable := err == nil && canonical == name && !isLocalhost(name) && name != HostName && port != 0
		want := usable && (naive(allowed, name, at) || !naive(denied, name, at) && open)
		if d := p.Host(name, port, TCP); d.Allowed != want {
			t.Errorf("%q:%d is %+v", name, port, d)
		}
		if want && p.Name(name) == Refused {
			t.Errorf("%q can be reached and is not answered", name)
		}
		_, isSpecial := specialOf(at.Addr())
		public := !isSpecial && port != 0 && p.Reach(at).Allowed
		want = public && (naive(allowed, "", at) || !naive(denied, "", at) && open)
		if d := p.Addr(at, TCP); d.Allowed != want {
			t.Errorf("%s is %+v", at, d)
		}
		if d := p.Dial(at, name); name != "" && d.Allowed && (!public || !p.Host(name, port, TCP).Allowed) {
			t.Errorf("%s for %q is %+v", at, name, d)
		}
		for _, s := range closedAddresses {
			a := netip.AddrPortFrom(netip.MustParseAddr(s), max(port, 1))
			if p.Addr(a, TCP).Allowed || p.Dial(a, name).Allowed || p.Reach(a).Allowed || p.Reaches(a) {
				t.Errorf("%s is allowed", a)
			}
		}
	})
}

var closedAddresses = []string{
	"127.0.0.1", "10.88.0.1", "192.168.1.1", "169.254.169.254", "168.63.129.16", "0.0.0.0", "255.255.255.255", "224.0.0.1", "::", "::1", "fe80::1",
	"fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::", "ff02::1", "203.0.113.80", "fe80::1%1",
}

func fields(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// expanded are the entries with those of the presets in their place.
func expanded(t *testing.T, list []string) []entry {
	t.Helper()
	out := parsed(t, list)
	for _, s := range list {
		if preset, ok := strings.CutPrefix(s, "@"); ok {
			out = append(out, parsed(t, presets[preset])...)
		}
	}
	return out
}

// FuzzSettle: no port is lost, and none comes to it.
func FuzzSettle(f *testing.F) {
	f.Add([]byte{0, 1, 0, 5, 0, 3, 0, 9, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		var in ports
		for ; len(data) >= 4 && len(in) < 50; data = data[4:] {
			low, high := uint16(data[0])<<8|uint16(data[1]), uint16(data[2])<<8|uint16(data[3])
			if low == 0 || low > high {
				continue
			}
			in = append(in, span{low: low, high: high, rule: strconv.Itoa(len(in))})
		}
		before := append(ports(nil), in...)
		settled := settle(in)
		whole := true
		for port := 1; port <= math.MaxUint16; port++ {
			rule, ok := settled.find(uint16(port))
			var want bool
			for _, s := range before {
				want = want || int(s.low) <= port && port <= int(s.high)
			}
			whole = whole && want
			if ok != want {
				t.Fatalf("%v has port %d: %v", before, port, ok)
			}
			if n, err := strconv.Atoi(rule); ok && (err != nil || port < int(before[n].low) || port > int(before[n].high)) {
				t.Fatalf("%v says %q of port %d", before, rule, port)
			}
		}
		if settled.all() != whole {
			t.Fatalf("%v is all ports: %v", before, !whole)
		}
	})
}
