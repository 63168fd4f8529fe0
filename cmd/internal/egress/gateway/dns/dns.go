// Package dns answers the questions that a sandbox asks about names, and finds the
// addresses of names that the gateway dials for it.
//
// A name that a rule of the sandbox names is answered with a pinned address: one out of
// 198.18.0.0/15 that stands for this name alone, so that the gateway knows from a
// connection's address which name is meant, whatever the protocol. A name that an open
// network resolves is asked of the operator's resolvers, and what they say is passed only
// as far as it answers exactly what was asked. Every other name does not exist, and nobody
// is asked about it, so that no data leaves in the names themselves.
//
// Nothing that a sandbox sends is passed on: of its question, the name in its canonical
// form and the type are put into a message of our own.
package dns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// MaxMessage is the size in bytes of the longest message there is. As a bound of a reply
// it says that the reply goes over a stream.
const MaxMessage = dns.MaxMsgSize

const (
	// What one sandbox may ask. More questions than this are dropped, and its resolver
	// asks again.
	questionsPerSecond = 200
	questionsAtOnce    = 400
	questionsInWork    = 128

	// What resolvers are asked for one sandbox: beyond that its questions wait, and
	// fail when lookupTime is over.
	askedPerSecond = 100
	askedAtOnce    = 300
	asking         = 16

	// askingAll bounds the sockets that questions of all sandboxes use at once.
	askingAll = 1024

	// lookupTime bounds a lookup, with all its attempts and its waiting. It is below
	// the five seconds after which the resolvers of C libraries ask again.
	lookupTime = 4 * time.Second

	// resolveTime is how long Resolve goes on while resolvers say nothing. Who dials
	// waits for a connection, and has no resolver of its own that asks again.
	resolveTime = 12 * time.Second

	// maxAddresses bounds the addresses of one family that Resolve returns.
	maxAddresses = 16
)

// Config is what a Resolver is made of.
type Config struct {
	// Upstream returns the resolvers that are asked, in the order of preference. It is
	// called for each lookup; only the first three are used.
	Upstream func() []netip.AddrPort
	// Dial connects to one of them. The network is "udp" or "tcp". A UDP connection must
	// be connected, so that the kernel drops packets from other sources, and should have a
	// random local port of its own.
	Dial func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
	// IPv6 says that this machine reaches IPv6 addresses: Resolve looks for them, too.
	IPv6 bool
	// Logger is told at level debug when no resolver answers; nil is for none.
	Logger *slog.Logger
}

// A Resolver holds what the lookups of all sandboxes share: the way to the resolvers, and
// the bound of questions under way. Nothing that was looked up for one sandbox is seen by
// another. It may be used by several goroutines at once.
type Resolver struct {
	config Config
	slots  chan struct{}
}

// New returns a resolver. It starts nothing and needs no close.
func New(c Config) *Resolver {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Resolver{config: c, slots: make(chan struct{}, askingAll)}
}

// A View is what one sandbox sees of the names: its policy, the addresses that were pinned
// for it, what was looked up for it, and its share of questions. It may be used by several
// goroutines at once, and holds nothing that has to be closed.
type View struct {
	// Refused is told the canonical names of questions that the policy does not let be
	// answered; nil is for none. It is set before the first question, and called by
	// several goroutines at once.
	Refused func(name string)

	resolver  *Resolver
	policy    func() *egress.Policy
	questions *rate.Limiter
	inWork    chan struct{}
	asked     *rate.Limiter
	slots     chan struct{}
	flights   singleflight.Group

	mu    sync.Mutex
	pins  pins
	cache cache
}

// View returns a sandbox's view. policy is called for each question, so that a change of
// the policy holds from the next question on; while it returns nil, no name exists.
func (r *Resolver) View(policy func() *egress.Policy) *View {
	return &View{
		resolver:  r,
		policy:    policy,
		questions: rate.NewLimiter(questionsPerSecond, questionsAtOnce),
		inWork:    make(chan struct{}, questionsInWork),
		asked:     rate.NewLimiter(askedPerSecond, askedAtOnce),
		slots:     make(chan struct{}, asking),
	}
}

// NameOf returns the name that a pinned address stands for, in its canonical form. An
// address that was not given to the sandbox stands for none. The policy is not asked: it
// can have changed since the name was answered.
func (v *View) NameOf(a netip.Addr) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pins.nameOf(a.Unmap())
}

func (v *View) pin(name string) (netip.Addr, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pins.addrOf(name)
}

// Resolve returns the addresses to dial for a name: at most 16 of each family, IPv4 first,
// and IPv6 only where Config says so. They are as the resolvers gave them: whether one may
// be dialled is for Policy.Dial to say. The machine's own list of hosts is not read.
// egress.HostName is this machine's loopback address; names that mean the asking machine,
// or nothing on the internet, are not found. The error is a *net.DNSError. It takes at most
// four seconds, and twelve while no resolver says anything.
func (v *View) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	canonical, err := egress.WireName(name)
	if err != nil {
		return nil, &net.DNSError{Err: err.Error(), Name: name, IsNotFound: true}
	}
	if canonical == egress.HostName {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	if !strings.Contains(canonical, ".") || under(canonical, "localhost") || under(canonical, "invalid") {
		return nil, &net.DNSError{Err: "no such host", Name: canonical, IsNotFound: true}
	}
	types := []uint16{dns.TypeA}
	if v.resolver.config.IPv6 {
		types = append(types, dns.TypeAAAA)
	}
	type result struct {
		addrs []netip.Addr
		found found
		err   error
	}
	results := make([]result, len(types))
	var wait sync.WaitGroup
	for i, qtype := range types {
		wait.Go(func() {
			r := &results[i]
			if r.found, r.err = v.lookupAgain(ctx, canonical, qtype); r.err != nil {
				return
			}
			for _, rr := range r.found.records {
				if a, ok := address(rr); ok && len(r.addrs) < maxAddresses && !slices.Contains(r.addrs, a) {
					r.addrs = append(r.addrs, a)
				}
			}
		})
	}
	wait.Wait()
	var addrs []netip.Addr
	var failed error
	for _, r := range results {
		addrs = append(addrs, r.addrs...)
		if failed == nil {
			failed = r.err
		}
	}
	switch {
	case len(addrs) > 0:
		return addrs, nil
	case failed != nil:
		return nil, &net.DNSError{Err: failed.Error(), Name: canonical, IsTimeout: isTimeout(failed), IsTemporary: true, UnwrapErr: failed}
	case results[0].found.rcode == dns.RcodeNameError:
		return nil, &net.DNSError{Err: "no such host", Name: canonical, IsNotFound: true}
	}
	return nil, &net.DNSError{Err: "the name has no address", Name: canonical, IsNotFound: true}
}

// under says whether a canonical name is a domain or a name below it.
func under(name, domain string) bool {
	rest, ok := strings.CutSuffix(name, domain)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}
