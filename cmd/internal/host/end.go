package host

import (
	"context"
	"errors"
	"time"
)

// ending is a decided end. The first one wins.
type ending struct {
	at     time.Time // UTC, in microseconds
	reason string
}

// patience is how long the end of a sandbox waits for its record before its machine
// is closed without: what is killed for its memory must not go on until a disk
// answers.
const patience = 2 * time.Second

// Kill ends the sandbox, whatever state it is in, and returns when nothing of it is
// left.
func (s *Sandbox) Kill() error { return s.end("it was killed") }

// end ends the sandbox, whoever asks first, and remembers why. All return when
// nothing of it is left.
func (s *Sandbox) end(reason string) error {
	s.beginEnd(reason)
	return s.wait()
}

// wait returns when nothing of the sandbox is left, with what could not be removed.
func (s *Sandbox) wait() error {
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endErr
}

// beginEnd is end without the wait.
func (s *Sandbox) beginEnd(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decideEnd(reason)
}

// ended says why the sandbox has ended or is ending, or nil. The error does not wrap
// ErrNotFound: it is for whom the sandbox is not made after all.
func (s *Sandbox) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == nil {
		return nil
	}
	return errors.New(s.ending.reason)
}

// decideEnd is beginEnd for callers that hold s.mu. From then on no other transition is made.
func (s *Sandbox) decideEnd(reason string) {
	if s.ending != nil || s.left {
		return
	}
	s.ending = &ending{micros(time.Now()), reason}
	s.cancel()
	go s.bringToEnd(*s.ending)
}

// bringToEnd records the end, publishes it, and removes all that is left of the sandbox.
func (s *Sandbox) bringToEnd(e ending) {
	h := s.host
	s.mu.Lock()
	handedOut := s.record.State != "" && s.record.State != StateBooting
	s.mu.Unlock()
	written := make(chan error, 1)
	go func() {
		written <- s.become(context.Background(), anyState, StateEnded, func(r *Record) bool {
			r.EndedAt, r.Reason, r.Env, r.Network = e.at, e.reason, nil, nil
			return true
		}, nil)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	recorded := false
	select {
	case err = <-written:
		recorded = true
	case <-timer.C:
	}
	s.addLog(endedEntry(e.at, e.reason))
	h.remove(s, e.at, e.reason)
	s.mu.Lock()
	m := s.machine
	s.mu.Unlock()
	var errs []error
	if m != nil {
		errs = append(errs, m.close())
	}
	s.calls.Wait() // a pause or a resume that was under way has given up
	errs = append(errs, h.removeImage(s.ID))
	if !recorded {
		err = <-written
	}
	// A record that could not be written is ended by the next start of a server.
	err = errors.Join(append(errs, err)...)
	s.mu.Lock()
	s.endErr = err
	placed := s.placed
	s.placed = false
	s.mu.Unlock()
	if placed {
		h.release()
	}
	fields := []any{"sandbox_id", s.ID, "team", s.TeamID, "reason", e.reason}
	switch {
	case err != nil:
		h.log.Error("sandbox ended, but not all of it could be removed", append(fields, "err", err)...)
	case !handedOut:
		h.log.Debug("sandbox was not handed out", fields...)
	default:
		h.log.Info("sandbox ended", fields...)
	}
	close(s.done)
	h.live.Done()
}

// putDown ends the sandbox with its host, or leaves it to the next one: if it is paused,
// and if it is to be paused at its deadline and not ended. The next host resumes that.
func (s *Sandbox) putDown() error {
	why := "the server was stopped"
	if s.host.keeps {
		if err := s.pauseForNext(); err != nil && !errors.Is(err, ErrNotFound) {
			why += ", and it could not be paused: " + err.Error()
		}
	}
	s.mu.Lock()
	if s.left {
		s.mu.Unlock()
		<-s.done
		return nil // again
	}
	if !s.host.keeps || s.ending != nil || s.record.State != StatePaused {
		s.decideEnd(why)
		s.mu.Unlock()
		return s.wait()
	}
	s.left, s.endErr = true, ErrClosing
	s.cancel()
	s.mu.Unlock()
	s.calls.Wait()
	close(s.done)
	s.host.live.Done()
	return nil
}

// pauseForNext waits for a pause that is under way, and pauses a sandbox that runs and is
// to be kept.
func (s *Sandbox) pauseForNext() error {
	return s.change(s.ctx, func(ctx context.Context) error {
		if s.State() != StateRunning || !s.Lifecycle.Pause {
			return nil
		}
		return s.pause(ctx, PauseOptions{FilesOnly: s.Lifecycle.FilesOnly}, func(r *Record) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			r.Remaining = s.remainingNow()
			return true
		})
	})
}
