package skill

import (
	"context"
	"sync"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// instanceProvider is a codeexec.WorkspaceManager that can tell which instance
// (container, sandbox) its workspaces are in: when that changes, they are lost.
type instanceProvider interface {
	InstanceID(ctx context.Context) (string, error)
}

// Workspaces keeps one workspace for each execution id, for as long as it lives.
// Several [Tools] may share it. It is safe for concurrent use: who needs one that
// is being made waits for it.
type Workspaces struct {
	mu      sync.Mutex
	entries map[string]*workspaceEntry
}

type workspaceEntry struct {
	ready    chan struct{} // closed when the rest is set
	ws       codeexec.Workspace
	instance string
	err      error
}

// held is a workspace as [Workspaces] gave it.
type held struct {
	codeexec.Workspace
	id    string
	entry *workspaceEntry
}

// NewWorkspaces returns none yet, for [Config].
func NewWorkspaces() *Workspaces {
	return &Workspaces{entries: map[string]*workspaceEntry{}}
}

// Acquire returns the workspace of an execution id, for programs that use it
// beside the tools; m makes it if there is none, or if the instance that it was in
// is another now.
func (r *Workspaces) Acquire(ctx context.Context, m codeexec.WorkspaceManager, id string) (codeexec.Workspace, error) {
	h, err := r.acquire(ctx, m, id)
	return h.Workspace, err
}

// acquire is Acquire with what invalidate wants.
func (r *Workspaces) acquire(ctx context.Context, m codeexec.WorkspaceManager, id string) (held, error) {
	const op = "acquire workspace"
	instance := ""
	if p, ok := m.(instanceProvider); ok {
		var err error
		if instance, err = p.InstanceID(ctx); err != nil {
			return held{}, execerr.Wrap(op, cubby.CodeUnavailable, err)
		}
	}
	for {
		r.mu.Lock()
		e, ok := r.entries[id]
		if !ok {
			e = &workspaceEntry{ready: make(chan struct{})}
			r.entries[id] = e
		}
		r.mu.Unlock()
		if !ok {
			return r.make(ctx, m, id, instance, e)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return held{}, execerr.Wrap(op, cubby.CodeCanceled, context.Cause(ctx))
		}
		h := held{e.ws, id, e}
		if e.err == nil && e.instance == instance {
			return h, nil
		}
		// Who made it failed, perhaps because it gave up; or its place is gone.
		r.invalidate(h)
	}
}

func (r *Workspaces) make(ctx context.Context, m codeexec.WorkspaceManager, id, instance string, e *workspaceEntry) (held, error) {
	e.ws, e.err = m.CreateWorkspace(ctx, id, codeexec.WorkspacePolicy{})
	e.instance = instance
	if p, ok := m.(instanceProvider); ok && e.err == nil {
		// Making it may have made its place, too.
		if now, err := p.InstanceID(ctx); err == nil {
			e.instance = now
		}
	}
	h := held{e.ws, id, e}
	close(e.ready)
	if e.err != nil {
		r.invalidate(h)
		return held{}, execerr.Wrap("acquire workspace", cubby.CodeUnavailable, e.err)
	}
	return h, nil
}

// invalidate forgets a workspace, so that the next acquire makes a new one. It
// does nothing if that has happened already, and does not clean up.
func (r *Workspaces) invalidate(h held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.entry != nil && r.entries[h.id] == h.entry {
		delete(r.entries, h.id)
	}
}
