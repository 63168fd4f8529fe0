package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// allTraffic is what E2B's clients call ALL_TRAFFIC.
const allTraffic = "0.0.0.0/0"

const domainsNeedBlocking = "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out " +
	"to block all other traffic."

// E2B's bounds of a network's rules.
const (
	maxRuleDomains     = 10
	maxRuleTransforms  = 1
	maxRuleDomain      = 128 // bytes
	maxRuleHeaderName  = 64
	maxRuleHeaderValue = 2048
	maxRuleHeaders     = 20
)

// FromE2B makes rules of what a client of E2B asks for: allow_internet_access and
// network, both of which may be missing. A network is open unless they close it; a
// server whose networks are closed by default gives false for the first if it is
// missing. Values of headers and the proxy's credentials are taken as they stand:
// references to secrets, and {{sandboxID}} in the credentials, are for the caller
// to replace.
//
// The errors are the client's, with E2B's messages where E2B has one. Cubby takes
// more: entries may end in ports, allowOut may have presets, which count as names,
// and what DenyHosts denies may have exceptions that are names. It refuses names that are none, which E2B takes and never finds.
func FromE2B(allowInternetAccess *bool, network *protocol.Network) (Rules, error) {
	r := Rules{Open: true}
	if network != nil {
		blocked, err := e2bLists(network)
		if err != nil {
			return Rules{}, err
		}
		r.Open = !blocked
		r.Allow, r.Deny = network.AllowOut, slices.Concat(network.DenyOut, network.DenyHosts)
		if r.Headers, err = e2bHeaders(network.Rules); err != nil {
			return Rules{}, err
		}
		if r.Proxy, err = e2bProxy(network.EgressProxy); err != nil {
			return Rules{}, err
		}
	}
	if allowInternetAccess != nil && !*allowInternetAccess {
		// It replaces what is denied, and leaves what is allowed.
		r.Open, r.Deny = false, []string{allTraffic}
		if network != nil {
			r.Deny = append(r.Deny, network.DenyHosts...)
		}
	}
	return r, nil
}

// e2bLists checks what is allowed and denied, and says whether everything is denied.
func e2bLists(n *protocol.Network) (blocked bool, err error) {
	for _, s := range n.DenyOut {
		host, _, _, err := splitPorts(s)
		if err != nil {
			return false, fmt.Errorf("invalid deny out entry: invalid entry %q: %w", s, err)
		}
		if e, err := parseEntry(s); err != nil || !e.prefix.IsValid() || isUnspecified(host) {
			return false, fmt.Errorf("invalid denied CIDR %s", s)
		}
		blocked = blocked || s == allTraffic
	}
	names := false
	for _, s := range n.AllowOut {
		host, _, _, err := splitPorts(s)
		if err != nil {
			return false, fmt.Errorf("invalid allow out entry: invalid entry %q: %w", s, err)
		}
		if !isAddress(host) {
			names = true
		} else if _, err := parseEntry(s); err != nil || isUnspecified(host) {
			return false, fmt.Errorf("invalid allowed address %s", s)
		}
	}
	if names && !blocked && len(n.DenyHosts) == 0 {
		return false, errors.New(domainsNeedBlocking)
	}
	for _, s := range n.AllowOut {
		if _, err := parseEntry(s); err != nil {
			return false, fmt.Errorf("invalid allow out entry: invalid entry %q: %w", s, err)
		}
	}
	for _, s := range n.DenyHosts {
		if _, err := parseEntry(s); err != nil {
			return false, fmt.Errorf("invalid cubbyDenyHosts entry: invalid entry %q: %w", s, err)
		}
	}
	return blocked, nil
}

// isAddress is E2B's test for an address or a network.
func isAddress(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	_, _, err := net.ParseCIDR(s)
	return err == nil
}

// isUnspecified is for networks that begin at 0.0.0.0 or ::, which E2B refuses,
// except for the one that is everything.
func isUnspecified(host string) bool {
	address, _, _ := strings.Cut(host, "/")
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsUnspecified() && host != allTraffic
}

// e2bHeaders reads rules: which headers requests to a host get.
func e2bHeaders(rules map[string][]protocol.NetworkRule) ([]HeaderRule, error) {
	if len(rules) > maxRuleDomains {
		return nil, fmt.Errorf("Network rules can have at most %d domains.", maxRuleDomains)
	}
	var out, plain []HeaderRule
	wide := false
	seen := map[string]bool{}
	for _, domain := range sortedKeys(rules) {
		name, err := e2bDomain(domain)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fmt.Errorf("Rule domain %q is there more than once.", name)
		}
		seen[name] = true
		if len(rules[domain]) > maxRuleTransforms {
			return nil, fmt.Errorf("Domain %q can have at most %d transform rule.", domain, maxRuleTransforms)
		}
		var headers map[string]string
		for _, t := range rules[domain] {
			if t.Transform != nil {
				headers = t.Transform.Headers
			}
		}
		if len(headers) == 0 {
			plain = append(plain, HeaderRule{Host: name, Plain: true})
			continue
		}
		if err := e2bCheckHeaders(domain, headers); err != nil {
			return nil, err
		}
		out = append(out, HeaderRule{Host: name, Headers: headers})
		wide = wide || strings.HasPrefix(name, "*.")
	}
	if wide { // what is named by itself without headers gets none of those, either
		out = append(out, plain...)
	}
	return out, nil
}

// e2bDomain is the canonical form of a key of rules.
func e2bDomain(domain string) (string, error) {
	switch {
	case domain == "":
		return "", errors.New("Rule domain must not be empty.")
	case len(domain) > maxRuleDomain:
		return "", fmt.Errorf("Rule domain %q exceeds maximum length of %d characters.", domain, maxRuleDomain)
	}
	name, below, err := headerHost(domain)
	switch {
	case errors.Is(err, errShared):
		return "", fmt.Errorf("Rule domain %q: %w.", domain, err)
	case err != nil || !isASCII(domain):
		return "", fmt.Errorf("Rule domain %q is not a valid domain name.", domain)
	case below:
		return "*." + name, nil
	}
	return name, nil
}

func e2bCheckHeaders(domain string, headers map[string]string) error {
	if len(headers) > maxRuleHeaders {
		return fmt.Errorf("Domain %q can have at most %d headers per rule.", domain, maxRuleHeaders)
	}
	seen := map[string]bool{}
	for _, name := range sortedKeys(headers) {
		value := headers[name]
		switch {
		case name == "":
			return fmt.Errorf("Header name in rule for domain %q must not be empty.", domain)
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Errorf("Header name %q in rule for domain %q must contain only valid HTTP token characters.", name, domain)
		case len(name) > maxRuleHeaderName:
			return fmt.Errorf("Header name %q in rule for domain %q exceeds maximum length of %d characters.", name, domain, maxRuleHeaderName)
		case !httpguts.ValidHeaderFieldValue(value):
			return fmt.Errorf("Value for header %q in rule for domain %q contains invalid characters.", name, domain)
		case len(value) > maxRuleHeaderValue:
			return fmt.Errorf("Value for header %q in rule for domain %q exceeds maximum length of %d characters.", name, domain, maxRuleHeaderValue)
		case isFraming(name):
			return fmt.Errorf("Header %q in rule for domain %q cannot be set: requests are framed and led by it.", name, domain)
		case seen[lower(name)]:
			return fmt.Errorf("Header %q in rule for domain %q is there more than once.", name, domain)
		}
		seen[lower(name)] = true
	}
	return nil
}

// e2bProxy reads egressProxy. Whether an address is closed, Compile says; what a name
// leads to is known when it is resolved, which is at the dial.
func e2bProxy(asked *protocol.EgressProxy) (*Proxy, error) {
	if asked == nil {
		return nil, nil
	}
	address := strings.TrimSpace(asked.Address)
	if address == "" {
		return nil, errors.New("egress proxy address must not be empty")
	}
	host, port, err := net.SplitHostPort(address)
	if strings.Contains(address, "@") {
		return nil, errors.New("egress proxy address must be in host:port form: username and password stand beside it")
	}
	if err != nil {
		return nil, fmt.Errorf("egress proxy address must be in host:port form: %w", err)
	}
	if host = strings.TrimSpace(lower(host)); host == "" {
		return nil, errors.New("egress proxy host must not be empty")
	}
	number, err := strconv.Atoi(port)
	if err != nil || number <= 0 || number > 65535 {
		return nil, fmt.Errorf("egress proxy port %q is not a valid 1-65535 value", port)
	}
	if asked.Username == "" && asked.Password != "" {
		return nil, errors.New("egress proxy password must be empty when username is empty")
	}
	p := &Proxy{Address: net.JoinHostPort(host, strconv.Itoa(number)), Username: asked.Username, Password: asked.Password}
	if err := checkProxy(p); err != nil {
		return nil, fmt.Errorf("egress proxy: %w", err)
	}
	return p, nil
}
