//go:build linux

package gateway

import (
	"net/netip"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// TestMemory: no sandbox takes what others need, and what ended is there again.
func TestMemory(t *testing.T) {
	m := memory{left: 100}
	var a, b, c int64
	all := func(taken *int64) (n int) {
		for m.take(taken, 1) {
			n++
		}
		return n
	}
	if got := all(&a); got != 50 {
		t.Errorf("one alone has %d of 100", got)
	}
	if got := all(&b); got != 25 {
		t.Errorf("another one has %d of the 50 that are left", got)
	}
	if got := all(&c); got < 10 {
		t.Errorf("a third one has %d", got)
	}
	for ; a > 0; m.give(&a, 1) {
	}
	if got := all(&b); got == 0 {
		t.Error("what ended is not there again")
	}
}

// TestFlowsOfAll: a sandbox with many connections leaves room for those of another, and
// its own go on.
func TestFlowsOfAll(t *testing.T) {
	server := serve(t, ownAddr(t), echo)
	op := egress.Operator{Reach: []string{server.Addr().String()}}
	const flows = 16
	g, _ := newGateway(t, Config{Operator: op, Budgets: Budgets{Memory: flows * smallFlow}})
	rules := egress.Rules{Allow: []string{server.Addr().String()}}
	connect := func(b *box) (n int) {
		for range flows {
			if _, err := b.dial(netip.AddrPortFrom(server.Addr(), server.Port())); err != nil {
				break
			}
			n++
		}
		return n
	}
	if got := connect(newBox(t, g, "a", policy(t, g, rules))); got != flows/2 {
		t.Errorf("one alone has %d connections of %d", got, flows)
	}
	if got := connect(newBox(t, g, "b", policy(t, g, rules))); got != flows/4 {
		t.Errorf("another one has %d", got)
	}
}
