package host

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// EndAt is when the sandbox will be killed, in UTC.
func (s *Sandbox) EndAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline.UTC().Truncate(time.Microsecond)
}

// SetTimeout moves the deadline to d from now, sooner or later; zero ends the
// sandbox before it returns. An error that wraps ErrNotFound means that the
// sandbox has ended or is ending; after any other the deadline is as it was.
func (s *Sandbox) SetTimeout(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return s.end("its timeout was set to zero")
	}
	return s.moveDeadline(ctx, d, false)
}

// Extend is SetTimeout, but never makes the deadline sooner.
func (s *Sandbox) Extend(ctx context.Context, d time.Duration) error {
	return s.moveDeadline(ctx, d, true)
}

func (s *Sandbox) moveDeadline(ctx context.Context, d time.Duration, onlyLater bool) error {
	// One at a time, so that records tell the same as we do; see end.
	s.recording.Lock()
	defer s.recording.Unlock()
	deadline := time.Now().Add(d)
	s.mu.Lock()
	over, unchanged := s.over, onlyLater && !deadline.After(s.deadline)
	s.mu.Unlock()
	switch {
	case over:
		return ErrNotFound
	case unchanged:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := s.host.cfg.Recorder.Extended(ctx, s.ID, deadline.UTC().Truncate(time.Microsecond)); err != nil {
		return fmt.Errorf("record the timeout: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return ErrNotFound // the old deadline came first
	}
	s.deadline = deadline
	s.logs.add(LogEntry{time.Now().UTC(), levelInfo, "Sandbox timeout set", map[string]string{"end_at": s.deadline.UTC().Format(time.RFC3339)}})
	select {
	case s.deadlineMoved <- struct{}{}:
	default: // it was told already
	}
	return nil
}

// watchLife ends the sandbox at its deadline or with its machine.
func (s *Sandbox) watchLife() {
	timer := time.NewTimer(s.remaining())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if s.expire() {
				s.end("its timeout was reached")
				return
			}
			timer.Reset(s.remaining())
		case <-s.deadlineMoved:
			timer.Reset(s.remaining())
		case exit := <-s.machine.Wait():
			s.end(exitReason(exit.Err))
			return
		case <-s.done:
			return
		}
	}
}

func (s *Sandbox) remaining() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.deadline)
}

// expire decides whether the deadline has come: from then on it cannot be moved.
func (s *Sandbox) expire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Until(s.deadline) > 0 {
		return false
	}
	s.over = true
	return true
}

// Kill ends the sandbox and returns when nothing of it is left.
func (s *Sandbox) Kill() error { return s.end("it was killed") }

// end closes the machine once, whoever asks first, and remembers why. All return
// when nothing is left of it.
func (s *Sandbox) end(reason string) error {
	s.ending.Do(func() {
		at := time.Now().UTC().Truncate(time.Microsecond)
		s.mu.Lock()
		s.over = true
		s.logs.add(endedEntry(at, reason))
		s.mu.Unlock()
		s.host.bury(s, at, reason)
		s.endErr = s.machine.Close()
		s.mu.Lock()
		for _, t := range s.transports {
			t.CloseIdleConnections()
		}
		s.mu.Unlock()
		// After a change of the deadline that is being recorded; there will be
		// no other.
		s.recording.Lock()
		ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
		if err := s.host.cfg.Recorder.Ended(ctx, s.ID, at, reason); err != nil {
			// The next start of a server ends the record.
			s.endErr = errors.Join(s.endErr, fmt.Errorf("record the end: %w", err))
		}
		cancel()
		s.recording.Unlock()
		s.host.release()
		close(s.done)
		fields := []any{"sandbox_id", s.ID, "team", s.TeamID, "reason", reason}
		if s.endErr != nil {
			s.host.log.Error("sandbox ended, but not all of it could be removed", append(fields, "err", s.endErr)...)
			return
		}
		s.host.log.Info("sandbox ended", fields...)
	})
	<-s.done
	return s.endErr
}

func exitReason(err error) string {
	if err == nil {
		err = errors.New("its machine was closed")
	}
	return err.Error()
}
