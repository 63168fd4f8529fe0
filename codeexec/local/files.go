package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

type files struct{ e *engine }

// PutFiles implements [codeexec.WorkspaceFS].
func (f files) PutFiles(_ context.Context, ws codeexec.Workspace, put []codeexec.PutFile) error {
	const op = "put files"
	t, err := f.e.open(ws)
	if err != nil {
		return execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer t.root.Close()
	var p workdir.Packer
	defer p.Close()
	for _, file := range put {
		if err := p.AddFile(file.Path, file.Content, file.Mode); err != nil {
			return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
		}
	}
	return execerr.Wrap(op, cubby.CodeInternal, unpack(t.root, &p))
}

// StageDirectory implements [codeexec.WorkspaceFS]. It copies always: a link to
// the source would let programs change it.
func (f files) StageDirectory(_ context.Context, ws codeexec.Workspace, src, to string, opt codeexec.StageOptions) error {
	const op = "stage directory"
	t, err := f.e.open(ws)
	if err != nil {
		return execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer t.root.Close()
	var p workdir.Packer
	defer p.Close()
	if err := p.AddHost(src, to, opt.ReadOnly); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	return execerr.Wrap(op, cubby.CodeInternal, unpack(t.root, &p))
}

// StageInputs implements [codeexec.WorkspaceFS].
func (f files) StageInputs(ctx context.Context, ws codeexec.Workspace, specs []codeexec.InputSpec) error {
	const op = "stage inputs"
	t, err := f.e.open(ws)
	if err != nil {
		return execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer t.root.Close()
	inputs := make([]workdir.Input, len(specs))
	for i, spec := range specs {
		if inputs[i], err = workdir.ParseInput(spec); err != nil {
			return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
		}
	}
	if len(inputs) == 0 {
		return nil
	}
	rec := f.e.known.Record(ws)
	var p workdir.Packer
	defer p.Close()
	var moved []workdir.Input
	now := time.Now()
	for _, in := range inputs {
		var version *int
		switch in.Scheme {
		case workdir.SchemeArtifact:
			version, err = p.AddArtifact(ctx, rec, in)
		case workdir.SchemeHost:
			if err = workdir.CheckHostBase(f.e.cfg.HostInputs, in.Path); err == nil {
				err = p.AddHost(in.Path, in.To, in.ReadOnly)
			}
		default:
			moved = append(moved, in)
		}
		if err != nil {
			return execerr.Wrap(op, cubby.CodeInvalidArgument, fmt.Errorf("input %.200q: %w", in.From, err))
		}
		rec.AddInput(in, version, now)
	}
	if err := unpack(t.root, &p); err != nil {
		return execerr.Wrap(op, cubby.CodeInternal, err)
	}
	// These may come from what was just unpacked.
	for _, in := range moved {
		if err := context.Cause(ctx); err != nil {
			return execerr.Wrap(op, cubby.CodeCanceled, err)
		}
		if err := t.move(in); err != nil {
			return execerr.Wrap(op, cubby.CodeInternal, fmt.Errorf("input %.200q: %w", in.From, err))
		}
	}
	return execerr.Wrap(op, cubby.CodeInternal, f.e.keep(ws, t, rec))
}

// move copies or links what is in the workspace to another place there.
func (t tree) move(in workdir.Input) error {
	from, err := t.resolve(in.Path)
	if err != nil {
		return err
	}
	into, err := t.mkdirAll(path.Dir(in.To))
	if err != nil {
		return err
	}
	to := path.Join(into, path.Base(in.To))
	if from == "." || from == to || strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/") {
		return fmt.Errorf("%w: it would be copied into itself", codeexec.ErrBadPath)
	}
	if err := t.root.RemoveAll(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if in.Link && !in.ReadOnly {
		rel, err := filepath.Rel(path.Dir(to), from)
		if err != nil {
			return err
		}
		return t.root.Symlink(rel, to)
	}
	left := workdir.MaxEntries
	return t.copyTree(from, to, in.ReadOnly, &left)
}

// keep writes a workspace's record down, here and there.
func (e *engine) keep(ws codeexec.Workspace, t tree, rec *workdir.Record) error {
	e.known.SetRecord(ws, rec)
	return t.writeRecord(rec)
}

// Collect implements [codeexec.WorkspaceFS].
func (f files) Collect(ctx context.Context, ws codeexec.Workspace, patterns []string) ([]codeexec.File, error) {
	const op = "collect"
	c, t, err := f.collect(ctx, ws, codeexec.OutputSpec{Globs: patterns, Inline: true})
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer t.root.Close()
	return c.Files(), nil
}

// CollectOutputs implements [codeexec.WorkspaceFS].
func (f files) CollectOutputs(ctx context.Context, ws codeexec.Workspace, spec codeexec.OutputSpec) (codeexec.OutputManifest, error) {
	const op = "collect outputs"
	if _, ok := artifactctx.Service(ctx); spec.Save && !ok {
		return codeexec.OutputManifest{}, execerr.Wrap(op, cubby.CodeInvalidArgument, codeexec.ErrNoArtifacts)
	}
	c, t, err := f.collect(ctx, ws, spec)
	if err != nil {
		return codeexec.OutputManifest{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer t.root.Close()
	m, err := c.Manifest(ctx)
	if err == nil && spec.Save {
		rec := f.e.known.Record(ws)
		rec.AddOutput(spec, m, time.Now())
		err = f.e.keep(ws, t, rec)
	}
	return m, execerr.Wrap(op, cubby.CodeInternal, err)
}

// collect returns the tree to be closed by the caller.
func (f files) collect(ctx context.Context, ws codeexec.Workspace, spec codeexec.OutputSpec) (*workdir.Collector, tree, error) {
	patterns, err := workdir.ParsePatterns(spec.Globs)
	if err != nil {
		return nil, tree{}, err
	}
	c, err := workdir.NewCollector(spec)
	if err != nil {
		return nil, tree{}, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	t, err := f.e.open(ws)
	if err != nil {
		return nil, tree{}, err
	}
	if len(spec.Globs) > 0 {
		var files []found
		if files, err = t.find(ctx, patterns, c.Leave); err == nil {
			err = t.collect(ctx, c, files)
		}
	}
	if err != nil {
		t.root.Close()
		return nil, tree{}, err
	}
	return c, t, nil
}
