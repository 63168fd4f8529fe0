package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// ExecuteCode implements [codeexec.CodeExecutor]. Blocks run one after another in
// the folder work of the execution id's workspace (the one that is kept, see
// [codeexec.WorkspacePolicy]), each a process of its own.
func (e *Executor) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	return backend.RelayOutput(ctx, in, e.execute)
}

func (e *Executor) execute(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	const op = "execute code"
	x := &execute{e: e, in: in, blocks: in.Blocks(), result: backend.ResultBuilder{MaxOutput: int(e.cfg.MaxOutput), OnOutput: in.OnOutput}}
	ctx, done, err := e.begin(ctx, op)
	if err != nil {
		return x.result.Result(), err
	}
	defer done()
	if err := workdir.CheckID(in.ExecutionID); err != nil {
		return x.result.Result(), execerr.Wrap(op, cubby.CodeInvalidArgument, err)
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
	return result, execerr.Wrap(op, cubby.CodeInternal, err)
}

// execute is one ExecuteCode.
type execute struct {
	e      *Executor
	in     codeexec.CodeExecutionInput
	blocks []codeexec.CodeBlock
	result backend.ResultBuilder
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
		return execerr.Wrap("put input files", cubby.CodeInvalidArgument, err)
	}
	x.root = path.Join(x.e.cfg.WorkspaceRoot, workdir.PersistentName(x.in.ExecutionID))
	x.dir = path.Join(x.root, codeexec.DirWork)
	if x.e.cfg.Fresh {
		if x.box, err = x.e.d.newBox(ctx, x.e.cfg, x.e.image); err != nil {
			return err
		}
		defer func() {
			if rerr := x.box.remove(); err == nil {
				err = rerr
			}
		}()
		if err := x.put(ctx, &p); err != nil {
			return err
		}
		return x.collecting(ctx, changes)
	}
	files := &p
	if nothing {
		files = nil
	}
	leave, err := x.settle(ctx, files)
	if err != nil {
		return err
	}
	defer leave()
	if nothing {
		return x.each(ctx)
	}
	err = x.collecting(ctx, changes)
	if x.box.link.cause() != nil {
		return err
	}
	if err != nil {
		x.box.suspect.Store(true)
	}
	// Also after a caller who gave up.
	tctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	x.tidy(tctx)
	return err
}

// settle has the turn in the execution id's place, and puts the files there, if
// there are any. A
// container where that fails although something has worked in it before cannot go
// on: it is replaced. Nothing has run by then.
func (x *execute) settle(ctx context.Context, p *workdir.Packer) (leave func(), err error) {
	at, out, err := x.e.enter(ctx, x.in.ExecutionID, true)
	if err != nil {
		return nil, err
	}
	select {
	case at.turn <- struct{}{}:
	case <-ctx.Done():
		out()
		return nil, context.Cause(ctx)
	}
	leave = func() {
		<-at.turn
		out()
	}
	for {
		if x.box, err = at.resident(ctx); err != nil {
			break
		}
		var lost bool
		x.instance.ID = x.box.id
		x.instance.Files, lost = at.tell()
		x.lost = x.lost || lost
		if p == nil {
			return leave, nil
		}
		fresh := !x.box.used.Swap(true)
		if err = x.put(ctx, p); err == nil {
			return leave, nil
		}
		if fresh || ctx.Err() != nil || !x.hopeless(err) {
			break
		}
		x.box.giveUp(err)
	}
	leave()
	return nil, err
}

// hopeless reports whether an error of putting the files says that the container
// cannot go on; and not that the disk is full, the processes are used up by
// programs that run, or the code has left something where an input is to go.
func (x *execute) hopeless(err error) bool {
	switch cubby.CodeOf(err) {
	case cubby.CodeNoSpace, cubby.CodeInvalidArgument:
		return false
	case cubby.CodeRateLimited:
		return !x.box.busy()
	case cubby.CodeConflict, cubby.CodePermissionDenied:
		return len(x.in.InputFiles) == 0
	}
	return true
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
	x.result.AddFiles(c.Files(), c.Left(), all && safe && c.All())
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
	return strings.TrimSpace(b.Code) != "" && slices.Contains(x.e.languages, codeexec.NormalizeLanguage(b.Language))
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

// putTime is how long the files of a call may take, and one more second for each
// megabyte.
const putTime = 15 * time.Second

// putScript extracts the archive on its input: the folders above ("" ends them)
// and the blocks' files ("" again), then the folders to make, of which the first
// is where it goes. What earlier code did to them is undone.
const putScript = `umask 022
while [ -n "$1" ]; do
  [ ! -d "$1" ] || { [ -r "$1" ] && [ -w "$1" ] && [ -x "$1" ]; } || chmod u+rwx -- "$1" 2>/dev/null
  shift
done; shift
while [ -n "$1" ]; do
  if [ -d "$1" ] && [ ! -L "$1" ]; then chmod -R u+rwx -- "$1" 2>/dev/null; rm -rf -- "$1"; fi
  shift
done; shift
mkdir -p -- "$@" && exec tar -xpof - -C "$1"`

// put puts what was packed into the folder, which it makes.
func (x *execute) put(ctx context.Context, p *workdir.Packer) error {
	archive := p.Reader()
	defer archive.Close()
	argv := []string{"sh", "-c", putScript, "sh"}
	argv = append(append(argv, x.above()...), "")
	argv = append(append(argv, x.files()...), "")
	argv = append(argv, x.dir, path.Join(x.root, codeexec.DirOut), path.Join(x.root, codeexec.DirSkills), path.Join(x.root, codeexec.DirRuns))
	err := x.box.unpack(ctx, argv, archive, putTime+time.Duration(p.Bytes()>>20)*time.Second)
	if cubby.CodeOf(err) == cubby.CodeNoSpace && len(x.in.InputFiles) == 0 &&
		!slices.ContainsFunc(x.blocks, func(b codeexec.CodeBlock) bool { return len(b.Code) > maxDirect }) {
		x.direct = true // the model can still make room
		return nil
	}
	return err
}

// above are the folders that lead to the code's, and are the container's own.
func (x *execute) above() []string {
	all := []string{x.dir}
	for dir := x.root; dir == x.root || strings.HasPrefix(dir+"/", "/tmp/"); dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

// files are the blocks' files.
func (x *execute) files() []string {
	var files []string
	for i, b := range x.blocks {
		if x.runs(b) {
			files = append(files, path.Join(x.dir, blockName(i, b.Language)))
		}
	}
	return files
}

// tidy removes the blocks' files. Where it cannot, the next call does.
func (x *execute) tidy(ctx context.Context) {
	argv := append([]string{"rm", "-f", "--"}, x.files()...)
	p, err := x.box.run(ctx, spec{Argv: argv, Cwd: "/", Timeout: endTime.Seconds(), output: func(bool, []byte) {}})
	if err == nil {
		_, err = p.wait(ctx)
	}
	if err != nil {
		x.box.suspect.Store(true)
	}
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
	if why, ok := errors.AsType[*notStarted](err); ok {
		switch {
		case exhausted(err):
			// What workspaces' programs have used up.
			_, _ = io.WriteString(stderr, "the container has no process or memory left to run this\n")
			ended.Code, ended.PIDs, ended.OOM, err = 126, why.Errno == "EAGAIN", why.Errno == "ENOMEM", nil
		case why.Text == cwd:
			// The block before has removed it, or closed it.
			_, _ = fmt.Fprintf(stderr, "the working directory %s cannot be entered (%.20s)\n", cwd, why.Errno)
			ended.Code, err = 126, nil
		}
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

// exhausted reports whether an error says that a program was not started for want
// of processes or memory.
func exhausted(err error) bool {
	why, ok := errors.AsType[*notStarted](err)
	return ok && (why.Errno == "EAGAIN" || why.Errno == "ENOMEM")
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
		if exhausted(err) {
			code = cubby.CodeRateLimited
		} else if why.Errno == "ENOENT" {
			code = cubby.CodeUnimplemented // the image does not have it
		}
		return &cubby.Error{Op: op, Code: code, Err: err}
	case b.link.cause() != nil:
		return b.gone(op, b.link, b.link.cause())
	}
	return execerr.Wrap(op, cubby.CodeInternal, err)
}

// unpack runs a program that extracts an archive from its input.
func (b *box) unpack(ctx context.Context, argv []string, archive io.Reader, most time.Duration) error {
	const op = "put files"
	var said tail
	p, err := b.run(ctx, spec{Argv: argv, Cwd: "/", Input: true, Timeout: most.Seconds(),
		output: func(_ bool, p []byte) { _, _ = said.Write(p) }})
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
			return execerr.Wrap(op, cubby.CodeCanceled, context.Cause(ctx))
		}
		return b.failure(op, err)
	}
	if ended.TimedOut {
		return &cubby.Error{Op: op, Code: cubby.CodeTimeout, Err: fmt.Errorf("it did not end within %v", most)}
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
	case strings.Contains(text, "File exists"), strings.Contains(text, "Not a directory"), strings.Contains(text, "Is a directory"):
		code = cubby.CodeConflict
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
