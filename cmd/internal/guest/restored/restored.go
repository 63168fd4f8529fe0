// Package restored tells the parts of a guest that their machine was restored from a
// checkpoint, and measures time without what a machine spends in one. A machine is
// frozen before it is checkpointed, so that what runs in it learns of it only
// afterwards, and finds that its clocks, also those that never go back, have counted
// the time that it lay on a disk.
package restored

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// beat is how often a clock looks at the time while something waits for it.
	beat = time.Second
	// gap is what cannot lie between two beats unless the machine was frozen; such a
	// step counts as one beat.
	gap = 5 * time.Second
)

// Machine counts how often the guest's machine was restored, and is its clock. Make it
// with New. Its methods may be called concurrently.
type Machine struct {
	restores atomic.Int64
	now      func() time.Time

	mu     sync.Mutex
	ran    time.Duration // as far as it was looked at: it stands while nothing waits
	last   time.Time     // when it was looked at
	timers map[*Timer]struct{}
	wake   *time.Timer // nil before the first timer
}

// New returns the clock of a machine that was not restored yet.
func New() *Machine { return newMachine(time.Now) }

func newMachine(now func() time.Time) *Machine {
	return &Machine{now: now, timers: map[*Timer]struct{}{}}
}

// Restored counts a restore. It is called before anything that the restore ends ends.
func (m *Machine) Restored() { m.restores.Add(1) }

// Restores is how often the machine was restored so far. Who serves a request asks at
// its begin and at its end: if the number has changed, it was not the client who left.
func (m *Machine) Restores() int64 { return m.restores.Load() }

// Timer is a call that is to come. Stop takes it back.
type Timer struct {
	m  *Machine
	at time.Duration
	f  func()
}

// AfterFunc calls f, in a goroutine of its own, when the machine has run for d. A stop
// of less than five seconds counts as if it had run.
func (m *Machine) AfterFunc(d time.Duration, f func()) *Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.timers) == 0 {
		m.last = m.now()
	}
	m.advance()
	t := &Timer{m: m, at: m.ran + d, f: f}
	m.timers[t] = struct{}{}
	m.schedule()
	return t
}

// After is AfterFunc that closes a channel. Who does not wait any more stops the timer.
func (m *Machine) After(d time.Duration) (<-chan struct{}, *Timer) {
	done := make(chan struct{})
	return done, m.AfterFunc(d, func() { close(done) })
}

// Stop takes the call back, if it has not begun.
func (t *Timer) Stop() {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	delete(t.m.timers, t)
	t.m.schedule()
}

// advance counts the time since it was called last. The caller holds the lock.
func (m *Machine) advance() {
	now := m.now()
	step := now.Sub(m.last)
	if step > gap {
		step = beat
	}
	m.ran += max(step, 0)
	m.last = now
}

// schedule sets the next look at the time. The caller holds the lock.
func (m *Machine) schedule() {
	if len(m.timers) == 0 {
		if m.wake != nil {
			m.wake.Stop()
		}
		return
	}
	next := beat
	for t := range m.timers {
		next = min(next, max(0, t.at-m.ran))
	}
	if m.wake == nil {
		m.wake = time.AfterFunc(next, m.look)
	} else {
		m.wake.Reset(next)
	}
}

// look calls what is due.
func (m *Machine) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	for t := range m.timers {
		if t.at <= m.ran {
			delete(m.timers, t)
			go t.f()
		}
	}
	m.schedule()
}
