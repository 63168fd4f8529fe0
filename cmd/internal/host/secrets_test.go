package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/host/hosttest"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// drawer has secrets by team and name.
type drawer struct {
	mu     sync.Mutex
	values map[string]string
	fail   error
	asked  func() // by Values, before it answers
}

func (d *drawer) set(team, name, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values[team+"/"+name] = value
	if value == "" {
		delete(d.values, team+"/"+name)
	}
}

func (d *drawer) Values(_ context.Context, team string, names []string) (map[string]string, error) {
	d.mu.Lock()
	values := map[string]string{}
	for _, name := range names {
		if value, ok := d.values[team+"/"+name]; ok {
			values[name] = value
		}
	}
	fail, asked := d.fail, d.asked
	d.mu.Unlock()
	if asked != nil {
		asked()
	}
	return values, fail
}

func withHeader(value string) *protocol.Network {
	return &protocol.Network{Rules: map[string][]protocol.NetworkRule{
		"api.example.com": {{Transform: &protocol.Transform{Headers: map[string]string{"Authorization": value}}}},
	}}
}

func header(rules egress.Rules) string {
	if len(rules.Headers) != 1 {
		return fmt.Sprint(rules)
	}
	if missing := rules.Headers[0].Missing; missing != "" {
		return "missing " + missing
	}
	return rules.Headers[0].Headers["Authorization"]
}

// TestSecrets: the gateway has the values that a team's secrets have, the record and
// what is told of the sandbox have references.
func TestSecrets(t *testing.T) {
	c, d := &cards{rules: map[string]egress.Rules{}}, &drawer{values: map[string]string{"red/key": "one", "blue/key": "other"}}
	h := newHost(t, &hosttest.Engine{}, func(cfg *Config) {
		cfg.Networks, cfg.Secrets, cfg.Images, cfg.OpenNetwork = c, d, &hosttest.Images{Dir: t.TempDir()}, true
	})
	ctx := t.Context()
	create := func(team, value string) (*Sandbox, error) {
		return h.Create(ctx, CreateRequest{TeamID: team, NewSandbox: protocol.NewSandbox{Network: withHeader(value)}})
	}
	const ref = "Bearer ${e2b.secrets.key}"
	red, err := create("red", ref)
	if err != nil {
		t.Fatal(err)
	}
	blue, err := create("blue", ref)
	if err != nil {
		t.Fatal(err)
	}
	is := func(s *Sandbox, want string) {
		t.Helper()
		rules, _ := c.of(s.ID)
		if got := header(rules); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := s.Record().Network.Rules["api.example.com"][0].Transform.Headers["Authorization"]; got != ref {
			t.Errorf("the record has %s", got)
		}
	}
	is(red, "Bearer one")
	is(blue, "Bearer other")

	d.set("red", "key", "two")
	if err := h.SecretChanged(ctx, "red", "key"); err != nil {
		t.Fatal(err)
	}
	is(red, "Bearer two")
	is(blue, "Bearer other")

	d.set("red", "key", "")
	if err := h.SecretChanged(ctx, "red", "key"); err != nil {
		t.Fatal(err)
	}
	is(red, "missing key")
	for what, err := range map[string]error{
		"create":      func() error { _, err := create("red", ref); return err }(),
		"set network": red.SetNetwork(ctx, NetworkRequest{Network: withHeader("${e2b.secrets.Key}")}),
	} {
		if fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "Secret 'key' not found") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := red.SetNetwork(ctx, NetworkRequest{Network: withHeader("${e2b.identity.aws}")}); fault.CodeOf(err) != fault.InvalidArgument {
		t.Errorf("what is no reference: %v", err)
	}
	// It is told that it is back, and a sandbox that was paused has it when it runs again.
	d.set("red", "key", "three")
	if err := h.SecretChanged(ctx, "red", "key"); err != nil {
		t.Fatal(err)
	}
	is(red, "Bearer three")
	if err := red.Pause(ctx, PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	d.set("red", "key", "four")
	if err := h.SecretChanged(ctx, "red", "key"); err != nil {
		t.Errorf("to a sandbox that is paused: %v", err)
	}
	if err := red.Resume(ctx, ResumeOptions{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	is(red, "Bearer four")

	c.mu.Lock()
	c.fail = errors.New("gateway")
	c.mu.Unlock()
	d.set("red", "key", "five")
	if err := h.SecretChanged(ctx, "red", "key"); err == nil || IsForClient(err) || strings.Contains(err.Error(), "five") {
		t.Errorf("a change that the gateway does not know of: %v", err)
	}
}

// TestSecretOfAStartingSandbox: a secret that changes while a sandbox starts is not the
// one before in it.
func TestSecretOfAStartingSandbox(t *testing.T) {
	c, d := &cards{rules: map[string]egress.Rules{}}, &drawer{values: map[string]string{"/key": "old"}}
	h := newHost(t, &hosttest.Engine{}, func(cfg *Config) { cfg.Networks, cfg.Secrets, cfg.OpenNetwork = c, d, true })
	changed := make(chan error, 1)
	var calls int
	d.asked = func() { // in the create: the first is its check, the second is of the card
		d.mu.Lock()
		calls++
		second := calls == 2
		d.mu.Unlock()
		if second {
			d.set("", "key", "new")
			go func() { changed <- h.SecretChanged(t.Context(), "", "key") }()
		}
	}
	s, err := h.Create(t.Context(), CreateRequest{NewSandbox: protocol.NewSandbox{Network: withHeader("${e2b.secrets.key}")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if rules, _ := c.of(s.ID); header(rules) != "new" {
		t.Errorf("it sends %s", header(rules))
	}
}

// TestProxyCredentials: the proxy can tell sandboxes apart.
func TestProxyCredentials(t *testing.T) {
	c := &cards{rules: map[string]egress.Rules{}}
	h := newHost(t, &hosttest.Engine{}, func(cfg *Config) { cfg.Networks, cfg.OpenNetwork = c, true })
	proxy := &protocol.EgressProxy{Address: "proxy.example.com:1080", Username: "box-{{sandboxID}}", Password: "p-{{sandboxID}}-{{other}}"}
	s, err := h.Create(t.Context(), CreateRequest{NewSandbox: protocol.NewSandbox{Network: &protocol.Network{EgressProxy: proxy}}})
	if err != nil {
		t.Fatal(err)
	}
	rules, _ := c.of(s.ID)
	if rules.Proxy == nil || rules.Proxy.Username != "box-"+s.ID || rules.Proxy.Password != "p-"+s.ID+"-{{other}}" {
		t.Errorf("%q %q", rules.Proxy.Username, rules.Proxy.Password)
	}
	if s.Record().Network.EgressProxy.Username != proxy.Username {
		t.Error("the record has other credentials than were given")
	}
}
