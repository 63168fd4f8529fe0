// Package egress decides what code in a sandbox may reach: rules as they are
// written, and a policy that is compiled from them and answers for each name,
// address and port. It does no I/O. The gateway asks it before it answers a
// question of DNS, before it accepts a flow and before it dials.
//
// Rules are read in this order: what an allow rule names is allowed, what a deny
// rule names is refused, and the rest is as Rules.Open says. A rule about a name
// comes before one about addresses. Whatever the rules say, addresses that are
// not public stay closed unless the machine's owner names them (Operator.Reach).
package egress

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
)

// HostName is the name of the machine that sandboxes run on, inside them. It
// leads to the ports that Operator.HostPorts names.
const HostName = "host.cubby.internal"

// Rules are what a sandbox may reach, as they are written and sent. The zero
// value reaches nothing.
//
// An entry of Allow and Deny is one of
//
//	pypi.org        *.pypi.org        *             names: one, those below one, all
//	192.0.2.7       2001:db8::7       192.0.2.0/24  addresses
//	@pypi                                           a preset: see Presets
//
// and all but a preset may end in a port or a range of them: pypi.org:443,
// 192.0.2.0/24:8000-8999, [2001:db8::7]:443. Without one, every port is meant.
type Rules struct {
	Open    bool         `json:"open,omitempty"` // what no rule names is allowed
	Allow   []string     `json:"allow,omitempty"`
	Deny    []string     `json:"deny,omitempty"`
	Headers []HeaderRule `json:"headers,omitempty"`
	Proxy   *Proxy       `json:"proxy,omitempty"` // what the flows are led through
}

// LogValue is the rules without what is secret in them, also where a log is JSON.
func (r Rules) LogValue() slog.Value {
	type fields Rules
	return slog.StringValue(fmt.Sprintf("%+v", fields(r)))
}

// HeaderRule adds headers to the requests to a host, over verified TLS only. It
// does not allow the host: a rule has to. Where several rules are about a host, the
// closest one holds alone: that of the name itself, else that of the most labels. Its
// values are secrets: fmt and slog show the headers' names.
type HeaderRule struct {
	// Host is a name, or *.NAME for all names below one, but not for NAME itself. Below
	// NAME nobody may have names but its owner: not com, co.uk, github.io.
	Host    string            `json:"host"`
	Port    int               `json:"port,omitempty"` // 0 means 443
	Headers map[string]string `json:"headers"`
	// Secrets are parts of the values that are taken out of answers also where the
	// rest of the value does not stand around them.
	Secrets []string `json:"secrets,omitempty"`
	// Missing names a secret that the rule needs and that is not there (any more): it
	// has no headers then, and nothing may connect to the host's port.
	Missing string `json:"missing,omitempty"`
	// Plain is for a host that gets no headers although a wider rule has some: the rule
	// has none.
	Plain bool `json:"plain,omitempty"`
}

// Format writes the rule without its values, for every verb.
func (h HeaderRule) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, h.redacted())
}

// LogValue is the rule without its values.
func (h HeaderRule) LogValue() slog.Value { return slog.StringValue(h.redacted()) }

func (h HeaderRule) redacted() string {
	return fmt.Sprintf("{%s:%d %q}", h.Host, h.port(), sortedKeys(h.Headers))
}

func (h HeaderRule) port() int {
	if h.Port == 0 {
		return 443
	}
	return h.Port
}

// Proxy is a server that flows are led through: one of SOCKS5 (RFC 1928), as E2B's are,
// or one of HTTP that knows CONNECT (RFC 9110, 9.3.6). Its password is a secret: fmt
// and slog do not show it.
type Proxy struct {
	HTTP     bool   `json:"http,omitempty"`
	Address  string `json:"address"` // host:port
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Resolves bool   `json:"resolves,omitempty"` // the proxy resolves names, and keeps private addresses out
}

// Format writes the proxy without its password, for every verb.
func (p Proxy) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, p.redacted())
}

// LogValue is the proxy without its password.
func (p Proxy) LogValue() slog.Value { return slog.StringValue(p.redacted()) }

func (p Proxy) redacted() string {
	if p.Username == "" {
		return p.shown()
	}
	return p.Username + "@" + p.shown()
}

// shown is the address, unless somebody wrote credentials into it.
func (p Proxy) shown() string {
	if strings.Contains(p.Address, "@") {
		return p.Address[strings.LastIndex(p.Address, "@")+1:]
	}
	return p.Address
}

// Operator is what the machine's owner permits, for all sandboxes. The zero value
// permits public addresses only.
type Operator struct {
	// Reach has addresses that are not public and that rules may allow
	// nevertheless: ADDR[:PORT] or CIDR[:PORT]. An address at which a cloud hands
	// out credentials must be named itself, not by a network that contains it.
	Reach     []string         `json:"reach,omitempty"`
	HostPorts []int            `json:"hostPorts,omitempty"` // ports of this machine behind HostName
	Resolvers []netip.AddrPort `json:"resolvers,omitempty"` // DNS servers that the gateway asks
	Proxy     *Proxy           `json:"proxy,omitempty"`
	// Registries has the hosts that presets stand for in place of those that are
	// built in, by the preset without its @: HOST:PORT.
	Registries map[string][]string `json:"registries,omitempty"`
}

// LogValue is what the owner permits without what is secret in it.
func (o Operator) LogValue() slog.Value {
	type fields Operator
	return slog.StringValue(fmt.Sprintf("%+v", fields(o)))
}

// Proto is the protocol of a flow.
type Proto uint8

// The protocols that can leave a sandbox.
const (
	TCP Proto = iota + 1
	UDP
)

func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("proto(%d)", uint8(p))
}

// Resolution is how a name is answered.
type Resolution uint8

const (
	// Refused names do not exist for the sandbox.
	Refused Resolution = iota
	// Pinned names are answered with an address that means this name only.
	Pinned
	// Real names are answered with their own addresses.
	Real
)

func (r Resolution) String() string {
	switch r {
	case Refused:
		return "refused"
	case Pinned:
		return "pinned"
	case Real:
		return "real"
	}
	return fmt.Sprintf("resolution(%d)", uint8(r))
}

// Decision is the answer about a flow. The zero value refuses.
type Decision struct {
	Allowed bool
	Rule    string // the entry that decided, as it was written; empty: none did
	Reason  string // one line; where the flow is refused, also how to open it
	// Entry is what an allow list has to name for a flow that is refused now.
	// Empty where only the machine's owner can open it, or nobody.
	Entry string
}
