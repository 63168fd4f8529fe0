package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Recovered says what a start found of the servers before it.
type Recovered struct {
	Ended  int // sandboxes that died with their server
	Paused int // those that are there again
}

// Recover takes up what earlier servers left in the records, before anything else is
// asked of the host. Machines die with their server: sandboxes that had one, or were
// to get their first, have ended. Paused ones are there again, as paused, and so are
// those whose image is whole though their record says that they were being paused or
// resumed, or run: a resume is published only once its image has another name, so that
// one failed or was cut off, and the record of that is missing. An image that is damaged
// is set apart, and its sandbox has ended. Images of nothing are removed. An error means
// that something cannot be read or written; it is never taken for nothing being there,
// and the host must not be used.
func (h *Host) Recover(ctx context.Context) (Recovered, error) {
	var found Recovered
	records, err := h.cfg.Recorder.Live(ctx)
	if err != nil {
		return found, err
	}
	keep := map[string]bool{}
	for _, r := range records {
		paused, err := h.takeUp(ctx, r)
		switch {
		case err != nil:
			return found, fmt.Errorf("sandbox %s: %w", r.ID, err)
		case paused:
			keep[r.ID] = true
			found.Paused++
		default:
			found.Ended++
		}
	}
	snapshots, err := h.cfg.Snapshots.AllSnapshots(ctx)
	if err != nil {
		return found, err
	}
	for _, s := range snapshots {
		keep[s.ID] = true
	}
	if h.cfg.Images != nil {
		if err := h.cfg.Images.RemoveBut(keep); err != nil {
			return found, fmt.Errorf("images of what has ended: %w", err)
		}
	}
	if len(records) > 0 {
		h.log.Info("sandboxes of an earlier server", "ended", found.Ended, "paused", found.Paused)
	}
	return found, nil
}

// takeUp goes on with a sandbox of an earlier server: it is paused, or has ended.
func (h *Host) takeUp(ctx context.Context, r Record) (paused bool, err error) {
	why, err := h.lost(r)
	if err != nil {
		return false, err
	}
	if why == "" && r.State != StatePaused {
		r.State = StateResuming // that failed: the way back to paused
	}
	s := h.newSandbox(r)
	if why == "" && r.State == StateResuming {
		if err := s.become(ctx, StateResuming, StatePaused, func(r *Record) bool {
			if r.PausedAt.IsZero() {
				r.PausedAt = micros(time.Now())
			}
			return true
		}, nil); err != nil {
			return false, err
		}
	}
	if why != "" {
		return false, s.become(ctx, anyState, StateEnded, func(r *Record) bool {
			r.EndedAt, r.Reason, r.Env, r.Network = micros(time.Now()), why, nil, nil
			return true
		}, nil)
	}
	s.addLog(createdEntry(r.StartedAt, r.TemplateID))
	h.mu.Lock()
	h.insert(s)
	h.live.Add(1)
	h.mu.Unlock()
	return true, nil
}

// lost says why a sandbox that a server before this one left has ended; empty if it
// has not.
func (h *Host) lost(r Record) (why string, err error) {
	const killed = "the server was killed; this was found at its next start" // when it was killed is not known
	switch r.State {
	case StateBooting:
		return killed, nil
	case StateRunning, StatePausing, StatePaused, StateResuming:
	default:
		return "", errors.New("a state that this version does not know: " + string(r.State))
	}
	if h.cfg.Images == nil {
		if r.State == StateRunning || r.State == StatePausing {
			return killed, nil
		}
		return "", errors.New("there is no folder for images")
	}
	whole, err := h.cfg.Images.Has(r.ID)
	switch {
	case err != nil:
		return "", err
	case !whole && r.State == StatePaused:
		return "it was paused, and its image is missing", nil
	case !whole:
		return killed, nil
	}
	var image manifest
	_, err = h.cfg.Images.Describe(r.ID, &image)
	if errors.Is(err, ErrDamagedImage) {
		h.log.Error("image of a sandbox is damaged, and is set apart", "sandbox_id", r.ID, "err", err)
		return "its image is damaged: " + err.Error(), h.cfg.Images.SetApart(r.ID, err)
	}
	if err != nil {
		return "", err
	}
	if _, foreign := h.templateOf(context.Background(), r.TeamID, image, image.FilesOnly); foreign != nil {
		h.log.Warn("a paused sandbox can be resumed with its files only", "sandbox_id", r.ID, "err", foreign)
	}
	return "", nil
}

// ResumeKept resumes the sandboxes that the server before paused for its end, with the
// time that they had left. One that cannot be resumed stays paused.
func (h *Host) ResumeKept(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range h.Live() {
		left := s.Record().Remaining
		if left == 0 {
			continue
		}
		all.Go(func() {
			if err := s.Resume(ctx, ResumeOptions{Timeout: left}); err != nil {
				h.log.Warn("a sandbox that ran when the last server was stopped is not resumed", "sandbox_id", s.ID, "err", err)
			}
		})
	}
	all.Wait()
}
