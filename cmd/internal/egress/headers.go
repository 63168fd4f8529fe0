package egress

import (
	"errors"
	"strings"

	"golang.org/x/net/publicsuffix"
)

var errShared = errors.New("anybody can have a host below this name, and would be sent the headers: name a domain that has one owner")

// headerHost reads the host of a header rule: a name, or the name that all the hosts
// of *.name are below.
func headerHost(host string) (name string, below bool, err error) {
	host, below = strings.CutPrefix(host, "*.")
	if name, err = CanonicalName(host); err != nil {
		return "", false, err
	}
	if isLocalhost(name) {
		return "", false, errors.New("it is the sandbox itself")
	}
	if below && isShared(name) {
		return "", false, errShared
	}
	return name, below, nil
}

// isShared says whether strangers can register names below the name, as by the list of
// public suffixes: com, co.uk, github.io. A name of one label that is not in the list is
// none of the Internet's.
func isShared(name string) bool {
	suffix, registry := publicsuffix.PublicSuffix(name)
	return suffix == name && (registry || strings.Contains(name, "."))
}

// headerRules finds the rule about a name and port.
type headerRules struct {
	exact, below map[hostPort]*HeaderRule // below: by the name that the hosts are below
	names        names                    // that get headers on some port
}

func newHeaderRules() headerRules {
	return headerRules{exact: map[hostPort]*HeaderRule{}, below: map[hostPort]*HeaderRule{}, names: newTable().names}
}

func (r *headerRules) has(key hostPort, below bool) bool {
	if below {
		return r.below[key] != nil
	}
	return r.exact[key] != nil
}

func (r *headerRules) add(key hostPort, below bool, rule *HeaderRule) {
	rules, names := r.exact, r.names.exact
	if below {
		rules, names = r.below, r.names.below
	}
	rules[key] = rule
	if !rule.Plain {
		names[key.host] = ports{allPorts}
	}
}

// find returns the closest rule, or nil.
func (r *headerRules) find(key hostPort) *HeaderRule {
	if rule := r.exact[key]; rule != nil || len(r.below) == 0 {
		return rule
	}
	for rest := key.host; ; {
		_, parent, ok := strings.Cut(rest, ".")
		if !ok {
			return nil
		}
		if rule := r.below[hostPort{parent, key.port}]; rule != nil {
			return rule
		}
		rest = parent
	}
}
