//go:build linux

package engineprogram

import (
	"io"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/child"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

func TestNetworkFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want child.Network
		err  string
	}{
		{nil, child.Network{}, ""},
		{[]string{"--net", "closed"}, child.Network{}, ""},
		{[]string{"--net", "open"}, child.Network{Open: true}, ""},
		{[]string{"--net", "Open"}, child.Network{}, "neither open nor closed"},
		{[]string{"--net="}, child.Network{}, "neither open nor closed"},
		{[]string{"--reach=10.0.0.0/8", "--reach=[fd00::1]:80", "--host-port=8080", "--host-port=9"},
			child.Network{Operator: egress.Operator{Reach: []string{"10.0.0.0/8", "[fd00::1]:80"}, HostPorts: []int{8080, 9}}}, ""},
		{[]string{"--resolver=127.0.0.1:5353", "--resolver=[::1]:53"}, child.Network{Operator: egress.Operator{
			Resolvers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5353"), netip.MustParseAddrPort("[::1]:53")}}}, ""},
		{[]string{"--resolver=dns.example:53"}, child.Network{}, "invalid"},
		{[]string{"--host-port=http"}, child.Network{}, "invalid"},
		{[]string{"--upstream-proxy=THE_PROXY", "--proxy-resolves"},
			child.Network{Operator: egress.Operator{Proxy: &egress.Proxy{Address: "p.example:1080", Username: "ann", Password: "hidden", Resolves: true}}}, ""},
		{[]string{"--upstream-proxy=NO_PROXY_AT_ALL"}, child.Network{}, "the URL in NO_PROXY_AT_ALL: it is no proxy's URL"},
	} {
		t.Setenv("THE_PROXY", "socks5://ann:hidden@p.example:1080")
		opts, err := parse(append([]string{"serve", "--private"}, tt.args...), io.Discard)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: %v, want %s", tt.args, err, tt.err)
			}
		case err != nil || !reflect.DeepEqual(opts.Network, tt.want):
			t.Errorf("%q: %+v, %v", tt.args, opts.Network, err)
		case tt.want.Operator.Proxy != nil && os.Getenv("THE_PROXY") != "":
			t.Error("processes that are started get the proxy's password")
		}
	}
}

// TestIndexEnv: registries of the environment are told to sandboxes only where that was
// asked for, without passwords, and what cannot be one is refused without its value.
func TestIndexEnv(t *testing.T) {
	t.Setenv("PIP_INDEX_URL", "https://ann:hidden@pypi.corp.example/simple")
	for _, tt := range []struct {
		args       []string
		env        []string
		registries map[string][]string
	}{
		{nil, nil, nil},
		{[]string{"--index-env=false"}, nil, nil},
		{[]string{"--index-env"}, []string{"PIP_INDEX_URL=https://pypi.corp.example/simple"},
			map[string][]string{"pypi": {"pypi.corp.example:443"}}},
	} {
		opts, err := parse(append([]string{"serve", "--private"}, tt.args...), io.Discard)
		if err != nil || !reflect.DeepEqual(opts.Env, tt.env) || !reflect.DeepEqual(opts.Network.Operator.Registries, tt.registries) {
			t.Errorf("%q: %q, %q, %v", tt.args, opts.Env, opts.Network.Operator.Registries, err)
		}
	}
	t.Setenv("PIP_INDEX_URL", "ftp://ann:hidden@pypi.corp.example/")
	_, err := parse([]string{"serve", "--private", "--index-env"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--index-env: PIP_INDEX_URL: it is not the http or https URL") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}
