package host

import (
	"context"
	"errors"
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

// PauseOptions modify Sandbox.Pause.
type PauseOptions struct {
	// FilesOnly keeps the files and no memory: what runs ends as by a power cut, and
	// a resume boots the machine anew.
	FilesOnly bool
}

// Pause writes the sandbox's memory and files to an image and ends its machine. It
// returns when nothing of it runs and the image is on disk. From its beginning no
// further request is let in, and nothing in the machine runs; requests under way are cut
// when the image is safe. After an error the sandbox goes on running, with its
// requests, unless that wraps ErrNotFound: then it has ended. The code is
// fault.Unimplemented where no sandbox can be paused, fault.Conflict for one that does
// not run, fault.NoSpace where the image has no room.
func (s *Sandbox) Pause(ctx context.Context, opts PauseOptions) error {
	return s.change(ctx, func(ctx context.Context) error { return s.pause(ctx, opts, nil) })
}

// pause is Pause for a caller that runs in alone. It does nothing if only, which may be
// nil, returns false for the record, and lets only change it.
func (s *Sandbox) pause(ctx context.Context, opts PauseOptions, only func(*Record) bool) error {
	h := s.host
	began := time.Now()
	s.mu.Lock()
	m, state := s.machine, s.record.State
	s.mu.Unlock()
	if state != StateRunning {
		return wrongState(s.ID, state, StatePausing)
	}
	if !h.canPause() || !m.canBeSaved() {
		return cannotPause()
	}
	s.shelving.Wait()
	begun := false
	if err := s.become(ctx, StateRunning, StatePausing, only, func() { begun = true }); err != nil || !begun {
		return err
	}
	m.shutOut()
	like := "" // what was shelved at its last resume
	if s.Record().PausedAt.IsZero() {
		like = s.alike()
	}
	err := s.save(ctx, m, s.ID, like, opts.FilesOnly)
	if err == nil {
		err = s.become(ctx, StatePausing, StatePaused, func(r *Record) bool { r.PausedAt = micros(time.Now()); return true }, func() {
			s.machine = nil
			s.logs.add(LogEntry{s.record.PausedAt, levelInfo, "Sandbox paused", nil})
		})
	}
	if err != nil {
		return s.goOn(m, err)
	}
	if err := m.close(); err != nil {
		h.log.Error("sandbox is paused, but not all of its machine could be removed", "sandbox_id", s.ID, "err", err)
	}
	s.vacate()
	h.log.Info("sandbox paused", "sandbox_id", s.ID, "team", s.TeamID, "files_only", opts.FilesOnly, "dur", time.Since(began))
	return nil
}

// canPause reports whether sandboxes can be paused here, as far as that is known
// without a machine.
func (h *Host) canPause() bool {
	_, restores := h.cfg.Engine.(engine.Restorer)
	return restores && h.cfg.Images != nil
}

// canBeSaved reports whether the machine can be frozen and written to an image.
func (m *machine) canBeSaved() bool {
	_, saves := m.Machine.(engine.Checkpointer)
	_, freezes := m.Machine.(engine.Pauser)
	return saves && freezes
}

// alike is the image of which most of a new one of the sandbox is likely the same: its
// last snapshot's; empty if there is none.
func (s *Sandbox) alike() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.like
}

// save freezes the machine and writes it to an image, which is much like another. The
// machine stays frozen, whatever happens.
func (s *Sandbox) save(ctx context.Context, m *machine, image, like string, filesOnly bool) error {
	if err := m.freeze(ctx); err != nil {
		return err
	}
	used, err := m.Usage(ctx)
	if err != nil {
		return own(err)
	}
	err = s.host.cfg.Images.Create(ctx, image, roomFor(used, filesOnly), like, m.manifest(used, filesOnly), func(dir string) error {
		return m.Machine.(engine.Checkpointer).Checkpoint(ctx, dir, engine.CheckpointOptions{FilesOnly: filesOnly})
	})
	return imageError(s.ID, err)
}

// kernelState is room for what a machine's kernel itself writes to an image, in bytes;
// 0.3 MB were measured for a dozen processes.
const kernelState = 8 << 20

// roomFor is how many bytes an image may take, at most.
func roomFor(u engine.Usage, filesOnly bool) int64 {
	if filesOnly {
		return u.Disk + kernelState
	}
	return u.Memory + u.Disk + kernelState
}

// freeze stops everything in the machine; thaw undoes it.
func (m *machine) freeze(ctx context.Context) error {
	if err := m.Machine.(engine.Pauser).Pause(ctx); err != nil {
		return own(err)
	}
	m.frozen.Store(true)
	return nil
}

// thawTimeout bounds the wait for a machine to go on, which takes a millisecond.
const thawTimeout = 10 * time.Second

// thaw lets what freeze stopped go on. A machine that was not frozen, or has ended, is
// left alone; one that cannot go on ends the sandbox.
func (m *machine) thaw() {
	if !m.frozen.Swap(false) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	err := m.Machine.(engine.Pauser).Resume(ctx)
	if err != nil && !errors.Is(err, engine.ErrEnded) {
		m.fail("it was stopped for an image and cannot go on: " + err.Error())
	}
}

// notFoundIfEnded is err, of an image that was being made, or ErrNotFound if the sandbox's
// end is why there is none.
func (s *Sandbox) notFoundIfEnded(err error) error {
	if err == nil || s.ctx.Err() == nil && !errors.Is(err, engine.ErrEnded) {
		return err
	}
	return ErrNotFound
}

// goOn makes a sandbox that could not be paused run again. An image that it cannot
// remove a start after a kill would take for the sandbox; a filesystem that refuses that
// is reported, and does not end what runs.
func (s *Sandbox) goOn(m *machine, why error) error {
	if err := s.host.removeImage(s.ID); err != nil {
		s.host.log.Warn("image of a sandbox cannot be removed", "sandbox_id", s.ID, "err", err)
	}
	m.thaw()
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
