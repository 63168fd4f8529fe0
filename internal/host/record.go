package host

import (
	"context"
	"errors"
	"time"
)

// Recorder keeps records of sandboxes beyond this process. Its methods are
// called concurrently for different sandboxes, and one after the other for one:
// Created, any number of Extended, Ended. A sandbox whose record cannot be made
// is not handed out, and a deadline that cannot be recorded is not moved.
type Recorder interface {
	// Created is called before anybody is told of the sandbox.
	Created(ctx context.Context, r Record) error
	// Extended moves the deadline, to later or to sooner.
	Extended(ctx context.Context, id string, endAt time.Time) error
	// Ended is called exactly once for each sandbox that Created was called for,
	// also if that failed.
	Ended(ctx context.Context, id string, at time.Time, reason string) error
	// Ending returns how a sandbox ended, of this process or of one before it,
	// as long as that is kept. The error wraps ErrNotFound if there is no record
	// of its end.
	Ending(ctx context.Context, id string) (Ending, error)
}

// Ending is the record of a sandbox that has ended. Times are UTC.
type Ending struct {
	TeamID, TemplateID string
	StartedAt, EndedAt time.Time
	Reason             string
}

// Record describes a sandbox. Times are UTC.
type Record struct {
	ID, TeamID, TemplateID string
	Metadata               map[string]string // not to be changed
	StartedAt, EndAt       time.Time
	CPUs                   float64
	MemoryMB, DiskMB       int // MiB
}

// recordTimeout bounds each call of a Recorder: a record that takes longer is as
// good as none.
const recordTimeout = 15 * time.Second

// lookupTimeout bounds the look at a record that only adds a reason to an answer.
const lookupTimeout = 2 * time.Second

func (s *Sandbox) record() Record {
	return Record{
		ID: s.ID, TeamID: s.TeamID, TemplateID: s.TemplateID, Metadata: s.Metadata,
		StartedAt: s.StartedAt, EndAt: s.EndAt(),
		CPUs: s.Limits.CPUs, MemoryMB: s.Limits.MemoryMB, DiskMB: s.Limits.DiskMB,
	}
}

// noRecords is the Recorder of a private Cubby, whose sandboxes end with it.
type noRecords struct{}

func (noRecords) Created(context.Context, Record) error                  { return nil }
func (noRecords) Extended(context.Context, string, time.Time) error      { return nil }
func (noRecords) Ended(context.Context, string, time.Time, string) error { return nil }
func (noRecords) Ending(context.Context, string) (Ending, error)         { return Ending{}, ErrNotFound }

// ending looks up how a sandbox of a team ended. Records that cannot be read are
// logged and not guessed at: that the sandbox does not live is known without them.
func (h *Host) ending(ctx context.Context, teamID, id string) (Ending, bool) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ending, err := h.cfg.Recorder.Ending(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) && ctx.Err() == nil {
		h.log.Warn("record of a sandbox cannot be read", "sandbox_id", id, "err", err)
	}
	return ending, err == nil && ending.TeamID == teamID
}
