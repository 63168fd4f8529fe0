package host

import (
	"context"
	"errors"
	"time"
)

// EndAt is when the sandbox's time is over, in UTC: then it is killed, or paused.
// It means nothing while it is paused.
func (s *Sandbox) EndAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.EndAt
}

// SetTimeout moves the deadline to d from now, sooner or later; zero ends the
// sandbox before it returns, or pauses it if that is what is done at its deadline. An
// error that wraps ErrNotFound means that the sandbox has ended or is ending, the code
// fault.Conflict that it is paused, or for another time than zero that it does not run;
// after any other the deadline is as it was.
func (s *Sandbox) SetTimeout(ctx context.Context, d time.Duration) error {
	switch {
	case d > 0:
		return s.moveDeadline(ctx, d, false)
	case s.Lifecycle.Pause:
		return s.Pause(ctx, PauseOptions{FilesOnly: s.Lifecycle.FilesOnly})
	}
	s.mu.Lock()
	if state := s.record.State; state == StatePaused && s.ending == nil {
		s.mu.Unlock()
		return wrongState(s.ID, state, state)
	}
	s.decideEnd("its timeout was set to zero")
	s.mu.Unlock()
	return s.wait()
}

// Extend is SetTimeout, but never makes the deadline sooner.
func (s *Sandbox) Extend(ctx context.Context, d time.Duration) error {
	return s.moveDeadline(ctx, d, true)
}

func (s *Sandbox) moveDeadline(ctx context.Context, d time.Duration, onlyLater bool) error {
	var deadline time.Time
	err := s.become(ctx, StateRunning, StateRunning, func(r *Record) bool {
		deadline = time.Now().Add(d)
		if onlyLater && !deadline.After(r.EndAt) {
			return false
		}
		r.EndAt = micros(deadline)
		return true
	}, func() {
		s.deadline = deadline
		s.logs.add(LogEntry{time.Now().UTC(), levelInfo, "Sandbox timeout set", map[string]string{"end_at": deadline.UTC().Format(time.RFC3339)}})
		s.noteDeadline()
	})
	if wrong, ok := errors.AsType[*StateError](err); ok {
		return wrongState(wrong.ID, wrong.State, wrong.State) // no other state was intended
	}
	return err
}

// noteDeadline has watchDeadline look again.
func (s *Sandbox) noteDeadline() {
	select {
	case s.deadlineMoved <- struct{}{}:
	default: // a note is waiting already
	}
}

// watchDeadline does what is to be done at the deadline.
func (m *machine) watchDeadline() {
	s := m.s
	timer := time.NewTimer(s.remaining())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if s.expire() {
				return
			}
		case <-s.deadlineMoved:
		case <-m.ctx.Done():
			return
		}
		timer.Reset(s.remaining())
	}
}

// remaining is the time to the deadline. There is none while the sandbox is being
// paused; if the pause fails, watchDeadline gets a note.
func (s *Sandbox) remaining() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.State != StateRunning || s.pauseDue {
		return MaxTimeout
	}
	return time.Until(s.deadline)
}

// remainingNow is the time to the deadline of a sandbox that runs; of one that is paused
// as long as it was created with. The caller holds s.mu.
func (s *Sandbox) remainingNow() time.Duration {
	if s.record.State != StateRunning {
		return s.Lifecycle.Timeout
	}
	return max(time.Until(s.deadline), time.Second)
}

// expire ends the sandbox if its deadline has come: from then on it cannot be moved.
// One that is to be paused then begins to be. It reports whether it has ended.
func (s *Sandbox) expire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.record.State == StateRunning && time.Until(s.deadline) <= 0
	switch {
	case s.ending != nil:
		return true
	case due && s.Lifecycle.Pause:
		s.pauseDue = true
		s.calls.Go(func() { // in a goroutine: a pause waits for this caller
			s.pauseFor("its timeout was reached", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return time.Until(s.deadline) <= 0 // which a clock that was set does not move
			})
		})
	case due:
		s.decideEnd("its timeout was reached")
		return true
	}
	return false
}
