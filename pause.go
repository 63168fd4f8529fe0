package cubby

import (
	"context"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// PauseOption modifies [Sandbox.Pause] and [WithAutoPause].
type PauseOption interface{ applyPause(*protocol.PauseSandbox) }

// FilesOnlyOption is for what keeps a sandbox, and for what brings it back.
type FilesOnlyOption interface {
	PauseOption
	SnapshotOption
	ConnectOption
}

// WithFilesOnly leaves a sandbox's memory out:
//
//   - [Sandbox.Pause], [WithAutoPause] and [Sandbox.Snapshot] keep the files alone, which
//     is less to write. What ran is over, as after a power cut.
//   - [Client.Connect] boots a paused sandbox anew with its files, also where its memory
//     was kept, which is lost then: it is for one whose memory cannot be restored any
//     more ([CodeIncompatible]). It does nothing to one that runs.
func WithFilesOnly() FilesOnlyOption { return filesOnly{} }

type filesOnly struct{}

func (filesOnly) applyPause(r *protocol.PauseSandbox)     { r.Memory = new(false) }
func (filesOnly) applySnapshot(r *protocol.NewSnapshot)   { r.FilesOnly = true }
func (filesOnly) applyConnect(r *protocol.ConnectSandbox) { r.Memory = new(false) }

// WithAutoPause has the server pause the sandbox at its end ([WithTimeout],
// [WithIdleTimeout]) instead of ending it; see [Sandbox.Pause].
func WithAutoPause(opts ...PauseOption) CreateOption {
	return createOption(func(c *createConfig) {
		var pause protocol.PauseSandbox
		for _, o := range opts {
			o.applyPause(&pause)
		}
		c.AutoPause, c.AutoPauseMemory = new(true), pause.Memory
	})
}

// WithAutoResume has the server resume the sandbox, when it is paused, for a request to
// it: code, a command, a file, or a port of its programs, each with what opens it. The
// request waits for the resume, and the sandbox then lives for the time that it was
// created with, or for five minutes if that is less. A Cubby server resumes one five
// times at once, and then every ten seconds: what is over fails with [CodeRateLimited].
// Calls about the sandbox itself, such as [Sandbox.Info], do not resume it.
func WithAutoResume() CreateOption {
	return createOption(func(c *createConfig) { c.AutoResume = &protocol.AutoResume{Enabled: true} })
}

// WithIdleTimeout ends the sandbox, or pauses it ([WithAutoPause]), when it was idle for
// d, rounded up to whole seconds: code or a command that runs, and bytes on a connection,
// are activity. The end that [WithTimeout] sets, without it after five minutes, stays:
// give both. Create fails with [CodeUnimplemented] on servers other than Cubby's.
func WithIdleTimeout(d time.Duration) CreateOption {
	return createOption(func(c *createConfig) { c.IdleTimeout = new(seconds(d)) })
}

// Pause writes the sandbox's memory and files, or with [WithFilesOnly] its files, to the
// server's disk, and ends what runs of it: it takes no memory and no processor then.
// [Client.Connect] resumes it, any number of times. That takes some seconds for each
// gigabyte, in which the sandbox stands still. A sandbox that is paused already is no
// error, and stays as it is.
//
// With its memory, what ran goes on after the resume: variables, commands, background
// processes, timers. Calls that were waiting for it fail with [CodePaused]; connections
// to the outside are reset. [Commands.Connect] finds a command again.
//
// It fails with [CodeUnimplemented] on a server that cannot pause, with
// [CodeSandboxGone] when the sandbox has ended, and with [CodeNoSpace] where there is no
// room for it; after that one it goes on, with its connections. A paused sandbox
// lasts until it is killed; those of a private Cubby end with the program. A Cubby server
// restores memory only as long as the packages of its machine, from which the sandbox
// has its tools, and its own sandbox kernel stay as they are: else Connect fails with
// [CodeIncompatible], and with WithFilesOnly brings the files.
func (s *Sandbox) Pause(ctx context.Context, opts ...PauseOption) error {
	var req protocol.PauseSandbox
	for _, o := range opts {
		o.applyPause(&req)
	}
	ctx, cancel := bounded(ctx, memoryTimeout)
	defer cancel()
	err := s.ofSandbox(ctx, "pause sandbox", http.MethodPost, "/sandboxes/"+s.id+"/pause", nil, &req, nil)
	if code := CodeOf(err); code == CodeConflict || code == CodePaused {
		return nil
	}
	return err
}
