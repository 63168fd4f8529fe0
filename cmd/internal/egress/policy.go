package egress

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/net/http/httpguts"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

const (
	maxEntries    = 20_000 // of one list
	maxFaults     = 20     // that an error tells of
	maxHeaders    = 100    // header rules
	maxCredential = 255    // octets of a proxy's user name and password (RFC 1929)
)

// Policy answers what a sandbox may reach. It does not change, and may be used by
// many goroutines.
type Policy struct {
	open        bool
	allow, deny *table
	reach       *table
	hostPorts   map[int]bool
	headers     headerRules
	ownersProxy *Proxy
	proxy       *Proxy
	registries  map[string][]string // see Operator.Registries
}

type hostPort struct {
	host string
	port uint16
}

// Compile checks rules and makes a policy of them. The error joins the faults,
// each an *EntryError, at most the first 20.
func Compile(r Rules, op Operator) (*Policy, error) {
	c := compiler{p: &Policy{
		open: r.Open, hostPorts: map[int]bool{}, headers: newHeaderRules(), registries: op.Registries,
	}}
	c.p.reach = c.reach(op.Reach)
	c.p.allow = c.list("allow", r.Allow)
	c.p.deny = c.list("deny", r.Deny)
	for i, h := range r.Headers {
		c.headerRule(fmt.Sprintf("headers[%d]", i), h)
	}
	if len(r.Headers) > maxHeaders {
		c.fault("headers", "", fmt.Errorf("at most %d hosts can have headers", maxHeaders))
	}
	for i, port := range op.HostPorts {
		if port < 1 || port > 65535 {
			c.fault(fmt.Sprintf("hostPorts[%d]", i), strconv.Itoa(port), errors.New("a port is a number between 1 and 65535"))
		}
		c.p.hostPorts[port] = true
	}
	for i, server := range op.Resolvers {
		if a, ok := plain(server.Addr()); !ok || a.IsUnspecified() || server.Port() == 0 {
			c.fault(fmt.Sprintf("resolvers[%d]", i), server.String(), errors.New("it is no address with a port"))
		}
	}
	c.proxies(r.Proxy, op.Proxy)
	if err := c.err(); err != nil {
		return nil, err
	}
	// A rule for every address says what Open says, and then names resolve as they
	// do there.
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if c.p.deny.prefixes.ports[everything].all() {
		c.p.open = false
	}
	if c.p.allow.prefixes.ports[everything].all() {
		c.p.open = true
	}
	return c.p, nil
}

type compiler struct {
	p      *Policy
	faults []error
	more   int
}

func (c *compiler) fault(field, entry string, err error) {
	if len(c.faults) == maxFaults {
		c.more++
		return
	}
	c.faults = append(c.faults, &EntryError{Field: field, Entry: entry, Err: err})
}

func (c *compiler) err() error {
	if c.more > 0 {
		c.faults = append(c.faults, fmt.Errorf("and %d more faults", c.more))
	}
	return errors.Join(c.faults...)
}

// list reads allow or deny.
func (c *compiler) list(field string, entries []string) *table {
	t := newTable()
	if len(entries) > maxEntries {
		c.fault(field, "", fmt.Errorf("it has %d entries: at most %d are possible", len(entries), maxEntries))
		return t
	}
	seen := map[string]bool{} // presets
	for i, s := range entries {
		e, err := parseEntry(s)
		switch {
		case err != nil:
			c.fault(fmt.Sprintf("%s[%d]", field, i), s, err)
		case e.preset == "":
			t.add(e, s)
		case !seen[e.preset]:
			seen[e.preset] = true
			for _, host := range c.p.presetHosts(e.preset) {
				part, err := parseEntry(host)
				if err != nil {
					c.fault(fmt.Sprintf("%s[%d]", field, i), host, err)
					continue
				}
				t.add(part, s)
			}
		}
	}
	t.settle()
	return t
}

func (c *compiler) reach(entries []string) *table {
	t := newTable()
	for i, s := range entries {
		e, err := parseEntry(s)
		if err == nil && !e.prefix.IsValid() {
			err = errors.New("only addresses and networks can be named here")
		}
		if err == nil {
			block, ok := specialOf(e.prefix.Addr())
			if ok && block.never && block.prefix.Bits() <= e.prefix.Bits() {
				err = fmt.Errorf("it is %s and cannot be reached", block.is)
			}
		}
		if err != nil {
			c.fault(fmt.Sprintf("reach[%d]", i), s, err)
			continue
		}
		t.add(e, s)
	}
	t.settle()
	return t
}

func (c *compiler) headerRule(field string, h HeaderRule) {
	name, below, err := headerHost(h.Host)
	if err != nil {
		c.fault(field+".host", h.Host, err)
		return
	}
	if h.Port < 0 || h.Port > 65535 {
		c.fault(field+".port", strconv.Itoa(h.Port), errors.New("a port is a number between 1 and 65535"))
		return
	}
	switch {
	case len(h.Headers) == 0 && h.Missing == "" && !h.Plain:
		c.fault(field+".headers", h.Host, errors.New("it has no headers"))
		return
	case h.Plain && len(h.Headers) > 0:
		c.fault(field+".headers", h.Host, errors.New("it has headers and is to have none"))
		return
	}
	key := hostPort{name, uint16(h.port())}
	if c.p.headers.has(key, below) {
		c.fault(field, h.Host, errors.New("the same host and port have headers twice"))
		return
	}
	seen := map[string]bool{}
	for _, header := range sortedKeys(h.Headers) {
		switch {
		case !httpguts.ValidHeaderFieldName(header):
			c.fault(field+".headers", header, errors.New("it is no name of a header"))
		case isFraming(header):
			c.fault(field+".headers", header, errors.New("requests are framed and led by it: it cannot be set"))
		case seen[lower(header)]:
			c.fault(field+".headers", header, errors.New("it is there twice, in upper and lower case"))
		case !httpguts.ValidHeaderFieldValue(h.Headers[header]):
			c.fault(field+".headers", header, errors.New("its value has characters that headers cannot have"))
		}
		seen[lower(header)] = true
	}
	rule := &HeaderRule{Host: name, Port: int(key.port), Headers: maps.Clone(h.Headers), Secrets: slices.Clone(h.Secrets),
		Missing: h.Missing, Plain: h.Plain}
	if below {
		rule.Host = "*." + name
	}
	c.p.headers.add(key, below, rule)
}

func (c *compiler) proxies(own, owners *Proxy) {
	if owners != nil {
		c.p.ownersProxy = owners
		if err := checkProxy(owners); err != nil {
			c.fault("operator.proxy", owners.shown(), err)
		}
	}
	if own == nil {
		return
	}
	c.p.proxy = own
	err := checkProxy(own)
	if err == nil && own.Resolves {
		err = errors.New("only the machine's owner can say that a proxy resolves names")
	}
	if err == nil {
		if why := c.p.closedProxy(own.Address); why != "" {
			// The first words are E2B's.
			err = fmt.Errorf("egress proxy endpoint resolves to an internal / denied IP range: %s", why)
		}
	}
	if err != nil {
		c.fault("proxy", own.shown(), err)
	}
}

// closedProxy says why a sandbox's proxy can never be dialled, as far as that is known
// without asking a name server: what other names lead to is looked at when they are
// dialled, each time.
func (p *Policy) closedProxy(address string) string {
	if a, err := netip.ParseAddrPort(address); err == nil {
		if d := p.Reach(a); !d.Allowed {
			return d.Reason
		}
		return ""
	}
	host, _, _ := net.SplitHostPort(address) // checkProxy has looked at it
	switch name, err := CanonicalName(host); {
	case err != nil:
		return err.Error()
	case isLocalhost(name):
		return name + " is the machine that dials the proxy"
	case name == HostName:
		return name + " means this machine inside of sandboxes only: give the proxy's address"
	}
	return ""
}

// isFraming is for headers that say where a request ends and whose it is.
func isFraming(header string) bool {
	switch lower(header) {
	case "host", "content-length", "transfer-encoding", "connection", "proxy-connection", "keep-alive", "te",
		"trailer", "upgrade", "expect", "http2-settings":
		return true
	}
	return false
}

func checkProxy(p *Proxy) error {
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return errors.New("its address is not in the form HOST:PORT")
	}
	if _, err := parsePort(port); err != nil {
		return err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		at, ok := plain(a)
		if block, isSpecial := specialOf(at); !ok || at != a || isSpecial && block.never {
			return fmt.Errorf("%s is no machine's address", host)
		}
	} else if _, err := CanonicalName(host); err != nil {
		return err
	}
	switch {
	case p.Username == "" && p.Password != "":
		return errors.New("there is a password and no user name")
	case len(p.Username) > maxCredential || len(p.Password) > maxCredential:
		return fmt.Errorf("its user name and password can have %d octets each", maxCredential)
	}
	return nil
}

// Open says whether what no rule names is allowed.
func (p *Policy) Open() bool { return p.open }

// Proxies are what flows are led through, each nil if there is none: first the
// machine owner's, and through it the sandbox's own. The address of the sandbox's
// own has to pass Reach before it is dialled. The passwords are secrets.
func (p *Policy) Proxies() (owners, own *Proxy) { return p.ownersProxy, p.proxy }

// Name says how a canonical name is answered.
func (p *Policy) Name(name string) Resolution {
	if !isCanonical(name) || isLocalhost(name) || name == HostName && len(p.hostPorts) == 0 {
		return Refused
	}
	if p.headers.names.exact[name] != nil {
		return Pinned
	}
	allowed, _ := p.allow.names.mentions(name)
	if !p.open {
		if allowed {
			return Pinned
		}
		return Refused
	}
	denied, wholly := p.deny.names.mentions(name)
	switch {
	case name == HostName:
		return Pinned
	case denied && wholly && !allowed:
		return Refused
	case denied, allowed && !p.deny.prefixes.empty():
		// A rule that beats another one needs to know the name of a flow.
		return Pinned
	}
	if headers, _ := p.headers.names.mentions(name); headers {
		return Pinned
	}
	return Real
}

// Host decides about a flow to a canonical name: one that was pinned, or that the
// flow itself named.
func (p *Policy) Host(name string, port uint16, proto Proto) Decision {
	target := net.JoinHostPort(name, strconv.Itoa(int(port)))
	if !isCanonical(name) || isLocalhost(name) {
		return Decision{Reason: fmt.Sprintf("%q is no name of a host that can be reached", clip.Ellipsis(name, maxQuoted))}
	}
	if d, ok := refusedProto(target, port, proto); ok {
		return d
	}
	if name == HostName && !p.hostPorts[int(port)] {
		return Decision{Reason: target + " is a port of this machine that its owner has not named: only the owner can open it"}
	}
	if h := p.headers.find(hostPort{name, port}); h != nil && h.Missing != "" {
		return Decision{Rule: h.Host, Reason: fmt.Sprintf("the headers of %s need the secret %q, which is not there: set it, or change the rule",
			target, clip.Ellipsis(h.Missing, maxQuoted))}
	}
	if rule, ok := p.allow.names.find(name, port); ok {
		return Decision{Allowed: true, Rule: rule, Reason: "a rule allows " + target}
	}
	if rule, ok := p.deny.names.find(name, port); ok {
		return Decision{Rule: rule, Entry: target, Reason: fmt.Sprintf("a rule denies %s: take %q out of deny, or put %s into allow",
			target, rule, target)}
	}
	if p.open {
		return Decision{Allowed: true, Reason: "the network is open"}
	}
	return p.closed(target, suggest(name, port, target))
}

// Question says why a canonical name is refused by Name, and which entry would have it
// answered.
func (p *Policy) Question(name string) Decision {
	if name == HostName {
		if len(p.hostPorts) == 0 {
			return Decision{Reason: name + " is this machine, of which its owner has opened no port: only the owner can"}
		}
		return p.closed(name, name)
	}
	d := p.Host(name, 443, TCP) // the port is not known: nobody has named one yet
	switch {
	case d.Allowed || d.Entry == "":
		return Decision{Rule: d.Rule, Reason: d.Reason}
	case d.Rule != "":
		return Decision{Rule: d.Rule, Entry: name,
			Reason: fmt.Sprintf("a rule denies %s: take %q out of deny, or put %s into allow", name, d.Rule, name)}
	}
	return p.closed(name, suggest(name, 443, name))
}

// Addr decides about a flow to an address, as Dial does.
func (p *Policy) Addr(a netip.AddrPort, proto Proto) Decision {
	if d, ok := refusedProto(a.String(), a.Port(), proto); ok {
		return d
	}
	return p.Dial(a, "")
}

// Dial decides about the address that is dialled next, for a flow to a name or,
// if name is empty, to the address itself. That the address is this machine's own
// is for the caller to find out, who then asks Reaches.
func (p *Policy) Dial(a netip.AddrPort, name string) Decision {
	if name == HostName {
		if at, ok := plain(a.Addr()); ok && at.IsLoopback() {
			return p.Host(name, a.Port(), TCP)
		}
		return Decision{Reason: HostName + " leads to this machine only"}
	}
	if d := p.Reach(a); !d.Allowed {
		return d
	}
	if name != "" {
		d := p.Host(name, a.Port(), TCP)
		if !d.Allowed || d.Rule != "" {
			return d
		}
	}
	at, _ := plain(a.Addr())
	to := netip.AddrPortFrom(at, a.Port())
	if rule, ok := p.allow.prefixes.find(to); ok {
		return Decision{Allowed: true, Rule: rule, Reason: fmt.Sprintf("a rule allows %s", to)}
	}
	if rule, ok := p.deny.prefixes.find(to); ok {
		return Decision{Rule: rule, Entry: to.String(), Reason: fmt.Sprintf("a rule denies %s: take %q out of deny, or put %s into allow",
			to, rule, to)}
	}
	if p.open {
		return Decision{Allowed: true, Reason: "the network is open"}
	}
	return p.closed(to.String(), to.String())
}

// Reach decides whether an address may be dialled at all, by whatever rules: it is
// public, or the machine's owner named it. It is what holds for a proxy.
func (p *Policy) Reach(a netip.AddrPort) Decision {
	at, ok := plain(a.Addr())
	if !ok || a.Port() == 0 {
		return Decision{Reason: fmt.Sprintf("%s is no address that can be dialled", a)}
	}
	to := netip.AddrPortFrom(at, a.Port())
	block, isSpecial := specialOf(at)
	if isSpecial && block.never {
		return Decision{Reason: fmt.Sprintf("%s is %s and cannot be reached", at, block.is)}
	}
	if slices.Contains(metadata, at) {
		// Whoever names a network seldom means the credentials in it.
		if rule, ok := p.reach.prefixes.ports[netip.PrefixFrom(at, at.BitLen())].find(a.Port()); ok {
			return Decision{Allowed: true, Rule: rule, Reason: fmt.Sprintf("this machine's owner lets %s be reached", to)}
		}
		return Decision{Reason: fmt.Sprintf("%s is where a cloud tells a machine its credentials: only this machine's owner can open it, "+
			"by naming the address itself (reach %s)", at, to)}
	}
	for _, inside := range Embedded(at) {
		if slices.Contains(metadata, inside) {
			return Decision{Reason: fmt.Sprintf("%s leads to %s, where a cloud tells a machine its credentials", at, inside)}
		}
	}
	if !isSpecial {
		return Decision{Allowed: true, Reason: fmt.Sprintf("%s is a public address", at)}
	}
	if rule, ok := p.reach.prefixes.find(to); ok {
		return Decision{Allowed: true, Rule: rule, Reason: fmt.Sprintf("this machine's owner lets %s be reached", to)}
	}
	return Decision{Reason: fmt.Sprintf("%s is %s: only this machine's owner can open it (reach %s)", at, block.is, to)}
}

// Reaches says whether the machine's owner named the address. An address of this
// machine itself may be dialled only then, also if it is public.
func (p *Policy) Reaches(a netip.AddrPort) bool {
	at, ok := plain(a.Addr())
	if !ok {
		return false
	}
	_, ok = p.reach.prefixes.find(netip.AddrPortFrom(at, a.Port()))
	return ok && p.Reach(a).Allowed
}

// HeadersFor is what a canonical name's requests get on a port: of the rules about it
// the one of the name itself, else that of the closest name that it is below, alone.
// A name in another form has none. The rule is the policy's, and not to be changed.
func (p *Policy) HeadersFor(name string, port uint16) (*HeaderRule, bool) {
	h := p.headers.find(hostPort{name, port})
	if h == nil || h.Plain || !isCanonical(name) {
		return nil, false
	}
	return h, true
}

func (p *Policy) closed(target, entry string) Decision {
	return Decision{Entry: entry, Reason: fmt.Sprintf("the network is closed and no rule allows %s: allow %s to open it", target, entry)}
}

// suggest is the preset that has the name and port, or the target.
func suggest(name string, port uint16, target string) string {
	if preset, ok := presetOf()[hostPort{name, port}]; ok {
		return "@" + preset
	}
	return target
}

func refusedProto(target string, port uint16, proto Proto) (Decision, bool) {
	switch {
	case proto != TCP && proto != UDP:
		return Decision{Reason: fmt.Sprintf("%s cannot go out, only TCP and UDP can", proto)}, true
	case port == 0:
		return Decision{Reason: "there is no port 0"}, true
	case proto == UDP && (port == 443 || port == 80):
		// Its client hello cannot be read, so a rule about a name would not hold.
		return Decision{Reason: target + " over UDP is QUIC, which is refused: clients use TCP then"}, true
	}
	return Decision{}, false
}

// isCanonical is false for what CanonicalName would have changed or refused.
func isCanonical(name string) bool {
	canonical, err := WireName(name)
	return err == nil && canonical == name
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
