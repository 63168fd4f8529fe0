//go:build linux

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

const (
	// dialTime bounds a connection's beginning, from the name to the last address.
	dialTime = 30 * time.Second
	// nextAddress is how long an address is tried before another one is as well.
	nextAddress = 250 * time.Millisecond
	// maxDialled bounds the addresses of a name that are tried.
	maxDialled = 6
	// upstreamKeepAlive is how soon a silent server is asked whether it is there.
	upstreamKeepAlive = 30 * time.Second
)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// check says whether an address may be dialled, at the moment when it is.
func (f *flow) check(p *egress.Policy, to netip.AddrPort) egress.Decision {
	d := p.Dial(to, f.name)
	if !d.Allowed || f.name == egress.HostName {
		return d // Dial lets nothing but the owner's ports through there
	}
	return f.sandbox.gateway.others(p, to, d)
}

// others turns a decision into a refusal if the address is this machine's own, or no
// single machine's, and its owner did not name it.
func (g *Gateway) others(p *egress.Policy, to netip.AddrPort, d egress.Decision) egress.Decision {
	leaves, err := g.routes.toOthers(to.Addr().Unmap())
	var back bool
	if err == nil {
		back, err = g.routes.leadsBack(to.Addr())
	}
	switch {
	case err != nil:
		return egress.Decision{Reason: err.Error()}
	case p.Reaches(to):
	case back:
		return egress.Decision{Reason: to.Addr().String() + " has an address of this machine inside: only its owner can open it"}
	case !leaves:
		return egress.Decision{Reason: fmt.Sprintf(
			"%s is this machine's own address, or leads to no machine: only its owner can open it (reach %s)", to.Addr(), to)}
	}
	return d
}

// dial connects to the flow's target, or to the proxy that leads there, and tells what
// was decided. The connection is TCP's for a flow of TCP, and UDP's else.
func (f *flow) dial(p *egress.Policy, d egress.Decision) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(f.ctx, dialTime)
	defer cancel()
	c, err := f.dialAgain(ctx, p, func() { f.allowed(d) })
	var refused *errRefused
	if errors.As(err, &refused) {
		f.refused(refused.d)
	}
	return c, err
}

// dialAgain is dial for a connection that was told. permitted is called before anything
// is dialled.
func (f *flow) dialAgain(ctx context.Context, p *egress.Policy, permitted func()) (net.Conn, error) {
	owners, own := p.Proxies()
	if f.name == egress.HostName {
		owners, own = nil, nil
	}
	last := cmp.Or(own, owners)
	if last != nil && f.proto == egress.UDP {
		return nil, &errRefused{egress.Decision{Reason: f.addr.String() + " over UDP cannot be led through the proxy"}}
	}
	if last != nil && last.Resolves && f.name != "" {
		permitted()
		return f.dialProxies(ctx, p, f.name)
	}
	addrs := []netip.Addr{f.addr.Addr()}
	if f.name != "" {
		var err error
		if addrs, err = f.sandbox.names.Resolve(ctx, f.name); err != nil {
			permitted()
			return nil, err
		}
	}
	var may []netip.AddrPort
	var refusal egress.Decision
	for _, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), f.addr.Port())
		if d := f.check(p, to); d.Allowed {
			may = append(may, to)
		} else if refusal.Reason == "" {
			refusal = d
		}
		if len(may) == maxDialled {
			break
		}
	}
	if len(may) == 0 {
		if refusal.Reason == "" {
			refusal.Reason = f.name + " has no address"
		}
		return nil, &errRefused{refusal}
	}
	permitted()
	if last != nil {
		// It is told an address that was checked, so it resolves nothing.
		return f.dialProxies(ctx, p, may[0].Addr().String())
	}
	c, to, err := f.dialAny(ctx, may)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.via = to
	f.mu.Unlock()
	// The policy may have changed since it was asked, before the flow had an address by
	// which it could be reviewed.
	if now := f.sandbox.policy.Load(); now != p {
		f.review(now)
	}
	if f.ctx.Err() != nil {
		c.Close()
		return nil, f.ctx.Err()
	}
	return c, nil
}

// dialAny connects to the first of some addresses that answers. Each is tried a moment
// after the one before, or when that has failed.
func (f *flow) dialAny(ctx context.Context, addrs []netip.AddrPort) (net.Conn, netip.AddrPort, error) {
	type result struct {
		conn net.Conn
		to   netip.AddrPort
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	next := time.NewTimer(0)
	defer next.Stop()
	pending, tried := 0, 0
	var failed error
	for {
		select {
		case <-next.C:
			if tried == len(addrs) {
				continue
			}
			to := addrs[tried]
			tried++
			pending++
			go func() {
				c, err := f.dialOne(ctx, to)
				results <- result{c, to, err}
			}()
			next.Reset(nextAddress)
		case r := <-results:
			pending--
			if r.err == nil {
				cancel()
				for range pending { // all end, now that the context has
					if late := <-results; late.conn != nil {
						late.conn.Close()
					}
				}
				return r.conn, r.to, nil
			}
			if failed == nil {
				failed = r.err
			}
			if pending == 0 && tried == len(addrs) {
				return nil, netip.AddrPort{}, failed
			}
			next.Reset(0)
		}
	}
}

// errPorts is that a sandbox made as many connections to a server as it may.
var errPorts = errors.New("too many connections to this server in the last minute")

func (f *flow) dialOne(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAlive: upstreamKeepAlive}
	network := "tcp"
	if f.proto == egress.UDP {
		network = "udp"
	} else if s := f.sandbox; !s.gateway.made.one(s.id, to, s.gateway.budgets.Ports, time.Now()) {
		s.limited.Add(1)
		return nil, errPorts
	}
	c, err := d.DialContext(ctx, network, to.String())
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok && !f.big {
		_ = t.SetReadBuffer(smallBuffer)
		_ = t.SetWriteBuffer(smallBuffer)
	}
	return c, nil
}
