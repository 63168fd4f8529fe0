// Package engine defines what every sandbox engine must do: boot or restore a
// machine and dial a port inside it. Policy (who may create what, for how long)
// lives in package host; an engine only builds walls.
package engine

import (
	"context"
	"errors"
	"net"
	"time"
)

// Engine boots machines. Implementations are safe for concurrent use.
type Engine interface {
	// Name is the engine's short name, such as "gvisor".
	Name() string
	// Probe reports whether the engine can run here. Its error says what to do
	// about it.
	Probe(ctx context.Context) error
	// Start boots a machine from a root filesystem. The machine's lifetime is
	// not bound to ctx, which only bounds the start itself: when it ends, Start
	// returns its cause, whatever hangs, and has left nothing.
	Start(ctx context.Context, spec Spec) (Machine, error)
	// Restore boots a machine from a checkpoint that the same build of the same
	// engine made from an equal spec.
	Restore(ctx context.Context, spec Spec, checkpoint string) (Machine, error)
}

// Machine is one running sandbox. Its methods are safe for concurrent use.
type Machine interface {
	// Dial opens a stream to a TCP port inside the machine. A closed port is
	// ErrPortClosed, an ended machine ErrEnded.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Checkpoint writes memory and files into dir, which must exist and be
	// empty. The machine goes on running when opts.Resume is set and has ended
	// otherwise. Usage and CPUTime do not wait for it; Close ends it, with
	// ErrEnded.
	Checkpoint(ctx context.Context, dir string, opts CheckpointOptions) error
	// Pause freezes every process in the machine; Resume thaws them.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Usage measures what the machine uses now. It costs microseconds.
	Usage(ctx context.Context) (Usage, error)
	// CPUTime is the processor time that the machine took since its boot, of
	// code inside and of the engine itself. It costs a millisecond or so.
	CPUTime(ctx context.Context) (time.Duration, error)
	// Unenforced names those limits of the Spec that this machine does not
	// enforce ("cpu", "memory", …), sorted.
	Unenforced() []string
	// Wait returns a channel that is closed after exactly one Exit was sent.
	Wait() <-chan Exit
	// Close ends the machine, waits for its processes and removes everything it
	// left on the host. It is idempotent.
	Close() error
}

// Spec says what to boot.
type Spec struct {
	// ID names the machine; ^[a-z0-9]+$.
	ID string
	// Root is the directory that becomes "/". It is never written to.
	Root string
	// Args is the first process and Env its whole environment. It is handed the
	// channel of package channel on descriptor 3.
	Args []string
	Env  []string
	// Hostname is the machine's host name; empty means ID.
	Hostname string
	Limits   Limits
}

// Limits bounds a machine. Zero means no bound. Code inside is shown Memory and, as
// whole ones, CPUs (but no more than the host has), where it asks for those of its
// computer.
type Limits struct {
	Memory int64   // bytes for code and data inside
	CPUs   float64 // processors
	Disk   int64   // bytes written below "/"
	PIDs   int     // processes and threads of code inside
}

// CheckpointOptions modify Machine.Checkpoint.
type CheckpointOptions struct {
	Resume bool // leave the machine running
}

// Usage is a machine's consumption at one moment.
type Usage struct {
	Memory   int64 // bytes of anonymous memory and memory-backed files inside
	Overhead int64 // bytes the engine itself holds for the machine
	Cache    int64 // bytes of files that are mapped, of the host's page cache
	Disk     int64 // bytes that the files written below "/" take; 0 if it cannot be told
}

// Slower is a Machine that can hold back what grows inside it without holding
// back its first process.
type Slower interface {
	// Slow gives processes inside that hold more than bytes of memory a low
	// priority. They keep it.
	Slow(bytes int64)
}

// Exit says how a machine ended.
type Exit struct {
	// Err names what ended and how; nil when Close or a checkpoint ended it.
	Err error
}

// Errors that callers decide on.
var (
	ErrPortClosed = errors.New("port is not open")
	ErrEnded      = errors.New("machine has ended")
)
