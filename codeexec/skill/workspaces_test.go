package skill

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
)

// places makes workspaces that are only names, and counts them.
type places struct {
	codeexec.WorkspaceManager

	mu       sync.Mutex
	made     int
	instance string
	err      error
}

func (p *places) InstanceID(context.Context) (string, error) { return p.instance, nil }

func (p *places) CreateWorkspace(_ context.Context, id string, _ codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	return codeexec.Workspace{ID: id, Path: strings.Repeat("x", p.made)}, p.err
}

func TestWorkspaces(t *testing.T) {
	f := &places{}
	r := NewWorkspaces()
	acquire := func() codeexec.Workspace {
		t.Helper()
		ws, err := r.acquire(t.Context(), f, "id")
		if err != nil {
			t.Fatal(err)
		}
		return ws.Workspace
	}
	t.Run("one for each id, made once", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { acquire() })
		}
		wg.Wait()
		if f.made != 1 {
			t.Errorf("it was made %d times", f.made)
		}
	})
	t.Run("invalidated", func(t *testing.T) {
		h, err := r.acquire(t.Context(), f, "id")
		if err != nil {
			t.Fatal(err)
		}
		r.invalidate(h)
		next := acquire()
		r.invalidate(h) // late, and of no consequence
		if next == h.Workspace || acquire() != next {
			t.Error("it was not made again, or twice")
		}
	})
	t.Run("lost with its instance", func(t *testing.T) {
		before := acquire()
		f.instance = "another"
		if after := acquire(); after == before {
			t.Error("it is in an instance that is gone")
		}
	})
	t.Run("a failure is not kept", func(t *testing.T) {
		f.err = errors.New("no room")
		if _, err := r.acquire(t.Context(), f, "other"); cubby.CodeOf(err) != cubby.CodeUnavailable {
			t.Errorf("got %v", err)
		}
		f.err = nil
		if _, err := r.acquire(t.Context(), f, "other"); err != nil {
			t.Error(err)
		}
	})
}
