package egress

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// span is a range of ports, and the entry that named it, as it was written.
type span struct {
	low, high uint16
	rule      string
}

var allPorts = span{low: 1, high: math.MaxUint16}

func (s span) all() bool { return s.low <= 1 && s.high == math.MaxUint16 }

// ports is sorted and has no overlaps: see settle.
type ports []span

// settle sorts what was collected. Where entries overlap, a port keeps the entry
// that begins first.
func settle(in ports) ports {
	slices.SortStableFunc(in, func(a, b span) int { return cmp.Compare(a.low, b.low) })
	out, next := in[:0], uint32(0) // next is the first port that is not covered
	for _, s := range in {
		if uint32(s.high) < next {
			continue
		}
		s.low = uint16(max(uint32(s.low), next))
		next = uint32(s.high) + 1
		out = append(out, s)
	}
	return slices.Clip(out)
}

func (p ports) find(port uint16) (rule string, ok bool) {
	i, _ := slices.BinarySearchFunc(p, port, func(s span, port uint16) int { return cmp.Compare(s.high, port) })
	if i == len(p) || p[i].low > port {
		return "", false
	}
	return p[i].rule, true
}

// all says whether no port is left out.
func (p ports) all() bool {
	next := uint32(1)
	for _, s := range p {
		if uint32(s.low) > next {
			return false
		}
		next = uint32(s.high) + 1
	}
	return next > math.MaxUint16
}

// names finds the rules about a name: by itself, and by each name that it is
// below, of which it has at most 126.
type names struct {
	exact map[string]ports
	below map[string]ports // the name that the others are below
	every ports
}

// each calls f with the rules about a name, the closest first, until f is false.
func (t *names) each(name string, f func(ports) bool) {
	if p := t.exact[name]; p != nil && !f(p) {
		return
	}
	if len(t.below) > 0 {
		for rest := name; ; {
			_, parent, ok := strings.Cut(rest, ".")
			if !ok {
				break
			}
			if p := t.below[parent]; p != nil && !f(p) {
				return
			}
			rest = parent
		}
	}
	if t.every != nil {
		f(t.every)
	}
}

func (t *names) find(name string, port uint16) (rule string, ok bool) {
	t.each(name, func(p ports) bool {
		rule, ok = p.find(port)
		return !ok
	})
	return rule, ok
}

// mentions says whether a rule is about some port of the name, and whether one of
// them is about all.
func (t *names) mentions(name string) (some, all bool) {
	t.each(name, func(p ports) bool {
		some, all = true, p.all()
		return !all
	})
	return some, all
}

func (t *names) empty() bool { return len(t.exact) == 0 && len(t.below) == 0 && t.every == nil }

// prefixes finds the networks that contain an address: one look for each length
// of prefix that some rule has, of which there are few, and at most 129.
type prefixes struct {
	ports        map[netip.Prefix]ports
	bits4, bits6 []int // the lengths, longest first
}

func (t *prefixes) find(a netip.AddrPort) (rule string, ok bool) {
	bits := t.bits4
	if a.Addr().Is6() {
		bits = t.bits6
	}
	for _, n := range bits {
		p, err := a.Addr().Prefix(n)
		if err != nil {
			return "", false
		}
		if rule, ok := t.ports[p].find(a.Port()); ok {
			return rule, true
		}
	}
	return "", false
}

func (t *prefixes) empty() bool { return len(t.ports) == 0 }

// table is what one list of entries names.
type table struct {
	names    names
	prefixes prefixes
}

func newTable() *table {
	return &table{
		names:    names{exact: map[string]ports{}, below: map[string]ports{}},
		prefixes: prefixes{ports: map[netip.Prefix]ports{}},
	}
}

// add takes an entry that is no preset.
func (t *table) add(e entry, rule string) {
	s := e.ports
	s.rule = rule
	switch {
	case e.prefix.IsValid():
		t.prefixes.ports[e.prefix] = append(t.prefixes.ports[e.prefix], s)
	case e.below && e.name == "":
		t.names.every = append(t.names.every, s)
	case e.below:
		t.names.below[e.name] = append(t.names.below[e.name], s)
	default:
		t.names.exact[e.name] = append(t.names.exact[e.name], s)
	}
}

// settle makes the table ready for questions, after the last add.
func (t *table) settle() {
	for _, m := range []map[string]ports{t.names.exact, t.names.below} {
		for name, p := range m {
			m[name] = settle(p)
		}
	}
	t.names.every = settle(t.names.every)
	if len(t.names.every) == 0 {
		t.names.every = nil
	}
	seen4, seen6 := map[int]bool{}, map[int]bool{}
	for prefix, p := range t.prefixes.ports {
		t.prefixes.ports[prefix] = settle(p)
		seen, bits := seen4, &t.prefixes.bits4
		if prefix.Addr().Is6() {
			seen, bits = seen6, &t.prefixes.bits6
		}
		if !seen[prefix.Bits()] {
			seen[prefix.Bits()] = true
			*bits = append(*bits, prefix.Bits())
		}
	}
	for _, bits := range [][]int{t.prefixes.bits4, t.prefixes.bits6} {
		slices.SortFunc(bits, func(a, b int) int { return cmp.Compare(b, a) })
	}
}
