package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// sweepEvery is how often a host looks for what it is to keep no longer, at most: what
// is kept for less than an hour goes sooner after its time.
const sweepEvery = time.Minute

// sweep removes, until the host closes, what its owner does not want to be kept. What a
// team does itself is never waited for, so that whatever is not removed now is later.
func (h *Host) sweep() {
	every := sweepEvery
	if keep := h.cfg.KeepPaused; keep > 0 {
		every = min(every, max(keep/20, 10*time.Millisecond))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range h.Live() {
			s.forgetPaused()
		}
		if h.cfg.KeepSnapshots == 0 {
			continue
		}
		all, err := h.cfg.Snapshots.AllSnapshots(h.ctx)
		if err == nil {
			err = h.trim(h.ctx, all)
		}
		if err != nil && h.ctx.Err() == nil {
			h.log.Warn("snapshots that are not to be kept", "err", err)
		}
	}
}

// expiresAt is when a record's sandbox, which is paused, is removed by its age; zero for
// never.
func (h *Host) expiresAt(r Record) time.Time {
	if h.cfg.KeepPaused == 0 || r.State != StatePaused {
		return time.Time{}
	}
	return r.PausedAt.Add(h.cfg.KeepPaused)
}

// forgetPaused ends a sandbox that has been paused for too long.
func (s *Sandbox) forgetPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.host.expiresAt(s.record); !at.IsZero() && !time.Now().Before(at) {
		s.decideEnd(fmt.Sprintf("it was paused for %v, and this server keeps nothing longer", s.host.cfg.KeepPaused))
	}
}

// trim removes those of the snapshots, newest first, that are without a name and too many
// for their team.
func (h *Host) trim(ctx context.Context, all []Snapshot) error {
	var errs []error
	kept := map[string]int{} // by team
	for _, s := range all {
		if len(s.Names) > 0 {
			continue
		}
		if kept[s.TeamID]++; kept[s.TeamID] > h.cfg.KeepSnapshots {
			errs = append(errs, notGone(h.DeleteSnapshot(ctx, s.TeamID, s.ID)))
		}
	}
	return errors.Join(errs...)
}

// notGone is err, unless that says that what was to be removed is gone.
func notGone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Held is what a number of images takes.
type Held struct {
	Count int
	Bytes int64 // on disk; what several share is in each
}

// Disk is what a team's images take, and all of them.
type Disk struct {
	Paused, Snapshots Held // the team's
	All               protocol.DiskUsage
}

// Disk returns what images take on disk.
func (h *Host) Disk(ctx context.Context, teamID string) (Disk, error) {
	if h.cfg.Images == nil {
		return Disk{}, cannotPause()
	}
	var d Disk
	for _, s := range h.Live() {
		if s.TeamID != teamID || s.State() != StatePaused {
			continue
		}
		bytes, err := h.cfg.Images.Describe(s.ID, nil)
		if err != nil {
			continue // it is being resumed or removed, or damaged: a resume says so
		}
		d.Paused.Count++
		d.Paused.Bytes += bytes
	}
	snapshots, err := h.ListSnapshots(ctx, teamID)
	if err != nil {
		return Disk{}, own(err)
	}
	for _, s := range snapshots {
		d.Snapshots.Count++
		d.Snapshots.Bytes += s.Size
	}
	if d.All, err = h.cfg.Images.Usage(); err != nil {
		return Disk{}, own(err)
	}
	return d, nil
}

// PruneRequest is what a team wants to be removed.
type PruneRequest struct {
	// Snapshots without a name, which were made longer ago than Age. Without it nothing
	// goes that cannot be made again.
	Snapshots bool
	Age       time.Duration
}

// Prune removes what a team does not need, and returns what that took.
func (h *Host) Prune(ctx context.Context, teamID string, req PruneRequest) (Held, error) {
	var removed Held
	if req.Age < 0 {
		return removed, &fault.Error{Code: fault.InvalidArgument, Err: errors.New("age must not be negative")}
	}
	if !req.Snapshots {
		return removed, nil // there are no caches yet
	}
	all, err := h.ListSnapshots(ctx, teamID)
	if err != nil {
		return removed, own(err)
	}
	for _, s := range all {
		if len(s.Names) > 0 || time.Since(s.CreatedAt) < req.Age {
			continue
		}
		switch err := h.DeleteSnapshot(ctx, teamID, s.ID); {
		case err == nil:
			removed.Count++
			removed.Bytes += s.Size
		case !errors.Is(err, ErrNotFound):
			return removed, err
		}
	}
	return removed, nil
}
