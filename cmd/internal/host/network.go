package host

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/offline"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Networks gives machines their way out. Its methods are called concurrently for
// different sandboxes.
type Networks interface {
	// Attach makes a sandbox's network card and returns the end that belongs into its
	// machine, which is the caller's. A sandbox that has a card gets another.
	Attach(sandbox string, rules egress.Rules) (*os.File, error)
	// Update replaces a sandbox's rules. When it returns nil, nothing goes on that
	// they do not allow.
	Update(ctx context.Context, sandbox string, rules egress.Rules) error
	// Detach takes a sandbox's card away.
	Detach(sandbox string)
}

// NetworkRequest is what a client wants of a sandbox's way out. What it leaves out is
// as in a sandbox that was created without it.
type NetworkRequest struct {
	AllowInternetAccess *bool
	Network             *protocol.Network
}

// rules are what a client wants as the gateway's rules, or an error for the client.
func (h *Host) rules(allow *bool, n *protocol.Network) (egress.Rules, error) {
	if allow == nil && !h.cfg.OpenNetwork {
		closed := false
		allow = &closed
	}
	rules, err := egress.FromE2B(allow, n)
	if err != nil {
		return egress.Rules{}, invalid("%w", err)
	}
	if _, err := egress.Compile(rules, h.cfg.Operator); err != nil {
		return egress.Rules{}, invalid("%w", err)
	}
	if h.cfg.Networks == nil && (len(rules.Allow) > 0 || len(rules.Headers) > 0 || rules.Proxy != nil) {
		return egress.Rules{}, noNetwork()
	}
	return rules, nil
}

// offline has the registries of packages that the sandbox's network does not reach, so
// that programs which install from them need not try again and again.
func (s *Sandbox) offline() ([]string, error) {
	r := s.Record()
	rules, err := s.host.rules(r.AllowInternetAccess, r.Network)
	if err != nil {
		return nil, err
	}
	p, err := egress.Compile(rules, s.host.cfg.Operator)
	if err != nil {
		return nil, err
	}
	registries := []string{}
	for _, name := range offline.Registries {
		if s.host.cfg.Networks == nil || !p.ReachesPreset(name) {
			registries = append(registries, name)
		}
	}
	return registries, nil
}

// tellOffline tells the guest which registries are not reached now, if they are others
// than before. The rules hold also where that fails.
func (s *Sandbox) tellOffline(ctx context.Context, before []string) {
	now, err := s.offline()
	s.mu.Lock()
	m := s.machine
	s.mu.Unlock()
	if err == nil && m != nil && !slices.Equal(before, now) {
		var body []byte
		if body, err = json.Marshal(protocol.InitRequest{Offline: now}); err == nil {
			_, err = m.tell(ctx, "/init", body)
		}
	}
	if err != nil {
		s.host.log.Warn("a sandbox's programs are not told what its network reaches", "sandbox_id", s.ID, "err", err)
	}
}

// card gives the machine that spec describes its network card. The caller calls done
// when the machine has it, or could not be started.
func (s *Sandbox) card(spec *engine.Spec) (done func(), err error) {
	h := s.host
	if h.cfg.Networks == nil {
		return func() {}, nil
	}
	r := s.Record()
	rules, err := h.rules(r.AllowInternetAccess, r.Network)
	if err != nil {
		return nil, err
	}
	if spec.Net, err = h.cfg.Networks.Attach(s.ID, rules); err != nil {
		return nil, own(err)
	}
	return func() { spec.Net.Close() }, nil
}

// detach takes the machine's network card away.
func (s *Sandbox) detach() {
	if s.host.cfg.Networks != nil {
		s.host.cfg.Networks.Detach(s.ID)
	}
}

// SetNetwork replaces where a running sandbox may connect to. When it returns nil,
// connections that are no longer allowed have been cut.
func (s *Sandbox) SetNetwork(ctx context.Context, req NetworkRequest) error {
	rules, err := s.host.rules(req.AllowInternetAccess, req.Network)
	if err != nil {
		return err
	}
	return s.change(ctx, func(ctx context.Context) error {
		before, err := s.offline()
		if err != nil {
			return err
		}
		err = s.become(ctx, StateRunning, StateRunning, func(r *Record) bool {
			r.AllowInternetAccess, r.Network = req.AllowInternetAccess, r.Network.WithEgress(req.Network)
			return true
		}, func() {
			s.logs.add(LogEntry{time.Now().UTC(), levelInfo, "Network rules changed", nil})
		})
		if err != nil || s.host.cfg.Networks == nil {
			return err
		}
		if err := s.host.cfg.Networks.Update(ctx, s.ID, rules); err != nil {
			return own(err)
		}
		s.tellOffline(ctx, before)
		return nil
	})
}
