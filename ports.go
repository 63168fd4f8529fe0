package cubby

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Host returns the host name, and the port if it is not the usual one, under
// which others reach a port of the sandbox, such as a web server's:
// PORT-ID.DOMAIN. It needs a DNS name for all names below the domain; names
// below localhost lead to this machine in most browsers without one. A private
// Cubby cannot be reached by others at all; [Sandbox.Transport] works with any
// server. The name shows the sandbox's id; [Sandbox.PublicHost] is for names that
// strangers see.
func (s *Sandbox) Host(port int) string {
	return fmt.Sprintf("%d-%s.%s", port, s.id, s.hostDomain())
}

// PublicHost is [Sandbox.Host] with the sandbox's public id, which leads to the
// ports of programs in the sandbox only: who sees the name learns nothing with
// which the sandbox itself, its files, commands or contexts could be asked for. It
// fails with [CodeInvalidArgument] for the ports of the sandbox's own services,
// 49983 and 49999, and with [CodeUnimplemented] when the server has no public ids;
// only Cubby's has.
func (s *Sandbox) PublicHost(port int) (string, error) {
	const op = "public host"
	switch {
	case port < 1 || port > 65535:
		return "", fail(op, CodeInvalidArgument, errors.New("a port is a number from 1 to 65535"))
	case port == protocol.EnvdPort || port == protocol.CodeInterpreterPort:
		return "", fail(op, CodeInvalidArgument, fmt.Errorf("port %d is the sandbox's own", port))
	case s.publicID == "":
		return "", fail(op, CodeUnimplemented, errors.New("the server gave the sandbox no public id"))
	}
	return fmt.Sprintf("%d-%s.%s", port, s.publicID, s.hostDomain()), nil
}

func (s *Sandbox) hostDomain() string {
	c := s.client
	if domain := cmp.Or(s.domain, c.domain); domain != "" || c.sandbox == nil {
		return domain
	}
	host, port := c.sandbox.Hostname(), c.sandbox.Port()
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	if port != "" {
		return net.JoinHostPort(host, port)
	}
	return host
}

// base is the URL below which a port of the sandbox is.
func (s *Sandbox) base(port int) *url.URL {
	if s.client.sandbox != nil {
		return s.client.sandbox
	}
	return &url.URL{Scheme: s.client.api.Scheme, Host: s.Host(port)}
}

// isDomain accepts a DNS name with an optional port. It may come from a server,
// and goes into URLs.
func isDomain(text string) bool {
	name, port, found := strings.Cut(text, ":")
	if found {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return false
		}
	}
	if name == "" || len(name) > 253 || strings.HasPrefix(name, ".") {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	})
}

// Transport returns what sends HTTP requests to a port of the sandbox, whatever
// the host in their URLs is; only path and query count:
//
//	web := &http.Client{Transport: sbx.Transport(8000)}
//	resp, err := web.Get("http://sandbox/index.html")
//
// Web sockets and other upgrades pass. A port on which nothing listens answers
// 502. What answers is the sandbox: hostile, and without a bound.
func (s *Sandbox) Transport(port int) http.RoundTripper { return &portTransport{s, port} }

type portTransport struct {
	s    *Sandbox
	port int
}

// RoundTrip sends a copy of req to the port.
func (t *portTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.port < 1 || t.port > 65535 {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fail("send to port", CodeInvalidArgument, errors.New("a port is a number from 1 to 65535"))
	}
	base := t.s.base(t.port)
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host = base.Scheme, base.Host
	if prefix := base.EscapedPath(); prefix != "" {
		out.URL.RawPath = prefix + req.URL.EscapedPath()
		out.URL.Path = base.Path + req.URL.Path
	}
	out.Host = "" // the base's: servers look for the headers at their own host
	t.s.route(out.Header, t.port)
	// The token is the guest's own ports', not that of what else listens.
	if t.s.token != "" && (t.port == protocol.EnvdPort || t.port == protocol.CodeInterpreterPort) {
		out.Header.Set(protocol.HeaderAccessToken, t.s.token)
	}
	return t.s.client.through().RoundTrip(out)
}
