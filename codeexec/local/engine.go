package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/registry"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// engine implements [codeexec.Engine] in a folder of this machine.
type engine struct {
	cfg    Config
	limits limits
	n      atomic.Uint64
	known  *registry.Registry
}

func newEngine(cfg Config) (*engine, error) {
	root, err := filepath.Abs(cmp.Or(cfg.WorkspaceRoot, codeexec.DefaultRoot))
	if err != nil {
		return nil, err
	}
	if root == filepath.Dir(root) {
		return nil, fmt.Errorf("the root %q cannot be the folder of workspaces", root)
	}
	cfg.WorkspaceRoot = root
	if err := workdir.CheckEnv(cfg.Env); err != nil {
		return nil, err
	}
	return &engine{cfg: cfg, limits: findLimits(), known: registry.New(cfg.MaxPrograms)}, nil
}

// Manager implements [codeexec.Engine].
func (e *engine) Manager() codeexec.WorkspaceManager { return manager{e} }

// FS implements [codeexec.Engine].
func (e *engine) FS() codeexec.WorkspaceFS { return files{e} }

// Runner implements [codeexec.Engine].
func (e *engine) Runner() codeexec.ProgramRunner { return runner{e} }

// Describe implements [codeexec.Engine].
func (e *engine) Describe() codeexec.Capabilities {
	return codeexec.Capabilities{Isolation: "none", NetworkAllowed: true, Streaming: true, SupportsCleanEnv: true, Limits: e.limits.names()}
}

// name returns the folder's name of a workspace, which must be one of this
// engine's root: it is removed in the end.
func (e *engine) name(ws codeexec.Workspace) (string, error) {
	name := filepath.Base(ws.Path)
	if filepath.Dir(ws.Path) != e.cfg.WorkspaceRoot || filepath.Clean(ws.Path) != ws.Path || !strings.HasPrefix(name, "ws_") ||
		strings.IndexByte(ws.Path, 0) >= 0 {
		return "", fmt.Errorf("%w: %.200q is no workspace below %s", codeexec.ErrBadPath, ws.Path, e.cfg.WorkspaceRoot)
	}
	return name, e.known.CheckOpen()
}

// open opens a workspace. Its folder must be there itself: a program may have
// put a link to another one in its place.
func (e *engine) open(ws codeexec.Workspace) (tree, error) {
	name, err := e.name(ws)
	if err != nil {
		return tree{}, err
	}
	parent, err := os.OpenRoot(e.cfg.WorkspaceRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return tree{}, codeexec.ErrWorkspaceGone
	} else if err != nil {
		return tree{}, err
	}
	defer parent.Close()
	before, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !before.IsDir() {
		return tree{}, codeexec.ErrWorkspaceGone
	} else if err != nil {
		return tree{}, err
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return tree{}, fmt.Errorf("%w: %w", codeexec.ErrWorkspaceGone, err)
	}
	if now, err := root.Stat("."); err != nil || !os.SameFile(before, now) {
		root.Close()
		return tree{}, codeexec.ErrWorkspaceGone
	}
	return tree{root, ws.Path}, nil
}

// openRoot opens the folder of the workspaces, and makes it. In /tmp anybody
// could have made it first, so it must be this user's alone to write to.
func (e *engine) openRoot() (*os.Root, error) {
	if err := os.MkdirAll(e.cfg.WorkspaceRoot, 0o700); err != nil {
		return nil, rootError(err)
	}
	root, err := os.OpenRoot(e.cfg.WorkspaceRoot)
	if err != nil {
		return nil, rootError(err)
	}
	info, err := root.Stat(".")
	if err == nil {
		err = checkOwner(info)
	}
	if err != nil {
		root.Close()
		return nil, rootError(fmt.Errorf("%s: %w", e.cfg.WorkspaceRoot, err))
	}
	return root, nil
}

func rootError(err error) error {
	return &cubby.Error{Code: cubby.CodePermissionDenied, Err: err, Hint: "give a Root that is this user's own"}
}

type manager struct{ e *engine }

// CreateWorkspace implements [codeexec.WorkspaceManager].
func (m manager) CreateWorkspace(ctx context.Context, execID string, policy codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	const op = "create workspace"
	ws, err := m.create(ctx, execID, policy)
	return ws, execerr.Wrap(op, cubby.CodeInternal, err)
}

func (m manager) create(ctx context.Context, execID string, policy codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	e := m.e
	none := codeexec.Workspace{}
	if err := context.Cause(ctx); err != nil {
		return none, err
	}
	if err := workdir.CheckID(execID); err != nil {
		return none, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	if err := e.limits.check(codeexec.ResourceLimits{DiskBytes: policy.MaxDiskBytes}); err != nil {
		return none, err
	}
	if err := e.known.CheckOpen(); err != nil {
		return none, err
	}
	root, err := e.openRoot()
	if err != nil {
		return none, err
	}
	defer root.Close()
	now := time.Now()
	name := workdir.Name(execID, now)
	if policy.Persist {
		name = workdir.PersistentName(execID)
	}
	err = root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) && policy.Persist {
		err = nil
	}
	if err != nil {
		return none, err
	}
	ws := codeexec.Workspace{ID: execID, Path: filepath.Join(e.cfg.WorkspaceRoot, name)}
	t, err := e.open(ws)
	if err != nil {
		return none, err
	}
	defer t.root.Close()
	for _, dir := range workdir.Dirs {
		if err := t.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return none, err
		}
	}
	rec := t.record()
	if rec == nil {
		rec = workdir.NewRecord(execID, now)
		if err := t.writeRecord(rec); err != nil {
			return none, err
		}
	}
	e.known.Add(ws, rec)
	return ws, nil
}

// record reads the tree's record; it is the workspace's own word, and one that
// cannot be read counts as none.
func (t tree) record() *workdir.Record {
	f, err := t.root.OpenFile(workdir.RecordFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, workdir.MaxRecord+1))
	if err != nil {
		return nil
	}
	rec, err := workdir.ParseRecord(b)
	if err != nil {
		return nil
	}
	return rec
}

func (t tree) writeRecord(rec *workdir.Record) error {
	var p workdir.Packer
	defer p.Close()
	if err := p.AddFile(workdir.RecordFile, rec.JSON(), 0o600); err != nil {
		return err
	}
	return unpack(t.root, &p)
}

// Cleanup implements [codeexec.WorkspaceManager].
func (m manager) Cleanup(ctx context.Context, ws codeexec.Workspace) error {
	const op = "clean up workspace"
	if _, err := m.e.name(ws); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	return execerr.Wrap(op, cubby.CodeInternal, m.e.cleanup(ctx, ws))
}

// CleanupID implements [codeexec.WorkspaceManager]. It knows the workspaces that
// this executor made, and the one that is kept for the id.
func (m manager) CleanupID(ctx context.Context, execID string) error {
	const op = "clean up workspaces"
	e := m.e
	if err := workdir.CheckID(execID); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	if err := e.known.CheckOpen(); err != nil {
		return execerr.Wrap(op, cubby.CodeConflict, err)
	}
	var errs []error
	for _, ws := range e.known.Workspaces(execID, filepath.Join(e.cfg.WorkspaceRoot, workdir.PersistentName(execID))) {
		errs = append(errs, e.cleanup(ctx, ws))
	}
	return execerr.Wrap(op, cubby.CodeInternal, errors.Join(errs...))
}

func (e *engine) cleanup(ctx context.Context, ws codeexec.Workspace) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := e.known.EndPrograms(ws); err != nil {
		return err
	}
	if err := removeTree(e.cfg.WorkspaceRoot, filepath.Base(ws.Path)); err != nil {
		return err
	}
	e.known.Remove(ws)
	return nil
}
