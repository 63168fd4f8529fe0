package e2bexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// rootScript makes the folder of the workspaces as root, for everybody, if it is
// not there. It leaves alone what is, and what lies in folders where others than
// root (or whoever is not known in there) could have put a link.
const rootScript = `case $1 in */../*|*/..|*/./*) exit 3;; esac
up=$(dirname -- "$1"); mkdir -p -- "$up" || exit 3
real=$(readlink -f -- "$up") && [ "$real" = "$up" ] || exit 3
while :; do
  case $(stat -c %u -- "$up") in 0|65534) ;; *) exit 3;; esac
  case $(stat -c %A -- "$up") in ?????-??-?) ;; *) exit 3;; esac
  [ "$up" != / ] || break
  up=$(dirname -- "$up")
done
mkdir -m 1777 -- "$1"`

// workspaces is the engine of an executor. It passes calls on to the engine of the sandbox
// that the executor has now; workspaces of a sandbox that was replaced are lost.
type workspaces struct {
	h *holder

	mu   sync.Mutex
	home map[string]*sandbox // by a workspace's path
}

// Manager implements [codeexec.Engine].
func (w *workspaces) Manager() codeexec.WorkspaceManager { return manager{w} }

// FS implements [codeexec.Engine].
func (w *workspaces) FS() codeexec.WorkspaceFS { return files{w} }

// Runner implements [codeexec.Engine].
func (w *workspaces) Runner() codeexec.ProgramRunner { return runner{w} }

// Describe implements [codeexec.Engine].
func (w *workspaces) Describe() codeexec.Capabilities {
	if b := w.h.current(); b != nil {
		return b.engine.Describe()
	}
	c := w.h.cfg.Describe
	c.Streaming, c.SupportsCleanEnv = true, true
	return c
}

// engine returns the engine that has a workspace.
func (w *workspaces) engine(ctx context.Context, op string, ws codeexec.Workspace) (*posixws.Engine, error) {
	w.mu.Lock()
	home := w.home[ws.Path]
	w.mu.Unlock()
	now := w.h.current()
	switch {
	case home != nil && home == now:
		return home.engine, nil
	case home != nil:
		return nil, execerr.Wrap(op, cubby.CodeSandboxGone, codeexec.ErrWorkspaceStale)
	case now != nil:
		return now.engine, nil // made before this executor found the sandbox
	}
	b, release, err := w.h.acquire(ctx)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeUnavailable, w.h.why(ctx, err))
	}
	release()
	return b.engine, nil
}

// prepareRoot makes the folder of the workspaces, once for each sandbox. Where the
// programs' user may not, root does.
func (b *sandbox) prepareRoot(ctx context.Context) error {
	b.mu.Lock()
	done := b.rootReady
	b.mu.Unlock()
	if done {
		return nil
	}
	root := b.h.cfg.Root
	code, err := b.script(ctx, b.h.cfg.User, `mkdir -p -- "$1" 2>/dev/null && [ -w "$1" ]`, root)
	if err == nil && code != 0 {
		if code, err = b.script(ctx, "root", rootScript, root); err == nil && code == 0 {
			code, err = b.script(ctx, b.h.cfg.User, `[ -w "$1" ]`, root)
		}
	}
	if err != nil && isLost(err) {
		return err
	}
	if err != nil || code != 0 {
		failed := &cubby.Error{
			Code: cubby.CodePermissionDenied, Err: fmt.Errorf("cannot make the folder %s in the sandbox", root),
			Hint: "give another folder, or a user that may make it",
		}
		if err != nil {
			failed.Err = fmt.Errorf("%w: %w", failed.Err, err)
		}
		return failed
	}
	b.mu.Lock()
	b.rootReady = true
	b.mu.Unlock()
	return nil
}

// isLost reports whether an error is about the sandbox, the executor or the
// caller, and not about what was asked.
func isLost(err error) bool {
	switch cubby.CodeOf(err) {
	case cubby.CodeSandboxGone, cubby.CodePaused, cubby.CodeUnavailable, cubby.CodeConflict:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// script runs a short script to its end, as user, and returns its exit code.
func (b *sandbox) script(ctx context.Context, user, text string, args ...string) (exitCode int, err error) {
	p, err := machine{b, user}.Start(ctx, posixws.Program{
		Argv: append([]string{"sh", "-c", text, "sh"}, args...), Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil {
		return -1, err
	}
	stop := context.AfterFunc(ctx, func() { p.Kill() })
	defer stop()
	code, err := p.Wait()
	if ctx.Err() != nil {
		return -1, context.Cause(ctx)
	}
	return code, err
}

type manager struct{ w *workspaces }

// CreateWorkspace implements [codeexec.WorkspaceManager].
func (m manager) CreateWorkspace(ctx context.Context, execID string, policy codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	const op = "create workspace"
	h := m.w.h
	policy.Persist = policy.Persist || h.cfg.Persist
	b, release, err := h.acquire(ctx)
	if err != nil {
		return codeexec.Workspace{}, execerr.Wrap(op, cubby.CodeUnavailable, h.why(ctx, err))
	}
	defer release()
	if err := b.prepareRoot(ctx); err != nil {
		return codeexec.Workspace{}, execerr.Wrap(op, cubby.CodeUnavailable, h.why(ctx, err))
	}
	ws, err := b.engine.Manager().CreateWorkspace(ctx, execID, policy)
	if err != nil {
		return codeexec.Workspace{}, err
	}
	m.w.mu.Lock()
	m.w.home[ws.Path] = b
	m.w.mu.Unlock()
	return ws, nil
}

// InstanceID implements the sandbox's id.
func (m manager) InstanceID(ctx context.Context) (string, error) {
	b, release, err := m.w.h.acquire(ctx)
	if err != nil {
		return "", execerr.Wrap("find sandbox", cubby.CodeUnavailable, m.w.h.why(ctx, err))
	}
	release()
	return b.sbx.ID(), nil
}

// Cleanup implements [codeexec.WorkspaceManager].
func (m manager) Cleanup(ctx context.Context, ws codeexec.Workspace) error {
	e, err := m.w.engine(ctx, "clean up workspace", ws)
	if err == nil {
		err = e.Manager().Cleanup(ctx, ws)
	}
	if err == nil || errors.Is(err, codeexec.ErrWorkspaceStale) {
		m.w.forget(func(path string, _ *sandbox) bool { return path == ws.Path })
		return nil
	}
	return err
}

// CleanupID implements [codeexec.WorkspaceManager].
func (m manager) CleanupID(ctx context.Context, execID string) error {
	now := m.w.h.current()
	m.w.forget(func(_ string, home *sandbox) bool { return home != now })
	if now == nil {
		return nil // there is no sandbox that could have any
	}
	return now.engine.Manager().CleanupID(ctx, execID)
}

func (w *workspaces) forget(which func(path string, home *sandbox) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, home := range w.home {
		if which(path, home) {
			delete(w.home, path)
		}
	}
}

type files struct{ w *workspaces }

// PutFiles implements [codeexec.WorkspaceFS].
func (f files) PutFiles(ctx context.Context, ws codeexec.Workspace, put []codeexec.PutFile) error {
	e, err := f.w.engine(ctx, "put files", ws)
	if err != nil {
		return err
	}
	return e.FS().PutFiles(ctx, ws, put)
}

// StageDirectory implements [codeexec.WorkspaceFS].
func (f files) StageDirectory(ctx context.Context, ws codeexec.Workspace, src, to string, opt codeexec.StageOptions) error {
	e, err := f.w.engine(ctx, "stage directory", ws)
	if err != nil {
		return err
	}
	return e.FS().StageDirectory(ctx, ws, src, to, opt)
}

// StageInputs implements [codeexec.WorkspaceFS].
func (f files) StageInputs(ctx context.Context, ws codeexec.Workspace, inputs []codeexec.InputSpec) error {
	e, err := f.w.engine(ctx, "stage inputs", ws)
	if err != nil {
		return err
	}
	return e.FS().StageInputs(ctx, ws, inputs)
}

// Collect implements [codeexec.WorkspaceFS].
func (f files) Collect(ctx context.Context, ws codeexec.Workspace, patterns []string) ([]codeexec.File, error) {
	e, err := f.w.engine(ctx, "collect", ws)
	if err != nil {
		return nil, err
	}
	return e.FS().Collect(ctx, ws, patterns)
}

// CollectOutputs implements [codeexec.WorkspaceFS].
func (f files) CollectOutputs(ctx context.Context, ws codeexec.Workspace, spec codeexec.OutputSpec) (codeexec.OutputManifest, error) {
	e, err := f.w.engine(ctx, "collect outputs", ws)
	if err != nil {
		return codeexec.OutputManifest{}, err
	}
	return e.FS().CollectOutputs(ctx, ws, spec)
}

type runner struct{ w *workspaces }

// RunProgram implements [codeexec.ProgramRunner].
func (r runner) RunProgram(ctx context.Context, ws codeexec.Workspace, spec codeexec.RunProgramSpec) (codeexec.RunResult, error) {
	e, err := r.w.engine(ctx, "run program", ws)
	if err != nil {
		return codeexec.RunResult{ExitCode: -1}, err
	}
	return e.Runner().RunProgram(ctx, ws, spec)
}

// StartProgram implements [codeexec.ProgramRunner].
func (r runner) StartProgram(ctx context.Context, ws codeexec.Workspace,
	spec codeexec.InteractiveProgramSpec) (codeexec.ProgramSession, error) {
	e, err := r.w.engine(ctx, "start program", ws)
	if err != nil {
		return nil, err
	}
	return e.Runner().StartProgram(ctx, ws, spec)
}
