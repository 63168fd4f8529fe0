package host

import (
	"context"
	"errors"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Rollback puts a sandbox that runs or is paused back to a snapshot of its team, by a
// reference: it has the snapshot's memory and files, runs, and keeps its id, tokens,
// rules and deadline. What it was before is lost. A paused one is as it was after an
// error. One that runs is so as long as anything is found to be wrong with the snapshot;
// if after that no machine can be made of it, the sandbox ends, and the error says so.
func (s *Sandbox) Rollback(ctx context.Context, ref string) error {
	h := s.host
	snapshot, err := h.cfg.Snapshots.Snapshot(ctx, s.TeamID, ref)
	if errors.Is(err, ErrNotFound) {
		return unknownSnapshot(ref)
	}
	if err != nil {
		return own(err)
	}
	if snapshot.Limits.DiskMB != s.Limits.DiskMB && !snapshot.FilesOnly {
		return invalid("snapshot '%s' is of a sandbox with a disk of %d MB, this one has %d MB", ref, snapshot.Limits.DiskMB, s.Limits.DiskMB)
	}
	err = s.change(ctx, func(ctx context.Context) error {
		image, err := h.describe(snapshot.ID)
		if err != nil {
			return err
		}
		s.mu.Lock()
		m, state := s.machine, s.record.State
		opts := ResumeOptions{Timeout: s.remainingNow()}
		s.mu.Unlock()
		switch state {
		case StatePaused:
			if err := s.restoreFrom(ctx, snapshot.ID, image, opts, protocol.RestoredCopy, nil); err != nil {
				return err
			}
			s.shelveImage()
			return nil
		case StateRunning:
			return s.restoreFrom(ctx, snapshot.ID, image, opts, protocol.RestoredCopy, m)
		}
		return wrongState(s.ID, state, StateResuming)
	})
	return h.unlessDeleted(ctx, snapshot, err)
}
