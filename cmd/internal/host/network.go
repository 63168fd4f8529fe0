package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/offline"
	"github.com/cubby-sandbox/cubby/internal/clip"
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
	// Flush returns when Host.RecordFlow was called for every flow that was decided
	// before, or when ctx ends.
	Flush(ctx context.Context) error
}

// Secrets are what teams keep for the rules of their sandboxes. Its method is called
// concurrently.
type Secrets interface {
	// Values returns the values of those of the named secrets that a team has.
	Values(ctx context.Context, teamID string, names []string) (map[string]string, error)
}

// NetworkRequest is what a client wants of a sandbox's way out. What it leaves out is
// as in a sandbox that was created without it.
type NetworkRequest struct {
	AllowInternetAccess *bool
	Network             *protocol.Network
}

// rules are what a client wants of the sandbox as the gateway's rules, or an error for the
// client. References to secrets are still in them.
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

// checkRules finds out what is wrong with what a client wants, also that it refers to a
// secret which its team does not have.
func (h *Host) checkRules(ctx context.Context, teamID string, allow *bool, n *protocol.Network) error {
	rules, err := h.rules(allow, n)
	if err != nil {
		return err
	}
	if rules, err = h.withSecrets(ctx, teamID, rules); err != nil {
		return err
	}
	for _, header := range rules.Headers {
		if header.Missing != "" {
			return invalid("Secret '%s' not found: the rule for domain %q refers to it", clip.Ellipsis(header.Missing, maxQuoted), header.Host)
		}
	}
	return nil
}

// withSecrets puts the values that a team's secrets have now into rules.
func (h *Host) withSecrets(ctx context.Context, teamID string, rules egress.Rules) (egress.Rules, error) {
	var values map[string]string
	if names := rules.SecretNames(); len(names) > 0 && h.cfg.Secrets != nil {
		var err error
		if values, err = h.cfg.Secrets.Values(ctx, teamID, names); err != nil {
			return egress.Rules{}, own(err)
		}
	}
	resolved, err := rules.WithSecrets(values)
	if err != nil {
		return egress.Rules{}, invalid("%w", err)
	}
	return resolved, nil
}

// rulesNow are the sandbox's rules as its record has them, with the secrets' values. A
// secret that is gone closes the hosts whose rules refer to it.
func (s *Sandbox) rulesNow(ctx context.Context) (egress.Rules, error) {
	r := s.Record()
	if r.State == StateEnded {
		return egress.Rules{}, ErrNotFound // its rules are gone, and without any it might be open
	}
	rules, err := s.host.rules(r.AllowInternetAccess, r.Network)
	if err != nil {
		return egress.Rules{}, err
	}
	if p := rules.Proxy; p != nil {
		own := *p
		own.Username, own.Password = strings.ReplaceAll(p.Username, sandboxIDMark, s.ID), strings.ReplaceAll(p.Password, sandboxIDMark, s.ID)
		rules.Proxy = &own
	}
	return s.host.withSecrets(ctx, s.TeamID, rules)
}

// sandboxIDMark stands for the sandbox's id in the credentials of a proxy, as in E2B's.
const sandboxIDMark = "{{sandboxID}}"

// card gives the machine that spec describes its network card. The caller calls done
// when the machine has it, or could not be started.
func (s *Sandbox) card(ctx context.Context, spec *engine.Spec) (done func(), err error) {
	h := s.host
	if h.cfg.Networks == nil {
		return func() {}, nil
	}
	s.ruling.Lock()
	defer s.ruling.Unlock()
	// Before the rules are made: a secret that changes from now on is told, see
	// SecretChanged.
	h.mu.Lock()
	h.carded[s] = struct{}{}
	h.mu.Unlock()
	rules, err := s.rulesNow(ctx)
	if err == nil {
		spec.Net, err = h.cfg.Networks.Attach(s.ID, rules)
	}
	if err != nil {
		h.mu.Lock()
		delete(h.carded, s)
		h.mu.Unlock()
		return nil, own(err)
	}
	return func() { spec.Net.Close() }, nil
}

// detach takes the machine's network card away.
func (s *Sandbox) detach() {
	h := s.host
	if h.cfg.Networks == nil {
		return
	}
	s.ruling.Lock()
	defer s.ruling.Unlock()
	h.mu.Lock()
	delete(h.carded, s)
	h.mu.Unlock()
	h.cfg.Networks.Detach(s.ID)
}

// rulingTimeout bounds what the gateway takes for new rules: the end of the sandbox waits
// for it.
const rulingTimeout = 15 * time.Second

// updateRules tells the gateway the sandbox's rules as they are now, if it has a card.
func (s *Sandbox) updateRules(ctx context.Context) error {
	h := s.host
	if h.cfg.Networks == nil {
		return nil
	}
	s.ruling.Lock()
	defer s.ruling.Unlock()
	h.mu.Lock()
	_, carded := h.carded[s]
	h.mu.Unlock()
	if !carded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rulingTimeout)
	defer cancel()
	rules, err := s.rulesNow(ctx)
	if err == nil {
		err = h.cfg.Networks.Update(ctx, s.ID, rules)
	}
	if err != nil {
		return own(err)
	}
	return nil
}

// SecretChanged tells every sandbox of a team whose rules refer to a secret that its
// value was replaced, or that it was made or removed. When it returns nil, no request
// gets the value before. It goes on where ctx ends.
func (h *Host) SecretChanged(ctx context.Context, teamID, name string) error {
	ctx = context.WithoutCancel(ctx)
	h.mu.Lock()
	var all []*Sandbox
	for s := range h.carded {
		if s.TeamID == teamID {
			all = append(all, s)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, s := range all {
		r := s.Record()
		rules, err := h.rules(r.AllowInternetAccess, r.Network)
		if err != nil || !slices.Contains(rules.SecretNames(), name) {
			continue
		}
		if err := s.updateRules(ctx); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", s.ID, err))
		}
	}
	if len(errs) > 0 {
		return own(fmt.Errorf("secret %s has changed, but not for every sandbox that runs: %w", name, errors.Join(errs...)))
	}
	return nil
}

// SetNetwork replaces where a running sandbox may connect to. When it returns nil,
// connections that are no longer allowed have been cut.
func (s *Sandbox) SetNetwork(ctx context.Context, req NetworkRequest) error {
	if err := s.host.checkRules(ctx, s.TeamID, req.AllowInternetAccess, req.Network); err != nil {
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
		if err != nil {
			return err
		}
		if err := s.updateRules(ctx); err != nil || s.host.cfg.Networks == nil {
			return err
		}
		s.tellOffline(ctx, before)
		return nil
	})
}
