//go:build linux

package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/dns"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/web"
)

// Config is what a Gateway is made of. Only Operator is needed.
type Config struct {
	Operator egress.Operator // see Gateway.Configure
	// Authority is the certificate authority by which TLS is opened for rules that add
	// headers, with its key, as PEM. Without it such connections are cut.
	Authority []byte
	// Roots are the certificates by which the servers of such rules are verified, as
	// PEM; without them none of these can be. The system's are not looked for: the
	// process has no files.
	Roots   []byte
	Budgets Budgets // of each sandbox
	// OnFlow is told each flow when it is decided and when it ends. It is called by many
	// goroutines and must not block.
	OnFlow func(egress.Flow)
	Logger *slog.Logger // nil discards
}

// Gateway is the way out of the sandboxes that are attached to it. Its methods are safe
// for concurrent use.
type Gateway struct {
	log       *slog.Logger
	authority *web.Authority
	roots     *x509.CertPool
	budgets   Budgets
	onFlow    func(egress.Flow)
	operator  atomic.Pointer[egress.Operator]
	resolver  *dns.Resolver
	routes    routes
	ports     ports
	memory    memory
	made      made

	mu        sync.Mutex
	closed    bool
	sandboxes map[string]*sandbox
}

// ErrUnknown is what a sandbox is that is not attached.
var ErrUnknown = errors.New("the sandbox is not attached to the gateway")

// New returns a gateway of no sandboxes. Close ends it.
func New(cfg Config) (*Gateway, error) {
	g := &Gateway{
		log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), budgets: cfg.Budgets.withDefaults(), onFlow: cfg.OnFlow, ports: ports{80, 443},
		sandboxes: map[string]*sandbox{},
	}
	g.memory.left = g.budgets.Memory
	if g.onFlow == nil {
		g.onFlow = func(egress.Flow) {}
	}
	if len(cfg.Authority) > 0 {
		a, err := web.ParseAuthority(cfg.Authority)
		if err != nil {
			return nil, err
		}
		g.authority = a
	}
	if len(cfg.Roots) > 0 {
		g.roots = x509.NewCertPool()
		if !g.roots.AppendCertsFromPEM(cfg.Roots) {
			return nil, errors.New("there is no certificate among the roots")
		}
	}
	g.resolver = dns.New(dns.Config{Upstream: g.resolvers, Dial: g.dialResolver, IPv6: g.routes.ipv6(), Logger: cfg.Logger})
	g.Configure(cfg.Operator)
	return g, nil
}

// Configure replaces what the machine's owner permits. The sandboxes' policies are made
// from it as well, so Update is for the caller to call.
func (g *Gateway) Configure(op egress.Operator) {
	op.Reach, op.HostPorts, op.Resolvers = slices.Clone(op.Reach), slices.Clone(op.HostPorts), slices.Clone(op.Resolvers)
	g.operator.Store(&op)
}

func (g *Gateway) resolvers() []netip.AddrPort { return g.operator.Load().Resolvers }

// dialResolver connects to a DNS server, which the machine's owner named.
func (g *Gateway) dialResolver(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, to.String())
}

// Attach begins to serve a sandbox: card is the gateway's end of its network card, a
// socket of SOCK_SEQPACKET, and becomes the gateway's also if Attach fails.
func (g *Gateway) Attach(id string, card *os.File, p *egress.Policy) error {
	c, err := newCard(card)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		err = errors.New("the gateway is closed")
	case g.sandboxes[id] != nil:
		err = fmt.Errorf("sandbox %s is attached", id)
	}
	if err != nil {
		c.close()
		return err
	}
	g.sandboxes[id] = newSandbox(g, id, c, p)
	return nil
}

// Update replaces a sandbox's policy. When it returns, nothing passes any more that the
// new one does not allow.
func (g *Gateway) Update(id string, p *egress.Policy) error {
	s := g.sandbox(id)
	if s == nil {
		return ErrUnknown
	}
	s.update(p)
	return nil
}

// Stats returns a sandbox's counts.
func (g *Gateway) Stats(id string) (Stats, error) {
	s := g.sandbox(id)
	if s == nil {
		return Stats{}, ErrUnknown
	}
	return s.stats(), nil
}

func (g *Gateway) sandbox(id string) *sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sandboxes[id]
}

// TellAgain has what is told once for questions that are repeated told for the next one,
// too: whoever was told has looked at it.
func (g *Gateway) TellAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.sandboxes {
		s.tellAgain()
	}
}

// Detach ends the flows of a sandbox and forgets it. It returns when nothing of it is
// left. A sandbox that is not attached is no fault.
func (g *Gateway) Detach(id string) {
	g.mu.Lock()
	s := g.sandboxes[id]
	delete(g.sandboxes, id)
	g.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// Close detaches all sandboxes.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	all := g.sandboxes
	g.sandboxes = map[string]*sandbox{}
	g.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range all {
		ending.Go(s.close)
	}
	ending.Wait()
	g.routes.close()
}
