// Package netflag reads the flags about sandboxes' networks, which several commands
// have.
package netflag

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/indexenv"
	"github.com/cubby-sandbox/cubby/internal/handshake"
)

// Mode is a flag that is closed or open.
type Mode string

// Values of a Mode.
const (
	Closed Mode = handshake.NetClosed
	Open   Mode = handshake.NetOpen
)

// Type names it in a help text.
func (m *Mode) Type() string { return "closed|open" }

func (m *Mode) String() string { return string(*m) }

// Set reads it.
func (m *Mode) Set(s string) error {
	if s != string(Closed) && s != string(Open) {
		return errors.New("it is closed or open")
	}
	*m = Mode(s)
	return nil
}

// Names of the flags.
const (
	flagNet    = handshake.FlagNet
	flagAllow  = "allow"
	flagDeny   = "deny"
	flagHeader = "secret-header"
)

// Sandbox has the flags about what code in a sandbox may connect to.
type Sandbox struct {
	mode                 Mode
	allow, deny, headers []string
}

// Register adds the flags to a command.
func (f *Sandbox) Register(cmd *cobra.Command) {
	f.mode = Closed
	fl := cmd.Flags()
	fl.Var(&f.mode, flagNet, "what code may connect to: nothing but --allow, or everything public")
	fl.StringArrayVar(&f.allow, flagAllow, nil, "let code connect to `HOST[:PORT]`, *.DOMAIN, CIDR or @preset such as @pypi; repeatable")
	fl.StringArrayVar(&f.deny, flagDeny, nil, "with --net open: do not let code connect to `HOST[:PORT]`, *.DOMAIN, CIDR or @preset; repeatable")
	fl.StringArrayVar(&f.headers, flagHeader, nil,
		"send a header with HTTPS requests to a host or *.DOMAIN, `HOST:NAME=[SCHEME ]ENVVAR`; its value stays outside of the sandbox; repeatable")
	complete(cmd, map[string]cobra.CompletionFunc{
		flagNet: modes, flagAllow: presets, flagDeny: presets, flagHeader: cobra.NoFileCompletions,
	})
}

// Given names one of the flags that were given, or is empty.
func (f *Sandbox) Given(changed func(string) bool) string {
	return given(changed, flagNet, flagAllow, flagDeny, flagHeader)
}

// Network is what the flags say. getenv gives the values of headers.
func (f *Sandbox) Network(getenv func(string) string) (cubby.Network, error) {
	n := cubby.Network{Open: f.mode == Open}
	var err error
	if n.Allow, err = entries(flagAllow, f.allow); err != nil {
		return cubby.Network{}, err
	}
	if n.Deny, err = entries(flagDeny, f.deny); err != nil {
		return cubby.Network{}, err
	}
	for _, text := range f.headers {
		h, err := header(text, getenv)
		if err != nil {
			return cubby.Network{}, err
		}
		n.Headers = append(n.Headers, h)
	}
	switch {
	case !n.Open && len(n.Deny) > 0:
		return cubby.Network{}, errors.New("--deny goes with --net open: without that, code may connect to what --allow names and nothing else")
	case n.Open && len(n.Allow) > 0 && len(n.Deny) == 0:
		return cubby.Network{}, errors.New("--allow has no use with --net open: leave --net out to allow only what it names, or name exceptions of --deny")
	case !n.Open && len(n.Headers) > 0 && len(n.Allow) == 0:
		host := n.Headers[0].Host
		return cubby.Network{}, fmt.Errorf("--secret-header %s: the network is closed; open it with --allow %s:443", host, host)
	}
	return n, nil
}

// entries are a flag's, which may have several with commas between them.
func entries(flag string, values []string) ([]string, error) {
	var all []string
	for _, v := range values {
		for entry := range strings.SplitSeq(v, ",") {
			entry = strings.TrimSpace(entry)
			switch {
			case entry == "":
				return nil, fmt.Errorf("--%s %q: nothing is given", flag, v)
			case strings.Contains(entry, "://"):
				return nil, fmt.Errorf("--%s %q: it is a URL; write the host alone, with a port if need be, such as api.example.com:443", flag, entry)
			}
			all = append(all, entry)
		}
	}
	return all, nil
}

// variable is what names of environment variables look like. What looks otherwise may
// be a secret, and is not repeated.
var variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,63}$`)

// header reads HOST:NAME=[SCHEME ]ENVVAR.
func header(text string, getenv func(string) string) (h cubby.SecretHeader, err error) {
	target, source, ok := strings.Cut(text, "=")
	host, name, named := strings.Cut(target, ":")
	if !ok || !named || host == "" || name == "" || source == "" {
		if ok {
			text = target + "=…" // what follows may be a secret
		}
		return h, fmt.Errorf("--%s %q: write HOST:NAME=ENVVAR, such as api.example.com:X-Api-Key=API_KEY", flagHeader, text)
	}
	scheme, from := "", source
	if i := strings.LastIndexByte(source, ' '); i >= 0 {
		scheme, from = source[:i+1], source[i+1:]
	}
	value := getenv(from)
	switch {
	case value == "" && variable.MatchString(from):
		return h, fmt.Errorf("--%s %s: the environment variable %s is not set", flagHeader, target, from)
	case value == "":
		return h, fmt.Errorf("--%s %s: behind the = stands the name of an environment variable that is set, never the value itself", flagHeader, target)
	}
	return cubby.SecretHeader{Host: host, Name: name, Value: scheme + value}, nil
}

// Owner has the flags by which this machine's owner opens what is not public.
type Owner struct {
	Reach     []string
	HostPorts []int
	// IndexEnv gives sandboxes the settings of package registries in the environment.
	IndexEnv bool
}

// Register adds the flags to a command.
func (f *Owner) Register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.Reach, handshake.FlagReach, nil,
		"addresses that are not public and may be allowed nevertheless, `CIDR[:PORT]` or ADDRESS[:PORT]; repeatable")
	fl.IntSliceVar(&f.HostPorts, handshake.FlagHostPort, nil, "`port` of this machine that may be allowed, as "+egress.HostName+"; repeatable")
	fl.BoolVar(&f.IndexEnv, handshake.FlagIndexEnv, false,
		"give sandboxes PIP_INDEX_URL, NPM_CONFIG_REGISTRY and the like as they are set here, without passwords; @pypi is their host then")
	complete(cmd, map[string]cobra.CompletionFunc{
		handshake.FlagReach: cobra.NoFileCompletions, handshake.FlagHostPort: cobra.NoFileCompletions,
	})
}

// Given names one of the flags that were given, or is empty.
func (f *Owner) Given(changed func(string) bool) string {
	return given(changed, handshake.FlagReach, handshake.FlagHostPort, handshake.FlagIndexEnv)
}

// Check finds what a Cubby of this version would refuse.
func (f *Owner) Check() error {
	op, err := f.operator()
	if err == nil {
		_, err = compile(cubby.Network{}, op)
	}
	return err
}

// Check finds what a Cubby of this version would refuse, and what is allowed and yet
// not reached, or opened by the owner and yet not allowed.
func Check(n cubby.Network, owner Owner) error {
	op, err := owner.operator()
	if err != nil {
		return err
	}
	p, err := compile(n, op)
	if err != nil {
		return err
	}
	for _, entry := range n.Allow {
		to, err := netip.ParseAddrPort(entry)
		if at, perr := netip.ParseAddr(entry); perr == nil && len(owner.Reach) == 0 {
			to, err = netip.AddrPortFrom(at, 443), nil // no port is reached
		}
		if err != nil {
			continue
		}
		if d := p.Reach(to); !d.Allowed {
			why, _, owners := strings.Cut(d.Reason, ": only this machine's owner")
			if owners {
				why += fmt.Sprintf("; it is reached with --%s %s beside", handshake.FlagReach, entry)
			}
			return fmt.Errorf("--%s %s: %s", flagAllow, entry, why)
		}
	}
	for _, port := range owner.HostPorts {
		at := net.JoinHostPort(egress.HostName, strconv.Itoa(port))
		if d := p.Host(egress.HostName, uint16(port), egress.TCP); !d.Allowed && !isRegistry(op, at) {
			return fmt.Errorf("--%s %d: no rule lets code connect to it: --%s %s does", handshake.FlagHostPort, port, flagAllow, at)
		}
	}
	return nil
}

// operator is what the owner permits, with what is in the environment.
func (f *Owner) operator() (egress.Operator, error) {
	op := egress.Operator{Reach: f.Reach, HostPorts: f.HostPorts}
	if f.IndexEnv {
		settings, err := indexenv.Read(os.Getenv)
		if err != nil {
			return op, fmt.Errorf("--%s: %w", handshake.FlagIndexEnv, err)
		}
		op.Registries = settings.Registries
	}
	return op, nil
}

// isRegistry says whether packages are installed from there.
func isRegistry(op egress.Operator, at string) bool {
	for _, hosts := range op.Registries {
		if slices.Contains(hosts, at) {
			return true
		}
	}
	return false
}

// compile says faults by the flags that have them.
func compile(n cubby.Network, op egress.Operator) (*egress.Policy, error) {
	rules := egress.Rules{Open: n.Open, Allow: n.Allow, Deny: n.Deny}
	byHost := map[string]int{}
	for _, h := range n.Headers {
		i, ok := byHost[h.Host]
		if !ok {
			i = len(rules.Headers)
			byHost[h.Host] = i
			rules.Headers = append(rules.Headers, egress.HeaderRule{Host: h.Host, Headers: map[string]string{}})
		}
		if _, twice := rules.Headers[i].Headers[h.Name]; twice {
			return nil, fmt.Errorf("--%s: %s has the header %s twice", flagHeader, h.Host, h.Name)
		}
		rules.Headers[i].Headers[h.Name] = h.Value
	}
	p, err := egress.Compile(rules, op)
	if fault, ok := errors.AsType[*egress.EntryError](err); ok {
		what := fault.Err.Error()
		if fault.Entry != "" {
			what = fmt.Sprintf("%q: %v", fault.Entry, fault.Err)
		}
		list, _, _ := strings.Cut(fault.Field, "[")
		flag, ok := map[string]string{
			"allow": flagAllow, "deny": flagDeny, "headers": flagHeader, "reach": handshake.FlagReach, "hostPorts": handshake.FlagHostPort,
		}[list]
		if ok {
			return nil, fmt.Errorf("--%s %s", flag, what)
		}
	}
	return p, err
}

func given(changed func(string) bool, flags ...string) string {
	for _, flag := range flags {
		if changed(flag) {
			return flag
		}
	}
	return ""
}

var modes = cobra.FixedCompletions([]cobra.Completion{string(Closed), string(Open)}, cobra.ShellCompDirectiveNoFileComp)

func presets(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return egress.Presets(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func complete(cmd *cobra.Command, all map[string]cobra.CompletionFunc) {
	for name, f := range all {
		if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil {
			panic(err) // a flag that is not there
		}
	}
}

// CompleteMode says how shells complete the flag of a Mode.
func CompleteMode(cmd *cobra.Command) { complete(cmd, map[string]cobra.CompletionFunc{flagNet: modes}) }

// Proxy checks the flags of the proxy that all connections go through: name is that of
// the environment variable with its URL.
func Proxy(name string, resolves bool, getenv func(string) string) error {
	if name == "" {
		if resolves {
			return fmt.Errorf("--%s is about a proxy: it goes with --%s", handshake.FlagResolves, handshake.FlagProxy)
		}
		return nil
	}
	text := getenv(name)
	switch {
	case text == "" && variable.MatchString(strings.ToUpper(name)):
		return fmt.Errorf("--%s: the environment variable %s is not set", handshake.FlagProxy, name)
	case text == "": // it may be the URL itself, with a password
		return fmt.Errorf("--%s: give the name of an environment variable that has the proxy's URL", handshake.FlagProxy)
	}
	if _, err := egress.ParseProxy(text); err != nil {
		return fmt.Errorf("--%s: the URL in %s: %w", handshake.FlagProxy, name, err)
	}
	return nil
}
