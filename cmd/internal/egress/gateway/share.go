//go:build linux

package gateway

import "sync"

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
