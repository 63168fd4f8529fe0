package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// change runs a call that gives the sandbox a machine or takes it away. The end of
// the sandbox gives it up, as ctx does, and waits for it.
func (s *Sandbox) change(ctx context.Context, call func(context.Context) error) error {
	s.mu.Lock()
	if s.ending != nil || s.left {
		s.mu.Unlock()
		return ErrNotFound
	}
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(ErrNotFound) })()
	return s.alone(ctx, func() error { return call(ctx) })
}

// alone runs one such call after the other.
func (s *Sandbox) alone(ctx context.Context, call func() error) error {
	select {
	case s.changing <- struct{}{}:
		defer func() { <-s.changing }()
		return call()
	case <-s.ctx.Done():
		return ErrNotFound
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pause writes the sandbox's memory and files to an image and ends its machine. It
// returns when nothing of it runs and the image is on disk. From its beginning the
// sandbox takes no requests, and those under way are cut: what they did afterwards
// would be lost. After an error the sandbox goes on running, unless that wraps
// ErrNotFound: then it has ended. The code is fault.Unimplemented where no sandbox can
// be paused, fault.Conflict for one that does not run.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.change(ctx, func(ctx context.Context) error { return s.pause(ctx, nil) })
}

// pause is Pause for a caller that runs in alone. It does nothing if only, which may be
// nil, returns false for the record.
func (s *Sandbox) pause(ctx context.Context, only func(*Record) bool) error {
	h := s.host
	began := time.Now()
	s.mu.Lock()
	m, state := s.machine, s.record.State
	s.mu.Unlock()
	if state != StateRunning {
		return wrongState(s.ID, state, StatePausing)
	}
	saver, ok := m.Machine.(engine.Checkpointer)
	if !ok || !h.canPause() {
		return cannotPause()
	}
	begun := false
	if err := s.become(ctx, StateRunning, StatePausing, only, func() { begun = true }); err != nil || !begun {
		return err
	}
	m.turnOut()
	thaw, err := freeze(ctx, m)
	if err != nil {
		return s.goOn(m, err)
	}
	err = h.makeImage(s.ID, func(dir string) error {
		return saver.Checkpoint(ctx, dir, engine.CheckpointOptions{})
	})
	if err == nil {
		err = s.become(ctx, StatePausing, StatePaused, func(r *Record) bool { r.PausedAt = micros(time.Now()); return true }, func() {
			s.machine = nil
			s.logs.add(LogEntry{s.record.PausedAt, levelInfo, "Sandbox paused", nil})
		})
	}
	if err != nil {
		return s.goOn(m, errors.Join(err, thaw()))
	}
	if err := m.close(); err != nil {
		h.log.Error("sandbox is paused, but not all of its machine could be removed", "sandbox_id", s.ID, "err", err)
	}
	s.vacate()
	h.log.Info("sandbox paused", "sandbox_id", s.ID, "team", s.TeamID, "dur", time.Since(began))
	return nil
}

// freeze stops what runs in a machine that can be stopped, until it is thawed or
// ended: what it did after the image was written would be lost.
func freeze(ctx context.Context, m *machine) (thaw func() error, err error) {
	p, ok := m.Machine.(engine.Pauser)
	if !ok {
		return func() error { return nil }, nil
	}
	if err := p.Pause(ctx); err != nil {
		return nil, err
	}
	return func() error { return p.Resume(context.Background()) }, nil
}

// canPause reports whether sandboxes can be paused here, as far as that is known
// without a machine.
func (h *Host) canPause() bool {
	_, restores := h.cfg.Engine.(engine.Restorer)
	return restores && h.cfg.ImageDir != ""
}

// goOn makes a sandbox that could not be paused run again. An image that it cannot
// remove a start after a kill would take for the sandbox; a filesystem that refuses that
// is reported, and does not end what runs.
func (s *Sandbox) goOn(m *machine, why error) error {
	if err := s.host.removeImage(s.ID); err != nil {
		s.host.log.Warn("image of a sandbox cannot be removed", "sandbox_id", s.ID, "err", err)
	}
	err := s.become(context.Background(), StatePausing, StateRunning, nil, func() {
		m.letIn()
		s.logs.add(LogEntry{time.Now().UTC(), levelWarn, "Sandbox could not be paused", nil})
		s.noteDeadline()
	})
	if errors.Is(err, ErrNotFound) {
		return err
	}
	s.host.log.Warn("sandbox could not be paused", "sandbox_id", s.ID, "err", errors.Join(why, err))
	return why
}

// vacate gives back the sandbox's place, unless its end does.
func (s *Sandbox) vacate() {
	s.mu.Lock()
	placed := s.placed
	s.placed = false
	s.mu.Unlock()
	if placed {
		s.host.release()
	}
}

// Resume makes a machine of a paused sandbox's image, and returns once its guest has
// answered. It lives for timeout from then; zero means as long as it was created
// with. After an error the sandbox is paused as before, unless that wraps
// ErrNotFound. The code is fault.Conflict for one that is not paused.
func (s *Sandbox) Resume(ctx context.Context, timeout time.Duration) error {
	return s.change(ctx, func(ctx context.Context) error { return s.resume(ctx, timeout) })
}

func (s *Sandbox) resume(ctx context.Context, timeout time.Duration) error {
	h := s.host
	began := time.Now()
	if state := s.State(); state != StatePaused {
		return wrongState(s.ID, state, StateResuming)
	}
	restorer, ok := h.cfg.Engine.(engine.Restorer)
	if !ok {
		return cannotPause()
	}
	t, err := s.sameTemplate(ctx)
	if err != nil {
		return err
	}
	if err := h.admit(); err != nil {
		return err
	}
	defer h.busy.Done()
	if err := s.become(ctx, StatePaused, StateResuming, nil, func() { s.placed = true }); err != nil {
		h.release()
		return err
	}
	m, err := h.inTurn(ctx, func(ctx context.Context) (*machine, error) {
		return s.bring(ctx, t, func(ctx context.Context, spec engine.Spec) (engine.Machine, error) {
			return restorer.Restore(ctx, spec, h.imageOf(s.ID), engine.RestoreOptions{})
		})
	})
	if err == nil {
		if timeout == 0 {
			timeout = s.Lifecycle.Timeout
		}
		var deadline time.Time
		err = s.become(ctx, StateResuming, StateRunning, func(r *Record) bool {
			deadline = time.Now().Add(timeout)
			r.EndAt = micros(deadline)
			return true
		}, func() {
			s.attach(m, deadline)
			s.logs.add(LogEntry{time.Now().UTC(), levelInfo, "Sandbox resumed", map[string]string{"end_at": deadline.UTC().Format(time.RFC3339)}})
		})
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}
	if err != nil {
		return s.stayPaused(err)
	}
	if err := h.removeImage(s.ID); err != nil {
		h.log.Warn("image of a sandbox cannot be removed", "sandbox_id", s.ID, "err", err)
	}
	h.log.Info("sandbox resumed", "sandbox_id", s.ID, "team", s.TeamID, "dur", time.Since(began))
	return nil
}

// stayPaused makes a sandbox that could not be resumed paused again.
func (s *Sandbox) stayPaused(why error) error {
	err := s.become(context.Background(), StateResuming, StatePaused, nil, func() {
		s.logs.add(LogEntry{time.Now().UTC(), levelWarn, "Sandbox could not be resumed", nil})
	})
	if errors.Is(err, ErrNotFound) {
		return err
	}
	s.vacate()
	s.host.log.Warn("sandbox could not be resumed", "sandbox_id", s.ID, "err", errors.Join(why, err))
	return why
}

// sameTemplate is the template that the sandbox was paused with.
func (s *Sandbox) sameTemplate(ctx context.Context) (Template, error) {
	t, err := s.host.cfg.Templates.Resolve(ctx, s.TeamID, s.TemplateID)
	if err != nil {
		return Template{}, err
	}
	eng := s.host.cfg.Engine
	switch {
	case t.Digest != s.TemplateDigest:
		return Template{}, foreignImage(fmt.Errorf("template %s is no longer %s", s.TemplateID, s.TemplateDigest))
	case eng.Name() != s.Engine || eng.Commit() != s.EngineCommit:
		return Template{}, foreignImage(fmt.Errorf("it needs %s %s, this is %s %s", s.Engine, s.EngineCommit, eng.Name(), eng.Commit()))
	}
	return t, nil
}
