package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// Create boots a sandbox and returns once its guest has answered and the
// Recorder knows of it.
func (h *Host) Create(ctx context.Context, req CreateRequest) (*Sandbox, error) {
	p, err := h.plan(ctx, req)
	if err != nil {
		return nil, err
	}
	s, err := h.launch(ctx, p)
	if err != nil && req.Limits == nil { // else they may be what it could not live with
		h.rememberFailure(ctx, err)
	}
	return s, err
}

// plan is a sandbox that is to be.
type plan struct {
	record   Record
	name     string // that it is listed under
	template Template
	memory   int64 // bytes that its machine takes at once
	from     origin
	// use calls start with a start of its machine.
	use func(ctx context.Context, start func(startMachine) error) error
}

// startMachine starts a machine of the template, or of an image.
type startMachine func(context.Context, engine.Spec) (engine.Machine, error)

// launch makes the planned sandbox and hands it out.
func (h *Host) launch(ctx context.Context, p plan) (*Sandbox, error) {
	s := h.newSandbox(p.record)
	if err := h.admit(p.memory); err != nil {
		return nil, err
	}
	defer h.busy.Done()
	recorded := false
	m, err := h.inTurn(ctx, func(ctx context.Context) (*machine, error) {
		s.placed, recorded = true, true
		h.live.Add(1)
		err := s.become(ctx, "", StateBooting, func(r *Record) bool {
			r.StartedAt = micros(time.Now())
			r.EndAt = r.StartedAt.Add(s.Lifecycle.Timeout)
			return true
		}, nil)
		if err != nil {
			return nil, err
		}
		var m *machine
		err = p.use(ctx, func(start startMachine) (err error) {
			m, err = s.bring(ctx, p.template, p.from, s.record.Instance, start)
			return err
		})
		return m, err
	})
	if err == nil {
		err = h.handOut(ctx, s, m)
	}
	switch {
	case err != nil && !recorded:
		h.release()
	case err != nil:
		// Also if the record failed: it may be there nevertheless.
		err = errors.Join(err, s.end("it was never handed out"))
	}
	if errors.Is(err, ErrNotFound) {
		err = own(err) // of a sandbox that the client has not asked for by its id
	}
	if err != nil {
		return nil, err
	}
	h.log.Info("sandbox created", "sandbox_id", s.ID, "team", s.TeamID, "dur", time.Since(m.booted))
	return s, nil
}

// inTurn boots a machine when it is its turn. The host's end gives it up.
func (h *Host) inTurn(ctx context.Context, boot func(context.Context) (*machine, error)) (*machine, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(ErrClosing) })()
	leave, err := h.queue(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancelBoot := context.WithTimeout(ctx, bootTimeout)
	defer cancelBoot()
	return boot(ctx)
}

// handOut records that a sandbox runs and makes it reachable, unless nobody wants it
// any more.
func (h *Host) handOut(ctx context.Context, s *Sandbox, m *machine) error {
	// Its life begins here: neither waiting nor booting is taken off its time.
	var now time.Time
	err := s.become(ctx, StateBooting, StateRunning, func(r *Record) bool {
		now = time.Now()
		r.StartedAt, r.EndAt = micros(now), micros(now.Add(s.Lifecycle.Timeout))
		return true
	}, func() {
		s.StartedAt = s.record.StartedAt
		s.logs.add(createdEntry(s.StartedAt, s.TemplateID))
		s.attach(m, now.Add(s.Lifecycle.Timeout))
	})
	if err != nil {
		return errors.Join(err, m.close())
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("sandbox %s is not handed out: %w", s.ID, err)
	}
	s.warnOfClosedNetwork()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosing
	}
	// One that ends from now on is taken out again by its end, which waits for h.mu.
	if err := s.ended(); err != nil {
		return fmt.Errorf("sandbox %s is not handed out: %w", s.ID, err)
	}
	h.insert(s)
	// Of a snapshot's sandbox it is that of its source: there are few templates.
	used := h.used[m.template.ID]
	h.used[m.template.ID] = templateUse{used.count + 1, s.StartedAt}
	return nil
}

// spec is a machine of the sandbox. Its environment is the template's: greet sends the
// guest what belongs to the sandbox.
func (s *Sandbox) spec(t Template) engine.Spec {
	return engine.Spec{
		ID: s.ID, Root: t.Root, Args: t.Guest, Env: t.Env, Hostname: "cubby",
		Limits: engine.Limits{
			Memory: int64(s.Limits.MemoryMB) << 20, CPUs: s.Limits.CPUs, Disk: int64(s.Limits.DiskMB) << 20, PIDs: s.Limits.PIDs,
		},
	}
}
