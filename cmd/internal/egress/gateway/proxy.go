//go:build linux

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/proxy"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// errProxy is that a proxy did not connect.
var errProxy = errors.New("the proxy")

// dialProxies connects to the flow's port of a host through the proxies: the machine
// owner's, and through that the sandbox's own.
func (f *flow) dialProxies(ctx context.Context, p *egress.Policy, host string) (net.Conn, error) {
	owners, own := p.Proxies()
	c, by, err := f.firstProxy(ctx, p, owners, own)
	if err != nil {
		return nil, err
	}
	if owners != nil && own != nil {
		// The second one is led to as any host is, but is in no rule.
		to := own.Address
		if !owners.Resolves {
			var at []netip.AddrPort
			if at, err = f.proxyAddrs(ctx, p, own, true); err == nil {
				to = at[0].String()
			}
		}
		if err == nil {
			err = throughProxy(ctx, c, owners, to)
		}
		by = own
	}
	if err == nil {
		err = throughProxy(ctx, c, by, net.JoinHostPort(host, strconv.Itoa(int(f.addr.Port()))))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// firstProxy connects to the proxy that is dialled.
func (f *flow) firstProxy(ctx context.Context, p *egress.Policy, owners, own *egress.Proxy) (net.Conn, *egress.Proxy, error) {
	to, checked := owners, false
	if to == nil {
		to, checked = own, true
	}
	at, err := f.proxyAddrs(ctx, p, to, checked)
	if err != nil {
		return nil, nil, err
	}
	c, _, err := f.dialAny(ctx, at)
	if err != nil {
		return nil, nil, fmt.Errorf("%w cannot be reached: %w", errProxy, err)
	}
	return c, to, nil
}

// throughProxy makes c, a connection to a proxy, one to another host and port.
func throughProxy(ctx context.Context, c net.Conn, by *egress.Proxy, to string) error {
	if by.HTTP {
		if err := connectHTTP(ctx, c, by, to); err != nil {
			return fmt.Errorf("%w does not connect to %s: %w", errProxy, to, err)
		}
		return nil
	}
	var auth *proxy.Auth
	if by.Username != "" {
		auth = &proxy.Auth{User: by.Username, Password: by.Password}
	}
	socks, err := proxy.SOCKS5("tcp", by.Address, auth, given{c})
	if err != nil {
		return fmt.Errorf("%w: %w", errProxy, err)
	}
	if _, err := socks.(proxy.ContextDialer).DialContext(ctx, "tcp", to); err != nil {
		return fmt.Errorf("%w does not connect to %s: %w", errProxy, to, err)
	}
	return nil
}

// maxConnectAnswer bounds the head of a proxy's answer, in bytes.
const maxConnectAnswer = 16 << 10

// connectHTTP asks an HTTP proxy for a connection (RFC 9110, 9.3.6).
func connectHTTP(ctx context.Context, c net.Conn, by *egress.Proxy, to string) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
	}()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: http.Header{"User-Agent": nil}}
	if by.Username != "" {
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(by.Username+":"+by.Password)))
	}
	if err := req.Write(c); err != nil {
		return err
	}
	// Byte by byte: what follows the head is the host's.
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if len(head) == maxConnectAnswer {
			return errors.New("its answer has no end")
		}
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return err
		}
		head = append(head, b[0])
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), req)
	if err != nil {
		return errors.New("its answer is none of HTTP")
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

// given is a connection that is there already.
type given struct{ conn net.Conn }

func (g given) Dial(string, string) (net.Conn, error) { return g.conn, nil }

func (g given) DialContext(context.Context, string, string) (net.Conn, error) { return g.conn, nil }

// proxyAddrs are the addresses of a proxy, one at least: where checked those only that
// a sandbox may reach, but for its rules.
func (f *flow) proxyAddrs(ctx context.Context, p *egress.Policy, of *egress.Proxy, checked bool) ([]netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(of.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProxy, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProxy, err)
	}
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{a}
	} else if addrs, err = f.sandbox.names.Resolve(ctx, host); err != nil {
		return nil, fmt.Errorf("%w: %w", errProxy, err)
	}
	var may []netip.AddrPort
	refusal := egress.Decision{Reason: "it has no address"}
	for _, a := range addrs[:min(len(addrs), maxDialled)] {
		at := netip.AddrPortFrom(a.Unmap(), uint16(port))
		d := egress.Decision{Allowed: true}
		if checked {
			if d = p.Reach(at); d.Allowed {
				d = f.sandbox.gateway.others(p, at, d)
			}
		}
		if d.Allowed {
			may = append(may, at)
		} else {
			refusal = d
		}
	}
	if len(may) == 0 {
		return nil, &errRefused{egress.Decision{Reason: "the proxy cannot be used: " + refusal.Reason}}
	}
	return may, nil
}
