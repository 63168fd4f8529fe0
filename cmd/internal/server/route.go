package server

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// target is where a request goes: a port of a live sandbox, or the controlPlane.
type target struct {
	ports Ports
	info  host.Info // when the request came
	port  int
	name  string // the id that the client used: answers name no other
}

// controlPlane is the target of requests to the server itself.
var controlPlane = &target{}

// newTarget is a port of a sandbox, which the client called by name; "" if it named
// none.
func newTarget(ports Ports, port int, name string) *target {
	info := ports.Info()
	return &target{ports, info, port, cmp.Or(name, info.ID)}
}

// route finds the sandbox that r is for. The ways are tried in a fixed order,
// and the first one that r uses decides, also when it leads nowhere:
//
//  1. the headers E2b-Sandbox-Id and E2b-Sandbox-Port,
//  2. a host name <port>-<id>[-<client>].<domain>, in a Host header, in the
//     absolute form that a proxy is sent, or in a CONNECT,
//  3. the signature in the query of /files,
//  4. the access token of a live sandbox, for clients older than the headers.
//
// A request that uses none is the control plane's.
func (s *Server) route(r *http.Request) (*target, *refusal) {
	id, port := r.Header.Get(protocol.HeaderSandboxID), r.Header.Get(protocol.HeaderSandboxPort)
	if id != "" || port != "" {
		if id == "" {
			return nil, &refusal{code: fault.InvalidArgument, message: "missing header '" + protocol.HeaderSandboxID + "'"}
		}
		if port == "" {
			return nil, &refusal{code: fault.InvalidArgument, message: "missing header '" + protocol.HeaderSandboxPort + "'"}
		}
		n, ok := parsePort(port)
		if !ok {
			return nil, invalidPort
		}
		if id, ok = sandboxID(id); !ok {
			return nil, gone(clip.Ellipsis(r.Header.Get(protocol.HeaderSandboxID), maxLabel))
		}
		return s.live(r, id, n)
	}
	if id, port, ok := parseHost(r.Host); ok {
		if port == 0 {
			return nil, invalidPort
		}
		return s.live(r, id, port)
	}
	if r.Method == http.MethodConnect {
		return controlPlane, nil
	}
	token := r.Header.Get(protocol.HeaderAccessToken)
	if r.URL.Path == "/files" && token == "" {
		return s.signed(r)
	}
	if port := tokenPort(r.URL.Path); port != 0 && token != "" {
		ports, ok := s.host.ByToken(token)
		if !ok {
			return nil, gone("")
		}
		return newTarget(ports, port, ""), nil
	}
	return controlPlane, nil
}

// live is the port of the sandbox with that id, or with that public id, which
// leads to the ports of the user's programs only.
func (s *Server) live(r *http.Request, id string, port int) (*target, *refusal) {
	if ports, err := s.host.Get(id); err == nil {
		return newTarget(ports, port, id), nil
	}
	ports, err := s.host.GetPublic(id)
	switch {
	case err != nil:
		return nil, s.ended(r, id)
	case port == protocol.EnvdPort || port == protocol.CodeInterpreterPort:
		return nil, &refusal{code: fault.PermissionDenied, id: id, port: port,
			message: "A public id leads to the ports of the sandbox's own programs only"}
	}
	return newTarget(ports, port, id), nil
}

// refusal is an answer that the data plane gives instead of a sandbox: an error of
// that code, and what E2B's form of it names besides.
type refusal struct {
	code    fault.Code
	id      string // of the sandbox, where there is one
	port    int
	message string
	hint    string
	// retryAfter is when it is worth trying again; zero where nobody knows.
	retryAfter time.Duration
}

var invalidPort = &refusal{code: fault.InvalidArgument, message: "Invalid sandbox port",
	hint: "set the header " + protocol.HeaderSandboxPort + " to a port between 1 and 65535"}

// gone is E2B's answer for a sandbox that does not exist (any more) or cannot be
// reached, whatever the reason.
func gone(id string) *refusal {
	return &refusal{code: fault.SandboxGone, id: id, message: "The sandbox was not found"}
}

// ended is gone, with the reason for a client that shows that the sandbox was its own:
// by its access token or by an API key of its team. Any other client learns nothing.
func (s *Server) ended(r *http.Request, id string) *refusal {
	e := gone(id)
	if why, known := s.host.EndOf(r.Context(), id, r.Header.Get(protocol.HeaderAccessToken)); known {
		e.message += ": " + why.String()
		return e
	}
	team, err := s.teamOf(r)
	if err != nil {
		return e
	}
	_, err = s.host.Of(r.Context(), team, id)
	if why := reasonOf(err); why != "" {
		e.message += ": " + why
	}
	return e
}

// reasonOf returns when and why a sandbox ended, if err says so.
func reasonOf(err error) string {
	if fault.CodeOf(err) != fault.NotFound || errors.Is(err, host.ErrNotFound) {
		return ""
	}
	return fault.In(err).Message()
}

// write answers in the form that E2B has for the status: errors about a sandbox
// have its id.
func (e *refusal) write(w http.ResponseWriter) {
	// A browser hides an answer from scripts of other origins otherwise.
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.retryAfter/time.Second)))
	}
	switch e.code {
	case fault.SandboxGone, fault.PermissionDenied, fault.RateLimited:
		status := e.code.HTTPStatus()
		writeJSON(w, status, protocol.ProxyError{SandboxID: e.id, Port: e.port, Code: status, Message: e.message, Hint: e.hint})
	default:
		writeError(w, e.code, e.message, e.hint)
	}
}

// parsePort reads a port in decimal without sign or leading zero.
func parsePort(s string) (port int, ok bool) {
	if len(s) == 0 || len(s) > 5 || s[0] == '0' {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		port = port*10 + int(c-'0')
	}
	return port, port <= 65535
}

// maxLabel is the longest label of a host name (RFC 1035, 2.3.4).
const maxLabel = 63

// parseHost reads a host name that means a port of a sandbox:
// <port>-<id>[-<client>].<domain>, of any domain, with or without a port of its
// own, in any case. Port is 0 for a name that has the form, but no port that
// there could be.
func parseHost(hostport string) (id string, port int, ok bool) {
	name, _, ok := splitHost(hostport)
	if !ok {
		return "", 0, false
	}
	label, rest, ok := strings.Cut(name, ".")
	if !ok || rest == "" || len(label) > maxLabel {
		return "", 0, false
	}
	digits, label, ok := strings.Cut(label, "-")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return "", 0, false
	}
	if id, ok = sandboxID(label); !ok {
		return "", 0, false
	}
	if port, ok = parsePort(digits); !ok {
		port = 0
	}
	return id, port, true
}

// splitHost takes the port off a host name, and the dot at its end, and lowers
// its case. Port is 0 where there is none. It is not ok for IPv6 addresses.
func splitHost(hostport string) (name string, port int, ok bool) {
	name = hostport
	if i := strings.IndexByte(hostport, ':'); i >= 0 {
		if port, ok = parsePort(hostport[i+1:]); !ok {
			return "", 0, false
		}
		name = hostport[:i]
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name, port, name != ""
}

// addressedToServer reports whether a request that was sent to this server as a proxy is
// for the server itself. The names under which a server is reached are not known to
// it; its port is.
func (s *Server) addressedToServer(r *http.Request) bool {
	if s.cfg.Domain != "" {
		name, _, _ := splitHost(r.Host)
		domain, _, _ := splitHost(s.cfg.Domain)
		if sub, ok := strings.CutSuffix(name, domain); ok && (sub == "" || sub == "api." || sub == "sandbox.") {
			return true
		}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return true // a private socket, which whoever reaches it owns
	}
	port := 80
	if _, p, ok := splitHost(r.Host); ok && p != 0 {
		port = p
	} else if a, err := netip.ParseAddrPort(r.Host); err == nil { // IPv6
		port = int(a.Port())
	}
	return port == local.Port
}

// tokenPort is the port that a path belongs to when only the access token says
// which sandbox is meant, or 0 for the control plane's paths.
func tokenPort(path string) int {
	switch {
	case path == "/execute", path == "/contexts", strings.HasPrefix(path, "/contexts/"):
		return protocol.CodeInterpreterPort
	case path == "/health", path == "/metrics", path == "/envs", path == "/files", strings.HasPrefix(path, "/files/"),
		strings.HasPrefix(path, "/process.Process/"), strings.HasPrefix(path, "/filesystem.Filesystem/"):
		return protocol.EnvdPort
	}
	return 0
}

// signed finds the sandbox whose token signed the URL of r. A URL that none
// signed is answered as envd answers it. Every live token is compared, in the
// same time whether it matches or not; each costs one or two blocks of SHA-256,
// for what the tokens have in common is hashed once.
func (s *Server) signed(r *http.Request) (*target, *refusal) {
	sign, refused := readSignature(r)
	if refused != nil {
		return nil, refused
	}
	ports, ok := s.host.BySignature(sign.isBy)
	if !ok {
		return nil, invalidSignature
	}
	return newTarget(ports, protocol.EnvdPort, ""), nil
}

// foreign refuses a proxy request for any other host: this is no open proxy.
func foreign(r *http.Request) *refusal {
	return &refusal{code: fault.PermissionDenied,
		message: "this server is a proxy for its sandboxes only, not for " + strconv.QuoteToASCII(clip.Ellipsis(r.Host, 4*maxLabel)),
		hint:    "name other hosts in NO_PROXY, this server's own too if it is reached through another port or name"}
}
