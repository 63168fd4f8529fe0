package child

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/web"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gatewayproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// Network is what the owner of the computer says of sandboxes' networks.
type Network struct {
	// Open is for sandboxes whose client does not say: they may connect to
	// everything that is public.
	Open     bool
	Operator egress.Operator // without Resolvers, those are the computer's
}

const (
	// resolvConf names the computer's name servers; it is looked at again this often.
	resolvConf  = "/etc/resolv.conf"
	resolvEvery = 5 * time.Second
)

// gatewayLimits bound the gateway's process, for all sandboxes together.
var gatewayLimits = cgroup.Limits{Memory: 896 << 20, PIDs: 256}

// network is the sandboxes' way out.
type network struct {
	process *gatewayproc.Process
	host    atomic.Pointer[host.Host] // that is told of flows
	group   *cgroup.Group
	ca      []byte // the authority's certificate, as PEM
	stop    chan struct{}
}

// openNetwork starts the gateway.
func openNetwork(opts *Options, key *secret.Key, cgroups *cgroup.Manager) (*network, error) {
	if _, err := egress.Compile(egress.Rules{}, opts.Network.Operator); err != nil {
		return nil, &fault.Error{Code: fault.InvalidArgument, Err: fmt.Errorf("what sandboxes may reach of this machine's surroundings: %w", err)}
	}
	authority, err := openAuthority(key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	n := &network{ca: authority.Certificate(), stop: make(chan struct{})}
	if cgroups != nil {
		if n.group, err = cgroups.New("gateway", gatewayLimits); err != nil {
			opts.Logger.Warn("the network's gateway has no control group", "err", err)
		}
	}
	named := len(opts.Network.Operator.Resolvers) > 0
	if !named {
		opts.Network.Operator.Resolvers = nameServers(opts.Logger)
	}
	n.process = gatewayproc.Start(gatewayproc.Config{
		Operator: opts.Network.Operator, Authority: authority.PEM(), Roots: systemRoots(), Group: n.group, Logger: opts.Logger,
		OnFlow: func(f egress.Flow) {
			if h := n.host.Load(); h != nil {
				h.RecordFlow(f)
			}
		},
	})
	if !named {
		go n.followNameServers(opts.Network.Operator, opts.Logger)
	}
	return n, nil
}

func (n *network) close() error {
	close(n.stop)
	err := n.process.Close()
	if n.group != nil {
		err = errors.Join(err, n.group.Close())
	}
	return err
}

// followNameServers tells the gateway when the computer has others, as after it moved
// from one network to another.
func (n *network) followNameServers(op egress.Operator, log *slog.Logger) {
	before, _ := os.ReadFile(resolvConf)
	tick := time.NewTicker(resolvEvery)
	defer tick.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-tick.C:
		}
		now, err := os.ReadFile(resolvConf)
		if err != nil || bytes.Equal(before, now) {
			continue
		}
		before = now
		op.Resolvers = nameServers(log)
		n.process.Configure(op)
	}
}

// nameServers are the computer's; none, if it has none: then sandboxes resolve no name.
func nameServers(log *slog.Logger) []netip.AddrPort {
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		log.Warn("sandboxes cannot resolve names: this computer's name servers are not known", "err", err)
		return nil
	}
	var servers []netip.AddrPort
	for _, text := range conf.Servers {
		if addr, err := netip.ParseAddr(text); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr, 53))
		}
	}
	return servers
}

// openAuthority makes the sandboxes' certificate authority of the data folder's key, so
// that it is the same after every start: what is paused trusts it. Without a key it is a
// new one.
func openAuthority(key *secret.Key) (*web.Authority, error) {
	if key == nil {
		return web.NewAuthority()
	}
	return web.DeriveAuthority(key.Seed("certificate authority"))
}

// systemRoots are the certificates by which this computer verifies servers, where
// distributions have them; nil if there are none, and then no server can be verified.
func systemRoots() []byte {
	for _, path := range []string{
		os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if path == "" {
			continue
		}
		if pem, err := os.ReadFile(path); err == nil {
			return pem
		}
	}
	return nil
}
