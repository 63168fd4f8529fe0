package dns

import (
	"container/list"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

const (
	// maxPins bounds the names that have a pinned address at the same time.
	maxPins = 4096
	// pinned addresses are 198.18.0.1 to 198.19.255.255. Their number is a prime:
	// from any start, steps of any width visit all of them.
	pinnedCount = 1<<17 - 1
	pinnedBase  = 198<<24 | 18<<16
	// pinProbes bounds the search for an address that no name has had.
	pinProbes = 64
)

// pinned are the addresses that stand for names. They are reserved for measurements of
// network devices (RFC 2544) and so belong to nobody whom a sandbox could want to reach.
var pinned = netip.PrefixFrom(pinnedAddr(0), 15)

func pinnedAddr(offset uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], pinnedBase+offset)
	return netip.AddrFrom4(b)
}

// pins are the addresses that stand for names in one sandbox. A name keeps its address as
// long as it is among the maxPins that were used last; an address is never given to another
// name, as a program may hold it for as long as it runs. Where the search for a name's
// address begins depends on the name alone: a sandbox whose gateway was started anew, and
// whose programs hold addresses from before, gets the same ones again but for collisions.
type pins struct {
	names map[string]*list.Element
	addrs map[netip.Addr]*list.Element
	order list.List // of pin, the one that was used last in front
	used  []uint64  // a bit for each address that was ever given
}

type pin struct {
	name string
	addr netip.Addr
}

// addrOf returns the name's address, and false if all addresses that were tried for it
// have been used for others.
func (p *pins) addrOf(name string) (netip.Addr, bool) {
	if e, ok := p.names[name]; ok {
		p.order.MoveToFront(e)
		return e.Value.(pin).addr, true
	}
	if p.used == nil {
		p.names, p.addrs = map[string]*list.Element{}, map[netip.Addr]*list.Element{}
		p.used = make([]uint64, (pinnedCount+63)/64)
	}
	hash := fnv.New64a()
	hash.Write([]byte(name))
	sum := hash.Sum64()
	at, step := sum%pinnedCount, 1+(sum>>32)%(pinnedCount-1)
	for range pinProbes {
		if p.used[at/64]&(1<<(at%64)) == 0 {
			p.used[at/64] |= 1 << (at % 64)
			made := pin{name, pinnedAddr(uint32(at) + 1)}
			e := p.order.PushFront(made)
			p.names[name], p.addrs[made.addr] = e, e
			if p.order.Len() > maxPins {
				oldest := p.order.Remove(p.order.Back()).(pin)
				delete(p.names, oldest.name)
				delete(p.addrs, oldest.addr)
			}
			return made.addr, true
		}
		at = (at + step) % pinnedCount
	}
	return netip.Addr{}, false
}

func (p *pins) nameOf(a netip.Addr) (string, bool) {
	e, ok := p.addrs[a]
	if !ok {
		return "", false
	}
	p.order.MoveToFront(e)
	return e.Value.(pin).name, true
}
