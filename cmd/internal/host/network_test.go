package host

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/offline"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// cards notes what a host does with its networks.
type cards struct {
	mu    sync.Mutex
	rules map[string]egress.Rules // of attached sandboxes
	fail  error                   // of Attach and Update
	flush func()                  // called by Flush; nil is none
}

func (c *cards) Attach(sandbox string, rules egress.Rules) (*os.File, error) {
	f, err := os.Open(os.DevNull) // the engine of these tests does not look at it
	if err != nil {
		return nil, err
	}
	return f, c.Update(context.Background(), sandbox, rules)
}

func (c *cards) Update(_ context.Context, sandbox string, rules egress.Rules) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail == nil {
		c.rules[sandbox] = rules
	}
	return c.fail
}

func (c *cards) Detach(sandbox string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rules, sandbox)
}

func (c *cards) Flush(context.Context) error {
	if c.flush != nil {
		c.flush()
	}
	return nil
}

func (c *cards) of(sandbox string) (egress.Rules, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.rules[sandbox]
	return r, ok
}

// TestNetwork: a sandbox has a card with its rules as long as it has a machine.
func TestNetwork(t *testing.T) {
	c := &cards{rules: map[string]egress.Rules{}}
	h := newHost(t, &hosttest.Engine{}, func(cfg *Config) { cfg.Networks, cfg.Images = c, &hosttest.Images{Dir: t.TempDir()} })
	yes := true
	some := &protocol.Network{AllowOut: []string{"pypi.org"}, DenyOut: []string{"0.0.0.0/0"}}
	for _, test := range []struct {
		name string
		req  CreateRequest
		want egress.Rules
	}{
		{"what nobody asks for is closed", CreateRequest{}, egress.Rules{Deny: []string{"0.0.0.0/0"}}},
		{"open", CreateRequest{NewSandbox: protocol.NewSandbox{AllowInternetAccess: &yes}}, egress.Rules{Open: true}},
		{"a host", CreateRequest{NewSandbox: protocol.NewSandbox{Network: some}},
			egress.Rules{Allow: []string{"pypi.org"}, Deny: []string{"0.0.0.0/0"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := h.Create(t.Context(), test.req)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := c.of(s.ID); !ok || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v", got, ok)
			}
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
			if got, ok := c.of(s.ID); ok {
				t.Errorf("after its end: %+v", got)
			}
		})
	}
	t.Run("changed, and through a pause", func(t *testing.T) {
		s := mustCreate(t, h, 60)
		defer s.Kill()
		want := egress.Rules{Open: true, Deny: []string{"192.0.2.0/24"}}
		change := NetworkRequest{AllowInternetAccess: &yes, Network: &protocol.Network{DenyOut: want.Deny}}
		if err := s.SetNetwork(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.of(s.ID); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}
		if n := s.Info().Network; n == nil || !reflect.DeepEqual(n.DenyOut, want.Deny) {
			t.Errorf("told: %+v", n)
		}
		if err := s.Pause(t.Context(), PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.of(s.ID); ok {
			t.Error("a paused sandbox has a card")
		}
		if err := s.SetNetwork(t.Context(), change); !is(err, fault.Conflict) {
			t.Errorf("of a paused one: %v", err)
		}
		if err := s.Resume(t.Context(), ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.of(s.ID); !reflect.DeepEqual(got, want) {
			t.Errorf("resumed: %+v", got)
		}
	})
	t.Run("rules that are none", func(t *testing.T) {
		bad := &protocol.Network{AllowOut: []string{"evil.com\x00.ok.com"}, DenyOut: []string{"0.0.0.0/0"}}
		if _, err := h.Create(t.Context(), CreateRequest{NewSandbox: protocol.NewSandbox{Network: bad}}); !is(err, fault.InvalidArgument) {
			t.Error(err)
		}
		s := mustCreate(t, h, 60)
		defer s.Kill()
		before, _ := c.of(s.ID)
		if err := s.SetNetwork(t.Context(), NetworkRequest{Network: bad}); !is(err, fault.InvalidArgument) {
			t.Error(err)
		}
		if got, _ := c.of(s.ID); !reflect.DeepEqual(got, before) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("no card", func(t *testing.T) {
		c.fail = errors.New("no descriptor is left")
		defer func() { c.fail = nil }()
		if _, err := h.Create(t.Context(), CreateRequest{}); !is(err, c.fail) {
			t.Error(err)
		}
	})
	t.Run("an engine without networks", func(t *testing.T) {
		h := newHost(t, &hosttest.Engine{}, nil)
		if _, err := h.Create(t.Context(), CreateRequest{NewSandbox: protocol.NewSandbox{Network: some}}); !is(err, fault.Unimplemented) {
			t.Error(err)
		}
	})
}

// TestFlows: what is told of a sandbox's flows is kept for its team, the newest.
func TestFlows(t *testing.T) {
	c := &cards{rules: map[string]egress.Rules{}}
	h := newHost(t, &hosttest.Engine{}, func(cfg *Config) { cfg.Networks = c })
	s, err := h.Create(t.Context(), CreateRequest{TeamID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxFlows + 1 {
		h.RecordFlow(egress.Flow{Sandbox: s.ID, Sent: int64(i)})
	}
	h.RecordFlow(egress.Flow{Sandbox: "i0"}) // of one that is gone
	flows, err := h.Flows(t.Context(), "a", s.ID)
	if err != nil || len(flows) != maxFlows || flows[0].Sent != 1 || flows[maxFlows-1].Sent != maxFlows {
		t.Errorf("%d flows, %v", len(flows), err)
	}
	if _, err := h.Flows(t.Context(), "b", s.ID); !is(err, ErrNotFound) {
		t.Errorf("another team's: %v", err)
	}
	c.flush = func() { h.RecordFlow(egress.Flow{Sandbox: s.ID, Host: "late.example.com"}) }
	if flows, err = h.Flows(t.Context(), "a", s.ID); err != nil || flows[maxFlows-1].Host != "late.example.com" {
		t.Errorf("without what the gateway had yet to tell, %v", err)
	}
}

// TestOffline: the guest is told which registries the rules do not reach, at the start,
// when they change and after a pause; a change that changes nothing of that says nothing.
func TestOffline(t *testing.T) {
	eng := &hosttest.Engine{}
	h := newHost(t, eng, func(cfg *Config) {
		cfg.Networks, cfg.Images = &cards{rules: map[string]egress.Rules{}}, &hosttest.Images{Dir: t.TempDir()}
	})
	s := mustCreate(t, h, 60)
	defer s.Kill()
	told := func() protocol.InitRequest {
		machines := eng.Machines()
		return machines[len(machines)-1].Init()
	}
	if got := told(); !slices.Equal(got.Offline, offline.Registries) {
		t.Errorf("closed: %q", got.Offline)
	}
	yes := true
	for _, test := range []struct {
		change NetworkRequest
		want   []string
		again  bool // it is told again
	}{
		{NetworkRequest{Network: &protocol.Network{AllowOut: []string{"@pypi"}, DenyOut: []string{"0.0.0.0/0"}}}, []string{"npm", "debian"}, true},
		{NetworkRequest{Network: &protocol.Network{AllowOut: []string{"@pypi", "a.com"}, DenyOut: []string{"0.0.0.0/0"}}}, nil, false},
		{NetworkRequest{AllowInternetAccess: &yes}, []string{}, true},
		{NetworkRequest{AllowInternetAccess: &yes, Network: &protocol.Network{DenyOut: []string{"192.0.2.0/24"}}}, nil, false},
		{NetworkRequest{}, offline.Registries, true},
	} {
		machines := eng.Machines()
		machines[len(machines)-1].Forget()
		if err := s.SetNetwork(t.Context(), test.change); err != nil {
			t.Fatal(err)
		}
		if got := told().Offline; (got != nil) != test.again || !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q", test.change, got)
		}
	}
}
