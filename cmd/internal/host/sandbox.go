package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
)

// Sandbox is a record, a state, and a machine that can be replaced. It is safe for
// concurrent use; the exported fields and what they point to are never changed.
type Sandbox struct {
	Identity
	// Token is of envd; empty in a sandbox that is not secure.
	Token string
	// TrafficToken is asked for at every port but envd's; empty means open.
	TrafficToken string
	// MaskRequestHost replaces the host name that a request came with; "${PORT}"
	// in it is the port. Empty means unchanged.
	MaskRequestHost string
	StartedAt       time.Time // UTC, in microseconds

	httpsPorts []int // whose programs speak TLS
	host       *Host

	// ctx is done when the sandbox is to end: what is under way with it gives up.
	ctx    context.Context
	cancel context.CancelFunc
	// changing is full while one call gives the sandbox a machine or takes it away.
	changing chan struct{}

	// ruling is held while the gateway is told rules of the sandbox; taken before mu.
	ruling sync.Mutex
	// recording is full while the recorder writes; taken before mu.
	recording chan struct{}

	mu         sync.Mutex
	record     Record // as it was written
	ending     *ending
	machine    *machine // nil without; that of a sandbox that has ended stays, and is closed
	placed     bool     // it has one of the host's places
	left       bool     // the host has closed and left it to the next, paused
	deadline   time.Time
	pauseDue   bool     // it is being paused, or will be, for its deadline
	wake       *wake    // under way; nil if none is
	like       string   // the id of its last snapshot; empty if it has none
	unenforced []string // limits that its last machine did not enforce
	logs       ring[LogEntry]
	samples    ring[Sample]
	flows      ring[egress.Flow]
	endErr     error

	wakes         *rate.Limiter
	deadlineMoved chan struct{} // tells the machine's watchDeadline
	calls         sync.WaitGroup
	shelving      sync.WaitGroup // of its last image; used in alone
	noPorts       chan struct{}  // closed
	done          chan struct{}  // closed when nothing is left of it here
}

// newSandbox returns a sandbox that is nothing but a record.
func (h *Host) newSandbox(r Record) *Sandbox {
	s := &Sandbox{
		Identity: r.Identity, StartedAt: r.StartedAt, host: h, record: r,
		logs: ring[LogEntry]{max: maxLogs}, samples: ring[Sample]{max: maxSamples}, flows: ring[egress.Flow]{max: maxFlows},
		changing: make(chan struct{}, 1), recording: make(chan struct{}, 1), deadlineMoved: make(chan struct{}, 1),
		done: make(chan struct{}), noPorts: make(chan struct{}), wakes: newWakes(),
	}
	if r.Secure {
		s.Token = h.cfg.Key.Token(secret.Access, r.ID, r.Generation)
	}
	if n := r.Network; n != nil {
		s.MaskRequestHost, s.httpsPorts = n.MaskRequestHost, n.HTTPSPorts
		if n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic {
			s.TrafficToken = h.cfg.Key.Token(secret.Traffic, r.ID, r.Generation)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	close(s.noPorts)
	return s
}

// bring makes a machine for the sandbox, with what start does, and greets its guest. The
// machine was from before, and has the memory and files that to counts. A failure leaves
// nothing of it.
func (s *Sandbox) bring(ctx context.Context, t Template, from origin, to Instance, start startMachine) (*machine, error) {
	began := time.Now()
	spec := s.spec(t)
	handedOver, err := s.card(ctx, &spec)
	if err != nil {
		return nil, err
	}
	em, err := start(ctx, spec)
	handedOver()
	if err != nil {
		s.detach()
	}
	switch {
	case errors.Is(err, engine.ErrForeign), errors.Is(err, engine.ErrChanged):
		return nil, foreignImage(err, true)
	case err != nil:
		return nil, own(err)
	}
	m := newMachine(s, em, t, identity{s.ID, to.Memory}, began)
	if m.programs = from.programs; from == (origin{}) && len(t.Programs) > 0 {
		m.programs = t.Programs[0]
	}
	err = m.checkLimits()
	if err == nil {
		if err = m.greet(ctx, from); err != nil {
			err = own(fmt.Errorf("guest of %s: %w", s.ID, err))
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// checkLimits refuses a machine that does not keep what the client asked for.
func (m *machine) checkLimits() error {
	for _, name := range m.Unenforced() {
		if slices.Contains(m.s.Asked, name) {
			return notEnforceable(name)
		}
	}
	return nil
}

// attach gives the sandbox its machine until the deadline. The caller holds s.mu, in
// the transition to running.
func (s *Sandbox) attach(m *machine, deadline time.Time) {
	s.machine, s.unenforced, s.deadline = m, m.Unenforced(), deadline
	m.watch()
}

// Done is closed when nothing of the sandbox is left in this process.
func (s *Sandbox) Done() <-chan struct{} { return s.done }
