package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/clip"
)

// maxQuoted bounds what an error repeats of what it is about.
const maxQuoted = 80

// EntryError is a fault in rules.
type EntryError struct {
	Field string // the entry's place: allow[3], headers[0].host
	Entry string // what stands there; empty where it may be a secret
	Err   error
}

func (e *EntryError) Error() string {
	if e.Entry == "" {
		return e.Field + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s: %q: %v", e.Field, clip.Ellipsis(e.Entry, maxQuoted), e.Err)
}

func (e *EntryError) Unwrap() error { return e.Err }

// entry is a rule that was read: exactly one of a preset, a name and a prefix.
type entry struct {
	preset string       // without @
	name   string       // canonical; with below, what is below it; empty with below: every name
	below  bool         // *.name
	prefix netip.Prefix // masked
	ports  span
}

// parseEntry reads an entry of Rules.Allow and Rules.Deny.
func parseEntry(s string) (entry, error) {
	if preset, ok := strings.CutPrefix(s, "@"); ok {
		if _, ok := presets[preset]; !ok {
			return entry{}, fmt.Errorf("there is no such preset: %s", strings.Join(Presets(), ", "))
		}
		return entry{preset: preset}, nil
	}
	host, ports, bracketed, err := splitPorts(s)
	if err != nil {
		return entry{}, err
	}
	e := entry{ports: ports}
	if bracketed || strings.ContainsAny(host, ":/") {
		e.prefix, err = parsePrefix(host)
		if err == nil && bracketed && e.prefix.Addr().Is4() {
			err = errors.New("only IPv6 stands in brackets")
		}
		return e, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		e.prefix, err = parsePrefix(host)
		return e, err
	}
	if host == "*" {
		e.below = true
		return e, nil
	}
	if parent, ok := strings.CutPrefix(host, "*."); ok {
		host, e.below = parent, true
	}
	if strings.Contains(host, "*") {
		return entry{}, errors.New("a * stands only at the beginning, for everything below a name: *.example.com")
	}
	if e.name, err = CanonicalName(host); err != nil {
		return entry{}, err
	}
	if isLocalhost(e.name) {
		return entry{}, fmt.Errorf("it is the sandbox itself; the machine it runs on is %s", HostName)
	}
	return e, nil
}

// parsePrefix reads an address or a network. An address has one form here: IPv4
// inside IPv6, zones and what inet_aton(3) reads besides are refused.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil:
			return netip.Prefix{}, errors.New("it is no address")
		case a.Zone() != "":
			return netip.Prefix{}, errors.New("an address with a zone means something else on every machine")
		case a.IsUnspecified():
			return netip.Prefix{}, errors.New("it is no machine's address; all of them are 0.0.0.0/0")
		}
		s += "/" + strconv.Itoa(a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("it is no network in the form ADDRESS/BITS, or for IPv6 with a port [ADDRESS/BITS]:PORT")
	}
	if a := p.Addr(); a.Is4In6() || nat64.Contains(a) {
		return netip.Prefix{}, errors.New("write an IPv4 address as IPv4")
	}
	return p.Masked(), nil
}

// splitPorts takes the port or the range of ports off the end of an entry.
func splitPorts(s string) (host string, ports span, bracketed bool, err error) {
	ports = allPorts
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, rest, ok = strings.Cut(rest, "]")
		if !ok {
			return "", span{}, false, errors.New("the ] is missing")
		}
		if rest == "" {
			return host, ports, true, nil
		}
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			return "", span{}, false, errors.New("behind the ] only :PORT can stand")
		}
		ports, err = parsePorts(rest)
		return host, ports, true, err
	}
	if strings.Count(s, ":") != 1 { // none, or IPv6
		return s, ports, false, nil
	}
	host, rest, _ := strings.Cut(s, ":")
	ports, err = parsePorts(rest)
	return host, ports, false, err
}

func parsePorts(s string) (span, error) {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	lo, err := parsePort(low)
	if err != nil {
		return span{}, err
	}
	hi, err := parsePort(high)
	if err != nil {
		return span{}, err
	}
	if lo > hi {
		return span{}, errors.New("the range of ports has its end before its beginning")
	}
	return span{low: lo, high: hi}, nil
}

// parsePort takes digits only: what others write as a port in another form would
// be read by one program and not by the next.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, errors.New("a port is a number between 1 and 65535")
	}
	return uint16(n), nil
}

func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
