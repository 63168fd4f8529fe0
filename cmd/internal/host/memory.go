package host

import (
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// How often memory is looked at. A program that allocates at full speed (1.5
// GB/s was measured) gains 8 MB between two busy looks; a look costs microseconds.
const (
	busyPoll = 5 * time.Millisecond
	idlePoll = 250 * time.Millisecond
)

// The ladder when a sandbox is over its limit: its guest kills the largest
// process at once; then the whole run, again and again, for processes may be
// starting all the while; then the host ends the sandbox. On a busy machine a
// process that was killed needs its time to die.
const (
	wholeRunAfter = 100 * time.Millisecond
	againAfter    = time.Second
	killAfter     = 10 * time.Second
)

// hardCeiling is where a sandbox beyond its limit ends at once, in bytes. At full
// speed a program gets there from the default limit in half a second. The engine's
// own wall, if it has one, stands behind it.
func hardCeiling(limit int64) int64 { return 2*limit + 256<<20 }

// watchMemory enforces the memory limit where the offender can be chosen: a
// cgroup would kill a process of its own choice, perhaps the sandbox's kernel.
func (m *machine) watchMemory() {
	limit := int64(m.s.Limits.MemoryMB) << 20
	var last int64
	var over time.Time  // since when the limit is passed
	var asked time.Time // for the whole run
	ceiling := hardCeiling(limit)
	poll := busyPoll
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-timer.C:
		}
		u, err := m.Usage(m.ctx)
		if err != nil {
			// It is ending, and watchExit will say why; or there is no more
			// telling what it uses, and it must not go on.
			select {
			case <-m.ctx.Done():
			case <-time.After(time.Second):
				m.fail("its memory cannot be measured: " + err.Error())
			}
			return
		}
		switch {
		case u.MaxOverhead > 0 && u.Overhead > u.MaxOverhead:
			m.fail("its kernel's own memory was exhausted (too many files, sockets or processes)")
			return
		case u.Memory > ceiling && !over.IsZero():
			m.fail("it was out of memory, and grew faster than its processes could be killed")
			return
		case u.Memory <= limit:
			over, asked = time.Time{}, time.Time{}
		case over.IsZero():
			// This process may not have run for a while itself: the guest gets
			// its chance all the same.
			over, ceiling = time.Now(), max(hardCeiling(limit), u.Memory+limit/2+128<<20)
			// The guest is about to look for a victim: on a busy machine it must
			// not wait for the processor behind the one that grows.
			if slower, ok := m.Machine.(engine.Slower); ok {
				slower.Slow(max(limit/8, 32<<20))
			}
			m.relieve(false)
		case time.Since(over) > killAfter:
			m.fail("it was out of memory, and killing its processes did not help")
			return
		case time.Since(over) > wholeRunAfter && time.Since(asked) > againAfter:
			asked = time.Now()
			m.relieve(true)
		}
		poll = idlePoll
		if m.runs.Load() > 0 || u.Memory > last || u.Memory > limit/2 {
			poll = busyPoll
		}
		last = u.Memory
		timer.Reset(poll)
	}
}

// relieve asks the guest to free memory. It does not wait: the ladder goes on by
// what the memory file says, not by what the guest answers.
func (m *machine) relieve(wholeRun bool) {
	body := []byte(`{"whole_run":false}`)
	if wholeRun {
		body = []byte(`{"whole_run":true}`)
	}
	m.watchers.Go(func() {
		if _, err := m.tell(m.ctx, "/cubby/oom", body); err != nil {
			m.s.host.log.Warn("guest did not free memory", "sandbox_id", m.s.ID, "err", err)
		}
	})
}
