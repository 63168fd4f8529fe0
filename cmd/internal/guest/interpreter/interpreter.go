//go:build linux

// Package interpreter is E2B's code interpreter: contexts, each with a kernel, and the
// cells that run in them.
package interpreter

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/cellgroup"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/transformer"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Interpreter is E2B's code interpreter. Make it with New.
type Interpreter struct {
	settings *settings.Store
	ctx      context.Context // done when the guest ends
	wg       sync.WaitGroup  // of the kernels' goroutines, and of those that start TypeScript's compiler
	children *reaper.Children
	machine  *restored.Machine
	// typescript makes JavaScript of the cells of that language.
	typescript *transformer.Transformer
	copies     atomic.Int64 // of the machine that were made so far, and are this one's past
	groups     *cellgroup.Groups
	contexts   contexts
	inputs     codeInputs
	waiting    atomic.Int64 // bytes of the source of calls that run or wait
}

// New writes the kernels' scripts and returns an interpreter without a
// kernel. It lives until ctx is done; then its Close must be called.
func New(ctx context.Context, s *settings.Store, c *reaper.Children, m *restored.Machine) (*Interpreter, error) {
	if err := kernel.Write(s.Config.KernelDir); err != nil {
		return nil, err
	}
	return &Interpreter{
		settings: s, ctx: ctx, children: c, machine: m, groups: cellgroup.New(s.Config.CgroupDir),
		typescript: transformer.New(s.Config.TypeScript, s.Config.SwitchUser, c),
	}, nil
}

// Busy reports whether a cell runs.
func (ip *Interpreter) Busy() bool {
	ip.contexts.mu.Lock()
	all := append([]*codeContext(nil), ip.contexts.all...)
	ip.contexts.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		runs := c.cell != nil
		c.mu.Unlock()
		if runs {
			return true
		}
	}
	return false
}

// Close kills the kernels and waits until nothing of them is left. The interpreter's
// context is done.
func (ip *Interpreter) Close() {
	ip.contexts.mu.Lock()
	all := ip.contexts.all
	ip.contexts.all, ip.contexts.defaults = nil, nil
	ip.contexts.mu.Unlock()
	for _, c := range all {
		c.discard()
	}
	ip.wg.Wait() // also for those that start the compiler
	ip.typescript.Close()
}

// Handler returns the interpreter's calls.
func (ip *Interpreter) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { reply.JSON(w, http.StatusOK, "OK") })
	mux.HandleFunc("POST /execute", ip.handleExecute)
	mux.HandleFunc("GET "+protocol.StdinPath, ip.handleStdinProbe)
	mux.HandleFunc("POST "+protocol.StdinPath+"/{id}", ip.handleStdin)
	mux.HandleFunc("GET /contexts", ip.handleContexts)
	mux.HandleFunc("POST /contexts", ip.handleCreateContext)
	mux.HandleFunc("POST /contexts/{id}/restart", ip.handleRestartContext)
	mux.HandleFunc("DELETE /contexts/{id}", ip.handleDeleteContext)
	return mux
}
