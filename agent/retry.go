package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// RetryOptions say how often and how long a model is asked again after an error
// that is [ModelError.Temporary].
type RetryOptions struct {
	Attempts int           // in all; 0 means 3, 1 asks once
	Base     time.Duration // the first wait, doubled each time; 0 means half a second
	// MaxWait is the longest wait; 0 means 30 seconds. An endpoint that asks for
	// a longer one (Retry-After) is not asked again.
	MaxWait time.Duration
	// OnRetry is told before each wait. void says that pieces of a reply were
	// streamed, which begins anew.
	OnRetry func(err error, wait time.Duration, void bool)
}

// Retry returns a model that asks m again when that may help.
func Retry(m Model, opts RetryOptions) Model {
	opts.Attempts = cmp.Or(opts.Attempts, 3)
	opts.Base = cmp.Or(opts.Base, 500*time.Millisecond)
	opts.MaxWait = cmp.Or(opts.MaxWait, 30*time.Second)
	return retrying{m, opts}
}

type retrying struct {
	Model
	opts RetryOptions
}

func (r retrying) Generate(ctx context.Context, req Request, stream func(Delta)) (*Reply, error) {
	for attempt := 1; ; attempt++ {
		begun := false
		reply, err := r.Model.Generate(ctx, req, func(d Delta) {
			begun = true
			if stream != nil {
				stream(d)
			}
		})
		var e *ModelError
		if err == nil || !errors.As(err, &e) || !e.Temporary() || attempt >= r.opts.Attempts || ctx.Err() != nil {
			return reply, err
		}
		wait := r.opts.Base
		for i := 1; i < attempt && wait < r.opts.MaxWait; i++ {
			wait *= 2
		}
		wait = min(wait, r.opts.MaxWait)
		wait = wait/2 + rand.N(wait/2+1)
		if e.RetryAfter > 0 {
			wait = e.RetryAfter
		}
		if wait > r.opts.MaxWait {
			return nil, fmt.Errorf("%w (not waited for: it asks for %v)", err, wait)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return nil, err // the wait would outlast the time
		}
		if r.opts.OnRetry != nil {
			r.opts.OnRetry(err, wait, begun)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}
