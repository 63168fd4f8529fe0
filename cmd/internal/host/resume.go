package host

import (
	"context"
	"errors"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// ResumeOptions modify Sandbox.Resume and Sandbox.Connect.
type ResumeOptions struct {
	// Timeout is how long the sandbox lives from then; zero means as long as it was
	// created with.
	Timeout time.Duration
	// FilesOnly boots the machine anew with the image's files, also where the image
	// has memory: for one whose memory can no longer be restored.
	FilesOnly bool
}

// Resume makes a machine of a paused sandbox's image, and returns once its guest has
// answered. After an error the sandbox is paused as before, unless that wraps
// ErrNotFound. The code is fault.Conflict for one that is not paused,
// fault.Incompatible for an image that this server, or the toolchain as it is now,
// cannot restore.
func (s *Sandbox) Resume(ctx context.Context, opts ResumeOptions) error {
	return s.change(ctx, func(ctx context.Context) error { return s.resume(ctx, opts) })
}

// Connect has the sandbox live for the time that opts say, from now: it resumes one that
// is paused, also if that only begins when a pause has ended, and moves the deadline of
// one that runs, but never to sooner. It reports whether it has resumed it.
func (s *Sandbox) Connect(ctx context.Context, opts ResumeOptions) (resumed bool, err error) {
	err = s.change(ctx, func(ctx context.Context) error {
		if s.State() == StatePaused {
			resumed = true
			return s.resume(ctx, opts)
		}
		return s.Extend(ctx, opts.Timeout)
	})
	return resumed && err == nil, err
}

func (s *Sandbox) resume(ctx context.Context, opts ResumeOptions) error {
	if state := s.State(); state != StatePaused {
		return wrongState(s.ID, state, StateResuming)
	}
	began := time.Now()
	h := s.host
	image, err := h.describe(s.ID)
	if err != nil {
		return s.endIfDamaged(err)
	}
	if err := s.restoreFrom(ctx, s.ID, image, opts, protocol.RestoredResume, nil); err != nil {
		return s.endIfDamaged(err)
	}
	s.shelveImage()
	h.log.Info("sandbox resumed", "sandbox_id", s.ID, "team", s.TeamID, "dur", time.Since(began))
	return nil
}

// restoreFrom gives the sandbox a machine of an image. The caller runs in alone. The
// sandbox is paused, and is so again after an error; or it runs with old, which is closed
// when the image has been verified, and then an error ends the sandbox.
func (s *Sandbox) restoreFrom(ctx context.Context, id string, image manifest, opts ResumeOptions, restored string, old *machine) error {
	h := s.host
	filesOnly := opts.FilesOnly || image.FilesOnly
	t, err := h.templateOf(ctx, s.TeamID, image, filesOnly)
	if err != nil {
		return err
	}
	from := StatePaused
	if old != nil {
		from = StateRunning
	} else if err := h.admit(image.memory(filesOnly)); err != nil {
		return err
	} else {
		defer h.busy.Done()
	}
	if err := s.become(ctx, from, StateResuming, nil, func() { s.placed = true }); err != nil {
		if old == nil {
			h.release()
		}
		return err
	}
	if old != nil {
		old.shutOut()
	}
	next := s.Record().Instance.after(restored, filesOnly)
	closed := false
	m, err := h.inTurn(ctx, func(ctx context.Context) (m *machine, err error) {
		err = h.cfg.Images.Use(ctx, id, func(dir string) error {
			if old != nil {
				closed = true
				if err := s.letGo(old); err != nil {
					return err
				}
			}
			m, err = s.bring(ctx, t, image.origin(restored, filesOnly), next, h.restoring(dir, filesOnly))
			return err
		})
		return m, imageError(s.ID, err)
	})
	if err == nil {
		err = s.publish(ctx, m, opts, next, resumedMessage(restored, filesOnly))
	}
	switch {
	case err == nil:
		return nil
	case old == nil:
		return s.stayPaused(err)
	case closed:
		s.beginEnd(notRolledBack(err))
		return err
	}
	return s.stayRunning(old, err)
}

// notRolledBack is why a sandbox ended whose machine was closed for a rollback: with what
// went wrong if that is for who reads the reason.
func notRolledBack(why error) string {
	if IsForClient(why) {
		return "it could not be rolled back: " + why.Error()
	}
	return "it could not be rolled back"
}

// letGo closes the machine that another one is to follow.
func (s *Sandbox) letGo(m *machine) error {
	s.mu.Lock()
	s.machine = nil
	s.mu.Unlock()
	return m.close()
}

// publish makes a sandbox that is being resumed run with m.
func (s *Sandbox) publish(ctx context.Context, m *machine, opts ResumeOptions, next Instance, message string) error {
	if opts.Timeout == 0 {
		opts.Timeout = s.Lifecycle.Timeout
	}
	var deadline time.Time
	err := s.become(ctx, StateResuming, StateRunning, func(r *Record) bool {
		deadline = time.Now().Add(opts.Timeout)
		r.EndAt, r.Remaining, r.Instance = micros(deadline), 0, next
		return true
	}, func() {
		s.attach(m, deadline)
		s.logs.add(LogEntry{time.Now().UTC(), levelInfo, message, map[string]string{"end_at": deadline.UTC().Format(time.RFC3339)}})
	})
	if err != nil {
		return errors.Join(err, m.close())
	}
	return nil
}

// stayRunning makes a sandbox run on whose machine was to be followed by another.
func (s *Sandbox) stayRunning(m *machine, why error) error {
	err := s.become(context.Background(), StateResuming, StateRunning, nil, func() {
		m.letIn()
		s.noteDeadline()
	})
	if errors.Is(err, ErrNotFound) {
		return err
	}
	return why
}

func resumedMessage(restored string, filesOnly bool) string {
	switch {
	case restored == protocol.RestoredCopy:
		return "Sandbox rolled back"
	case filesOnly:
		return "Sandbox resumed with its files; what ran has ended"
	}
	return "Sandbox resumed"
}

// after is the instance that follows i. A resume from memory changes nothing; one from
// files alone is another memory, and a rollback other files, too.
func (i Instance) after(restored string, filesOnly bool) Instance {
	if restored == protocol.RestoredCopy {
		return Instance{i.Memory + 1, i.Files + 1}
	}
	if filesOnly {
		i.Memory++
	}
	return i
}

// restoring is a start of a machine from an image.
func (h *Host) restoring(dir string, filesOnly bool) startMachine {
	return func(ctx context.Context, spec engine.Spec) (engine.Machine, error) {
		return h.cfg.Engine.(engine.Restorer).Restore(ctx, spec, dir, engine.RestoreOptions{FilesOnly: filesOnly})
	}
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
