// Package indexenv reads the settings of package registries that a computer's owner has
// in the environment, as pip, uv, npm and Go know them, for sandboxes that shall have
// them, too.
package indexenv

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// Settings are what sandboxes are told, and what it means for rules.
type Settings struct {
	// Env are the variables, without passwords.
	Env []string
	// Registries are the hosts that presets stand for in place of their own.
	Registries map[string][]string
}

// variable is one that is known.
type variable struct {
	name   string
	preset string // empty: it has no URLs
	split  string // what stands between several; empty: there is one
}

// variables in the order in which they are told. What only adds to another one, as
// PIP_EXTRA_INDEX_URL does, comes behind that.
var variables = []variable{
	{"PIP_INDEX_URL", "pypi", ""},
	{"PIP_EXTRA_INDEX_URL", "pypi", " \t\n"},
	{"PIP_TRUSTED_HOST", "", ""},
	{"UV_DEFAULT_INDEX", "pypi", ""},
	{"UV_INDEX_URL", "pypi", ""},
	{"npm_config_registry", "npm", ""},
	{"NPM_CONFIG_REGISTRY", "npm", ""},
	{"GOPROXY", "go", ",|"},
}

// extra are variables that add to a registry and leave its own hosts.
var extra = []string{"PIP_EXTRA_INDEX_URL"}

// maxValue bounds a variable, in bytes.
const maxValue = 16 << 10

// Read reads the settings. An error names the variable, and never its value: that may
// have a password.
func Read(getenv func(string) string) (Settings, error) {
	s := Settings{Registries: map[string][]string{}}
	own := map[string]bool{} // presets whose own hosts are not asked any more
	for _, v := range variables {
		value := strings.TrimSpace(getenv(v.name))
		if value == "" {
			continue
		}
		told, hosts, err := v.read(value)
		if err != nil {
			return Settings{}, fmt.Errorf("%s: %w", v.name, err)
		}
		s.Env = append(s.Env, v.name+"="+told)
		if v.preset == "" {
			continue
		}
		own[v.preset] = own[v.preset] || !slices.Contains(extra, v.name)
		for _, host := range hosts {
			if !slices.Contains(s.Registries[v.preset], host) {
				s.Registries[v.preset] = append(s.Registries[v.preset], host)
			}
		}
	}
	for preset := range s.Registries {
		if !own[preset] {
			s.Registries[preset] = append(s.Registries[preset], egress.PresetHosts(preset)...)
		}
	}
	return s, nil
}

// read returns a value without passwords, and the hosts in it.
func (v variable) read(value string) (told string, hosts []string, err error) {
	if len(value) > maxValue || strings.ContainsAny(value, "\x00\n\r") && v.split == "" {
		return "", nil, errors.New("it is too long, or has more than one line")
	}
	if v.preset == "" {
		return value, nil, nil
	}
	urls, glue := []string{value}, ""
	if v.split != "" {
		urls = strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(v.split, r) })
		glue = v.split[:1]
	}
	for i, text := range urls {
		if v.preset == "go" && (text == "direct" || text == "off") {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return "", nil, errors.New("it is not the http or https URL of an index, which a sandbox could ask")
		}
		name := u.Hostname()
		if addr, err := netip.ParseAddr(name); name == "localhost" || err == nil && addr.IsLoopback() {
			return "", nil, fmt.Errorf("it leads to this machine's loopback: inside a sandbox that is the sandbox; "+
				"write %s, whose ports --host-port opens", egress.HostName)
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		u.User = nil
		urls[i] = u.String()
		hosts = append(hosts, net.JoinHostPort(name, port))
	}
	return strings.Join(urls, glue), hosts, nil
}
