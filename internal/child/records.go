package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubby-sandbox/cubby/internal/host"
	"github.com/cubby-sandbox/cubby/internal/store"
)

// openStore takes the data folder for this server alone, and ends what a server
// that was killed had running: its sandboxes died with it.
func (p *private) openStore(ctx context.Context, dir string) error {
	st, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	p.store = st
	if p.unlock, err = lockServer(ctx, st); err != nil {
		return err
	}
	if p.recovered, err = st.EndAllLive(ctx, time.Now(), "the server was killed"); err != nil {
		return fmt.Errorf("records of earlier sandboxes: %w", err)
	}
	return nil
}

// lockWait is how long a start waits for the data folder: a server whose
// supervisor was killed holds it while it ends its sandboxes.
const lockWait = 5 * time.Second

func lockServer(ctx context.Context, st *store.Store) (unlock func() error, err error) {
	deadline := time.Now().Add(lockWait)
	for {
		if unlock, err = st.LockServer(); err == nil || time.Now().After(deadline) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// firstKey makes the first team and its key, once. It comes last, when nothing
// else can keep the server from starting: a key is shown once, and one made by a
// start that failed would never be shown.
func (p *private) firstKey(ctx context.Context) (err error) {
	if _, p.newKey, _, err = p.store.Bootstrap(ctx); err != nil {
		return fmt.Errorf("first team and key: %w", err)
	}
	return nil
}

// keys is server.Keys over the store.
type keys struct{ store *store.Store }

func (k keys) TeamOfKey(ctx context.Context, secret string) (string, error) {
	team, err := k.store.TeamOfKey(ctx, secret)
	if errors.Is(err, store.ErrNotFound) {
		return "", host.ErrNotFound
	}
	return team, err
}

// recorder is host.Recorder over the store.
type recorder struct{ store *store.Store }

func (r recorder) Created(ctx context.Context, rec host.Record) error {
	return r.store.PutSandbox(ctx, store.Sandbox{
		ID: rec.ID, TeamID: rec.TeamID, TemplateID: rec.TemplateID, Metadata: rec.Metadata,
		StartedAt: rec.StartedAt, EndAt: rec.EndAt, CPUs: rec.CPUs, MemoryMB: rec.MemoryMB, DiskMB: rec.DiskMB,
	})
}

func (r recorder) Extended(ctx context.Context, id string, endAt time.Time) error {
	return r.store.ExtendSandbox(ctx, id, endAt)
}

func (r recorder) Ending(ctx context.Context, id string) (host.Ending, error) {
	b, err := r.store.Sandbox(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && b.EndedAt.IsZero():
		return host.Ending{}, host.ErrNotFound
	case err != nil:
		return host.Ending{}, err
	}
	return host.Ending{TeamID: b.TeamID, TemplateID: b.TemplateID, StartedAt: b.StartedAt, EndedAt: b.EndedAt, Reason: b.EndReason}, nil
}

func (r recorder) Ended(ctx context.Context, id string, at time.Time, reason string) error {
	return r.store.EndSandbox(ctx, id, at, reason)
}
