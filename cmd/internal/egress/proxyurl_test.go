package egress

import (
	"strings"
	"testing"
)

func TestParseProxy(t *testing.T) {
	for _, test := range []struct {
		in   string
		want Proxy
		err  string // a part of it
	}{
		{"socks5://proxy.example:1080", Proxy{Address: "proxy.example:1080"}, ""},
		{"socks5://192.0.2.1:1080/", Proxy{Address: "192.0.2.1:1080"}, ""},
		{"socks5://[2001:db8::1]:1080", Proxy{Address: "[2001:db8::1]:1080"}, ""},
		{"socks5://ann:hidden%40%3A%2F@proxy.example:1080", Proxy{Address: "proxy.example:1080", Username: "ann", Password: "hidden@:/"}, ""},
		{"socks5://ann@proxy.example:1080", Proxy{Address: "proxy.example:1080", Username: "ann"}, ""},
		{"http://ann:hidden@proxy.example:3128", Proxy{HTTP: true, Address: "proxy.example:3128", Username: "ann", Password: "hidden"}, ""},
		{"https://ann:hidden@proxy.example:3128", Proxy{}, "over TLS cannot be used"},
		{"socks5h://ann:hidden@proxy.example:1080", Proxy{}, "no proxy's URL"},
		{"socks5://ann:hidden@proxy.example", Proxy{}, "no proxy's URL"},
		{"socks5://ann:hidden@proxy.example:1080/path", Proxy{}, "no proxy's URL"},
		{"proxy.example:1080", Proxy{}, "no proxy's URL"},
		{"ann:hidden@proxy.example:1080", Proxy{}, "no proxy's URL"},
		{"socks5://ann:hidden%@proxy.example:1080", Proxy{}, "it is no URL"},
		{"socks5://ann:hidden@proxy.example:0", Proxy{}, "a port is a number"},
		{"socks5://:hidden@proxy.example:1080", Proxy{}, "there is a password and no user name"},
		{"socks5://ann:hidden" + strings.Repeat("x", 300) + "@proxy.example:1080", Proxy{}, "can have 255 octets"},
		{"", Proxy{}, "no proxy's URL"},
	} {
		p, err := ParseProxy(test.in)
		switch {
		case test.err == "" && (err != nil || *p != test.want):
			t.Errorf("%s: %v, %v", test.in, p, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: %v, want %s", test.in, err, test.err)
		case err != nil && strings.Contains(err.Error(), "hidden"):
			t.Errorf("the password is in %v", err)
		}
	}
}
