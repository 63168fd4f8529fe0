// Package loss remembers, in bounded memory, which execution ids have not been told yet
// that their state is gone. Where it has forgotten an id, it says that something was
// lost: an id may be told once too often, and never too seldom.
package loss

import "hash/maphash"

const (
	nameBits   = 1 << 23 // 1 MiB
	nameHashes = 4
)

// Names is a set of names in a megabyte at most, however many there are: a Bloom
// filter. A name that was added is always found. One that was not is found, too,
// with a probability of 1 in 500 after half a million names. The zero value is empty.
// It is not safe for concurrent use.
type Names struct {
	seed maphash.Seed
	bits []uint64
}

// Add adds a name.
func (n *Names) Add(name string) {
	if n.bits == nil {
		n.seed, n.bits = maphash.MakeSeed(), make([]uint64, nameBits/64)
	}
	for _, at := range n.places(name) {
		n.bits[at/64] |= 1 << (at % 64)
	}
}

// Has reports whether a name was added, or may have been.
func (n *Names) Has(name string) bool {
	if n.bits == nil {
		return false
	}
	for _, at := range n.places(name) {
		if n.bits[at/64]&(1<<(at%64)) == 0 {
			return false
		}
	}
	return true
}

func (n *Names) places(name string) (at [nameHashes]uint64) {
	sum := maphash.String(n.seed, name)
	step := sum>>32 | 1
	for i := range at {
		at[i] = (sum + uint64(i)*step) % nameBits
	}
	return at
}
