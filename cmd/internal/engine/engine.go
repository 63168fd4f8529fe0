// Package engine defines what every sandbox engine must do: boot a machine and dial
// a port inside it. What only some can do are the small interfaces Restorer,
// Checkpointer, Pauser, Limiter and Slower, which callers find by type assertion.
// Policy (who may create what, for how long) lives in package host; an engine only
// builds walls.
package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// Engine boots machines. Implementations are safe for concurrent use. One that can
// boot a machine from a checkpoint is a Restorer, too.
type Engine interface {
	// Name is the engine's short name, such as "gvisor".
	Name() string
	// Commit names the build of the engine that its checkpoints depend on: one
	// that says the same can restore them. It is never empty.
	Commit() string
	// Probe reports whether the engine can run here. Its error says what to do
	// about it.
	Probe(ctx context.Context) error
	// Start boots a machine from a root filesystem. The machine's lifetime is
	// not bound to ctx, which only bounds the start itself: when it ends, Start
	// returns its cause, whatever hangs, and has left nothing.
	Start(ctx context.Context, spec Spec) (Machine, error)
}

// Machine is one running sandbox. Its methods are safe for concurrent use. It may
// be a Checkpointer, Pauser, Limiter or Slower, too.
type Machine interface {
	// Dial opens a stream to a TCP port inside the machine. A closed port is
	// ErrPortClosed, an ended machine ErrEnded.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Usage measures what the machine uses now. It costs microseconds.
	Usage(ctx context.Context) (Usage, error)
	// CPUTime is the processor time that the machine took since its boot, of
	// code inside and of the engine itself. It costs a millisecond or so.
	CPUTime(ctx context.Context) (time.Duration, error)
	// Fixed is what was settled when the machine booted.
	Fixed() Fixed
	// Unenforced names those of its limits that this machine does not enforce
	// ("cpu", "memory", …), sorted.
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
	// Args is the first process and Env its whole environment, to which the engine
	// adds what only it knows of the inside: protocol.CgroupVar, if that is not
	// there. It is handed the channel of package channel on descriptor 3.
	Args []string
	Env  []string
	// Hostname is the machine's host name; empty means ID.
	Hostname string
	Limits   Limits
	// Net is the machine's network card: one end of a pair of SOCK_SEQPACKET
	// sockets, whose messages are IP packets without a link header, of at most
	// NetMTU bytes. Inside it is an interface with the address NetAddress, and what
	// is not for that network goes to NetGateway, too, which is whoever holds the
	// other end. Start and Restore duplicate the descriptor and make it
	// non-blocking: it stays the caller's, who may close it when they have returned.
	// Nil is a closed machine, which has its loopback only. An engine that cannot
	// attach a card returns ErrNotSupported.
	Net *os.File
}

// What a machine with a network card knows of its network. All machines have the
// same address, each on a network of its own.
const (
	NetAddress = "10.88.0.2/24"
	NetGateway = "10.88.0.1"
	NetMTU     = 16384 // bytes of one packet
)

// Limits bounds a machine. Zero means no bound. Code inside is shown Memory and, as
// whole ones, CPUs (but no more than the host has), where it asks for those of its
// computer.
type Limits struct {
	Memory int64   // bytes for code and data inside
	CPUs   float64 // processors
	Disk   int64   // bytes written below "/"
	PIDs   int     // processes and threads of code inside
}

// Fixed is what of a machine is settled when it boots. No call changes it, and a
// checkpoint holds it: a machine that is restored has what was checkpointed,
// whatever the limits of its Spec are.
type Fixed struct {
	// Disk is the bytes that may be written below "/"; 0 is no bound.
	Disk int64 `json:"disk"`
	// CPUs is how many processors code inside is shown; 0 is as many as the host has.
	CPUs int `json:"cpus"`
	// Memory is how many bytes of it code inside is shown; 0 is the engine's choice.
	Memory int64 `json:"memory"`
}

// Usage is a machine's consumption at one moment.
type Usage struct {
	Memory   int64 // bytes of anonymous memory and memory-backed files inside
	Overhead int64 // bytes the engine itself holds for the machine
	// MaxOverhead is the bytes of Overhead at which the machine has to be ended,
	// for nothing smaller helps; 0 is no bound.
	MaxOverhead int64
	Cache       int64 // bytes of files that are mapped, of the host's page cache
	Disk        int64 // bytes that the files written below "/" take; 0 if it cannot be told
}

// Exit says how a machine ended.
type Exit struct {
	// Err names what ended and how; nil when Close ended it.
	Err error
}

// Errors that callers decide on.
var (
	ErrPortClosed = errors.New("port is not open")
	ErrEnded      = errors.New("machine has ended")
	// ErrNotSupported is what an engine cannot do for this Spec, or a machine with
	// these limits, and will not be able to do when it is asked again.
	ErrNotSupported = errors.New("the engine does not support it")
	// ErrForeign is a checkpoint of another engine, of another build of it, or of a
	// processor that has what this one has not. If only the memory is, RestoreOptions.FilesOnly helps.
	ErrForeign = errors.New("the checkpoint was made by another engine or for another processor")
	// ErrDamaged is a checkpoint of which files are missing or have another size.
	ErrDamaged = errors.New("the checkpoint is damaged")
	// ErrChanged is a checkpoint of a machine that had a file of its root filesystem open
	// which is another by now; with RestoreOptions.FilesOnly that is no matter.
	ErrChanged = errors.New("a file that its programs have open was changed or removed")
	// ErrFilesOnly is a checkpoint without memory that is to be restored with it.
	ErrFilesOnly = errors.New("the checkpoint has files only")
)
