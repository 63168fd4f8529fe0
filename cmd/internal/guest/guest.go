//go:build linux

// Package guest is what runs inside a sandbox, as process 1 and root: it serves
// E2B's envd on port 49983 and E2B's code interpreter on port 49999 over the
// channel to the host, connects the host to any other port, keeps the language
// kernels, and reaps what they leave behind. The code itself runs as an ordinary
// user. Everything inside a sandbox is one trust domain; the guest protects its
// token and nothing else, and the host relies on nothing that it says.
//
// This package composes the guest. What it does is in the packages below, which
// import each other in this order only:
//
//	watch ─► files ─┐
//	commands ───────┼─► settings, reaper, reply, restored, pid1
//	interpreter ────┤
//	  └► kernelproc, cellgroup, kernel
//	metrics ────────┘
package guest

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/commands"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/files"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/interpreter"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/metrics"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/pid1"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/watch"
)

// Guest is the state of one guest. Make it with New.
type Guest struct {
	settings    *settings.Store
	machine     *restored.Machine
	ctx         context.Context
	cancel      context.CancelFunc
	reaping     sync.WaitGroup
	interpreter *interpreter.Interpreter
	commands    *commands.Service
	files       *files.Service
	watches     *watch.Service
	metrics     *metrics.Service

	// sealed is set from a restore until the host has said what the machine is now.
	sealed       atomic.Bool
	initialising sync.Mutex // held while a request of /init is checked and takes effect
}

// New prepares the inside of a sandbox. Its handlers serve once they have been told
// by POST /init what sandbox it is.
func New(ctx context.Context, cfg settings.Config) (*Guest, error) {
	if cfg.Init {
		group, err := pid1.Prepare(cfg)
		if err != nil {
			return nil, err
		}
		cfg.CgroupDir = group
	}
	g := &Guest{settings: settings.New(cfg), machine: restored.New()}
	g.ctx, g.cancel = context.WithCancel(ctx)
	children := &reaper.Children{}
	var err error
	if g.interpreter, err = interpreter.New(g.ctx, g.settings, children, g.machine); err != nil {
		g.cancel()
		return nil, err
	}
	g.commands = commands.New(g.ctx, g.settings, children, g.machine)
	g.files = files.New(g.settings)
	g.watches = watch.New(g.ctx, g.files)
	g.metrics = metrics.New(g.settings)
	if cfg.Init {
		g.reaping.Go(func() { children.Reap(g.ctx) })
	}
	return g, nil
}

// Close kills the kernels and the commands, and waits until nothing of the guest runs.
func (g *Guest) Close() {
	g.commands.Refuse()
	g.cancel()
	g.interpreter.Close()
	g.commands.Wait()
	g.watches.Wait()
	g.reaping.Wait()
}

// Restored is called when the machine was restored from a checkpoint: before the calls
// that were under way then end, and before any other comes. It does not block.
func (g *Guest) Restored() {
	g.sealed.Store(true)
	g.machine.Restored()
	g.commands.Restored()
	g.watches.Restored()
	g.metrics.Restored()
}

// CodeInterpreter returns the handler of port 49999.
func (g *Guest) CodeInterpreter() http.Handler {
	return cors(g.initialised(g.interpreter.Handler()))
}
