// Package registry is what an engine of workspaces knows while it is open: the
// workspaces that it made, their records, and the programs that run in them.
package registry

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// ErrClosed is what an executor answers after Close. It is a *cubby.Error; who
// names the operation changes a copy.
var ErrClosed = &cubby.Error{Code: cubby.CodeConflict, Err: errors.New("the executor is closed")}

// Registry knows the workspaces and programs of one engine. Workspaces are told
// apart by their paths. It is safe for concurrent use.
type Registry struct {
	maxPrograms int

	mu       sync.Mutex
	closed   bool
	made     map[string][]codeexec.Workspace // by execution id
	records  map[string]*workdir.Record      // by path
	sessions map[string]map[*session.Session]bool
	running  int
}

// New returns a registry that admits that many programs at a time.
func New(maxPrograms int) *Registry {
	return &Registry{
		maxPrograms: maxPrograms, made: map[string][]codeexec.Workspace{}, records: map[string]*workdir.Record{},
		sessions: map[string]map[*session.Session]bool{},
	}
}

// CheckOpen returns [ErrClosed] after Close.
func (r *Registry) CheckOpen() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return nil
}

// Close ends all programs that are followed, and each that is followed later. It
// returns when they have ended, or when that takes too long.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	var all []*session.Session
	for _, of := range r.sessions {
		all = slices.AppendSeq(all, maps.Keys(of))
	}
	r.mu.Unlock()
	return closeAll(all)
}

// EndPrograms ends the programs that are followed in some workspaces, as Close
// does.
func (r *Registry) EndPrograms(in ...codeexec.Workspace) error {
	var all []*session.Session
	r.mu.Lock()
	for _, ws := range in {
		all = slices.AppendSeq(all, maps.Keys(r.sessions[ws.Path]))
	}
	r.mu.Unlock()
	return closeAll(all)
}

func closeAll(sessions []*session.Session) error {
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Add notes a workspace that was made, or found again, with its record, which is
// the registry's from now on.
func (r *Registry) Add(ws codeexec.Workspace, rec *workdir.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[ws.Path] = rec
	if !slices.Contains(r.made[ws.ID], ws) {
		r.made[ws.ID] = append(r.made[ws.ID], ws)
	}
}

// Remove forgets workspaces and their records.
func (r *Registry) Remove(all ...codeexec.Workspace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ws := range all {
		delete(r.records, ws.Path)
		r.made[ws.ID] = slices.DeleteFunc(r.made[ws.ID], func(w codeexec.Workspace) bool { return w.Path == ws.Path })
		if len(r.made[ws.ID]) == 0 {
			delete(r.made, ws.ID)
		}
	}
}

// Workspaces returns those of an execution id that were added, in that order, and
// the one that is kept for the id at a path, which an earlier process may have
// made.
func (r *Registry) Workspaces(execID, kept string) []codeexec.Workspace {
	r.mu.Lock()
	all := slices.Clone(r.made[execID])
	r.mu.Unlock()
	if ws := (codeexec.Workspace{ID: execID, Path: kept}); !slices.Contains(all, ws) {
		all = append(all, ws)
	}
	return all
}

// Record returns a copy of what is known of a workspace: a new record if that is
// nothing.
func (r *Registry) Record(ws codeexec.Workspace) *workdir.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec, ok := r.records[ws.Path]; ok {
		return rec.Clone()
	}
	return workdir.NewRecord(ws.ID, time.Now())
}

// SetRecord replaces a workspace's record; it is the registry's from now on.
func (r *Registry) SetRecord(ws codeexec.Workspace, rec *workdir.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[ws.Path] = rec
}

// Admit takes one of the slots for programs, or returns a *cubby.Error with the
// code rate_limited. Release gives it back, or [Registry.Follow] does when the
// program has ended.
func (r *Registry) Admit() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running >= r.maxPrograms {
		return &cubby.Error{Code: cubby.CodeRateLimited, Err: fmt.Errorf("%d programs run already", r.running), Hint: "wait for one, or close one"}
	}
	r.running++
	return nil
}

// Release gives back the slot of a program that is not followed.
func (r *Registry) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

// Follow makes a session of a program that was admitted and started in a
// workspace, until it has ended. A timeout of 0 is none. After Close it ends the
// program and returns [ErrClosed].
func (r *Registry) Follow(ws codeexec.Workspace, p session.Process, out *session.Output, timeout time.Duration) (*session.Session, error) {
	started := make(chan *session.Session, 1)
	s := session.Start("ps_"+rand.Text()[:16], p, out, timeout, func() { r.leave(ws, <-started) })
	r.mu.Lock()
	if r.sessions[ws.Path] == nil {
		r.sessions[ws.Path] = map[*session.Session]bool{}
	}
	r.sessions[ws.Path][s] = true
	closed := r.closed
	r.mu.Unlock()
	started <- s
	if closed {
		return nil, errors.Join(ErrClosed, s.Close())
	}
	return s, nil
}

func (r *Registry) leave(ws codeexec.Workspace, s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	delete(r.sessions[ws.Path], s)
	if len(r.sessions[ws.Path]) == 0 {
		delete(r.sessions, ws.Path)
	}
}
