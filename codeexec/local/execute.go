package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
	"github.com/cubby-sandbox/cubby/codeexec/internal/registry"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// maxCode bounds the code of one call, in bytes.
const maxCode = 64 << 20

// maxShown bounds the files that one call shows, in bytes.
const maxShown = 64 << 20

// ExecuteCode implements [codeexec.CodeExecutor]. See [UnsafeExecutor.ExecuteCode].
func (e *core) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	const op = "execute code"
	b := backend.ResultBuilder{MaxOutput: e.cfg.MaxOutput, OnOutput: in.OnOutput}
	leave, err := e.enter(ctx)
	if err != nil {
		return b.Result(), execerr.Wrap(op, cubby.CodeInternal, err)
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(e.base, func() { cancel(context.Cause(e.base)) })
	defer stop()

	res, err := e.execute(ctx, in, &b)
	return res, execerr.Wrap(op, cubby.CodeInternal, err)
}

// enter waits for the turn of a call, and makes Close wait for its end.
func (e *core) enter(ctx context.Context) (leave func(), err error) {
	e.mu.Lock()
	if e.base.Err() != nil {
		e.mu.Unlock()
		return nil, registry.ErrClosed
	}
	e.calls.Add(1)
	e.mu.Unlock()
	if e.turn == nil {
		return e.calls.Done, nil
	}
	select {
	case e.turn <- struct{}{}:
		return func() {
			<-e.turn
			e.calls.Done()
		}, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-e.base.Done():
		err = registry.ErrClosed
	}
	e.calls.Done()
	return nil, err
}

func (e *core) execute(ctx context.Context, in codeexec.CodeExecutionInput,
	b *backend.ResultBuilder) (res codeexec.CodeExecutionResult, err error) {
	blocks := in.Blocks()
	size := 0
	for _, block := range blocks {
		size += len(block.Code)
	}
	if size > maxCode {
		return b.Result(), &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%d bytes of code: at most %d", size, maxCode), Hint: "put data into input files"}
	}
	var inputs workdir.Packer
	defer inputs.Close()
	for _, f := range in.InputFiles {
		if err := inputs.AddFile(f.Name, f.Content, 0); err != nil {
			return b.Result(), err
		}
	}
	changes, err := workdir.NewChanges(in.Collect)
	if err != nil || len(blocks) == 0 && e.cfg.WorkDir == "" {
		return b.Result(), err
	}
	p, err := e.openPlace()
	if err != nil {
		return b.Result(), err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if e.cfg.WorkDir != "" {
		instance, lost, err := e.instance(p, in.ExecutionID)
		if err != nil {
			return b.Result(), err
		}
		defer func() { res.Instance, res.FilesLost, res.StateLost = instance, lost, lost }()
	}
	if err := unpack(p.root, &inputs); err != nil {
		return b.Result(), err
	}
	if err := p.begin(ctx, changes); err != nil {
		return b.Result(), err
	}
	for i, block := range blocks {
		if err := e.block(ctx, p, i, block, b); err != nil {
			return b.Result(), err
		}
	}
	files, left, all, err := p.shown(ctx)
	b.AddFiles(files, left, all)
	if err == nil {
		files, left, all, err = p.collected(ctx, changes)
		b.AddFiles(files, left, all)
	}
	return b.Result(), err
}

// instance tells which folder WorkDir is now: somebody may have removed or replaced
// it.
func (e *core) instance(p *place, id string) (i codeexec.Instance, lost bool, err error) {
	now, err := p.root.Stat(".")
	if err != nil {
		return i, false, err
	}
	if e.workDir != nil && (p.made || !os.SameFile(e.workDir, now)) {
		e.files.Lose()
	}
	e.workDir, i.ID = now, e.cfg.WorkDir
	i.Files, lost = e.files.See(id)
	return i, lost, nil
}

// block runs one block.
func (e *core) block(ctx context.Context, p *place, idx int, block codeexec.CodeBlock, b *backend.ResultBuilder) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	k := b.Begin(block.Language)
	interpreter, ok := e.interpreters[codeexec.NormalizeLanguage(block.Language)]
	if !ok || codeexec.IsDataLanguage(block.Language) {
		k.EndUnsupported(e.languages)
		return nil
	}
	spec, err := backend.BuildBlockSpec(idx, block)
	if err != nil {
		return err
	}
	file, err := p.writeCode(spec, block.Code)
	if err != nil {
		return err
	}
	p.code = append(p.code, file)
	if !e.cfg.KeepFiles {
		defer p.root.Remove(file)
	}
	env := e.engine.hostEnv(p.dir)
	env["TMPDIR"], env[codeexec.EnvOutputDir], env[codeexec.EnvRunDir] = p.tmp, filepath.Join(p.dir, codeexec.DirOut), p.scratch
	list := environ(env, e.cfg.Env)
	exe, args := interpreter.command(ctx, list)
	argv := append(append([]string{exe}, args...), file)
	argv, err = e.engine.limits.wrap(argv, e.cfg.Limits, e.cfg.MaxOpenFiles)
	if err != nil {
		return err
	}
	if err := e.engine.known.Admit(); err != nil {
		return err
	}
	defer e.engine.known.Release()
	proc, err := start(program{
		path: argv[0], argv: argv, env: list, dir: p.dir, stdout: k.Stdout(), stderr: k.Stderr(),
		mark: codeexec.EnvRunDir + "=" + p.scratch,
	})
	if err != nil {
		k.EndProgram(exitNotStarted, false, false)
		return fmt.Errorf("start %s: %w", exe, err)
	}
	code, timedOut, err := await(ctx, proc, e.cfg.Timeout)
	k.EndProgram(code, timedOut, false)
	return err
}

const exitNotStarted = 126

// await waits for a block's end, and ends it when its time is over or ctx is.
// The code of a signal is a shell's.
func await(ctx context.Context, p *process, timeout time.Duration) (code int, timedOut bool, err error) {
	done := make(chan struct{})
	var signal int
	go func() {
		defer close(done)
		code, signal, err = p.wait()
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var gaveUp error
	select {
	case <-done:
	case <-timer.C:
		timedOut = true
	case <-ctx.Done():
		gaveUp = context.Cause(ctx)
	}
	if timedOut || gaveUp != nil {
		p.kill()
		<-done
	}
	if signal > 0 {
		code = 128 + signal
	}
	if gaveUp != nil {
		err = gaveUp
	}
	return code, timedOut, err
}

// place is the folder of one call.
type place struct {
	dir     string // where the code runs
	root    *os.Root
	scratch string // of this call alone: tmp, and the folder if it is temporary
	tmp     string
	before  map[string]fileState // of out, where it was there before
	code    []string             // files of the blocks
	keep    bool
	made    bool // the folder was not there
}

type fileState struct {
	size int64
	mod  time.Time
}

func (e *core) openPlace() (*place, error) {
	scratch, err := os.MkdirTemp("", "cubby-local-")
	if err != nil {
		return nil, err
	}
	p := &place{dir: e.cfg.WorkDir, scratch: scratch, tmp: filepath.Join(scratch, "tmp"), keep: e.cfg.KeepFiles}
	err = os.Mkdir(p.tmp, 0o700)
	if p.dir == "" && err == nil {
		p.dir = filepath.Join(scratch, "work")
		err = os.Mkdir(p.dir, 0o700)
	} else if _, missing := os.Lstat(p.dir); errors.Is(missing, fs.ErrNotExist) && err == nil {
		p.made = true
		err = os.MkdirAll(p.dir, 0o755)
	}
	if err == nil {
		p.root, err = os.OpenRoot(p.dir)
	}
	if err == nil {
		if err = p.root.Mkdir(codeexec.DirOut, 0o755); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		p.before, err = p.listOut()
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close removes what is temporary.
func (p *place) close() error {
	if p.root != nil {
		if !p.keep {
			p.root.Remove(codeexec.DirOut) // if it is empty
		}
		p.root.Close()
	}
	if p.keep {
		// What is empty is not worth keeping.
		os.Remove(p.tmp)
		os.Remove(p.scratch)
		return nil
	}
	return removeTree(filepath.Dir(p.scratch), filepath.Base(p.scratch))
}

// writeCode writes a block's file next to the files that it works on, so that
// imports find their neighbours, and never over one of them.
func (p *place) writeCode(spec backend.BlockSpec, code string) (name string, err error) {
	name = spec.File
	f, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(spec.Mode))
	if errors.Is(err, fs.ErrExist) {
		ext := filepath.Ext(name)
		name = name[:len(name)-len(ext)] + "_" + rand.Text() + ext
		f, err = p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(spec.Mode))
	}
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(f, code)
	return name, errors.Join(err, f.Close())
}

func (p *place) listOut() (map[string]fileState, error) {
	states := map[string]fileState{}
	t := tree{root: p.root, path: p.dir}
	patterns, err := workdir.ParsePatterns([]string{codeexec.DirOut + "/**"})
	if err != nil {
		return nil, err
	}
	found, err := t.find(context.Background(), patterns, func(string, string) {})
	for _, f := range found {
		states[f.real] = fileState{f.info.Size(), f.info.ModTime()}
	}
	return states, err
}

// shown returns the files in out that are new or changed.
func (p *place) shown(ctx context.Context) (files []codeexec.File, left []codeexec.LeftFile, all bool, err error) {
	c, err := workdir.NewCollector(codeexec.OutputSpec{Inline: true, MaxFileBytes: maxShown, MaxTotalBytes: maxShown})
	if err != nil {
		return nil, nil, false, err
	}
	all = true
	t := tree{root: p.root, path: p.dir}
	patterns, err := workdir.ParsePatterns([]string{codeexec.DirOut + "/**"})
	if err != nil {
		return nil, nil, false, err
	}
	found, err := t.find(ctx, patterns, func(name, reason string) {
		all = false
		c.Leave(name, reason)
	})
	if err != nil {
		return nil, nil, false, err
	}
	changed := found[:0]
	for _, f := range found {
		if was, ok := p.before[f.real]; !ok || was.size != f.info.Size() || !was.mod.Equal(f.info.ModTime()) {
			changed = append(changed, f)
		}
	}
	if err := t.collect(ctx, c, changed); err != nil {
		return nil, nil, false, err
	}
	m, err := c.Manifest(ctx)
	files = c.Files()
	for i := range files {
		files[i].Name = files[i].Name[len(codeexec.DirOut)+1:]
	}
	for i := range m.Left {
		m.Left[i].Name = strings.TrimPrefix(m.Left[i].Name, codeexec.DirOut+"/")
	}
	return files, m.Left, all && !m.LimitsHit, err
}

// unpack writes what was packed below root.
func unpack(root *os.Root, p *workdir.Packer) error {
	r := p.Reader()
	left, err := workdir.Unpack(r, root, workdir.Limits{Files: math.MaxInt, FileBytes: math.MaxInt64, TotalBytes: math.MaxInt64})
	// The reader's own error is what happened to a file of the host.
	if closing := r.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s was not written: %s", left[0].Name, left[0].Reason)
	}
	return nil
}
