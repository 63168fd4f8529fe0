package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
)

// ExecuteCode implements [codeexec.CodeExecutor]. Blocks run one after another in
// the folder work of the execution id's workspace (the one that is kept, see
// [codeexec.WorkspacePolicy]), each a process of its own.
func (e *Executor) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return codeexec.RelayOutput(ctx, in, e.execute)
}

func (e *Executor) execute(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	const op = "execute code"
	x := &execute{e: e, in: in, blocks: in.Blocks(), result: codeexec.ResultBuilder{MaxOutput: int(e.cfg.MaxOutput), OnOutput: in.OnOutput}}
	ctx, done, err := e.begin(ctx, op)
	if err != nil {
		return x.result.Result(), err
	}
	defer done()
	if err := workdir.CheckID(in.ExecutionID); err != nil {
		return x.result.Result(), codeexec.Fail(op, cubby.CodeInvalidArgument, err)
	}
	err = x.all(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // it outweighs what followed from it
	}
	result := x.result.Result()
	result.StateLost, result.FilesLost, result.Instance = x.lost, x.lost, x.instance
	if x.limit != "" && (result.Limit == "" || result.Limit == "output") {
		result.Limit = x.limit
	}
	return result, codeexec.Fail(op, cubby.CodeInternal, err)
}

// execute is one ExecuteCode.
type execute struct {
	e      *Executor
	in     codeexec.CodeExecutionInput
	blocks []codeexec.CodeBlock
	result codeexec.ResultBuilder
	limit  string // that was hit, if it is none that result knows
	lost   bool   // the files of before
	box    *box
	root   string // of the workspace
	dir    string // where the code runs
	// instance is the zero value if each call has its own container.
	instance codeexec.Instance
	// direct says that code is given as an argument: the disk is full.
	direct bool
}

func (x *execute) all(ctx context.Context) (err error) {
	changes, err := workdir.NewChanges(x.in.Collect)
	if err != nil {
		return err
	}
	nothing := len(x.in.InputFiles) == 0 && !slices.ContainsFunc(x.blocks, x.runs)
	if nothing && x.e.cfg.Fresh {
		return x.each(ctx)
	}
	var p workdir.Packer
	defer p.Close()
	if err := x.pack(&p); err != nil {
		return codeexec.Fail("put input files", cubby.CodeInvalidArgument, err)
	}
	if x.e.cfg.Fresh {
		if x.box, err = x.e.d.newBox(ctx, x.e.cfg, x.e.image); err != nil {
			return err
		}
		defer func() {
			if rerr := x.box.remove(); err == nil {
				err = rerr
			}
		}()
	} else {
		select {
		case x.e.turn <- struct{}{}:
			defer func() { <-x.e.turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if x.box, err = x.e.resident(ctx); err != nil {
			return err
		}
		x.instance.ID = x.box.id
		x.instance.Files, x.lost = x.e.files.See(x.in.ExecutionID)
	}
	if nothing {
		return x.each(ctx)
	}
	x.root = path.Join(x.e.cfg.WorkspaceRoot, workdir.PersistentName(x.in.ExecutionID))
	x.dir = path.Join(x.root, codeexec.DirWork)
	if err := x.place(ctx, &p); err != nil {
		return err
	}
	err = x.collecting(ctx, changes)
	if x.e.cfg.Fresh || x.box.link.cause() != nil {
		return err
	}
	// Also after a caller who gave up.
	tctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if terr := x.tidy(tctx); err == nil {
		err = terr
	}
	return err
}

// collecting runs the blocks, and collects the files that they leave.
func (x *execute) collecting(ctx context.Context, changes *workdir.Changes) error {
	if changes == nil {
		return x.each(ctx)
	}
	folder := posixws.NewFolder(boxMachine{x.box}, x.dir)
	files, all, err := folder.List(ctx, changes.Depth())
	if err != nil {
		return err
	}
	changes.Begin(files, all)
	if err := x.each(ctx); err != nil {
		return err
	}
	if files, all, err = folder.List(ctx, changes.Depth()); err != nil {
		return err
	}
	changed, safe := changes.Since(files)
	c, err := workdir.NewCollector(codeexec.OutputSpec{Inline: true})
	if err != nil {
		return err
	}
	err = folder.Fetch(ctx, c, changed)
	x.result.AddFiles(c.Files(), all && safe && c.All())
	return err
}

func (x *execute) each(ctx context.Context) error {
	for i, b := range x.blocks {
		switch {
		case strings.TrimSpace(b.Code) == "" && !codeexec.IsDataLanguage(b.Language):
			x.result.Begin(b.Language).EndProgram(0, false, false)
		case !x.runs(b):
			x.result.Begin(b.Language).EndUnsupported(x.e.languages)
		default:
			if err := x.block(ctx, i, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// runs reports whether a block is to be run: it has code, in a language that is
// there.
func (x *execute) runs(b codeexec.CodeBlock) bool {
	return strings.TrimSpace(b.Code) != "" && codeexec.Supports(x.e.languages, b.Language)
}

// blockName is the file of a block. It lies beside the code's own files, so that
// the code imports from there, and is removed afterwards.
func blockName(i int, language string) string {
	extension := map[string]string{codeexec.Python: ".py", codeexec.Bash: ".sh", codeexec.JavaScript: ".js"}[codeexec.NormalizeLanguage(language)]
	return fmt.Sprintf(".block_%d%s", i+1, extension)
}

// pack adds input files and blocks.
func (x *execute) pack(p *workdir.Packer) error {
	for _, f := range x.in.InputFiles {
		if err := p.AddFile(f.Name, f.Content, 0); err != nil {
			return err
		}
	}
	for i, b := range x.blocks {
		if x.runs(b) {
			if err := p.AddFile(blockName(i, b.Language), []byte(b.Code), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxDirect is how much code fits into an argument.
const maxDirect = 100 << 10

// place puts what was packed into the folder, which it makes.
func (x *execute) place(ctx context.Context, p *workdir.Packer) error {
	archive := p.Reader()
	defer archive.Close()
	err := x.box.unpack(ctx, []string{
		"sh", "-c", `umask 022; mkdir -p -- "$@" && exec tar -xpof - -C "$1"`, "sh",
		x.dir, path.Join(x.root, codeexec.DirOut), path.Join(x.root, codeexec.DirSkills), path.Join(x.root, codeexec.DirRuns),
	}, archive)
	if cubby.CodeOf(err) == cubby.CodeNoSpace && len(x.in.InputFiles) == 0 &&
		!slices.ContainsFunc(x.blocks, func(b codeexec.CodeBlock) bool { return len(b.Code) > maxDirect }) {
		x.direct = true // the model can still make room
		return nil
	}
	return err
}

// tidy removes the blocks' files.
func (x *execute) tidy(ctx context.Context) error {
	argv := []string{"rm", "-f", "--"}
	for i, b := range x.blocks {
		if x.runs(b) {
			argv = append(argv, path.Join(x.dir, blockName(i, b.Language)))
		}
	}
	p, err := x.box.run(ctx, spec{Argv: argv, Cwd: "/", Timeout: endTime.Seconds(), output: func(bool, []byte) {}})
	if err == nil {
		_, err = p.wait(ctx)
	}
	return x.box.failure("remove the code's files", err)
}

// argv is how a block is run, and where.
func (x *execute) argv(i int, b codeexec.CodeBlock) (argv []string, cwd string) {
	program, option := []string{"python3", "-u"}, "-c"
	switch codeexec.NormalizeLanguage(b.Language) {
	case codeexec.JavaScript:
		program, option = []string{"node"}, "-e"
	case codeexec.Bash:
		program = []string{"bash"}
		if x.box.tools["bash"] == "" {
			program = []string{"sh"}
		}
	}
	if x.direct {
		return append(program, option, b.Code), "/tmp" // the folder may not be there either
	}
	return append(program, path.Join(x.dir, blockName(i, b.Language))), x.dir
}

// block runs one block. An error means that it is not known how it ended.
func (x *execute) block(ctx context.Context, i int, b codeexec.CodeBlock) error {
	argv, cwd := x.argv(i, b)
	k := x.result.Begin(b.Language)
	stdout, stderr, full := k.Stdout(), k.Stderr(), &tail{}
	// The agent ends it in time. This is for one that does not.
	wctx, cancel := context.WithTimeout(ctx, x.e.cfg.Timeout+endTime)
	defer cancel()
	p, err := x.box.run(wctx, spec{
		Argv: argv, Cwd: cwd, Env: workdir.Env(x.root, codeexec.DirWork, nil), Timeout: x.e.cfg.Timeout.Seconds(), MaxOutput: x.e.cfg.MaxOutput,
		output: func(isErr bool, p []byte) {
			if isErr {
				_, _ = stderr.Write(p)
				_, _ = full.Write(p)
			} else {
				_, _ = stdout.Write(p)
			}
		},
	})
	var ended exit
	if err == nil {
		p.closeInput()
		ended, err = p.wait(wctx)
	}
	if ctx.Err() == nil && wctx.Err() != nil {
		ended.TimedOut = true
	}
	if why, ok := errors.AsType[*notStarted](err); ok && (why.Errno == "EAGAIN" || why.Errno == "ENOMEM") {
		// What workspaces' programs have used up.
		_, _ = io.WriteString(stderr, "the container has no process or memory left to run this\n")
		ended.Code, ended.PIDs, ended.OOM, err = 126, why.Errno == "EAGAIN", why.Errno == "ENOMEM", nil
	}
	code := ended.Code
	if code < 0 {
		code = 128 - code // as a shell tells a signal
	}
	if err != nil && code == 0 {
		code = 1
	}
	k.EndProgram(code, ended.TimedOut, ended.Dropped > 0)
	if code != 0 && !ended.TimedOut && x.limit == "" {
		x.limit = limitOf(ended, full.String())
	}
	if err == nil && ctx.Err() != nil {
		return context.Cause(ctx) // it was ended for that
	}
	return x.box.failure("execute code", err)
}

// limitOf names the bound at which a program failed.
func limitOf(ended exit, stderr string) string {
	switch {
	case ended.OOM:
		return "memory"
	case ended.PIDs:
		return "processes"
	case strings.Contains(stderr, "No space left on device") || strings.Contains(stderr, "ENOSPC"):
		return "disk"
	}
	return ""
}

// failure explains an error of a program in the box.
func (b *box) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	var why *notStarted
	switch {
	case errors.As(err, &why):
		code := cubby.CodeInternal
		if why.Errno == "EAGAIN" || why.Errno == "ENOMEM" {
			code = cubby.CodeRateLimited
		} else if why.Errno == "ENOENT" {
			code = cubby.CodeUnimplemented // the image does not have it
		}
		return &cubby.Error{Op: op, Code: code, Err: err}
	case b.link.cause() != nil:
		return b.gone(op, b.link, b.link.cause())
	}
	return codeexec.Fail(op, cubby.CodeInternal, err)
}

// unpack runs a program that extracts an archive from its input.
func (b *box) unpack(ctx context.Context, argv []string, archive io.Reader) error {
	const op = "put files"
	var said tail
	p, err := b.run(ctx, spec{Argv: argv, Cwd: "/", Input: true, output: func(_ bool, p []byte) { _, _ = said.Write(p) }})
	if err != nil {
		return b.failure(op, err)
	}
	source := &source{r: archive}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		feed(p, source)
	}()
	ended, err := p.wait(ctx)
	if err == nil {
		// What went wrong here is why the other side did not like the archive.
		select {
		case <-fed:
			err = source.err
		default:
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return codeexec.Fail(op, cubby.CodeCanceled, context.Cause(ctx))
		}
		return b.failure(op, err)
	}
	if ended.Code == 0 {
		return nil
	}
	text := strings.TrimSpace(said.String())
	code := cubby.CodeInternal
	switch {
	case strings.Contains(text, "No space left on device"):
		code = cubby.CodeNoSpace
	case strings.Contains(text, "Permission denied"), strings.Contains(text, "Read-only file system"):
		code = cubby.CodePermissionDenied
	}
	return &cubby.Error{Op: op, Code: code, Err: fmt.Errorf("exit code %d%s", ended.Code, lastLines(text))}
}

// source remembers what went wrong with reading.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// feed gives a program its input, and ends it if that cannot be read.
func feed(p running, in *source) {
	buf := make([]byte, chunk)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, werr := p.write(buf[:n]); werr != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			p.closeInput()
			return
		}
		if err != nil {
			_ = p.kill() // what it has read is not whole
			return
		}
	}
}
