//go:build linux

package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/dns"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

const (
	// workers is how many of a sandbox's connections are worked at in one moment. The
	// others wait in turn, so many of one sandbox stand in nobody else's way.
	workers = 2
	// idleStack is how long a sandbox without flows keeps its stack, which its next
	// packet builds anew.
	idleStack = 2 * time.Minute
	// toldPerSecond and toldAtOnce bound what is told of a sandbox's flows.
	toldPerSecond, toldAtOnce = 200, 1000
	// sameQuestion is for how long a question that is repeated is the same one.
	sameQuestion = time.Second
	// pingsPerSecond bounds the answers to what cannot go out.
	pingsPerSecond = 100
)

// sandbox is a card and what its packets became.
type sandbox struct {
	gateway *Gateway
	id      string
	card    *card
	policy  atomic.Pointer[egress.Policy]
	names   *dns.View
	ctx     context.Context // ends with the sandbox
	cancel  context.CancelFunc
	ended   chan struct{} // when its packets are no longer read

	work      chan struct{} // holds a token of each that works
	questions chan struct{} // holds a token of each that is being answered
	newFlows  *rate.Limiter
	told      *rate.Limiter
	pings     *rate.Limiter
	up, down  *rate.Limiter // bytes; nil: no bound

	malformed, unsupported, limited, untold atomic.Uint64

	mu      sync.Mutex
	closed  bool
	flows   map[*flow]struct{}
	buffers int64 // bytes of big buffers that are left
	taken   int64 // bytes of the gateway's memory
	// The name of the last question that was refused, and when.
	refusedName string
	refusedAt   time.Time
	running     sync.WaitGroup
}

func newSandbox(g *Gateway, id string, c *card, p *egress.Policy) *sandbox {
	b := g.budgets
	s := &sandbox{
		gateway: g, id: id, card: c, ended: make(chan struct{}),
		work: make(chan struct{}, workers), questions: make(chan struct{}, b.Questions),
		newFlows: rate.NewLimiter(rate.Limit(b.NewFlows), 2*b.NewFlows), told: rate.NewLimiter(toldPerSecond, toldAtOnce),
		pings: rate.NewLimiter(pingsPerSecond, pingsPerSecond), flows: map[*flow]struct{}{}, buffers: b.Buffers,
	}
	if b.Rate > 0 {
		// A burst holds what is passed at once, at least.
		burst := int(max(b.Rate/4, 2*bigChunk))
		s.up, s.down = rate.NewLimiter(rate.Limit(b.Rate), burst), rate.NewLimiter(rate.Limit(b.Rate), burst)
	}
	s.policy.Store(p)
	s.names = g.resolver.View(s.policy.Load)
	s.names.Refused = s.refuseName
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.serve()
	return s
}

// serve reads the card until it is closed, or the other end is.
func (s *sandbox) serve() {
	defer close(s.ended)
	var net *network // nil while there are no packets
	defer func() {
		// Flows cannot go on without their other end.
		s.cancel()
		s.card.close() // so that nothing waits for it to be read
		if net != nil {
			net.close()
		}
	}()
	for {
		if net != nil {
			_ = s.card.file.SetReadDeadline(time.Now().Add(idleStack))
		}
		n, err := s.card.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = s.card.file.SetReadDeadline(time.Time{})
			if s.stats().Flows == 0 {
				net.close()
				net = nil
			}
			continue
		}
		if err != nil {
			if s.ctx.Err() == nil && !errors.Is(err, io.EOF) {
				s.gateway.log.Warn("a sandbox's network card cannot be read", "sandbox", s.id, "err", err)
			}
			return
		}
		for i := range n {
			p := s.card.packet(i)
			switch inspect(p) {
			case pass:
				if net == nil {
					if net, err = newNetwork(s); err != nil {
						s.gateway.log.Error("no network stack for a sandbox", "sandbox", s.id, "err", err)
						return
					}
				}
				packet := s.card.take(i)
				net.link.deliver(packet)
				packet.DecRef()
			case unsupported:
				s.unsupported.Add(1)
				if s.pings.Allow() {
					_ = s.card.write([][]byte{unreachable(header.ICMPv4AdminProhibited, p)})
				}
			case malformed:
				s.malformed.Add(1)
			}
		}
		if n == batch {
			runtime.Gosched() // there is more: others first
		}
	}
}

// close ends everything and waits for it.
func (s *sandbox) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.card.close()
	<-s.ended
	s.running.Wait()
}

func (s *sandbox) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Malformed: s.malformed.Load(), Unsupported: s.unsupported.Load(), Limited: s.limited.Load(), Untold: s.untold.Load(), Flows: len(s.flows),
	}
}

// start counts a goroutine of the sandbox; false when it ends. Its end calls
// s.running.Done.
func (s *sandbox) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// target is what a flow goes to.
type target struct {
	addr  netip.AddrPort // as the sandbox's packets name it
	name  string         // that addr stands for; empty: itself
	proto egress.Proto
}

func (s *sandbox) target(addr netip.AddrPort, proto egress.Proto) target {
	name, _ := s.names.NameOf(addr.Addr())
	return target{addr, name, proto}
}

// decide asks a policy.
func (t target) decide(p *egress.Policy) egress.Decision {
	if t.name != "" {
		return p.Host(t.name, t.addr.Port(), t.proto)
	}
	return p.Addr(t.addr, t.proto)
}

// flow is one that is open, or about to be.
type flow struct {
	sandbox *sandbox
	target
	began  time.Time
	rule   string
	ctx    context.Context // ends with the flow
	cut    context.CancelFunc
	big    bool  // has big buffers
	takes  int64 // bytes of the gateway's memory
	report bool  // that it is allowed was told

	sent, received atomic.Int64

	mu     sync.Mutex
	policy *egress.Policy // by which it was decided, and dialled
	via    netip.AddrPort // what was dialled; not for the flow of a proxy
	outer  []net.Conn     // that were made for it
	failed error
}

var errCut = errors.New("the rules changed and no longer allow it")

// begin enters a flow, and returns nil if the sandbox has too many, or ends. The
// decision about it has to be asked after that, so that no change of the policy misses
// it. Its goroutine calls end.
func (s *sandbox) begin(t target) *flow {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if len(s.flows) >= s.gateway.budgets.Flows || !s.newFlows.Allow() {
		s.limited.Add(1)
		return nil
	}
	memory := &s.gateway.memory
	f := &flow{sandbox: s, target: t, began: time.Now(), takes: smallFlow + bigFlow}
	if f.big = s.buffers >= bigFlow && memory.take(&s.taken, f.takes); !f.big {
		if f.takes = smallFlow; !memory.take(&s.taken, f.takes) {
			s.limited.Add(1)
			return nil
		}
	}
	if f.big {
		s.buffers -= bigFlow
	}
	f.ctx, f.cut = context.WithCancel(s.ctx)
	s.flows[f] = struct{}{}
	s.running.Add(1)
	return f
}

// end forgets a flow and tells how it ended.
func (f *flow) end() {
	s := f.sandbox
	f.cut()
	s.mu.Lock()
	delete(s.flows, f)
	if f.big {
		s.buffers += bigFlow
	}
	s.mu.Unlock()
	s.gateway.memory.give(&s.taken, f.takes)
	if f.report {
		told := f.told(true, f.rule, "")
		told.Sent, told.Received, told.End = f.sent.Load(), f.received.Load(), time.Now()
		f.mu.Lock()
		if f.failed != nil {
			told.Reason = f.failed.Error()
		}
		f.mu.Unlock()
		s.tell(told)
	}
	s.running.Done()
}

// fail keeps the first thing that went wrong, for the flow's report.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil && err != nil && !errors.Is(err, io.EOF) {
		f.failed = err
	}
}

func (f *flow) told(allowed bool, rule, reason string) egress.Flow {
	return egress.Flow{
		Sandbox: f.sandbox.id, Time: f.began, Proto: f.proto, Host: f.name, Addr: f.addr, Allowed: allowed, Rule: rule, Reason: reason,
	}
}

func (f *flow) allowed(d egress.Decision) {
	f.rule, f.report = d.Rule, true
	f.sandbox.tell(f.told(true, d.Rule, d.Reason))
}

func (f *flow) refused(d egress.Decision) {
	told := f.told(false, d.Rule, d.Reason)
	told.Entry = d.Entry
	f.sandbox.tell(told)
}

// refuse tells of a flow that never began.
func (s *sandbox) refuse(t target, d egress.Decision) {
	s.tell(egress.Flow{Sandbox: s.id, Time: time.Now(), Proto: t.proto, Host: t.name, Addr: t.addr,
		Rule: d.Rule, Reason: d.Reason, Entry: d.Entry})
}

// nameServer is the one that resolvers inside are told.
var nameServer = netip.MustParseAddr(engine.NetGateway)

// refuseName tells of a question about a name that is not answered. Resolvers ask about
// each name several times.
func (s *sandbox) refuseName(name string) {
	s.mu.Lock()
	again := s.refusedName == name && time.Since(s.refusedAt) < sameQuestion
	s.refusedName, s.refusedAt = name, time.Now()
	s.mu.Unlock()
	if p := s.policy.Load(); p != nil && !again {
		s.refuse(target{addr: netip.AddrPortFrom(nameServer, dnsPort), name: name, proto: egress.UDP}, p.Question(name))
	}
}

// tellAgain has a question that was just refused told again: somebody has read what was
// told so far.
func (s *sandbox) tellAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusedName = ""
}

func (s *sandbox) tell(f egress.Flow) {
	if !s.told.Allow() {
		s.untold.Add(1)
		return
	}
	s.gateway.onFlow(f)
}

// update replaces the policy and cuts the flows that it does not allow.
func (s *sandbox) update(p *egress.Policy) {
	s.policy.Store(p)
	s.mu.Lock()
	flows := make([]*flow, 0, len(s.flows))
	for f := range s.flows {
		flows = append(flows, f)
	}
	s.mu.Unlock()
	for _, f := range flows {
		f.review(p)
	}
}

// review ends the flow if another policy would not have made it the same.
func (f *flow) review(p *egress.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.policy
	if old == nil {
		return // it asks the new one
	}
	same := f.decide(p).Allowed
	if same && f.via.IsValid() {
		same = p.Dial(f.via, f.name).Allowed
	}
	if same {
		oldOwners, oldOwn := old.Proxies()
		owners, own := p.Proxies()
		same = reflect.DeepEqual(oldOwners, owners) && reflect.DeepEqual(oldOwn, own)
	}
	if same && f.name != "" {
		was, _ := old.HeadersFor(f.name, f.addr.Port())
		is, _ := p.HeadersFor(f.name, f.addr.Port())
		same = reflect.DeepEqual(was, is)
	}
	if !same {
		if f.failed == nil {
			f.failed = errCut
		}
		f.cut()
		// What closes them runs beside; not a byte is to pass until then.
		for _, c := range f.outer {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
		return
	}
	f.policy = p
}

// own makes a connection outside one of the flow's, with which it ends. stop is for
// who has closed it before.
func (f *flow) own(c net.Conn) (stop func() bool) {
	f.mu.Lock()
	f.outer = append(f.outer, c)
	f.mu.Unlock()
	return context.AfterFunc(f.ctx, func() { reset(c) })
}

// decideNow asks the policy that holds for a flow that was entered.
func (f *flow) decideNow() (*egress.Policy, egress.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = f.sandbox.policy.Load()
	return f.policy, f.decide(f.policy)
}
