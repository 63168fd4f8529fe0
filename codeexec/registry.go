package codeexec

import (
	"context"
	"sync"

	"github.com/cubby-sandbox/cubby"
)

// WorkspaceInstanceProvider is a WorkspaceManager that can tell which instance
// (container, sandbox) its workspaces are in: when that changes, they are lost.
type WorkspaceInstanceProvider interface {
	InstanceID(ctx context.Context) (string, error)
}

// WorkspaceRegistry keeps one workspace for each id, for as long as it lives. It
// is safe for concurrent use: who asks for one that is being made waits for it.
type WorkspaceRegistry struct {
	mu      sync.Mutex
	entries map[string]*registryEntry
}

type registryEntry struct {
	ready    chan struct{} // closed when the rest is set
	ws       Workspace
	instance string
	err      error
}

// WorkspaceHandle is a workspace as a registry gave it.
type WorkspaceHandle struct {
	Workspace Workspace
	id        string
	entry     *registryEntry
}

// NewWorkspaceRegistry returns an empty registry.
func NewWorkspaceRegistry() *WorkspaceRegistry {
	return &WorkspaceRegistry{entries: map[string]*registryEntry{}}
}

// Acquire returns the workspace of an id; m makes it if there is none, or if the
// instance that it was in is another now.
func (r *WorkspaceRegistry) Acquire(ctx context.Context, m WorkspaceManager, id string) (Workspace, error) {
	h, err := r.AcquireHandle(ctx, m, id)
	return h.Workspace, err
}

// AcquireHandle is Acquire with what [WorkspaceRegistry.Invalidate] wants.
func (r *WorkspaceRegistry) AcquireHandle(ctx context.Context, m WorkspaceManager, id string) (WorkspaceHandle, error) {
	const op = "acquire workspace"
	instance := ""
	if p, ok := m.(WorkspaceInstanceProvider); ok {
		var err error
		if instance, err = p.InstanceID(ctx); err != nil {
			return WorkspaceHandle{}, Fail(op, cubby.CodeUnavailable, err)
		}
	}
	for {
		r.mu.Lock()
		e, ok := r.entries[id]
		if !ok {
			e = &registryEntry{ready: make(chan struct{})}
			r.entries[id] = e
		}
		r.mu.Unlock()
		if !ok {
			return r.make(ctx, m, id, instance, e)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return WorkspaceHandle{}, Fail(op, cubby.CodeCanceled, context.Cause(ctx))
		}
		h := WorkspaceHandle{e.ws, id, e}
		if e.err == nil && e.instance == instance {
			return h, nil
		}
		// Who made it failed, perhaps because it gave up; or its place is gone.
		r.Invalidate(h)
	}
}

func (r *WorkspaceRegistry) make(ctx context.Context, m WorkspaceManager, id, instance string, e *registryEntry) (WorkspaceHandle, error) {
	e.ws, e.err = m.CreateWorkspace(ctx, id, WorkspacePolicy{})
	e.instance = instance
	if p, ok := m.(WorkspaceInstanceProvider); ok && e.err == nil {
		// Making it may have made its place, too.
		if now, err := p.InstanceID(ctx); err == nil {
			e.instance = now
		}
	}
	h := WorkspaceHandle{e.ws, id, e}
	close(e.ready)
	if e.err != nil {
		r.Invalidate(h)
		return WorkspaceHandle{}, Fail("acquire workspace", cubby.CodeUnavailable, e.err)
	}
	return h, nil
}

// Invalidate forgets a workspace, so that the next Acquire makes a new one. It
// does nothing if that has happened already, and does not clean up.
func (r *WorkspaceRegistry) Invalidate(h WorkspaceHandle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.entry != nil && r.entries[h.id] == h.entry {
		delete(r.entries, h.id)
	}
}
