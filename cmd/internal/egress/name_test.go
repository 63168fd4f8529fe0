package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCanonicalName(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, test := range []struct{ in, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.Com", "example.com"},
		{"example.com.", "example.com"},
		{"_dmarc.example.com", "_dmarc.example.com"},
		{"r3---sn-abc.googlevideo.com", "r3---sn-abc.googlevideo.com"},
		{"localhost", "localhost"},
		{"3com.com", "3com.com"},
		{"1.2.3.4.example", "1.2.3.4.example"},
		{"0x7f.example", "0x7f.example"},
		{"MÜNCHEN.de", "xn--mnchen-3ya.de"},
		{"XN--MNCHEN-3YA.DE", "xn--mnchen-3ya.de"},
		{"m\u00fcnchen\u3002de", "xn--mnchen-3ya.de"},
		{"\uff45xample.com", "example.com"},
		{"ex\u00adample.com", "example.com"},
		{strings.Join([]string{long, long, long, long[:61]}, "."), strings.Join([]string{long, long, long, long[:61]}, ".")},
		{long + ".com", long + ".com"},

		{"", ""},
		{".", ""},
		{"..", ""},
		{"example.com..", ""},
		{".example.com", ""},
		{"exa..mple.com", ""},
		{"evil.com\x00.ok.com", ""},
		{"evil.com\n.ok.com", ""},
		{" example.com", ""},
		{"example.com ", ""},
		{"example.com\t", ""},
		{"exam ple.com", ""},
		{"user@example.com", ""},
		{"example.com/x", ""},
		{"example.com:443", ""},
		{"example.com%00", ""},
		{"*.example.com", ""},
		{"[::1]", ""},
		{"-a.com", ""},
		{"a-.com", ""},
		{"a.com\u2100x", ""},
		{"example.com\u3002.", ""},
		{"xn--.com", ""},
		{"xn--a.com", ""},
		{"xn--example-.com", ""},
		{"xn--mnchen-3yA\u00e4.de", ""},
		{"xn--MNCHEN-3YB9999.de", ""},
		{"\xff\xfe.com", ""},
		{long + "a.com", ""},
		{strings.Join([]string{long, long, long, long[:62]}, "."), ""},
		{strings.Repeat("\u00e4", 600), ""},
	} {
		got, err := CanonicalName(test.in)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q is %q, %v; want %q", test.in, got, err, test.want)
		}
	}
}

// TestAddressesAreNoNames has the notations in which some program reads an
// address.
func TestAddressesAreNoNames(t *testing.T) {
	for _, s := range notations {
		if got, err := CanonicalName(s); err == nil {
			t.Errorf("%q is the name %q", s, got)
		}
		e, err := parseEntry(s)
		if want, ok := usual[s]; ok {
			if err != nil || e.prefix != netip.MustParsePrefix(want) {
				t.Errorf("the entry %q is %v, %v; want %s", s, e.prefix, err, want)
			}
		} else if err == nil {
			t.Errorf("%q is the entry %+v", s, e)
		}
	}
}

// usual are the notations that mean the same to every program.
var usual = map[string]string{
	"127.0.0.1": "127.0.0.1/32", "169.254.169.254": "169.254.169.254/32", "::1": "::1/128", "[::1]": "::1/128",
	"0:0:0:0:0:0:0:1": "::1/128",
}

var notations = []string{
	"127.0.0.1", "169.254.169.254", "::1", "[::1]", "0:0:0:0:0:0:0:1",
	"127.0.0.1.", "2130706433", "2130706433.", "017700000001", "0x7f000001", "0X7F000001", "0x7f.0x0.0x0.0x1", "0x7f.1", "127.1",
	"127.0.1", "0177.0.0.1", "127.0.0.01", "127.0.0.0x1", "0x", "1.2.3.0x", "1.2.3.4.5", "1.2.3.256", "99999999999999999999",
	"0", "00", "0.0.0.0", "::", "[::]", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]", "::ffff:7f00:1", "64:ff9b::7f00:1", "64:ff9b::127.0.0.1",
	"fe80::1%eth0", "[fe80::1%25eth0]", "fe80::1%0", "::ffff:127.0.0.1%1", "127.0.0.1%eth0", "\uff11\uff12\uff17.0.0.1",
	"127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1", "example.123", "example.0x1f", "[127.0.0.1]", "[1.2.3.4]", "127.0.0.1\x00", " 127.0.0.1",
	"+127.0.0.1", "0o177.0.0.1",
}
