//go:build linux

package interpreter

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernelproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// drawTime is how long a copy waits for kernels that are busy.
const drawTime = time.Second

// DrawAnew says that the machine is a copy, or the source of one that was put back: the
// generators of random numbers that its kernels' languages have are to draw anew. When
// it returns they have, but for those of kernels that are busy with what lets nothing
// else run, such as a loop in JavaScript, and of kernels that just start: theirs do
// before the next cell.
func (ip *Interpreter) DrawAnew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drawTime)
	defer cancel()
	n := ip.copies.Add(1)
	ip.contexts.mu.Lock()
	all := slices.Clone(ip.contexts.all)
	ip.contexts.mu.Unlock()
	var asked sync.WaitGroup
	for _, c := range all {
		if k := c.process(); k != nil {
			asked.Go(func() {
				if ip.drawAnew(ctx, c.kernel, k) {
					k.Copies.Store(n)
				}
			})
		}
	}
	asked.Wait()
}

// drawAnew asks a kernel, waits until ctx is done, and says whether it has drawn.
func (ip *Interpreter) drawAnew(ctx context.Context, language string, k *kernelproc.Process) bool {
	select {
	case <-k.Drew: // late, for an earlier copy
	default:
	}
	switch language {
	case settings.Python:
		k.SignalAnew()
	case settings.JavaScript:
		ip.wg.Go(k.DrawAnewByWire)
	default:
		return false // nothing draws before the next cell
	}
	select {
	case <-k.Drew:
		return true
	case <-k.Ended:
	case <-ctx.Done():
	}
	return false
}
