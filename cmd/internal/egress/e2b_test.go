package egress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

func ptr[T any](v T) *T { return &v }

const needBlocking = "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic."

// TestE2BLists has E2B's own cases, and what Cubby takes besides.
func TestE2BLists(t *testing.T) {
	for _, test := range []struct {
		allow, deny, hosts []string
		want               string // the error
	}{
		{nil, nil, nil, ""},
		{nil, []string{"10.0.0.0/8"}, nil, ""},
		{nil, []string{"not-a-cidr"}, nil, "invalid denied CIDR not-a-cidr"},
		{nil, []string{"example.com"}, nil, "invalid denied CIDR example.com"},
		{nil, []string{"*.example.com"}, nil, "invalid denied CIDR *.example.com"},
		{nil, []string{"@npm"}, nil, "invalid denied CIDR @npm"},
		{nil, []string{""}, nil, "invalid denied CIDR "},
		{nil, []string{"0.0.0.0"}, nil, "invalid denied CIDR 0.0.0.0"},
		{nil, []string{"0.0.0.0/8"}, nil, "invalid denied CIDR 0.0.0.0/8"},
		{nil, []string{"::/0"}, nil, "invalid denied CIDR ::/0"},
		{nil, []string{"10.0.0.0/8:abc"}, nil, `invalid deny out entry: invalid entry "10.0.0.0/8:abc": a port is a number between 1 and 65535`},
		{nil, []string{"10.0.0.0/8:22"}, nil, ""},
		{nil, []string{"0.0.0.0/0:25"}, nil, ""},
		{[]string{"*.example.com"}, nil, nil, needBlocking},
		{[]string{"example.com"}, []string{"10.0.0.0/8"}, nil, needBlocking},
		{[]string{"example.com"}, []string{"0.0.0.0/0:443"}, nil, needBlocking},
		{[]string{"example.com", "8.8.8.8"}, []string{"10.0.0.0/8"}, nil, needBlocking},
		{[]string{"@pypi"}, nil, nil, needBlocking},
		{[]string{"2130706433"}, nil, nil, needBlocking},
		{[]string{"*.example.com"}, []string{"0.0.0.0/0"}, nil, ""},
		{[]string{"example.com", "8.8.8.8"}, []string{"0.0.0.0/0"}, nil, ""},
		{[]string{"*"}, []string{"0.0.0.0/0"}, nil, ""},
		{[]string{"@pypi", "example.com:443"}, []string{"10.0.0.0/8", "0.0.0.0/0"}, nil, ""},
		{[]string{"10.0.0.0/8"}, nil, nil, ""},
		{[]string{"8.8.8.8"}, []string{"10.0.0.0/8"}, nil, ""},
		{[]string{"10.0.0.0/8"}, []string{"192.168.0.0/16"}, nil, ""},
		{[]string{"0.0.0.0/0"}, nil, nil, ""},
		{[]string{"0.0.0.0"}, nil, nil, "invalid allowed address 0.0.0.0"},
		{[]string{"::"}, nil, nil, "invalid allowed address ::"},
		{[]string{"::ffff:8.8.8.8"}, nil, nil, "invalid allowed address ::ffff:8.8.8.8"},
		{[]string{"8.8.8.8:0"}, nil, nil, `invalid allow out entry: invalid entry "8.8.8.8:0": a port is a number between 1 and 65535`},
		{[]string{"evil.com\x00.ok.com"}, []string{"0.0.0.0/0"}, nil,
			`invalid allow out entry: invalid entry "evil.com\x00.ok.com": the name has a character that host names cannot have`},
		{[]string{""}, []string{"0.0.0.0/0"}, nil, `invalid allow out entry: invalid entry "": the name is empty`},
		{[]string{"ok.evil.com"}, nil, []string{"*.evil.com", "@npm", "9.9.9.9", "evil.com:25"}, ""},
		{nil, nil, []string{"a b"}, `invalid cubbyDenyHosts entry: invalid entry "a b": the name has a character that host names cannot have`},
	} {
		r, err := FromE2B(nil, &protocol.Network{AllowOut: test.allow, DenyOut: test.deny, DenyHosts: test.hosts})
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
			t.Errorf("allow %q deny %q: %v, want %q", test.allow, test.deny, err, test.want)
			continue
		}
		if err == nil {
			if _, err := Compile(r, Operator{}); err != nil {
				t.Errorf("allow %q deny %q is taken and does not compile: %v", test.allow, test.deny, err)
			}
		}
	}
}

// TestE2BPrecedence: what is allowed comes before what is denied, and a network
// without internet access keeps what is allowed.
func TestE2BPrecedence(t *testing.T) {
	all := []string{"0.0.0.0/0"}
	for _, test := range []struct {
		name    string
		access  *bool
		network *protocol.Network
		allowed []string // of example.com:443, other.com:443, 8.8.8.8:443, 9.9.9.9:443
	}{
		{"nothing is said", nil, nil, []string{"example.com", "other.com", "8.8.8.8", "9.9.9.9"}},
		{"an empty network", nil, &protocol.Network{}, []string{"example.com", "other.com", "8.8.8.8", "9.9.9.9"}},
		{"access", ptr(true), &protocol.Network{}, []string{"example.com", "other.com", "8.8.8.8", "9.9.9.9"}},
		{"no access", ptr(false), nil, nil},
		{"no access, allowed", ptr(false), &protocol.Network{AllowOut: []string{"8.8.8.8"}}, []string{"8.8.8.8"}},
		{"no access, denied", ptr(false), &protocol.Network{AllowOut: []string{"example.com"}, DenyOut: all}, []string{"example.com"}},
		{"access, all denied", ptr(true), &protocol.Network{DenyOut: all}, nil},
		{"a name", nil, &protocol.Network{AllowOut: []string{"example.com"}, DenyOut: all}, []string{"example.com"}},
		{"every name", nil, &protocol.Network{AllowOut: []string{"*"}, DenyOut: all}, []string{"example.com", "other.com"}},
		{"an address denied", nil, &protocol.Network{DenyOut: []string{"9.0.0.0/8"}}, []string{"example.com", "other.com", "8.8.8.8"}},
		{"an address denied and allowed", nil, &protocol.Network{AllowOut: []string{"9.9.9.9"}, DenyOut: []string{"9.0.0.0/8", "8.8.8.8"}},
			[]string{"example.com", "other.com", "9.9.9.9"}},
		{"a port", nil, &protocol.Network{AllowOut: []string{"example.com:443", "other.com:80"}, DenyOut: all}, []string{"example.com"}},
		{"all denied and allowed", nil, &protocol.Network{AllowOut: all, DenyOut: all}, []string{"example.com", "other.com", "8.8.8.8", "9.9.9.9"}},
		{"names denied", nil, &protocol.Network{AllowOut: []string{"example.com"}, DenyHosts: []string{"*.com", "@npm", "*", "9.9.9.9"}},
			[]string{"example.com", "8.8.8.8"}},
		{"names denied, no access", ptr(false), &protocol.Network{AllowOut: []string{"example.com"}, DenyHosts: []string{"9.9.9.9"}},
			[]string{"example.com"}},
		{"rules allow nothing", ptr(false), &protocol.Network{Rules: map[string][]protocol.NetworkRule{
			"example.com": {{Transform: &protocol.Transform{Headers: map[string]string{"A": "b"}}}},
		}}, nil},
	} {
		r, err := FromE2B(test.access, test.network)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		p := compile(t, r, Operator{})
		var got []string
		for _, name := range []string{"example.com", "other.com"} {
			if p.Host(name, 443, TCP).Allowed {
				got = append(got, name)
			}
		}
		for _, addr := range []string{"8.8.8.8", "9.9.9.9"} {
			if p.Addr(netip.AddrPortFrom(netip.MustParseAddr(addr), 443), TCP).Allowed {
				got = append(got, addr)
			}
		}
		if !slices.Equal(got, test.allowed) {
			t.Errorf("%s: %v is allowed, want %v", test.name, got, test.allowed)
		}
	}
}

// TestE2BRules has the bounds of rules and transforms.
func TestE2BRules(t *testing.T) {
	headers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"H%d":"v"`, i)
		}
		return `[{"transform":{"headers":{` + strings.TrimPrefix(b.String(), ",") + `}}}]`
	}
	one := `[{"transform":{"headers":{"A":"b"}}}]`
	many := map[string]string{}
	for i := range 11 {
		many[fmt.Sprintf("h%d.com", i)] = one
	}
	for _, test := range []struct {
		rules map[string]string
		want  string // the error
		hosts int
	}{
		{nil, "", 0},
		{map[string]string{"a.com": one}, "", 1},
		{map[string]string{"a.com": one, "b.com": one}, "", 2},
		{map[string]string{"a.com": `[]`}, "", 0},
		{map[string]string{"a.com": `[{}]`}, "", 0},
		{map[string]string{"a.com": `[{"transform":{}}]`}, "", 0},
		{map[string]string{"a.com": `[{"transform":null}]`}, "", 0},
		{map[string]string{"a.com": headers(20)}, "", 1},
		{map[string]string{"a.com": `[{"transform":{"headers":{"` + strings.Repeat("h", 64) + `":"` + strings.Repeat("v", 2048) + `"}}}]`}, "", 1},
		{many, "Network rules can have at most 10 domains.", 0},
		{map[string]string{"": one}, "Rule domain must not be empty.", 0},
		{map[string]string{strings.Repeat("a", 129): one},
			fmt.Sprintf("Rule domain %q exceeds maximum length of 128 characters.", strings.Repeat("a", 129)), 0},
		{map[string]string{"*.a.com": one, "a.com": one, "*.B.a.COM.": one, "*.corp": one}, "", 4},
		{map[string]string{"*.a.com": one, "plain.a.com": `[]`, "*.plain.a.com": `[{"transform":null}]`}, "", 3},
		{map[string]string{"*.a.com": one, "*.A.com.": one}, `Rule domain "*.a.com" is there more than once.`, 0},
		{map[string]string{"*": one}, `Rule domain "*" is not a valid domain name.`, 0},
		{map[string]string{"*.": one}, `Rule domain "*." is not a valid domain name.`, 0},
		{map[string]string{"*.*.a.com": one}, `Rule domain "*.*.a.com" is not a valid domain name.`, 0},
		{map[string]string{"a*.com": one}, `Rule domain "a*.com" is not a valid domain name.`, 0},
		{map[string]string{"a.*.com": one}, `Rule domain "a.*.com" is not a valid domain name.`, 0},
		{map[string]string{"*a.com": one}, `Rule domain "*a.com" is not a valid domain name.`, 0},
		{map[string]string{"*.1.2.3.4": one}, `Rule domain "*.1.2.3.4" is not a valid domain name.`, 0},
		{map[string]string{"*.localhost": one}, `Rule domain "*.localhost" is not a valid domain name.`, 0},
		{map[string]string{"*.com": one}, `Rule domain "*.com": ` + errShared.Error() + `.`, 0},
		{map[string]string{"*.CO.uk.": one}, `Rule domain "*.CO.uk.": ` + errShared.Error() + `.`, 0},
		{map[string]string{"*.github.io": one}, `Rule domain "*.github.io": ` + errShared.Error() + `.`, 0},
		{map[string]string{"1.2.3.4": one}, `Rule domain "1.2.3.4" is not a valid domain name.`, 0},
		{map[string]string{"a.com:443": one}, `Rule domain "a.com:443" is not a valid domain name.`, 0},
		{map[string]string{"mün.de": one}, `Rule domain "mün.de" is not a valid domain name.`, 0},
		{map[string]string{"A.com": one, "a.com.": one}, `Rule domain "a.com" is there more than once.`, 0},
		{map[string]string{"a.com": `[{"transform":{}},{"transform":{}}]`}, `Domain "a.com" can have at most 1 transform rule.`, 0},
		{map[string]string{"a.com": headers(21)}, `Domain "a.com" can have at most 20 headers per rule.`, 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"":"v"}}}]`}, `Header name in rule for domain "a.com" must not be empty.`, 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"a b":"v"}}}]`},
			`Header name "a b" in rule for domain "a.com" must contain only valid HTTP token characters.`, 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"` + strings.Repeat("h", 65) + `":"v"}}}]`},
			fmt.Sprintf(`Header name %q in rule for domain "a.com" exceeds maximum length of 64 characters.`, strings.Repeat("h", 65)), 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"A":"s3cret\n"}}}]`},
			`Value for header "A" in rule for domain "a.com" contains invalid characters.`, 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"A":"` + strings.Repeat("v", 2049) + `"}}}]`},
			`Value for header "A" in rule for domain "a.com" exceeds maximum length of 2048 characters.`, 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"Host":"b.com"}}}]`},
			`Header "Host" in rule for domain "a.com" cannot be set: requests are framed and led by it.`, 0},
		{map[string]string{"a.com": `[{"transform":{"headers":{"A":"b","a":"c"}}}]`}, `Header "a" in rule for domain "a.com" is there more than once.`, 0},
	} {
		network := &protocol.Network{Rules: map[string][]protocol.NetworkRule{}}
		for domain, rule := range test.rules {
			var read []protocol.NetworkRule
			if err := json.Unmarshal([]byte(rule), &read); err != nil {
				t.Fatal(err)
			}
			network.Rules[domain] = read
		}
		r, err := FromE2B(nil, network)
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
			t.Errorf("%.200v: %v, want %q", test.rules, err, test.want)
			continue
		}
		if len(r.Headers) != test.hosts {
			t.Errorf("%.200v becomes %v", test.rules, r.Headers)
		}
		if err == nil {
			compile(t, r, Operator{})
		}
	}
}

func TestE2BProxy(t *testing.T) {
	for _, test := range []struct {
		raw, err string
		want     *Proxy
	}{
		{`null`, "", nil},
		{`{"address":" Proxy.Example.com:1080 ","username":"u-{{sandboxID}}","password":"s3cret"}`, "",
			&Proxy{Address: "proxy.example.com:1080", Username: "u-{{sandboxID}}", Password: "s3cret"}},
		{`{"address":"[2606:4700::1]:1080"}`, "", &Proxy{Address: "[2606:4700::1]:1080"}},
		{`{}`, "egress proxy address must not be empty", nil},
		{`{"address":"  "}`, "egress proxy address must not be empty", nil},
		{`{"address":"example.com"}`, "egress proxy address must be in host:port form: address example.com: missing port in address", nil},
		{`{"address":"socks5://u:s3cret@example.com:1"}`,
			"egress proxy address must be in host:port form: username and password stand beside it", nil},
		{`{"address":":1080"}`, "egress proxy host must not be empty", nil},
		{`{"address":"example.com:0"}`, `egress proxy port "0" is not a valid 1-65535 value`, nil},
		{`{"address":"example.com:65536"}`, `egress proxy port "65536" is not a valid 1-65535 value`, nil},
		{`{"address":"example.com:http"}`, `egress proxy port "http" is not a valid 1-65535 value`, nil},
		{`{"address":"example.com:1","password":"s3cret"}`, "egress proxy password must be empty when username is empty", nil},
		{`{"address":"2130706433:1"}`, "egress proxy: the name ends in a number: it could be read as an address", nil},
		{`{"address":"0.0.0.0:1"}`, "egress proxy: 0.0.0.0 is no machine's address", nil},
		{`{"address":"example.com:1","username":"` + strings.Repeat("u", 256) + `"}`,
			"egress proxy: its user name and password can have 255 octets each", nil},
	} {
		var asked *protocol.EgressProxy
		if err := json.Unmarshal([]byte(test.raw), &asked); err != nil {
			t.Fatal(err)
		}
		r, err := FromE2B(nil, &protocol.Network{EgressProxy: asked})
		if got := fmt.Sprint(err); got != test.err && (err != nil || test.err != "") || !reflect.DeepEqual(r.Proxy, test.want) {
			t.Errorf("%s: %v, %v; want %v, %q", test.raw, r.Proxy, err, test.want, test.err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error tells it: %v", test.raw, err)
		}
	}
}
