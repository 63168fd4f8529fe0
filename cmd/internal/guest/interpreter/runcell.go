//go:build linux

package interpreter

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/cellgroup"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernelproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/procfs"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// timeLimit is how long a cell may take, 0 for as long as it likes, and since when.
// What its machine spends in a checkpoint counts for nothing.
type timeLimit struct {
	length time.Duration
	since  time.Time
}

// runCell runs q and returns when the kernel is done or dead, and what must not
// outlive the cell is gone.
func (ip *Interpreter) runCell(r *http.Request, c *codeContext, k *kernelproc.Process, run *cell, q kernel.Request, atMost timeLimit) {
	gr := ip.groups.Begin(k.PID(), &k.Group, c.kernel == settings.Bash)
	run.group = gr
	c.mu.Lock()
	c.cell = run
	if gr.Dir != "" {
		c.groups = slices.DeleteFunc(c.groups, func(old *cellgroup.Group) bool { return old.Dir == gr.Dir })
	}
	c.groups = append(c.groups, gr)
	if len(c.groups) > 32 {
		c.groups = slices.DeleteFunc(c.groups, func(old *cellgroup.Group) bool { return old != gr && len(old.PIDs()) == 0 })
	}
	c.mu.Unlock()
	defer func() {
		gr.End()
		c.mu.Lock()
		c.cell = nil
		c.mu.Unlock()
	}()

	keepalive := time.NewTicker(keepaliveTime / 5)
	defer keepalive.Stop()
	var limit, grace <-chan struct{}
	var signal <-chan time.Time
	if atMost.length > 0 {
		var t *restored.Timer
		limit, t = ip.machine.After(time.Until(atMost.since.Add(atMost.length)))
		defer t.Stop()
	}
	gone := r.Context().Done()
	looked := time.Now()
	sent := make(chan struct{})
	interrupt := func(why int32) {
		run.stopped.Store(why)
		if c.kernel == settings.JavaScript {
			go func() { // waits for a kernel that does not read, but not longer than it lives
				<-sent
				k.InterruptByWire(q.ID)
			}()
			signal = time.After(kernel.SignalDelay)
		} else {
			k.Interrupt()
		}
		gr.InterruptOthers(int(ip.settings.Config.UID))
		grace, _ = ip.machine.After(graceTime)
		limit, gone = nil, nil
	}
	go func() {
		defer close(sent)
		if k.Execute(q, cellSink{run}) != nil {
			<-k.Ended // which has told the cell, if it had begun
			run.diedWith(k.Status)
		}
	}()
	shutdown := ip.ctx.Done()
	// A client that takes nothing must not keep a cell that is over, nor its
	// context; from over on it has no more than stuckTime in all.
	over := sync.OnceFunc(func() { run.hurry(stuckTime) })
	patience := unreadTime
	if c.cuts > 0 {
		patience = shortUnread
	}
wait:
	for {
		select {
		case <-run.done:
			break wait
		case <-limit:
			interrupt(pastTime)
		case <-gone:
			if gone = nil; ip.machine.Restores() == run.restores {
				interrupt(clientGone)
			} else {
				run.leave(ip)
			}
		case <-signal:
			k.Interrupt()
		case <-shutdown:
			gr.Kill()
			k.Stop()
			shutdown = nil
		case <-grace:
			gr.Kill()
			k.Stop()
			grace = nil
		case <-keepalive.C:
			if time.Since(looked) > frozenTime {
				run.startAgain()
			}
			looked = time.Now()
			if c.waiters.Load() > 0 && !run.wasCut() && run.unread(patience) {
				run.cutOff() // others wait for the context
				if run.stopped.Load() == notStopped {
					interrupt(clientGone)
				}
			}
			if run.mu.TryLock() { // else a line is being written just now
				if time.Since(run.last) >= keepaliveTime {
					run.emit(protocol.Event{Type: protocol.EventKeepalive})
				}
				run.mu.Unlock()
			}
		}
		if grace == nil && limit == nil && gone == nil {
			over()
		}
	}
	if run.stopped.Load() != notStopped {
		over()
	}
	select {
	case <-sent:
	case <-time.After(graceTime): // done, before it has read what to do
		k.Stop()
		<-sent
	}
	k.Release()
	if c.cuts++; !run.wasCut() {
		c.cuts = 0
	}
	run.mu.Lock()
	died := run.died
	run.mu.Unlock()
	stopped := run.stopped.Load()
	if stopped != notStopped {
		// The kernel obeyed; what the cell started goes too.
		keep := []int{k.PID()}
		if c.kernel == settings.Bash {
			keep = append(keep, procfs.ChildrenOf(k.PID())...)
		}
		if died != nil {
			keep = nil
		}
		gr.Kill(keep...)
	}
	if died != nil {
		if k.OOM.Load() { // perhaps before the cell began
			run.oom.Store(true)
		}
		c.ended = k.DescribeEnd()
		if stopped == pastTime {
			c.ended = "killed, past its time"
		}
		c.mu.Lock()
		if c.proc == k {
			c.proc = nil
		}
		c.mu.Unlock()
	}
	run.conclude(c.kernel, atMost.length)
}
