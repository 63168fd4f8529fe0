package e2bexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Engine returns the workspaces of all sessions: an execution id's are in its
// session's sandbox. When that ends (Release, idleness, want of room) they are
// lost, as [codeexec.ErrWorkspaceStale] or [codeexec.ErrWorkspaceGone] says.
// The configuration is that of the pool's executors.
func (p *Pool[E]) Engine(cfg Config) codeexec.Engine {
	describe := cfg.Describe
	describe.Streaming, describe.SupportsCleanEnv = true, true
	return Route(p.engineOf, cmp.Or(cfg.Root, codeexec.DefaultRoot), describe)
}

// Route returns an engine that passes everything on to the engine of the execution
// id that it is about, which of returns. create is set where the id may be a new
// one; else of fails with [codeexec.ErrWorkspaceStale] for an id that has none.
// done is called when the engine is not used any more. root is the absolute folder
// of all workspaces.
func Route(of func(ctx context.Context, id string, create bool) (e codeexec.Engine, done func(), err error),
	root string, c codeexec.Capabilities) codeexec.Engine {
	e := poolEngine{of, path.Clean(root)}
	return codeexec.NewEngine(poolManager{e}, poolFiles{e}, poolRunner{e}, c)
}

// engineOf returns a session's engine, and makes the session's sandbox if it is
// to. done is called when it is not used any more.
func (p *Pool[E]) engineOf(ctx context.Context, session string, create bool) (e codeexec.Engine, done func(), err error) {
	if !create {
		p.mu.Lock()
		x := p.entries[session]
		there := x != nil && !x.ending
		p.mu.Unlock()
		if !there {
			return nil, nil, fmt.Errorf("%w: its session has none", codeexec.ErrWorkspaceStale)
		}
	}
	x, done, err := p.use(ctx, session)
	if err != nil {
		return nil, nil, err
	}
	if e, err = codeexec.EngineOf(x.e); err != nil {
		done()
		return nil, nil, err
	}
	return e, done, nil
}

type poolEngine struct {
	of   func(ctx context.Context, session string, create bool) (codeexec.Engine, func(), error)
	root string
}

// do calls f with the engine of a workspace that was made.
func (e poolEngine) do(ctx context.Context, op string, ws codeexec.Workspace, f func(codeexec.Engine) error) error {
	// What is none is refused, whether its session has a sandbox or not.
	if path.Dir(ws.Path) != e.root || path.Clean(ws.Path) != ws.Path || !strings.HasPrefix(path.Base(ws.Path), "ws_") {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, fmt.Errorf("%w: %.200q is no workspace below %s", codeexec.ErrBadPath, ws.Path, e.root))
	}
	own, done, err := e.of(ctx, ws.ID, false)
	if err != nil {
		return execerr.Wrap(op, cubby.CodeUnavailable, err)
	}
	defer done()
	return f(own)
}

type poolManager struct{ poolEngine }

// CreateWorkspace implements [codeexec.WorkspaceManager].
func (m poolManager) CreateWorkspace(ctx context.Context, execID string, policy codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	own, done, err := m.of(ctx, execID, true)
	if err != nil {
		return codeexec.Workspace{}, execerr.Wrap("create workspace", cubby.CodeUnavailable, err)
	}
	defer done()
	return own.Manager().CreateWorkspace(ctx, execID, policy)
}

// Cleanup implements [codeexec.WorkspaceManager].
func (m poolManager) Cleanup(ctx context.Context, ws codeexec.Workspace) error {
	return unlessLost(m.do(ctx, "clean up workspace", ws, func(own codeexec.Engine) error {
		return own.Manager().Cleanup(ctx, ws)
	}))
}

// CleanupID implements [codeexec.WorkspaceManager].
func (m poolManager) CleanupID(ctx context.Context, execID string) error {
	own, done, err := m.of(ctx, execID, false)
	if err != nil {
		return unlessLost(execerr.Wrap("clean up workspaces", cubby.CodeUnavailable, err))
	}
	defer done()
	return own.Manager().CleanupID(ctx, execID)
}

// unlessLost drops the error that says that there is nothing to clean up.
func unlessLost(err error) error {
	if errors.Is(err, codeexec.ErrWorkspaceStale) {
		return nil
	}
	return err
}

type poolFiles struct{ poolEngine }

// PutFiles implements [codeexec.WorkspaceFS].
func (f poolFiles) PutFiles(ctx context.Context, ws codeexec.Workspace, put []codeexec.PutFile) error {
	return f.do(ctx, "put files", ws, func(own codeexec.Engine) error { return own.FS().PutFiles(ctx, ws, put) })
}

// StageDirectory implements [codeexec.WorkspaceFS].
func (f poolFiles) StageDirectory(ctx context.Context, ws codeexec.Workspace, src, to string, opt codeexec.StageOptions) error {
	return f.do(ctx, "stage directory", ws, func(own codeexec.Engine) error { return own.FS().StageDirectory(ctx, ws, src, to, opt) })
}

// StageInputs implements [codeexec.WorkspaceFS].
func (f poolFiles) StageInputs(ctx context.Context, ws codeexec.Workspace, inputs []codeexec.InputSpec) error {
	return f.do(ctx, "stage inputs", ws, func(own codeexec.Engine) error { return own.FS().StageInputs(ctx, ws, inputs) })
}

// Collect implements [codeexec.WorkspaceFS].
func (f poolFiles) Collect(ctx context.Context, ws codeexec.Workspace, patterns []string) (files []codeexec.File, err error) {
	err = f.do(ctx, "collect", ws, func(own codeexec.Engine) (err error) {
		files, err = own.FS().Collect(ctx, ws, patterns)
		return err
	})
	return files, err
}

// CollectOutputs implements [codeexec.WorkspaceFS].
func (f poolFiles) CollectOutputs(ctx context.Context, ws codeexec.Workspace,
	spec codeexec.OutputSpec) (m codeexec.OutputManifest, err error) {
	err = f.do(ctx, "collect outputs", ws, func(own codeexec.Engine) (err error) {
		m, err = own.FS().CollectOutputs(ctx, ws, spec)
		return err
	})
	return m, err
}

type poolRunner struct{ poolEngine }

// RunProgram implements [codeexec.ProgramRunner].
func (r poolRunner) RunProgram(ctx context.Context, ws codeexec.Workspace, spec codeexec.RunProgramSpec) (codeexec.RunResult, error) {
	res := codeexec.RunResult{ExitCode: -1}
	err := r.do(ctx, "run program", ws, func(own codeexec.Engine) (err error) {
		res, err = own.Runner().RunProgram(ctx, ws, spec)
		return err
	})
	return res, err
}

// StartProgram implements [codeexec.ProgramRunner]. A program that runs keeps its
// session's sandbox in use.
func (r poolRunner) StartProgram(ctx context.Context, ws codeexec.Workspace,
	spec codeexec.InteractiveProgramSpec) (s codeexec.ProgramSession, err error) {
	err = r.do(ctx, "start program", ws, func(own codeexec.Engine) (err error) {
		s, err = own.Runner().StartProgram(ctx, ws, spec)
		return err
	})
	return s, err
}
