//go:build linux

package gateway

import (
	"net/netip"
	"testing"
	"time"

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

// TestMade: no sandbox makes so many connections to a server that others cannot, and a
// minute later it may again.
func TestMade(t *testing.T) {
	var m made
	now := time.Unix(1000, 0)
	here, there := netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("192.0.2.1:80")
	all := func(by string, to netip.AddrPort) (n int) {
		for ; n < 1000 && m.one(by, to, 100, now); n++ {
		}
		return n
	}
	for _, test := range []struct {
		after time.Duration
		by    string
		to    netip.AddrPort
		want  int
	}{
		{0, "a", here, 50},
		{0, "b", here, 25},
		{0, "a", there, 50},
		{portTime / 2, "c", here, 12},
		{portTime/2 - 1, "a", here, 0},
		{1, "a", here, 44},
		{portTime, "b", here, 50},
	} {
		now = now.Add(test.after)
		if got := all(test.by, test.to); got != test.want {
			t.Errorf("%s makes %d connections to %s, want %d", test.by, got, test.to, test.want)
		}
	}
	now = now.Add(portTime)
	if all("d", there); len(m.to) != 1 || len(m.times) != 50 || len(m.to[there].by) != 1 {
		t.Errorf("%d servers and %d connections are remembered", len(m.to), len(m.times))
	}
}

// TestPorts: connections beyond a sandbox's share of a server's ports are not answered,
// although all before were closed, and others' are.
func TestPorts(t *testing.T) {
	server, other := serve(t, ownAddr(t), echo), serve(t, ownAddr(t), echo)
	op := egress.Operator{Reach: []string{server.String(), other.String()}}
	g, told := newGateway(t, Config{Operator: op, Budgets: Budgets{Ports: 20}})
	rules := egress.Rules{Allow: op.Reach}
	a, b := newBox(t, g, "a", policy(t, g, rules)), newBox(t, g, "b", policy(t, g, rules))
	for range 10 {
		a.mustDial(server).Close()
	}
	if _, err := a.dialWithin(server, time.Second); err == nil {
		t.Error("the eleventh connection was made")
	}
	a.mustDial(other)
	b.mustDial(server)
	told.wait(t, func(f egress.Flow) bool { return f.Reason == errPorts.Error() })
}
