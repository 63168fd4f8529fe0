package engine

import "context"

// Restorer is an Engine that boots machines from checkpoints.
type Restorer interface {
	// Restore boots a machine from a checkpoint that this engine made of a machine
	// with an equal root filesystem. With its memory that takes a build of the
	// same Commit, and a processor that has all that the checkpointed machine was
	// shown: what ran goes on, and what is Fixed comes from the checkpoint, all
	// else from spec. With RestoreOptions.FilesOnly any build can do it, and it is
	// a Start with what was written below "/". It is bounded by ctx as Start is.
	//
	// Connections through the network card are cut in what is restored: who reads
	// or polls them wakes, a read is at the end, a write is EPIPE. Those within the
	// machine go on. The wall clock says what it is now; the monotonic
	// one has gone on as if the machine had slept.
	//
	// The errors that Check knows, and ErrChanged, come before anything is started.
	Restore(ctx context.Context, spec Spec, checkpoint string, opts RestoreOptions) (Machine, error)
	// Check says whether Restore would take a checkpoint. It reads the description
	// that is in its folder and looks at the sizes of its files: what is in them it
	// does not verify. Its errors wrap ErrForeign, ErrDamaged, ErrFilesOnly or
	// ErrNotSupported and say why; others are the filesystem's.
	Check(checkpoint string, opts RestoreOptions) error
}

// RestoreOptions modify Restorer.Restore.
type RestoreOptions struct {
	// FilesOnly boots anew, with the first process of the spec, and leaves out the
	// memory that the checkpoint may have.
	FilesOnly bool
}

// Checkpointer is a Machine that can be written to files. Its engine is a Restorer.
type Checkpointer interface {
	// Checkpoint writes the machine into dir, which must exist and be empty: all of
	// it as of one moment. Nothing runs inside meanwhile; then a machine that ran
	// runs on, with its connections, and one that Pauser.Pause froze stays frozen.
	// So does one whose checkpoint failed, and dir is empty again. The files are
	// in the page cache, not synced, and can be read by this user alone.
	//
	// The end of ctx is noticed when one of the steps is over, each of which can
	// take seconds for a gigabyte. Usage and CPUTime do not wait for it; Close ends
	// it at once, with ErrEnded.
	Checkpoint(ctx context.Context, dir string, opts CheckpointOptions) error
}

// CheckpointOptions modify Checkpointer.Checkpoint.
type CheckpointOptions struct {
	// FilesOnly writes what is below "/" without the memory. File systems of their
	// own, such as /dev/shm and /run, are memory.
	FilesOnly bool
	// MemoryOnly leaves out what only a restore with RestoreOptions.FilesOnly needs: for
	// a checkpoint that is restored at once, by the same engine.
	MemoryOnly bool
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
