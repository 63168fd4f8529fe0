package child

import (
	"context"
	"fmt"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/rlimit"
)

// mostSandboxes is how many sandboxes there may be at once: as many as were asked
// for, which this process must have the descriptors for; else what memory and
// descriptors allow.
func mostSandboxes(asked int) (int, error) {
	if asked > 0 {
		return asked, rlimit.CheckSandboxes(asked)
	}
	return min(host.DefaultMaxSandboxes(), rlimit.MostSandboxes()), nil
}

// limited returns an engine whose failures name the limit of this process that they
// come from. That it was enough when the server started says little of later:
// other programs of the same user take from some of them. What the engine can do
// besides starting, its machines' powers included, the returned one can.
func limited(e engine.Engine) engine.Engine {
	starter := limitedStarter{e}
	if r, ok := e.(engine.Restorer); ok {
		return limitedRestorer{starter, r}
	}
	return starter
}

type limitedStarter struct{ engine.Engine }

func (l limitedStarter) Start(ctx context.Context, spec engine.Spec) (engine.Machine, error) {
	m, err := l.Engine.Start(ctx, spec)
	return m, blame(ctx, err)
}

type limitedRestorer struct {
	limitedStarter
	restorer engine.Restorer
}

func (l limitedRestorer) Restore(ctx context.Context, spec engine.Spec, checkpoint string,
	opts engine.RestoreOptions) (engine.Machine, error) {
	m, err := l.restorer.Restore(ctx, spec, checkpoint, opts)
	return m, blame(ctx, err)
}

func (l limitedRestorer) Check(checkpoint string, opts engine.RestoreOptions) error {
	return l.restorer.Check(checkpoint, opts)
}

func blame(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if tight := fault.In(rlimit.Explain()); tight != nil {
		return &fault.Error{Code: fault.Internal, Err: fmt.Errorf("%w: %w; %s", err, tight.Err, tight.Hint)}
	}
	return err
}
