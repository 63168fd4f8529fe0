package host

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// Ports is the way into the machine that a sandbox has at a moment. With the
// machine it ends; with another one there is another. It is safe for concurrent use.
type Ports struct {
	s    *Sandbox
	m    *machine // nil without
	done <-chan struct{}
}

// Ports returns the way into the sandbox's machine. Where there is none, or it takes
// no requests, the way is closed already: Dial says why.
func (s *Sandbox) Ports() *Ports {
	s.mu.Lock()
	m := s.machine
	s.mu.Unlock()
	if m == nil {
		return &Ports{s, nil, s.noPorts}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Ports{s, m, m.cut}
}

// Info describes the sandbox as it is now.
func (p *Ports) Info() Info { return p.s.Info() }

// Done is closed when the way is, and all streams through it are broken. It is the
// same channel for all Ports that are the same way.
func (p *Ports) Done() <-chan struct{} { return p.done }

// Dial opens a stream to a port. The error wraps engine.ErrPortClosed where nothing
// listens and engine.ErrEnded when the sandbox has ended, and is a *StateError while
// it takes no requests.
func (p *Ports) Dial(ctx context.Context, port int) (net.Conn, error) {
	if p.m == nil {
		return nil, p.s.unreachable()
	}
	return p.m.dial(ctx, port)
}

// Transport sends HTTP requests to a port, over connections that are kept for the
// next one, with the errors of Dial. The sandbox owns it.
func (p *Ports) Transport(port int) http.RoundTripper {
	if p.m == nil {
		return closedTransport{p.s}
	}
	return p.m.transport(port)
}

// unreachable says why the sandbox takes no requests.
func (s *Sandbox) unreachable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending != nil:
		return fmt.Errorf("sandbox %s: %w", s.ID, engine.ErrEnded)
	case s.record.State == StateRunning:
		return fmt.Errorf("sandbox %s has another machine by now", s.ID)
	}
	return wrongState(s.ID, s.record.State, s.record.State)
}

// closedTransport is that of a sandbox without a machine.
type closedTransport struct{ s *Sandbox }

func (c closedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, c.s.unreachable()
}

// runGrace is what a guest is given beyond an execution's time to end it itself:
// two seconds between its signals, and some for a busy machine.
const runGrace = 10 * time.Second

// BeginRun says that an execution has begun, and bounds it if timeout is
// positive: a guest that does not end it in time is not to be trusted, and the
// sandbox is killed. The caller calls the result once, when the execution ended.
func (p *Ports) BeginRun(timeout time.Duration) (end func()) {
	m := p.m
	if m == nil {
		return func() {}
	}
	m.runs.Add(1)
	var backstop *time.Timer
	if timeout > 0 {
		backstop = time.AfterFunc(timeout+runGrace, func() {
			m.fail(fmt.Sprintf("an execution went on %v past its %v and its guest did not stop it", runGrace, timeout))
		})
	}
	return func() {
		m.runs.Add(-1)
		if backstop != nil {
			backstop.Stop()
		}
	}
}
