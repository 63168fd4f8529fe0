package dns

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

func TestPinned(t *testing.T) {
	v := view(t, egress.Rules{Allow: []string{"*.example.com"}})
	first := ask(t, v, "a.example.com.", dns.TypeA).Answer[0].(*dns.A)
	addr, _ := address(first)
	if !pinned.Contains(addr) {
		t.Fatalf("the pinned address is %v", addr)
	}
	if again, _ := address(ask(t, v, "A.Example.com.", dns.TypeA).Answer[0]); again != addr {
		t.Errorf("the name has the addresses %v and %v", addr, again)
	}
	for _, a := range []netip.Addr{addr, netip.AddrFrom16(addr.As16())} {
		if name, ok := v.NameOf(a); !ok || name != "a.example.com" {
			t.Errorf("%v stands for %q", a, name)
		}
	}
	if name, ok := v.NameOf(addr.Next()); ok {
		t.Errorf("an address that was not given stands for %q", name)
	}
	reverse, err := dns.ReverseAddr(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, v, reverse, dns.TypePTR); len(got.Answer) != 1 || got.Answer[0].(*dns.PTR).Ptr != "a.example.com." {
		t.Errorf("the address's name is %v", got.Answer)
	}
	// Another sandbox's addresses are its own.
	other := view(t, egress.Rules{Allow: []string{"*.example.com"}})
	if _, ok := other.NameOf(addr); ok {
		t.Error("a sandbox knows another's address")
	}
	if again, _ := address(ask(t, other, "a.example.com.", dns.TypeA).Answer[0]); again != addr {
		t.Errorf("after a new start the name would have the address %v instead of %v", again, addr)
	}
}

// An address is never given to two names, whatever is asked, and the table is bounded.
func TestPinsNeverChange(t *testing.T) {
	var p pins
	given := map[netip.Addr]string{}
	refused := 0
	for i := range pinnedCount + 20_000 {
		name := fmt.Sprintf("n%d.example.com", i)
		a, ok := p.addrOf(name)
		if !ok {
			refused++
			continue
		}
		if was, ok := given[a]; ok {
			t.Fatalf("%v was given to %s and to %s", a, was, name)
		}
		given[a] = name
		if !pinned.Contains(a) || a == pinnedAddr(0) {
			t.Fatalf("%v is out of the range", a)
		}
		if back, ok := p.nameOf(a); !ok || back != name {
			t.Fatalf("%v stands for %q", a, back)
		}
	}
	if len(p.names) != maxPins || len(p.addrs) != maxPins || p.order.Len() != maxPins {
		t.Errorf("%d names, %d addresses, %d in order", len(p.names), len(p.addrs), p.order.Len())
	}
	if refused == 0 || refused > 25_000 {
		t.Errorf("%d names were refused", refused)
	}
}

// What is used stays.
func TestPinsKeepWhatIsUsed(t *testing.T) {
	var p pins
	used, _ := p.addrOf("used.example.com")
	asked, _ := p.addrOf("asked.example.com")
	idle, _ := p.addrOf("idle.example.com")
	for i := range 2 * maxPins {
		p.addrOf(fmt.Sprintf("n%d.example.com", i))
		p.nameOf(used)
		p.addrOf("asked.example.com")
	}
	if name, _ := p.nameOf(used); name != "used.example.com" {
		t.Errorf("the address that flows use stands for %q", name)
	}
	if name, _ := p.nameOf(asked); name != "asked.example.com" {
		t.Errorf("the address that is asked for stands for %q", name)
	}
	if name, ok := p.nameOf(idle); ok {
		t.Errorf("the address that nobody uses stands for %q", name)
	}
}
