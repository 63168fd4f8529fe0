package cubby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Network says where code in a sandbox may connect to. The zero value is a closed
// network, and so is that of a sandbox that was created without [WithNetwork], on
// every server.
//
// An entry of Allow and Deny is one of
//
//	pypi.org        *.pypi.org        *             names: one, all below one, all
//	192.0.2.7       2001:db8::7       192.0.2.0/24  addresses
//	@pypi                                           what a registry needs
//
// and all but the last may end in a port or a range of them: pypi.org:443,
// 192.0.2.0/24:8000-8999, [2001:db8::7]:443. Without one every port is meant. The
// registries are @crates, @debian, @github, @go, @huggingface, @npm and @pypi.
// Servers of other kinds know neither ports nor registries, and refuse them.
//
// TCP and UDP over IPv4 can go out. Ping, IPv6, raw sockets, multicast and QUIC
// cannot. Whatever the rules say, addresses that are not public stay closed (the
// server's own, those of its local network, those at which clouds hand out
// credentials) unless the server's owner names them: for a private Cubby that is
// Config.Reach of package embedded.
type Network struct {
	// Open lets code connect to everything that is public and that Deny does not
	// name. A network that is not open lets it connect to what Allow names; other
	// names do not exist there.
	Open bool
	// Allow of a network that is not open is all that code may connect to. Of an
	// open one it names exceptions of Deny, which it beats. A Cubby server takes up to
	// 20,000 entries.
	Allow []string
	// Deny is what code in an open network may not connect to, up to 20,000 entries.
	// A network that is not open has none. [Client.Create] and [Sandbox.SetNetwork]
	// fail with [CodeUnimplemented] on servers other than Cubby's where it has more
	// than addresses without ports.
	Deny []string
	// Headers are added to requests on the server's side: at most 20 for each of at
	// most 10 hosts. They do not open a host: a network that is not open has to allow
	// it, too.
	Headers []SecretHeader
}

// SecretHeader is a header of the requests that code makes to a host over HTTPS, at
// port 443. The server adds it, in place of a header of that name that the code
// sends. Neither code nor files in the sandbox ever see the value, unless the host
// itself repeats it in another form.
//
// Where the headers of several hosts are about a name, those of the closest one are
// added alone: of the name itself, else of the wildcard with the most labels. Fmt, slog
// and JSON do not show the value.
type SecretHeader struct {
	// Host is a name, or *.NAME for all names below one that has one owner (not com or
	// github.io), of up to 128 bytes, without a port.
	Host  string
	Name  string // such as "Authorization", up to 64 bytes
	Value string `json:"-"` // up to 2,048 bytes
}

// Format writes host and name, for every verb.
func (h SecretHeader) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, h.redacted()) }

// LogValue is host and name.
func (h SecretHeader) LogValue() slog.Value { return slog.StringValue(h.redacted()) }

func (h SecretHeader) redacted() string { return fmt.Sprintf("{%q %q}", h.Host, h.Name) }

// WithNetwork says where code in the sandbox may connect to; without it, nowhere.
// [Sandbox.SetNetwork] changes it later. [Client.Create] fails with
// [CodeInvalidArgument] for entries that mean nothing.
func WithNetwork(n Network) CreateOption {
	return createOption(func(c *createConfig) { c.network = n })
}

// SetNetwork replaces where code in the sandbox may connect to. When it returns,
// connections that are no longer allowed have been cut. It fails with
// [CodeInvalidArgument] for entries that mean nothing, with [CodeSandboxGone] when the
// sandbox has ended, and with [CodeUnimplemented] on a server that cannot.
func (s *Sandbox) SetNetwork(ctx context.Context, n Network) error {
	const op = "set network"
	allow, rules, err := n.wire()
	if err != nil {
		return fail(op, CodeInvalidArgument, err)
	}
	body := protocol.SandboxNetwork{AllowInternetAccess: &allow}
	if rules != nil {
		body.Network = *rules
	}
	if len(body.DenyHosts) > 0 && !s.cubby {
		return fail(op, CodeUnimplemented, errDenyUnknown())
	}
	return n.redact(s.ofSandbox(ctx, op, http.MethodPut, "/sandboxes/"+s.id+"/network", nil, body, nil))
}

func errDenyUnknown() error {
	return &Error{
		Code: CodeUnimplemented, Err: errors.New("the server does not say that it can deny names and ports"),
		Hint: "deny addresses, or leave Network.Open out and say what is allowed",
	}
}

// maxEntry bounds an entry, in bytes, and what an error repeats of one.
const maxEntry = 1024

// wire is the network in E2B's words.
func (n Network) wire() (allow bool, rules *protocol.Network, err error) {
	if err := n.check(); err != nil {
		return false, nil, err
	}
	r := protocol.Network{AllowOut: slices.Clone(n.Allow)}
	for _, entry := range n.Deny {
		// E2B takes addresses here, and names in AllowOut only where everything is denied.
		if isAddress(entry) && len(n.Allow) == 0 {
			r.DenyOut = append(r.DenyOut, entry)
		} else {
			r.DenyHosts = append(r.DenyHosts, entry)
		}
	}
	if !n.Open && len(n.Allow) > 0 {
		r.DenyOut = []string{"0.0.0.0/0"}
	}
	for _, h := range n.Headers {
		if r.Rules == nil {
			r.Rules = map[string][]protocol.NetworkRule{}
		}
		host := canonical(h.Host)
		if r.Rules[host] == nil {
			r.Rules[host] = []protocol.NetworkRule{{Transform: &protocol.Transform{Headers: map[string]string{}}}}
		}
		r.Rules[host][0].Transform.Headers[h.Name] = h.Value
	}
	if len(r.AllowOut)+len(r.DenyOut)+len(r.DenyHosts)+len(r.Rules) == 0 {
		return n.Open, nil, nil
	}
	return n.Open, &r, nil
}

// check finds what would be refused in words that do not fit, or would silently have
// no use. Whether an entry means something is for the server to say.
func (n Network) check() error {
	for _, list := range []struct {
		name    string
		entries []string
	}{{"Allow", n.Allow}, {"Deny", n.Deny}} {
		for i, entry := range list.entries {
			if err := checkEntry(entry); err != nil {
				return fmt.Errorf("Network.%s[%d]: %q: %w", list.name, i, clip.Ellipsis(entry, maxEntry/8), err)
			}
		}
	}
	switch {
	case !n.Open && len(n.Deny) > 0:
		return &Error{Code: CodeInvalidArgument, Err: errors.New("Network.Deny is for an open network: what Allow names is allowed, and nothing else"),
			Hint: "set Network.Open, or leave Deny out"}
	case n.Open && len(n.Allow) > 0 && len(n.Deny) == 0:
		return &Error{Code: CodeInvalidArgument, Err: errors.New("Network.Allow has no use in an open network without Deny: everything public is allowed"),
			Hint: "leave Network.Open out to allow these only"}
	}
	seen := map[string]bool{}
	for i, h := range n.Headers {
		if err := h.check(); err != nil {
			return fmt.Errorf("Network.Headers[%d]: %q: %w", i, clip.Ellipsis(h.Host, maxEntry/8), err)
		}
		if !n.Open && !n.mayAllow(h.Host) {
			return &Error{Code: CodeInvalidArgument, Err: fmt.Errorf("Network.Headers[%d]: %q is not in Network.Allow: its requests do not go out", i, h.Host),
				Hint: fmt.Sprintf("allow %s, too", h.Host)}
		}
		key := canonical(h.Host) + " " + strings.ToLower(h.Name)
		if seen[key] {
			return fmt.Errorf("Network.Headers[%d]: %s has the header %q twice", i, h.Host, h.Name)
		}
		seen[key] = true
	}
	return nil
}

// mayAllow is false where no entry of Allow can be about the name, or a name below it if
// it is a wildcard.
func (n Network) mayAllow(name string) bool {
	name = canonical(name)
	above, wide := strings.CutPrefix(name, "*")
	return slices.ContainsFunc(n.Allow, func(entry string) bool {
		host, _, _ := strings.Cut(entry, ":")
		host = canonical(host)
		parent, below := strings.CutPrefix(host, "*")
		switch {
		case wide && strings.HasSuffix(host, above):
			return true
		case below:
			return strings.HasSuffix(name, parent)
		case strings.HasPrefix(entry, "@"), strings.ContainsAny(entry, "/["), isAddress(entry), isAddress(host):
			return true // what they stand for, the server knows
		}
		return host == name || !isASCII(host) || !isASCII(name)
	})
}

func checkEntry(entry string) error {
	switch {
	case entry == "":
		return errors.New("it is empty")
	case len(entry) > maxEntry:
		return errors.New("it is too long")
	case strings.Contains(entry, "://"):
		return errors.New("it is a URL: write the host alone, with a port if need be, such as api.example.com:443")
	case strings.ContainsFunc(entry, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ',' }):
		return errors.New("it has a blank, a comma or a control character: each host is an entry of its own")
	}
	return nil
}

func (h SecretHeader) check() error {
	switch host := strings.TrimPrefix(h.Host, "*."); {
	case host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || strings.ContainsRune("*:/@,[]\x7f", r) }):
		return errors.New("the host of a header is one name without a port, or *.NAME for those below one")
	case h.Name == "" || strings.ContainsFunc(h.Name, func(r rune) bool { return !isToken(r) }):
		return fmt.Errorf("%q is no name of a header", clip.Ellipsis(h.Name, maxEntry/8))
	case h.Value == "":
		return fmt.Errorf("the header %q has no value", h.Name)
	case strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("the value of the header %q has a line end or another character that headers cannot have", h.Name)
	}
	return nil
}

// isToken says whether a header's name may have the character (RFC 9110, 5.6.2).
func isToken(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// isAddress says whether an entry is an address or a network, without a port.
func isAddress(entry string) bool {
	if _, err := netip.ParseAddr(entry); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(entry)
	return err == nil
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// canonical is a name as names are compared.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// minSecret is how long a part of a value is that errors must not have: shorter ones
// stand in any text.
const minSecret = 6

// redact takes the values of headers out of an error: a server may repeat what it was
// sent.
func (n Network) redact(err error) error {
	values := make([]string, 0, len(n.Headers))
	for _, h := range n.Headers {
		values = append(values, h.Value)
	}
	return withoutValues(err, values...)
}

// withoutValues takes secret values, and the words in them, out of an error.
func withoutValues(err error, values ...string) error {
	if err == nil {
		return nil
	}
	var pairs []string
	for _, value := range values {
		for _, part := range append([]string{value}, strings.Fields(value)...) {
			if len(part) >= minSecret {
				// Quoted, as JSON and Go have it, it may differ.
				quoted := fmt.Sprintf("%q", part)
				pairs = append(pairs, part, "[secret]", quoted[1:len(quoted)-1], "[secret]")
			}
		}
	}
	hide := strings.NewReplacer(pairs...).Replace
	out := &Error{Code: CodeUnavailable, Err: err}
	if e, ok := errors.AsType[*Error](err); ok {
		told := *e
		out = &told
	}
	text, hint := hide(out.Err.Error()), hide(out.Hint)
	if text == out.Err.Error() && hint == out.Hint {
		return err
	}
	out.Err, out.Hint = errors.New(text), hint // what it wraps could show the value
	return out
}
