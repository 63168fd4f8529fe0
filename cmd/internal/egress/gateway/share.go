//go:build linux

package gateway

import (
	"net/netip"
	"sync"
	"time"
)

// smallFlow is what a flow takes of the gateway's memory at most, in bytes, with buffers
// of the least size: measured with 900 downloads that nobody reads.
const smallFlow = 256 << 10

// memory is what the flows of all sandboxes may take together. No sandbox gets more of
// it than is left for the others then: one alone half of it, of two busy ones each a
// third, and another always finds some.
type memory struct {
	mu   sync.Mutex
	left int64 // bytes
}

// take gives n bytes to a sandbox that has taken some already, or does not.
func (m *memory) take(taken *int64, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *taken+n > m.left-n {
		return false
	}
	*taken += n
	m.left -= n
	return true
}

// give returns n bytes that the sandbox has taken.
func (m *memory) give(taken *int64, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*taken -= n
	m.left += n
}

// portTime is how long a connection that was closed keeps its port of this machine
// (Linux: TIME_WAIT): another one to the same server cannot have it meanwhile.
const portTime = time.Minute

// made counts the connections that were made to each server in the last portTime. A port
// of this machine serves one connection to a server, so who makes many keeps all others
// from it, also programs that are no sandbox's. As with memory, no sandbox gets more than
// it leaves to the others.
type made struct {
	mu    sync.Mutex
	to    map[netip.AddrPort]*madeTo
	times []madeAt // in the order of time
}

type madeTo struct {
	all int
	by  map[string]int // of a sandbox, by its id
}

type madeAt struct {
	at time.Time
	to netip.AddrPort
	by string
}

// one counts a connection that a sandbox is about to make, or says that it may not: most
// is what all sandboxes may make to a server.
func (m *made) one(by string, to netip.AddrPort, most int, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	over := 0
	for ; over < len(m.times) && now.Sub(m.times[over].at) >= portTime; over++ {
		old := m.times[over]
		t := m.to[old.to]
		t.all--
		if t.by[old.by]--; t.by[old.by] == 0 {
			delete(t.by, old.by)
		}
		if t.all == 0 {
			delete(m.to, old.to)
		}
	}
	m.times = m.times[over:]
	t := m.to[to]
	if t == nil {
		t = &madeTo{by: map[string]int{}}
	}
	if t.by[by] >= most-t.all-1 {
		return false
	}
	if m.to == nil {
		m.to = map[netip.AddrPort]*madeTo{}
	}
	m.to[to] = t
	t.all++
	t.by[by]++
	m.times = append(m.times, madeAt{now, to, by})
	return true
}
