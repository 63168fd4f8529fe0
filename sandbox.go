package cubby

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Sandbox is one sandbox, which runs or is paused. It is safe for concurrent use, and
// good for as long as the sandbox lasts, however often that is paused and resumed;
// executions in one [Context] wait for each other.
type Sandbox struct {
	client     *Client
	id         string
	token      string // X-Access-Token
	traffic    string // E2B's traffic token, if the server gave one
	domain     string // of its host names, if the server said so
	publicID   string // for host names that strangers see, if the server gave one
	unenforced []string
	cubby      bool        // the server is a Cubby: it says what limits it keeps
	programs   atomic.Bool // the server is known to take standard input and arguments of code
	told       toldFlows
}

// closeTimeout bounds Close, which has no context.
const closeTimeout = 15 * time.Second

// ID returns the sandbox's id.
func (s *Sandbox) ID() string { return s.id }

// LimitsNotEnforced names the default limits that do not hold on the server's
// machine, such as "cpu". Limits that were asked for always hold.
func (s *Sandbox) LimitsNotEnforced() []string { return slices.Clone(s.unenforced) }

// States of a sandbox.
const (
	StateRunning = "running"
	StatePaused  = "paused"
)

// Info is what the server knew about a sandbox when it was asked. It belongs to the
// caller.
type Info struct {
	ID       string
	Template string // its name or id
	State    string // [StateRunning] or [StatePaused]
	// StartedAt is when the sandbox could be used, EndAt when its timeout is over, or
	// when it was paused.
	StartedAt, EndAt time.Time
	Metadata         map[string]string // see [WithMetadata]
	// Limits are the sandbox's size; what the server does not say is zero. Where
	// LimitsKept is false they are what the server lists: whole processors, and no
	// PIDs.
	Limits Limits
	// LimitsKept says that the server promises to enforce Limits, but for those that
	// LimitsNotEnforced names. [Sandbox.Info] of a Cubby server does.
	LimitsKept        bool
	LimitsNotEnforced []string
	// AutoPause, AutoResume and IdleTimeout are what it was created with: see
	// [WithAutoPause], [WithAutoResume] and [WithIdleTimeout]. Only [Sandbox.Info] knows
	// them, and Instance.
	AutoPause, AutoResume bool
	IdleTimeout           time.Duration
	Instance              Instance
}

// Instance says which memory and which files a sandbox has, so that who compares it with
// an earlier one knows what was lost. Both count from 1. Memory has grown when the
// sandbox was resumed with its files alone, or rolled back; Files when it was rolled
// back. A resume with the memory changes neither. Servers other than Cubby's do not say
// it: both are 0.
type Instance struct{ Memory, Files int }

// Info asks the server. It fails with [CodeNotFound] once the sandbox has
// ended; the error then says why, if the server still knows.
func (s *Sandbox) Info(ctx context.Context) (*Info, error) {
	var d protocol.SandboxDetail
	if err := s.client.control(ctx, http.MethodGet, "/sandboxes/"+s.id, nil, nil, &d); err != nil {
		return nil, fail("get sandbox", CodeUnavailable, err)
	}
	info := infoOf(d.ListedSandbox)
	info.ID, info.LimitsNotEnforced = s.id, d.LimitsNotEnforced
	info.AutoPause, info.AutoResume = d.Lifecycle.OnTimeout == "pause", d.Lifecycle.AutoResume
	info.IdleTimeout = time.Duration(max(0, min(d.Lifecycle.IdleTimeout, maxSeconds))) * time.Second
	if i := d.Instance; i != nil {
		info.Instance = Instance{Memory: i.Memory, Files: i.Files}
	}
	if l := d.Limits; l != nil {
		info.LimitsKept, info.Limits = true, Limits{Memory: int64(l.MemoryMB) << 20, CPUs: l.CPUs, Disk: int64(l.DiskMB) << 20, PIDs: l.PIDs}
	}
	return &info, nil
}

// maxSeconds bounds a time that a server says, for it to fit into a time.Duration.
const maxSeconds = 1<<31 - 1

func infoOf(d protocol.ListedSandbox) Info {
	return Info{
		ID: d.SandboxID, Template: d.TemplateID, State: d.State, StartedAt: d.StartedAt, EndAt: d.EndAt,
		Limits: Limits{CPUs: float64(d.CPUCount), Memory: int64(d.MemoryMB) << 20, Disk: int64(d.DiskSizeMB) << 20}, Metadata: d.Metadata,
	}
}

// Kill ends the sandbox and everything in it. A sandbox that has already ended
// is no error.
func (s *Sandbox) Kill(ctx context.Context) error {
	if err := s.client.Kill(ctx, s.id); err != nil && CodeOf(err) != CodeNotFound {
		return err
	}
	return nil
}

// Close is [Sandbox.Kill] with a bound of fifteen seconds, for defer.
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.Kill(ctx)
}
