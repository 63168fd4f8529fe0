package engine

import "context"

// Restorer is an Engine that boots machines from checkpoints.
type Restorer interface {
	// Restore boots a machine from a checkpoint that a build of the same engine
	// with the same Commit made of a machine with an equal root filesystem and
	// first process; another's is ErrForeign. What is Fixed comes from the
	// checkpoint, all else from spec. It is bounded by ctx as Start is.
	Restore(ctx context.Context, spec Spec, checkpoint string) (Machine, error)
}

// Checkpointer is a Machine that can be written to files. Its engine is a Restorer.
type Checkpointer interface {
	// Checkpoint writes memory and files into dir, which must exist and be
	// empty. The machine goes on running when opts.Resume is set and has ended
	// otherwise. Usage and CPUTime do not wait for it; Close ends it, with
	// ErrEnded.
	Checkpoint(ctx context.Context, dir string, opts CheckpointOptions) error
}

// CheckpointOptions modify Checkpointer.Checkpoint.
type CheckpointOptions struct {
	Resume bool // leave the machine running
}

// Pauser is a Machine that can be stopped for a while. Its memory stays taken.
type Pauser interface {
	// Pause freezes every process in the machine; Resume thaws them.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Limiter is a Machine whose limits can change while it runs.
type Limiter interface {
	// SetLimits replaces the bounds of memory, processors and processes; those
	// that are zero hold no longer. Disk is Fixed: another than the machine's is
	// ErrNotSupported, and so is a change that the engine cannot make. Unenforced
	// tells afterwards which of the new limits do not hold. After another error
	// some may have changed: the call can be repeated. What code inside is shown
	// stays as it is.
	SetLimits(ctx context.Context, limits Limits) error
}

// Slower is a Machine that can hold back what grows inside it without holding
// back its first process.
type Slower interface {
	// Slow gives processes inside that hold more than bytes of memory a low
	// priority. They keep it.
	Slow(bytes int64)
}
