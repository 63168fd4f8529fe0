package egress

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func compile(t *testing.T, r Rules, op Operator) *Policy {
	t.Helper()
	p, err := Compile(r, op)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestHost decides about names. A line that begins with ! is refused.
func TestHost(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules Rules
		op    Operator
		flows []string
	}{
		{"nothing", Rules{}, Operator{}, []string{"!example.com:443", "!localhost:80", "!" + HostName + ":80"}},
		{"empty lists", Rules{Allow: []string{}, Deny: []string{}}, Operator{}, []string{"!example.com:443"}},
		{"open", Rules{Open: true}, Operator{}, []string{"example.com:443", "example.com:1", "!localhost:80", "!" + HostName + ":80"}},
		{"one name", Rules{Allow: []string{"example.com"}}, Operator{}, []string{
			"example.com:443", "example.com:65535", "!www.example.com:443", "!evilexample.com:443", "!example.com.evil.com:443", "!com:443",
		}},
		{"below a name", Rules{Allow: []string{"*.example.com"}}, Operator{}, []string{
			"www.example.com:443", "a.b.example.com:80", "!example.com:443", "!evilexample.com:443", "!example.com.evil.com:443",
		}},
		{"every name", Rules{Allow: []string{"*:443"}}, Operator{}, []string{"example.com:443", "!example.com:80"}},
		{"a port", Rules{Allow: []string{"example.com:443"}}, Operator{}, []string{"example.com:443", "!example.com:442", "!example.com:444"}},
		{"ports", Rules{Allow: []string{"example.com:8000-8010", "example.com:8005-8020", "example.com:1"}}, Operator{}, []string{
			"example.com:8000", "example.com:8015", "example.com:8020", "example.com:1", "!example.com:8021", "!example.com:7999", "!example.com:2",
		}},
		{"another port of a name above", Rules{Allow: []string{"a.example.com:1", "*.example.com:2", "*:3"}}, Operator{}, []string{
			"a.example.com:1", "a.example.com:2", "a.example.com:3", "!a.example.com:4", "!b.example.com:1",
		}},
		{"written otherwise", Rules{Allow: []string{"EXAMPLE.Com.", "*.MÜNCHEN.de."}}, Operator{}, []string{
			"example.com:443", "www.xn--mnchen-3ya.de:1", "!Example.com:443", "!example.com.:443", "!www.münchen.de:1", "!example.com\x00:1",
		}},
		{"an address is no name", Rules{Allow: []string{"*"}}, Operator{}, []string{"!127.0.0.1:80", "!2130706433:80", "!0x7f.1:80", "!::1:80"}},
		{"denied", Rules{Open: true, Deny: []string{"evil.com", "*.evil.com:25"}}, Operator{}, []string{
			"!evil.com:1", "!a.evil.com:25", "a.evil.com:26", "example.com:25",
		}},
		{"allow before deny", Rules{Allow: []string{"ok.evil.com", "same.com"}, Deny: []string{"*.evil.com", "same.com"}}, Operator{},
			[]string{"ok.evil.com:1", "same.com:1", "!no.evil.com:1"}},
		{"allow before deny, open", Rules{Open: true, Allow: []string{"ok.evil.com:443"}, Deny: []string{"*.evil.com"}}, Operator{},
			[]string{"ok.evil.com:443", "!ok.evil.com:80", "!no.evil.com:443", "example.com:1"}},
		{"a denied name comes before all addresses", Rules{Allow: []string{"0.0.0.0/0"}, Deny: []string{"evil.com"}}, Operator{},
			[]string{"!evil.com:443", "example.com:443"}},
		{"everything denied", Rules{Open: true, Allow: []string{"example.com"}, Deny: []string{"0.0.0.0/0"}}, Operator{},
			[]string{"example.com:443", "!other.com:443"}},
		{"a header allows nothing", Rules{Headers: []HeaderRule{{Host: "api.example.com", Headers: map[string]string{"A": "b"}}}}, Operator{},
			[]string{"!api.example.com:443"}},
		{"a preset", Rules{Allow: []string{"@pypi"}}, Operator{}, []string{"pypi.org:443", "files.pythonhosted.org:443", "!pypi.org:80", "!upload.pypi.org:443"}},
		{"a denied preset", Rules{Open: true, Deny: []string{"@npm"}}, Operator{}, []string{"!registry.npmjs.org:443", "pypi.org:443"}},
		{"this machine, open", Rules{Open: true}, Operator{HostPorts: []int{8080}}, []string{HostName + ":8080", "!" + HostName + ":8081"}},
		{"this machine, closed", Rules{}, Operator{HostPorts: []int{8080}}, []string{"!" + HostName + ":8080"}},
		{"this machine, allowed", Rules{Allow: []string{HostName}}, Operator{HostPorts: []int{8080}}, []string{HostName + ":8080", "!" + HostName + ":22"}},
		{"this machine, denied", Rules{Open: true, Deny: []string{HostName}}, Operator{HostPorts: []int{8080}}, []string{"!" + HostName + ":8080"}},
	} {
		p := compile(t, test.rules, test.op)
		for _, flow := range test.flows {
			target, refused := strings.CutPrefix(flow, "!")
			i := strings.LastIndex(target, ":")
			port, err := parsePort(target[i+1:])
			if err != nil {
				t.Fatal(err)
			}
			d := p.Host(target[:i], port, TCP)
			if d.Allowed == refused {
				t.Errorf("%s: %s is %+v", test.name, flow, d)
			}
			if d.Reason == "" || strings.ContainsAny(d.Reason, "\n\x00") {
				t.Errorf("%s: %s has the reason %q", test.name, flow, d.Reason)
			}
		}
	}
}

// TestName is how names are answered.
func TestName(t *testing.T) {
	headers := []HeaderRule{{Host: "API.example.com", Headers: map[string]string{"A": "b"}}}
	for _, test := range []struct {
		name  string
		rules Rules
		op    Operator
		want  map[string]Resolution
	}{
		{"closed", Rules{}, Operator{}, map[string]Resolution{"example.com": Refused, HostName: Refused}},
		{"closed, rules", Rules{Allow: []string{"example.com:443", "*.org"}, Headers: headers}, Operator{}, map[string]Resolution{
			"example.com": Pinned, "a.org": Pinned, "org": Refused, "api.example.com": Pinned, "www.example.com": Refused, "Example.com": Refused,
		}},
		{"closed, addresses", Rules{Allow: []string{"192.0.2.0/24"}}, Operator{}, map[string]Resolution{"example.com": Refused}},
		{"closed, every name", Rules{Allow: []string{"*"}}, Operator{}, map[string]Resolution{
			"example.com": Pinned, "localhost": Refused, "a.localhost": Refused, HostName: Refused,
		}},
		{"open", Rules{Open: true, Headers: headers}, Operator{HostPorts: []int{1}}, map[string]Resolution{
			"example.com": Real, "api.example.com": Pinned, "localhost": Refused, HostName: Pinned, "127.0.0.1": Refused, "": Refused,
		}},
		{"open, denied", Rules{Open: true, Deny: []string{"evil.com", "*.evil.com", "part.com:25", "all.com:1-100", "all.com:101-65535"},
			Allow: []string{"ok.evil.com:443"}}, Operator{}, map[string]Resolution{
			"evil.com": Refused, "a.evil.com": Refused, "ok.evil.com": Pinned, "part.com": Pinned, "all.com": Refused, "example.com": Real,
		}},
		{"open, denied addresses", Rules{Open: true, Deny: []string{"198.51.100.0/24"}, Allow: []string{"ok.com"}}, Operator{},
			map[string]Resolution{"ok.com": Pinned, "example.com": Real}},
		{"open, allowed in vain", Rules{Open: true, Allow: []string{"ok.com"}}, Operator{}, map[string]Resolution{"ok.com": Real}},
		{"a rule for everything", Rules{Allow: []string{"0.0.0.0/0"}}, Operator{}, map[string]Resolution{"example.com": Real}},
		{"a rule for nothing", Rules{Open: true, Deny: []string{"0.0.0.0/0"}}, Operator{}, map[string]Resolution{"example.com": Refused}},
		{"both", Rules{Allow: []string{"0.0.0.0/0"}, Deny: []string{"0.0.0.0/0"}}, Operator{}, map[string]Resolution{"example.com": Real}},
		{"one port of everything", Rules{Allow: []string{"0.0.0.0/0:443"}}, Operator{}, map[string]Resolution{"example.com": Refused}},
	} {
		p := compile(t, test.rules, test.op)
		for name, want := range test.want {
			if got := p.Name(name); got != want {
				t.Errorf("%s: %s is %s, want %s", test.name, name, got, want)
			}
		}
	}
}

// TestAddr decides about addresses. A line that begins with ! is refused; a name
// before @ is that of the flow.
func TestAddr(t *testing.T) {
	for _, test := range []struct {
		name  string
		rules Rules
		op    Operator
		flows []string
	}{
		{"closed", Rules{}, Operator{}, []string{"!8.8.8.8:53", "![2606:4700::1]:443"}},
		{"open", Rules{Open: true}, Operator{}, []string{"8.8.8.8:53", "[2606:4700::1]:443", "[::ffff:8.8.8.8]:1", "[64:ff9b::808:808]:1", "!8.8.8.8:0"}},
		{"a network", Rules{Allow: []string{"8.8.0.0/16:53", "1.1.1.1", "[2606:4700::]:443", "2606:4701::/32"}}, Operator{}, []string{
			"8.8.1.2:53", "!8.8.1.2:54", "!8.9.0.1:53", "1.1.1.1:1", "!1.1.1.2:1", "[2606:4700::]:443", "![2606:4700::]:80", "![2606:4700::1]:443",
			"[2606:4701::9]:9", "[::ffff:8.8.1.2]:53", "[64:ff9b::808:102]:53", "![64:ff9b::809:102]:53",
		}},
		{"another port of a wider network", Rules{Allow: []string{"8.0.0.0/8:80", "8.8.0.0/16:443"}}, Operator{}, []string{
			"8.8.1.1:80", "8.8.1.1:443", "8.7.1.1:80", "!8.7.1.1:443",
		}},
		{"host bits", Rules{Allow: []string{"8.8.8.8/24"}}, Operator{}, []string{"8.8.8.1:1", "!8.8.9.1:1"}},
		{"deny", Rules{Open: true, Deny: []string{"8.8.0.0/16", "0.0.0.0/0:25", "2606:4700::/32"}}, Operator{}, []string{
			"!8.8.8.8:53", "9.9.9.9:53", "!9.9.9.9:25", "![2606:4700::1]:443", "[2606:4701::1]:25", "![64:ff9b::808:808]:53",
		}},
		{"allow before deny", Rules{Open: true, Allow: []string{"8.8.8.8"}, Deny: []string{"8.8.0.0/16"}}, Operator{}, []string{
			"8.8.8.8:53", "!8.8.4.4:53",
		}},
		{"allow before deny, wider", Rules{Allow: []string{"8.0.0.0/8"}, Deny: []string{"8.8.8.8"}}, Operator{}, []string{"8.8.8.8:53"}},
		{"an allowed name before a denied address", Rules{Allow: []string{"example.com:443"}, Deny: []string{"0.0.0.0/0"}}, Operator{}, []string{
			"example.com@8.8.8.8:443", "!example.com@8.8.8.8:80", "!8.8.8.8:443", "!other.com@8.8.8.8:443", "!example.com@127.0.0.1:443",
			"!example.com@10.0.0.1:443", "!example.com@169.254.169.254:443", "!example.com@[::1]:443", "!example.com@[::ffff:10.0.0.1]:443",
		}},
		{"an open name and a denied address", Rules{Open: true, Deny: []string{"8.8.0.0/16", "evil.com"}}, Operator{}, []string{
			"example.com@9.9.9.9:443", "!example.com@8.8.8.8:443", "!evil.com@9.9.9.9:443", "!example.com@10.0.0.1:443",
		}},
		{"rules open nothing special", Rules{Open: true, Allow: []string{"0.0.0.0/0", "::/0", "10.0.0.0/8", "127.0.0.1", "169.254.169.254", "*"}}, Operator{}, []string{
			"!10.1.2.3:80", "!127.0.0.1:80", "!169.254.169.254:80", "![::1]:80", "![fd00::1]:80", "!example.com@10.1.2.3:80", "8.8.8.8:80",
		}},
		{"reach", Rules{Open: true}, Operator{Reach: []string{"127.0.0.1:8080", "10.0.0.0/8", "169.254.0.0/16", "[fd00::/8]:443", "::1"}}, []string{
			"127.0.0.1:8080", "!127.0.0.1:8081", "!127.0.0.2:8080", "10.9.9.9:1", "[::ffff:10.9.9.9]:1", "[64:ff9b::a09:909]:1", "!192.168.0.1:1",
			"!169.254.169.254:80", "169.254.1.1:80", "[fd00::5]:443", "![fd00::5]:80", "![fd00:ec2::254]:443", "[::1]:1", "example.com@10.9.9.9:1",
		}},
		{"reach is no rule", Rules{}, Operator{Reach: []string{"10.0.0.0/8"}}, []string{"!10.0.0.1:80"}},
		{"reach of everything", Rules{Open: true}, Operator{Reach: []string{"0.0.0.0/0", "::/0"}}, []string{
			"10.0.0.1:80", "!0.0.0.0:80", "!0.1.2.3:80", "!224.0.0.1:80", "!255.255.255.255:80", "!169.254.169.254:80", "!168.63.129.16:80",
			"![::]:80", "![ff02::1]:80", "![::127.0.0.1]:80", "[fe80::1]:80",
		}},
		{"metadata by its address", Rules{Open: true}, Operator{Reach: []string{"169.254.169.254:80", "168.63.129.16/32"}}, []string{
			"169.254.169.254:80", "!169.254.169.254:81", "168.63.129.16:1",
		}},
		{"this machine", Rules{Open: true}, Operator{HostPorts: []int{8080}}, []string{
			HostName + "@127.0.0.1:8080", HostName + "@[::1]:8080", "!" + HostName + "@127.0.0.1:80", "!" + HostName + "@10.0.0.1:8080",
			"!127.0.0.1:8080", "!example.com@127.0.0.1:8080",
		}},
	} {
		p := compile(t, test.rules, test.op)
		for _, flow := range test.flows {
			target, refused := strings.CutPrefix(flow, "!")
			name, addr, named := strings.Cut(target, "@")
			if !named {
				name, addr = "", target
			}
			a := netip.MustParseAddrPort(addr)
			d := p.Dial(a, name)
			if d.Allowed == refused {
				t.Errorf("%s: %s is %+v", test.name, flow, d)
			}
			if d.Reason == "" {
				t.Errorf("%s: %s has no reason", test.name, flow)
			}
			if !named && a.Port() != 443 && a.Port() != 80 {
				if got := p.Addr(a, UDP); got.Allowed != d.Allowed {
					t.Errorf("%s: %s over UDP is %+v", test.name, flow, got)
				}
			}
		}
	}
}

// TestProtocols: QUIC is refused everywhere, and what is neither TCP nor UDP.
func TestProtocols(t *testing.T) {
	p := compile(t, Rules{Open: true, Allow: []string{"example.com", "8.8.8.8"}}, Operator{})
	a := netip.MustParseAddr("8.8.8.8")
	for _, test := range []struct {
		port  uint16
		proto Proto
		want  bool
	}{
		{443, TCP, true}, {80, TCP, true}, {443, UDP, false}, {80, UDP, false}, {123, UDP, true}, {1, 0, false}, {1, 3, false}, {0, TCP, false},
	} {
		if d := p.Host("example.com", test.port, test.proto); d.Allowed != test.want {
			t.Errorf("%d over %s to a name: %+v", test.port, test.proto, d)
		}
		if d := p.Addr(netip.AddrPortFrom(a, test.port), test.proto); d.Allowed != test.want {
			t.Errorf("%d over %s to an address: %+v", test.port, test.proto, d)
		}
	}
}

// TestReasons say in one line what decided and how to open what is closed.
func TestReasons(t *testing.T) {
	p := compile(t, Rules{Deny: []string{"*.evil.com"}, Allow: []string{"@npm", "8.8.8.0/24:53"}}, Operator{})
	open := compile(t, Rules{Open: true}, Operator{})
	for _, test := range []struct {
		got                 Decision
		rule, entry, reason string
	}{
		{p.Host("pypi.org", 443, TCP), "", "@pypi", "the network is closed and no rule allows pypi.org:443: allow @pypi to open it"},
		{p.Host("pypi.org", 80, TCP), "", "pypi.org:80", "the network is closed and no rule allows pypi.org:80: allow pypi.org:80 to open it"},
		{p.Host("a.evil.com", 1, TCP), "*.evil.com", "a.evil.com:1",
			`a rule denies a.evil.com:1: take "*.evil.com" out of deny, or put a.evil.com:1 into allow`},
		{p.Host("registry.npmjs.org", 443, TCP), "@npm", "", "a rule allows registry.npmjs.org:443"},
		{p.Addr(netip.MustParseAddrPort("8.8.8.8:53"), UDP), "8.8.8.0/24:53", "", "a rule allows 8.8.8.8:53"},
		{p.Addr(netip.MustParseAddrPort("[2606:4700::1]:443"), TCP), "", "[2606:4700::1]:443",
			"the network is closed and no rule allows [2606:4700::1]:443: allow [2606:4700::1]:443 to open it"},
		{open.Addr(netip.MustParseAddrPort("10.0.0.5:80"), TCP), "", "",
			"10.0.0.5 is for private use (RFC 1918): only this machine's owner can open it (reach 10.0.0.5:80)"},
		{open.Addr(netip.MustParseAddrPort("[::ffff:169.254.169.254]:80"), TCP), "", "",
			"169.254.169.254 is where a cloud tells a machine its credentials: only this machine's owner can open it, " +
				"by naming the address itself (reach 169.254.169.254:80)"},
		{open.Addr(netip.MustParseAddrPort("224.0.0.251:5353"), UDP), "", "", "224.0.0.251 is multicast (RFC 5771) and cannot be reached"},
		{open.Host("example.com", 443, UDP), "", "", "example.com:443 over UDP is QUIC, which is refused: clients use TCP then"},
		{p.Question("pypi.org"), "", "@pypi", "the network is closed and no rule allows pypi.org: allow @pypi to open it"},
		{p.Question("example.com"), "", "example.com", "the network is closed and no rule allows example.com: allow example.com to open it"},
		{p.Question("a.evil.com"), "*.evil.com", "a.evil.com", `a rule denies a.evil.com: take "*.evil.com" out of deny, or put a.evil.com into allow`},
		{p.Question(HostName), "", "", HostName + " is this machine, of which its owner has opened no port: only the owner can"},
		{compile(t, Rules{}, Operator{HostPorts: []int{80}}).Question(HostName), "", HostName,
			"the network is closed and no rule allows " + HostName + ": allow " + HostName + " to open it"},
	} {
		if test.got.Rule != test.rule || test.got.Entry != test.entry || test.got.Reason != test.reason {
			t.Errorf("%+v, want %q %q %q", test.got, test.rule, test.entry, test.reason)
		}
	}
}

// TestEntriesOpenWhatTheyAreSuggestedFor puts each suggestion into allow.
func TestEntriesOpenWhatTheyAreSuggestedFor(t *testing.T) {
	closed := compile(t, Rules{Deny: []string{"evil.com", "9.9.9.9"}}, Operator{})
	for _, name := range []string{"pypi.org", "a.example.com", "evil.com", "static.crates.io", "xn--mnchen-3ya.de"} {
		d := closed.Host(name, 443, TCP)
		opened := compile(t, Rules{Allow: []string{d.Entry}, Deny: []string{"evil.com"}}, Operator{})
		if !opened.Host(name, 443, TCP).Allowed {
			t.Errorf("%q does not open %s", d.Entry, name)
		}
	}
	for _, name := range []string{"pypi.org", "a.example.com", "evil.com"} {
		d := closed.Question(name)
		opened := compile(t, Rules{Allow: []string{d.Entry}, Deny: []string{"evil.com"}}, Operator{})
		if opened.Name(name) == Refused {
			t.Errorf("%q does not open %s", d.Entry, name)
		}
	}
	for _, addr := range []string{"8.8.8.8:53", "9.9.9.9:1", "[2606:4700::1]:443", "[64:ff9b::808:808]:9", "[::ffff:8.8.8.8]:9"} {
		a := netip.MustParseAddrPort(addr)
		d := closed.Addr(a, TCP)
		opened := compile(t, Rules{Allow: []string{d.Entry}, Deny: []string{"9.9.9.9"}}, Operator{})
		if !opened.Addr(a, TCP).Allowed {
			t.Errorf("%q does not open %s", d.Entry, addr)
		}
	}
}

// TestReaches: an address that is public, too, can be named.
func TestReaches(t *testing.T) {
	p := compile(t, Rules{Open: true}, Operator{Reach: []string{"8.8.8.8:53", "10.0.0.0/8", "0.0.0.0/1", "169.254.0.0/16"}})
	for addr, want := range map[string]bool{
		"8.8.8.8:53": true, "[::ffff:8.8.8.8]:53": true, "200.8.8.8:54": false, "10.1.1.1:9": true, "169.254.169.254:80": false, "0.0.0.0:1": false,
		"192.168.1.1:1": false, "[::1]:1": false,
	} {
		if got := p.Reaches(netip.MustParseAddrPort(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	zoned := netip.AddrPortFrom(netip.MustParseAddr("fe80::1%eth0"), 1)
	if p.Reaches(zoned) || p.Reach(zoned).Allowed || p.Reaches(netip.AddrPort{}) || p.Dial(netip.AddrPort{}, "").Allowed {
		t.Error("what is no address is reached")
	}
}

// TestFaults are bad rules: each is named with its place, and none is let through.
func TestFaults(t *testing.T) {
	header := func(host string, port int, headers ...string) Rules {
		h := HeaderRule{Host: host, Port: port, Headers: map[string]string{}}
		for i := 0; i+1 < len(headers); i += 2 {
			h.Headers[headers[i]] = headers[i+1]
		}
		return Rules{Headers: []HeaderRule{h}}
	}
	for _, test := range []struct {
		rules Rules
		op    Operator
		want  string
	}{
		{Rules{Allow: []string{"a.com", ""}}, Operator{}, "allow[1]: the name is empty"},
		{Rules{Deny: []string{""}}, Operator{}, "deny[0]: the name is empty"},
		{Rules{Allow: []string{"evil.com\x00.ok.com"}}, Operator{}, `allow[0]: "evil.com\x00.ok.com": the name has a character`},
		{Rules{Allow: []string{"a.com:0"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:65536"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:-1"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:080"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:+80"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com: 80"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:http"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:1-2-3"}}, Operator{}, "between 1 and 65535"},
		{Rules{Allow: []string{"a.com:9-8"}}, Operator{}, "end before its beginning"},
		{Rules{Allow: []string{":80"}}, Operator{}, "the name is empty"},
		{Rules{Allow: []string{"**"}}, Operator{}, "only at the beginning"},
		{Rules{Allow: []string{"*a.com"}}, Operator{}, "only at the beginning"},
		{Rules{Allow: []string{"a.*.com"}}, Operator{}, "only at the beginning"},
		{Rules{Allow: []string{"*.*.com"}}, Operator{}, "only at the beginning"},
		{Rules{Allow: []string{"*."}}, Operator{}, "the name is empty"},
		{Rules{Allow: []string{"*.127.0.0.1"}}, Operator{}, "ends in a number"},
		{Rules{Allow: []string{"https://a.com"}}, Operator{}, "port"},
		{Rules{Allow: []string{"a.com/x"}}, Operator{}, "no network"},
		{Rules{Allow: []string{"u@a.com"}}, Operator{}, "character"},
		{Rules{Allow: []string{"localhost"}}, Operator{}, HostName},
		{Rules{Allow: []string{"*.localhost:80"}}, Operator{}, HostName},
		{Rules{Allow: []string{"@"}}, Operator{}, "there is no such preset: @crates, @debian"},
		{Rules{Allow: []string{"@PyPI"}}, Operator{}, "no such preset"},
		{Rules{Allow: []string{"@pypi:443"}}, Operator{}, "no such preset"},
		{Rules{Allow: []string{"10.0.0.0/33"}}, Operator{}, "no network"},
		{Rules{Allow: []string{"10.0.0.0/-1"}}, Operator{}, "no network"},
		{Rules{Allow: []string{"10.0.0.0/08"}}, Operator{}, "no network"},
		{Rules{Allow: []string{"::ffff:10.0.0.0/104"}}, Operator{}, "as IPv4"},
		{Rules{Allow: []string{"64:ff9b::/96"}}, Operator{}, "as IPv4"},
		{Rules{Allow: []string{"[2001:db8::1"}}, Operator{}, "] is missing"},
		{Rules{Allow: []string{"[2001:db8::1]80"}}, Operator{}, "only :PORT"},
		{Rules{Allow: []string{"[a.com]:80"}}, Operator{}, "no address"},
		{Rules{Allow: []string{strings.Repeat("a", 5000)}}, Operator{}, "too long"},
		{Rules{Allow: make([]string, maxEntries+1)}, Operator{}, "at most 20000"},
		{Rules{Allow: make([]string, 100)}, Operator{}, "and 80 more faults"},
		{header("a.com", 0), Operator{}, "headers[0].headers"},
		{header("a.com", -1, "A", "b"), Operator{}, "headers[0].port"},
		{header("a.com", 65536, "A", "b"), Operator{}, "headers[0].port"},
		{header("*", 0, "A", "b"), Operator{}, "headers[0].host"},
		{header("*.com", 0, "A", "b"), Operator{}, "anybody can have a host below this name"},
		{header("*.a.com.evil*", 0, "A", "b"), Operator{}, "headers[0].host"},
		{Rules{Headers: append(header("*.a.com", 0, "A", "b").Headers, header("*.A.com.", 443, "C", "d").Headers...)}, Operator{}, "headers twice"},
		{Rules{Headers: []HeaderRule{{Host: "a.com", Plain: true, Headers: map[string]string{"A": "b"}}}}, Operator{}, "is to have none"},
		{header("127.0.0.1", 0, "A", "b"), Operator{}, "headers[0].host"},
		{header("localhost", 0, "A", "b"), Operator{}, "headers[0].host"},
		{header("a.com", 0, "A b", "b"), Operator{}, "no name of a header"},
		{header("a.com", 0, "A", "b\r\nHost: c"), Operator{}, `headers[0].headers: "A": its value`},
		{header("a.com", 0, "A", "b", "a", "c"), Operator{}, "there twice"},
		{header("a.com", 0, "hOST", "b"), Operator{}, "framed"},
		{header("a.com", 0, "Content-Length", "0"), Operator{}, "framed"},
		{Rules{Headers: append(header("a.com", 0, "A", "b").Headers, header("A.com.", 443, "C", "d").Headers...)}, Operator{}, "headers twice"},
		{Rules{Proxy: &Proxy{Address: "a.com"}}, Operator{}, "proxy: \"a.com\": its address is not in the form"},
		{Rules{Proxy: &Proxy{Address: "a.com:0"}}, Operator{}, "proxy"},
		{Rules{Proxy: &Proxy{Address: "2130706433:1"}}, Operator{}, "proxy"},
		{Rules{Proxy: &Proxy{Address: "[::ffff:8.8.8.8]:1"}}, Operator{}, "proxy"},
		{Rules{Proxy: &Proxy{Address: "10.0.0.1:1"}}, Operator{}, "internal / denied IP range"},
		{Rules{Proxy: &Proxy{Address: "localhost:1"}}, Operator{Reach: []string{"127.0.0.1"}}, "internal / denied IP range: localhost is the machine"},
		{Rules{Proxy: &Proxy{Address: "A.LocalHost.:1"}}, Operator{}, "internal / denied IP range: a.localhost is the machine"},
		{Rules{Proxy: &Proxy{Address: HostName + ":1"}}, Operator{HostPorts: []int{1}}, "inside of sandboxes only: give the proxy's address"},
		{Rules{Proxy: &Proxy{Address: "a.com:1", Resolves: true}}, Operator{}, "only the machine's owner"},
		{Rules{Proxy: &Proxy{Address: "a.com:1", Password: "s3cret"}}, Operator{}, "no user name"},
		{Rules{Proxy: &Proxy{Address: "a.com:1", Username: strings.Repeat("u", 256)}}, Operator{}, "255"},
		{Rules{}, Operator{Reach: []string{"a.com"}}, "reach[0]"},
		{Rules{}, Operator{Reach: []string{"@pypi"}}, "reach[0]"},
		{Rules{}, Operator{Reach: []string{"224.0.0.1"}}, "cannot be reached"},
		{Rules{}, Operator{Reach: []string{"0.0.0.0"}}, "reach[0]"},
		{Rules{}, Operator{Reach: []string{"ff00::/8"}}, "cannot be reached"},
		{Rules{}, Operator{HostPorts: []int{80, 0}}, "hostPorts[1]"},
		{Rules{}, Operator{HostPorts: []int{65536}}, "hostPorts[0]"},
		{Rules{}, Operator{Resolvers: []netip.AddrPort{{}}}, "resolvers[0]"},
		{Rules{}, Operator{Proxy: &Proxy{Address: "a.com:x"}}, "operator.proxy"},
	} {
		_, err := Compile(test.rules, test.op)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v %+v: %v, want %q", test.rules, test.op, err, test.want)
			continue
		}
		if len(err.Error()) > 8000 {
			t.Errorf("an error of %d bytes: %.200s", len(err.Error()), err)
		}
	}
	_, err := Compile(Rules{Allow: []string{"a b", "ok.com"}, Deny: []string{"::x"}, Proxy: &Proxy{Address: "x"}}, Operator{Reach: []string{"y"}})
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not every fault is told: %v", err)
	}
}

func TestHeadersFor(t *testing.T) {
	asked := map[string]string{"Authorization": "Bearer t0p"}
	p := compile(t, Rules{Headers: []HeaderRule{
		{Host: "API.example.com.", Headers: asked}, {Host: "api.example.com", Port: 8443, Headers: map[string]string{"X": "y"}},
	}}, Operator{})
	asked["Authorization"] = "changed" // the policy has its own
	if h, ok := p.HeadersFor("api.example.com", 443); !ok || h.Headers["Authorization"] != "Bearer t0p" || h.Host != "api.example.com" {
		t.Errorf("%v %v", h, ok)
	}
	if h, ok := p.HeadersFor("api.example.com", 8443); !ok || h.Headers["X"] != "y" {
		t.Errorf("%v %v", h, ok)
	}
	for _, other := range []hostPort{{"api.example.com", 80}, {"example.com", 443}, {"a.api.example.com", 443}, {"API.example.com", 443}, {"", 443}} {
		if h, ok := p.HeadersFor(other.host, other.port); ok {
			t.Errorf("%v has %v", other, h)
		}
	}
}

// TestHeadersBelow: what is below a name, and nothing that looks like it, gets the headers
// of the closest rule.
func TestHeadersBelow(t *testing.T) {
	rule := func(host string, port int, value string) HeaderRule {
		return HeaderRule{Host: host, Port: port, Headers: map[string]string{"A": value}}
	}
	p := compile(t, Rules{Open: true, Headers: []HeaderRule{
		rule("*.Example.com.", 0, "wide"), rule("*.b.example.com", 0, "closer"), rule("exact.b.example.com", 0, "exact"),
		rule("*.example.com", 8443, "port"), {Host: "plain.example.com", Plain: true}, {Host: "*.plain.example.com", Plain: true},
		{Host: "gone.example.com", Missing: "key"}, rule("*.xn--mnchen-3ya.de", 0, "idn"),
	}}, Operator{})
	for _, test := range []struct {
		name string
		port uint16
		want string // empty: no headers
		how  Resolution
	}{
		{"a.example.com", 443, "wide", Pinned},
		{"a.c.example.com", 443, "wide", Pinned},
		{"b.example.com", 443, "wide", Pinned},
		{"a.b.example.com", 443, "closer", Pinned},
		{"x.y.b.example.com", 443, "closer", Pinned},
		{"exact.b.example.com", 443, "exact", Pinned},
		{"a.exact.b.example.com", 443, "closer", Pinned},
		{"a.example.com", 8443, "port", Pinned},
		{"exact.b.example.com", 8443, "port", Pinned},
		{"a.xn--mnchen-3ya.de", 443, "idn", Pinned},
		{"a.example.com", 80, "", Pinned},
		{"plain.example.com", 443, "", Pinned},
		{"a.plain.example.com", 443, "", Pinned},
		{"example.com", 443, "", Real},
		{"evilexample.com", 443, "", Real},
		{"evil-example.com", 443, "", Real},
		{"example.com.evil.com", 443, "", Real},
		{"a.example.com.evil.com", 443, "", Real},
		{"a.example.co", 443, "", Real},
		{"com", 443, "", Real},
		{"a.example.com.", 443, "", Refused}, // what is not canonical is nobody's
		{"A.example.com", 443, "", Refused},
		{".example.com", 443, "", Refused},
		{"*.example.com", 443, "", Refused},
		{"a\x00.example.com", 443, "", Refused},
	} {
		got := ""
		if h, ok := p.HeadersFor(test.name, test.port); ok {
			got = h.Headers["A"]
		}
		if how := p.Name(test.name); how != test.how || got != test.want {
			t.Errorf("%q:%d gets %q and is %s, want %q and %s", test.name, test.port, got, how, test.want, test.how)
		}
		if how := p.Name(test.name); how == Refused && p.Host(test.name, test.port, TCP).Allowed {
			t.Errorf("%q may be connected to", test.name)
		}
	}
	if d := p.Host("gone.example.com", 443, TCP); d.Allowed || !strings.Contains(d.Reason, `need the secret "key"`) {
		t.Errorf("a closer rule without its secret: %+v", d)
	}
	// A rule for names opens none, and a name that nothing allows is not answered.
	closed := compile(t, Rules{Allow: []string{"a.example.com"}, Headers: []HeaderRule{rule("*.example.com", 0, "wide")}}, Operator{})
	for name, want := range map[string]Resolution{"a.example.com": Pinned, "b.example.com": Refused, "example.com": Refused} {
		if got := closed.Name(name); got != want || closed.Host(name, 443, TCP).Allowed != (want == Pinned) {
			t.Errorf("closed: %s is %s", name, got)
		}
	}
}

// TestSecretsAreNotShown prints rules in every way that a log or an error might.
func TestSecretsAreNotShown(t *testing.T) {
	r := Rules{
		Headers: []HeaderRule{{Host: "a.com", Headers: map[string]string{"Authorization": "s3cret", "bad name": "s3cret\x00"}}},
		Proxy:   &Proxy{Address: "u:s3cret@b.com:x", Username: "u", Password: "s3cret"},
	}
	op := Operator{Proxy: &Proxy{Address: "b.com:x", Username: "u", Password: "s3cret"}}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("rules", "all", r, "pointer", &r, "header", r.Headers[0], "proxy", r.Proxy, "op", op, "pointer", &op)
	}
	_, err := Compile(r, op)
	texts := []string{log.String(), err.Error()}
	for _, v := range []any{r, &r, r.Headers, r.Headers[0], &r.Headers[0], r.Proxy, *r.Proxy, op} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, "s3cret") || strings.Contains(text, fmt.Sprintf("%x", "s3cret")) {
			t.Errorf("the secret is in %q", text)
		}
	}
}

// TestRulesAreSent: what the gateway reads is what was sent.
func TestRulesAreSent(t *testing.T) {
	r := Rules{Open: true, Allow: []string{"a.com"}, Deny: []string{"8.8.8.8"},
		Headers: []HeaderRule{{Host: "a.com", Port: 1, Headers: map[string]string{"A": "s3cret"}}},
		Proxy:   &Proxy{Address: "p:1", Username: "u", Password: "w"}}
	op := Operator{Reach: []string{"10.0.0.0/8"}, HostPorts: []int{1}, Resolvers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.53:53")},
		Proxy: &Proxy{Address: "q:2", Resolves: true}}
	data, err := json.Marshal(struct {
		R Rules
		O Operator
	}{r, op})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		R Rules
		O Operator
	}
	if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got.R, r) || !reflect.DeepEqual(got.O, op) {
		t.Errorf("%s becomes %v %v, %v", data, got.R, got.O, err)
	}
}

// TestProxies: the machine owner's may be anywhere.
func TestProxies(t *testing.T) {
	p := compile(t, Rules{Proxy: &Proxy{Address: "8.8.8.8:1080"}}, Operator{Proxy: &Proxy{Address: "127.0.0.1:3128", Resolves: true}})
	if owners, own := p.Proxies(); owners.Address != "127.0.0.1:3128" || own.Address != "8.8.8.8:1080" {
		t.Errorf("%v %v", owners, own)
	}
	compile(t, Rules{Proxy: &Proxy{Address: "10.0.0.1:1080"}}, Operator{Reach: []string{"10.0.0.1"}})
	if owners, own := compile(t, Rules{}, Operator{}).Proxies(); owners != nil || own != nil {
		t.Errorf("%v %v", owners, own)
	}
}

// TestPresets: each is a rule, has exact hosts but where a wildcard is needed, and
// opens no port but those of HTTP, HTTPS and SSH.
func TestPresets(t *testing.T) {
	want := []string{"@crates", "@debian", "@github", "@go", "@huggingface", "@npm", "@pypi"}
	if got := Presets(); !slices.Equal(got, want) {
		t.Errorf("the presets are %v", got)
	}
	for name, hosts := range presets {
		for _, host := range hosts {
			e, err := parseEntry(host)
			if err != nil || e.name == "" || e.ports.low != e.ports.high || e.below && host != "*.hf.co:443" {
				t.Errorf("%s has %q: %+v, %v", name, host, e, err)
			}
			if port := e.ports.low; port != 443 && (port != 80 || name != "debian") && (port != 22 || name != "github") {
				t.Errorf("%s has port %d", name, port)
			}
		}
	}
}

// TestPresetsAreExpandedOnce: a list that repeats one costs what its length does.
func TestPresetsAreExpandedOnce(t *testing.T) {
	rules := Rules{Allow: slices.Repeat([]string{"@github"}, maxEntries)}
	if n := testing.AllocsPerRun(1, func() { compile(t, rules, Operator{}) }); n > maxEntries {
		t.Errorf("%v allocations", n)
	}
}

// naive is what the tables say, by looking at every entry.
func naive(entries []entry, name string, a netip.AddrPort) bool {
	for _, e := range entries {
		if a.Port() < e.ports.low || a.Port() > e.ports.high {
			continue
		}
		switch {
		case e.prefix.IsValid():
			if name == "" && e.prefix.Contains(a.Addr()) {
				return true
			}
		case name == "":
		case e.below && (e.name == "" || strings.HasSuffix(strings.TrimSuffix(name, e.name), ".")), !e.below && name == e.name:
			return true
		}
	}
	return false
}

// parsed has the entries that are no presets.
func parsed(t *testing.T, list []string) []entry {
	t.Helper()
	var out []entry
	for _, s := range list {
		e, err := parseEntry(s)
		if err != nil {
			t.Fatal(err)
		}
		if e.preset == "" {
			out = append(out, e)
		}
	}
	return out
}

func randomEntries(r *rand.Rand, n int) []string {
	out := make([]string, n)
	for i := range out {
		switch r.IntN(5) {
		case 0:
			out[i] = fmt.Sprintf("h%d.d%d.com", r.IntN(50), r.IntN(n))
		case 1:
			out[i] = fmt.Sprintf("*.d%d.com", r.IntN(n))
		case 2:
			out[i] = fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(9), r.IntN(256), r.IntN(256), r.IntN(256))
		case 3:
			out[i] = fmt.Sprintf("%d.%d.0.0/%d", 1+r.IntN(9), r.IntN(256), 12+r.IntN(18))
		case 4:
			out[i] = fmt.Sprintf("[2600:%x:%x::]", r.IntN(4), r.IntN(n))
		}
		if r.IntN(2) == 0 {
			low := 1 + r.IntN(2000)
			out[i] += fmt.Sprintf(":%d-%d", low, low+r.IntN(3000))
		}
	}
	return out
}

// TestTenThousandRules says the same as a look at every rule.
func TestTenThousandRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	rules := Rules{Allow: randomEntries(r, 10_000), Deny: randomEntries(r, 2_000), Open: true}
	p := compile(t, rules, Operator{})
	allow, deny := parsed(t, rules.Allow), parsed(t, rules.Deny)
	counts := map[bool]int{}
	for range 200 {
		port := uint16(1 + r.IntN(6000))
		name := fmt.Sprintf("h%d.d%d.com", r.IntN(50), r.IntN(12_000))
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(1 + r.IntN(9)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}), port)
		want := naive(allow, name, a) || !naive(deny, name, a)
		if d := p.Host(name, port, TCP); d.Allowed != want {
			t.Fatalf("%s:%d is %+v", name, port, d)
		}
		counts[want]++
		want = naive(allow, "", a) || !naive(deny, "", a)
		if d := p.Addr(a, TCP); d.Allowed != want {
			t.Fatalf("%s is %+v", a, d)
		}
		counts[want]++
	}
	if counts[true] < 10 || counts[false] < 10 {
		t.Errorf("the sample is one-sided: %v", counts)
	}
}

func BenchmarkCompileTenThousand(b *testing.B) {
	rules := Rules{Allow: randomEntries(rand.New(rand.NewPCG(1, 2)), 10_000)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(rules, Operator{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHost(b *testing.B) {
	p, err := Compile(Rules{Allow: randomEntries(rand.New(rand.NewPCG(1, 2)), 10_000)}, Operator{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Host("a.b.h1.d7.com", 443, TCP)
	}
}

func BenchmarkAddr(b *testing.B) {
	p, err := Compile(Rules{Allow: randomEntries(rand.New(rand.NewPCG(1, 2)), 10_000)}, Operator{})
	if err != nil {
		b.Fatal(err)
	}
	a := netip.MustParseAddrPort("200.1.2.3:443")
	b.ReportAllocs()
	for b.Loop() {
		p.Addr(a, TCP)
	}
}
