package host

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// idleLooks is how many times in the time that a sandbox may be idle it is looked at; its
// end comes later by at most that fraction.
const idleLooks = 20

// watchIdle treats the machine's sandbox as one whose deadline has come when nothing
// happened in it for as long as its client said. Bytes of clients' connections,
// executions, and commands that the guest runs for clients are what happens.
func (m *machine) watchIdle() {
	idle := m.s.Lifecycle.Idle
	if idle == 0 {
		return
	}
	tick := time.NewTicker(max(idle/idleLooks, 100*time.Millisecond))
	defer tick.Stop()
	since, moved := time.Now(), m.moved.Load()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		if now := m.moved.Load(); now != moved || m.runs.Load() > 0 || m.frozen.Load() {
			since, moved = time.Now(), now
			continue
		}
		if time.Since(since) < idle {
			continue
		}
		// Last, as it costs a request: a command that says nothing is no idleness.
		if busy, err := m.busy(); busy || err != nil {
			since = time.Now()
			continue
		}
		m.s.expireIdle(m)
		since = time.Now() // if it could not be paused, or was given more
	}
}

// busy asks the guest whether it runs something for a client.
func (m *machine) busy() (bool, error) {
	body, err := m.ask(m.ctx, "/cubby/activity")
	if err != nil {
		return false, err
	}
	var a protocol.Activity
	err = json.Unmarshal(body, &a)
	return a.Busy, err
}

// expireIdle moves the deadline of a sandbox that runs on m to now.
func (s *Sandbox) expireIdle(m *machine) {
	s.mu.Lock()
	current := s.machine == m && s.record.State == StateRunning
	s.mu.Unlock()
	if !current {
		return
	}
	s.addLog(LogEntry{time.Now().UTC(), levelInfo, "Sandbox was idle", map[string]string{"idle_timeout": s.Lifecycle.Idle.String()}})
	if !s.Lifecycle.Pause {
		s.beginEnd("it was idle for " + s.Lifecycle.Idle.String())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil && !s.pauseDue {
		s.pauseDue = true
		s.calls.Go(func() { s.pauseFor("it was idle", func() bool { return m.runs.Load() == 0 }) })
	}
}

// pauseFor pauses a sandbox if due says so when it is its turn. One that cannot be
// paused ends.
func (s *Sandbox) pauseFor(why string, due func() bool) {
	err := s.alone(s.ctx, func() error {
		if s.State() != StateRunning {
			return nil // somebody has paused it meanwhile
		}
		return s.pause(s.ctx, PauseOptions{FilesOnly: s.Lifecycle.FilesOnly}, func(*Record) bool { return due() })
	})
	s.mu.Lock()
	s.pauseDue = false
	s.noteDeadline()
	s.mu.Unlock()
	if err != nil && context.Cause(s.ctx) == nil {
		s.beginEnd(why + ", and it could not be paused: " + err.Error())
	}
}
