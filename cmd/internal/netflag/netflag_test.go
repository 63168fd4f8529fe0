package netflag_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/netflag"
)

func getenv(name string) string {
	return map[string]string{
		"KEY": "hidden", "TWO": "hidden\nhidden", "PROXY": "socks5://ann:hidden@p.example:1080", "WEB": "http://ann:hidden@p.example:3128",
		"TLS": "https://ann:hidden@p.example:3128",
	}[name]
}

// read reads a command line, as `cubby run` does.
func read(args ...string) (cubby.Network, netflag.Owner, error) {
	var f netflag.Sandbox
	var owner netflag.Owner
	var n cubby.Network
	cmd := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) (err error) {
		if n, err = f.Network(getenv); err == nil {
			err = netflag.Check(n, owner)
		}
		return err
	}}
	f.Register(cmd)
	owner.Register(cmd)
	cmd.SetArgs(args)
	return n, owner, cmd.Execute()
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want cubby.Network
	}{
		{nil, cubby.Network{}},
		{[]string{"--net", "open"}, cubby.Network{Open: true}},
		{[]string{"--allow", "@pypi", "--allow", "a.com:443, *.b.com", "--net=closed"}, cubby.Network{Allow: []string{"@pypi", "a.com:443", "*.b.com"}}},
		{[]string{"--net", "open", "--deny", "a.com,192.0.2.0/24", "--allow", "b.a.com"},
			cubby.Network{Open: true, Deny: []string{"a.com", "192.0.2.0/24"}, Allow: []string{"b.a.com"}}},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:Authorization=Bearer KEY", "--secret-header", "a.com:X-Key=KEY"},
			cubby.Network{Allow: []string{"a.com"}, Headers: []cubby.SecretHeader{
				{Host: "a.com", Name: "Authorization", Value: "Bearer hidden"}, {Host: "a.com", Name: "X-Key", Value: "hidden"}}}},
		{[]string{"--allow", "10.1.2.3:5432", "--reach", "10.0.0.0/8"}, cubby.Network{Allow: []string{"10.1.2.3:5432"}}},
		{[]string{"--allow", "10.1.2.3", "--reach", "10.1.2.3:5432"}, cubby.Network{Allow: []string{"10.1.2.3"}}},
		{[]string{"--allow", "host.cubby.internal:8080", "--host-port", "8080"}, cubby.Network{Allow: []string{"host.cubby.internal:8080"}}},
	} {
		if n, _, err := read(tt.args...); err != nil || !reflect.DeepEqual(n, tt.want) {
			t.Errorf("%q: %#v, %v", tt.args, n, err)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--net", "ajar"}, "it is closed or open"},
		{[]string{"--allow", ""}, `--allow "": nothing is given`},
		{[]string{"--allow", "a.com,,b.com"}, "nothing is given"},
		{[]string{"--allow", "https://a.com/x"}, "write the host alone"},
		{[]string{"--allow", "a.com:99999"}, `--allow "a.com:99999": a port is a number between 1 and 65535`},
		{[]string{"--allow", "@pipy"}, `--allow "@pipy": there is no such preset: @crates,`},
		{[]string{"--allow", "10.0.0.0/33"}, "no network in the form ADDRESS/BITS"},
		{[]string{"--allow", "evil.com\x00.ok.com"}, "a character that host names cannot have"},
		{[]string{"--allow", "localhost:80"}, "it is the sandbox itself; the machine it runs on is host.cubby.internal"},
		{[]string{"--net", "open", "--deny", "a b"}, `--deny "a b"`},
		{[]string{"--deny", "a.com"}, "--deny goes with --net open"},
		{[]string{"--net", "open", "--allow", "a.com"}, "--allow has no use with --net open"},
		{[]string{"--secret-header", "a.com:Authorization=KEY"}, "open it with --allow a.com:443"},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:X-Key=UNSET"}, "the environment variable UNSET is not set"},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:X-Key=sk-hidden"}, "never the value itself"},
		{[]string{"--allow", "a.com", "--secret-header", "X-Key=sk-hidden"}, `"X-Key=…": write HOST:NAME=ENVVAR`},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:X-Key"}, "write HOST:NAME=ENVVAR"},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:X-Key=TWO"}, `--secret-header "X-Key": its value has characters`},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:Host=KEY"}, "it cannot be set"},
		{[]string{"--allow", "a.com", "--secret-header", "*.com:X-Key=KEY"}, `--secret-header "*.com": anybody can have a host below`},
		{[]string{"--allow", "a.com", "--secret-header", "a.com:X=KEY", "--secret-header", "a.com:X=KEY"}, "twice"},
		{[]string{"--allow", "10.1.2.3:5432"}, "10.1.2.3 is for private use (RFC 1918); it is reached with --reach 10.1.2.3:5432 beside"},
		{[]string{"--allow", "169.254.169.254", "--allow", "a.com"}, "its credentials; it is reached with"},
		{[]string{"--allow", "224.0.0.1:80"}, "multicast (RFC 5771) and cannot be reached"},
		{[]string{"--reach", "a.com"}, `--reach "a.com": only addresses and networks can be named here`},
		{[]string{"--host-port", "0"}, `--host-port "0": a port is a number`},
		{[]string{"--host-port", "8080"}, "--allow host.cubby.internal:8080 does"},
	} {
		_, _, err := read(tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.args, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: a secret is in %v", tt.args, err)
		}
	}
}

func TestProxy(t *testing.T) {
	for _, tt := range []struct {
		name     string
		resolves bool
		want     string // empty: it is taken
	}{
		{"", false, ""},
		{"PROXY", true, ""},
		{"", true, "--proxy-resolves is about a proxy"},
		{"UNSET", false, "the environment variable UNSET is not set"},
		{"WEB", false, ""},
		{"TLS", false, "over TLS cannot be used"},
		{"socks5://ann:hidden@p.example:1080", false, "give the name of an environment variable"},
	} {
		err := netflag.Proxy(tt.name, tt.resolves, getenv)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%q: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestCompletion(t *testing.T) {
	var f netflag.Sandbox
	cmd := &cobra.Command{Use: "test", Run: func(*cobra.Command, []string) {}}
	f.Register(cmd)
	for flag, want := range map[string]string{"--net": "open", "--allow": "@pypi", "--deny": "@npm"} {
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs([]string{cobra.ShellCompNoDescRequestCmd, flag, ""})
		if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%s: %s, %v", flag, out.String(), err)
		}
	}
}
