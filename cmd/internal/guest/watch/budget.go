//go:build linux

package watch

import (
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

// watchBudget is the memory, in bytes, that all watches of a sandbox may hold: the
// folders that they watch, and the events that nobody has fetched yet. The sandbox
// kernel's own queue has no bound, so a watch is emptied as fast as it fills, and
// ends when there is no room.
const watchBudget = 16 << 20

// overhead is what an event or a watched folder costs beside its text, in bytes.
const overhead = 128

// cost is what the name of a watched folder costs, in bytes.
func cost(name string) int { return overhead + len(name) }

// budget counts what is held of watchBudget. The zero value is ready.
type budget struct{ held atomic.Int64 }

func (b *budget) take(n int) bool {
	if b.held.Add(int64(n)) > watchBudget {
		b.held.Add(-int64(n))
		return false
	}
	return true
}

func (b *budget) give(n int) { b.held.Add(-int64(n)) }

func eventCost(e *envd.FilesystemEvent) int { return overhead + proto.Size(e) }
