package server

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
)

// Host is what a Server needs of whoever has the sandboxes: [Local] is the host
// of this process. Its methods are called concurrently. Their errors have the codes of
// package host: fault.NotFound for sandboxes that do not live, with when and why it
// ended in place of host.ErrNotFound where the caller may know that.
type Host interface {
	Control
	Locator
	Templates
	Snapshots
}

// Control is for the control plane, whose requests are a team's. A sandbox of
// another team is one that never was.
type Control interface {
	// Ready says why no sandbox can be made now, or nil.
	Ready() error
	// Create returns a new sandbox.
	Create(ctx context.Context, req host.CreateRequest) (Sandbox, error)
	// Of returns a team's sandbox.
	Of(ctx context.Context, teamID, id string) (Sandbox, error)
	// List describes a team's sandboxes, newest first; those of the same moment by
	// id.
	List(ctx context.Context, teamID string) ([]host.Info, error)
	// Logs returns the log of a team's sandbox, oldest first, for some time also
	// after its end.
	Logs(ctx context.Context, teamID, id string) ([]host.LogEntry, error)
	// Flows returns what was decided of the newest flows of a team's sandbox, and how
	// they ended, oldest first.
	Flows(ctx context.Context, teamID, id string) ([]egress.Flow, error)
}

// Sandbox is what the control plane does with one. Errors of a move of its
// deadline that wrap host.ErrNotFound mean that it has ended, or is ending.
type Sandbox interface {
	Info() host.Info
	// SetTimeout moves the deadline to d from now; zero ends the sandbox.
	SetTimeout(ctx context.Context, d time.Duration) error
	// Extend is SetTimeout, but never makes the deadline sooner.
	Extend(ctx context.Context, d time.Duration) error
	// SetNetwork replaces where the sandbox may connect to. When it returns nil,
	// connections that are no longer allowed have been cut.
	SetNetwork(ctx context.Context, req host.NetworkRequest) error
	// Pause, Resume, Connect, Snapshot and Rollback are those of host.Sandbox.
	Pause(ctx context.Context, opts host.PauseOptions) error
	Resume(ctx context.Context, opts host.ResumeOptions) error
	Connect(ctx context.Context, opts host.ResumeOptions) (resumed bool, err error)
	Snapshot(ctx context.Context, req host.SnapshotRequest) (host.Snapshot, error)
	Rollback(ctx context.Context, ref string) error
	// Fork makes n copies, which live for timeout; zero means as long as the sandbox
	// was created with. The error means that there is no copy at all.
	Fork(ctx context.Context, n int, timeout time.Duration) ([]Forked, error)
	// Kill returns when nothing of the sandbox is left.
	Kill() error
	// Samples returns what the sandbox used in the last hour, oldest first.
	Samples() []host.Sample
}

// Forked describes one copy of a sandbox, or says why there is none.
type Forked struct {
	Info host.Info
	Err  error
}

// Snapshots are a team's. A reference is a name, with or without a tag, or an id.
type Snapshots interface {
	// ListSnapshots returns them newest first; those of the same moment by id.
	ListSnapshots(ctx context.Context, teamID string) ([]host.Snapshot, error)
	// DeleteSnapshot returns when nothing of it is on the disk. The error wraps
	// host.ErrNotFound if there is none.
	DeleteSnapshot(ctx context.Context, teamID, ref string) error
	// Disk returns what images take on disk: a team's, and all.
	Disk(ctx context.Context, teamID string) (host.Disk, error)
	// Prune removes what a team does not need, and returns what that took.
	Prune(ctx context.Context, teamID string, req host.PruneRequest) (host.Held, error)
}

// Locator is for the data plane, whose requests name a sandbox of any team and
// bring the token that opens it, or a token alone.
type Locator interface {
	// Get and GetPublic find a sandbox by its id and by its public id.
	Get(id string) (Ports, error)
	GetPublic(id string) (Ports, error)
	// ByToken finds the sandbox that has an access token, in a time that does
	// not depend on any token. The empty token belongs to no sandbox.
	ByToken(token string) (Ports, bool)
	// BySignature finds the sandbox with whose access token something was signed:
	// signed is asked about the token of every sandbox that has one.
	BySignature(signed func(token string) bool) (Ports, bool)
	// EndOf returns why a sandbox ended, where that is known. Only a caller with its
	// access token learns it.
	EndOf(ctx context.Context, id, token string) (host.End, bool)
}

// Ports are a sandbox's, as the data plane uses them.
type Ports interface {
	Info() host.Info
	// Wake returns the sandbox's ports once it runs, as host.Sandbox.Wake does.
	Wake(ctx context.Context) (Ports, error)
	// Dial opens a stream to a port. Its errors wrap engine.ErrPortClosed where
	// nothing listens, and engine.ErrEnded where there is nothing any more.
	Dial(ctx context.Context, port int) (net.Conn, error)
	// Transport sends HTTP requests to a port, with the errors of Dial. The
	// sandbox owns it.
	Transport(port int) http.RoundTripper
	// BeginRun says that an execution began, and bounds it if timeout is positive.
	// The caller calls end once.
	BeginRun(timeout time.Duration) (end func())
	// Done is closed when these ports are no more, with the sandbox or with its
	// machine, and all their streams are broken. It is the same channel each time,
	// and another one for another machine.
	Done() <-chan struct{}
}

// Templates are what sandboxes can be made from.
type Templates interface {
	// Templates returns all of a team's, in a fixed order.
	Templates(ctx context.Context, teamID string) ([]host.TemplateInfo, error)
	// Template returns the one that a name with or without a tag means. The error
	// has the code fault.NotFound if there is none.
	Template(ctx context.Context, teamID, ref string) (host.TemplateInfo, error)
}

// Local is the host of this process as a Server needs it.
func Local(h *host.Host) Host { return local{h} }

// local has the methods of a *host.Host, but for those that return its own type
// of sandbox.
type local struct{ *host.Host }

func (l local) Create(ctx context.Context, req host.CreateRequest) (Sandbox, error) {
	return controlled(l.Host.Create(ctx, req))
}

func (l local) Of(ctx context.Context, teamID, id string) (Sandbox, error) {
	return controlled(l.Host.Of(ctx, teamID, id))
}

func (l local) List(_ context.Context, teamID string) ([]host.Info, error) {
	var infos []host.Info
	for _, box := range l.Live() {
		if box.TeamID == teamID {
			infos = append(infos, box.Info())
		}
	}
	return infos, nil
}

func (l local) Get(id string) (Ports, error)       { return reached(l.Host.Get(id)) }
func (l local) GetPublic(id string) (Ports, error) { return reached(l.Host.GetPublic(id)) }

// controlled and reached keep a sandbox that is not there from being an interface
// that is not nil.
func controlled(box *host.Sandbox, err error) (Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return controlledBox{box}, nil
}

// controlledBox has the methods of a *host.Sandbox, but for the one that returns others.
type controlledBox struct{ *host.Sandbox }

func (b controlledBox) Fork(ctx context.Context, n int, timeout time.Duration) ([]Forked, error) {
	made, err := b.Sandbox.Fork(ctx, n, timeout)
	copies := make([]Forked, len(made))
	for i, c := range made {
		if copies[i].Err = c.Err; c.Err == nil {
			copies[i].Info = c.Sandbox.Info()
		}
	}
	return copies, err
}

func reached(box *host.Sandbox, err error) (Ports, error) {
	if err != nil {
		return nil, err
	}
	return portsOf(box), nil
}

func portsOf(box *host.Sandbox) Ports { return reachedPorts{box.Ports(), box} }

// reachedPorts has the methods of a *host.Ports, and wakes the sandbox.
type reachedPorts struct {
	*host.Ports
	box *host.Sandbox
}

func (p reachedPorts) Wake(ctx context.Context) (Ports, error) {
	if err := p.box.Wake(ctx); err != nil {
		return nil, err
	}
	return portsOf(p.box), nil
}

func (l local) ByToken(token string) (Ports, bool) {
	if box, ok := l.Host.ByToken(token); ok {
		return portsOf(box), true
	}
	return nil, false
}

func (l local) BySignature(signed func(token string) bool) (Ports, bool) {
	var found Ports
	for _, box := range l.Live() { // all of them, so that the time tells nothing
		if box.Token != "" && signed(box.Token) {
			found = portsOf(box)
		}
	}
	return found, found != nil
}
