package e2bexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
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

// languages are what every server is expected to have.
var languages = []string{codeexec.Python, codeexec.JavaScript, codeexec.TypeScript, codeexec.Bash}

// known reports whether a language is one of them.
func known(language string) bool { return slices.Contains(languages, language) }

// languageName is what a server is asked for: names like "r", "java", "c++".
var languageName = regexp.MustCompile(`^[a-z][a-z0-9+#_.-]{0,31}$`)

// restartTime bounds the restart of a kernel whose code does not end.
const restartTime = 30 * time.Second

// execution is one call of ExecuteCode.
type execution struct {
	x     *core
	b     *sandbox
	v     *conversation
	built backend.ResultBuilder
	lost  bool // variables were lost during this execution
}

// ExecuteCode implements [codeexec.CodeExecutor].
func (x *core) ExecuteCode(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	r, err := x.execute(ctx, in)
	return r, execerr.Wrap("execute code", cubby.CodeUnavailable, x.h.why(ctx, err))
}

func (x *core) execute(ctx context.Context, in codeexec.CodeExecutionInput) (codeexec.CodeExecutionResult, error) {
	e := &execution{x: x}
	e.built.MaxOutput, e.built.OnOutput = x.h.cfg.MaxOutput, in.OnOutput
	if err := workdir.CheckID(in.ExecutionID); err != nil {
		return e.built.Result(), &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	j, err := newJob(in)
	if err != nil {
		return e.built.Result(), err
	}
	defer j.files.Close()
	over, err := x.h.begin()
	if err != nil {
		return e.built.Result(), err
	}
	defer over()
	if x.h.cfg.Fresh == FreshSandbox && len(in.Blocks()) == 0 {
		return e.built.Result(), nil // nothing would be there afterwards
	}
	ctx, cancel := x.h.join(ctx)
	defer cancel()
	if b := x.h.current(); b != nil && len(in.Blocks()) == 0 && len(in.InputFiles) == 0 {
		b.suspected() // it is asked for what there is, not for what there was
	}
	done, err := e.enter(ctx, in.ExecutionID)
	if err != nil {
		return e.built.Result(), err
	}
	defer done()
	err = e.perform(ctx, j)
	return e.result(), err
}

// job is what an execution is to do.
type job struct {
	in      codeexec.CodeExecutionInput
	files   *workdir.Packer  // the input files; the caller closes it
	changes *workdir.Changes // to collect; nil where nothing is
}

func newJob(in codeexec.CodeExecutionInput) (*job, error) {
	j := &job{in: in, files: &workdir.Packer{}}
	for _, f := range in.InputFiles {
		if err := j.files.AddFile(f.Name, f.Content, 0); err != nil {
			j.files.Close()
			return nil, execerr.Wrap("", cubby.CodeInvalidArgument, err)
		}
	}
	var err error
	if j.changes, err = workdir.NewChanges(in.Collect); err != nil {
		j.files.Close()
		return nil, err
	}
	return j, nil
}

// perform does it, in the conversation and the sandbox that the execution has entered.
func (e *execution) perform(ctx context.Context, j *job) (err error) {
	if len(j.in.InputFiles) > 0 {
		err = e.put(ctx, j.files)
	}
	if j.changes != nil && err == nil {
		err = e.begin(ctx, j.changes)
	}
	for _, block := range j.in.Blocks() {
		if err != nil {
			break
		}
		err = e.block(ctx, block)
	}
	if j.changes != nil && err == nil {
		err = e.collect(ctx, j.changes)
	}
	return err
}

// result returns the result, with what was lost and which state there is now.
func (e *execution) result() codeexec.CodeExecutionResult {
	r, v := e.built.Result(), e.v
	fresh := e.x.h.cfg.Fresh
	if fresh == FreshSandbox {
		r.StateLost = false
		return r
	}
	r.FilesLost = v.lostFiles
	// Where each call has its own kernels nobody expects variables to last.
	r.StateLost = r.FilesLost || fresh == Stateful && (r.StateLost || e.lost || v.lost)
	v.lost, v.lostFiles = false, false
	r.Instance = codeexec.Instance{ID: e.b.sbx.ID(), Files: e.b.serial}
	if fresh == Stateful {
		if r.StateLost {
			v.memory++
		}
		r.Instance.Memory = v.memory
	}
	return r
}

// enter finds the conversation to run in and the sandbox, and returns with the turn of the
// one and a lease on the other. done gives both back.
func (e *execution) enter(ctx context.Context, id string) (done func(), err error) {
	h := e.x.h
	if h.cfg.Fresh == FreshSandbox {
		if e.b, err = h.create(ctx); err != nil {
			return nil, err
		}
		e.b.temporary = true
		release, err := e.b.lease()
		if err != nil {
			return nil, errors.Join(err, e.b.end())
		}
		e.v = newConversation("")
		e.v.home, e.v.ready = e.b, true
		return func() {
			release()
			if err := e.b.end(); err != nil {
				h.log.Warn("a sandbox was not ended", "sandbox_id", e.b.sbx.ID(), "err", err)
			}
		}, nil
	}
	if e.v, err = e.x.conversations.enter(ctx, h, id); err != nil {
		return nil, err
	}
	b, release, err := h.acquire(ctx)
	if err != nil {
		e.x.conversations.leave(e.v)
		return nil, err
	}
	e.b = b
	e.x.conversations.enterSandbox(e.v, b)
	leave := func() {
		if h.cfg.Fresh == FreshContext {
			e.x.conversations.mu.Lock()
			t := e.x.conversations.orphanKernels(e.v)
			e.x.conversations.mu.Unlock()
			e.x.conversations.endKernels(h, t)
		}
		release()
		e.x.conversations.leave(e.v)
	}
	if !b.owned && h.cfg.Fresh == Stateful && !e.v.kernelsSought {
		if err := e.find(ctx); err != nil {
			b.doubt(err)
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// find takes over the kernels that the conversation has in a sandbox that was
// attached to: those that an executor before this one left in its folder. Without
// any, its variables are gone.
func (e *execution) find(ctx context.Context) error {
	own := e.v.dir == cubby.Home // the sandbox's own kernels need not be found
	if own && !slices.ContainsFunc(e.x.h.cfg.Languages, func(l string) bool { return !known(l) }) && e.x.h.cfg.Languages != nil {
		e.v.kernelsSought = true
		return nil
	}
	if !own {
		_, err := e.b.sbx.Files().Stat(ctx, e.v.dir)
		if cubby.CodeOf(err) == cubby.CodeNotFound {
			e.v.kernelsSought = true // it is new
			return nil
		}
		if err != nil {
			return err
		}
	}
	there, err := e.b.sbx.Contexts(ctx)
	if err != nil {
		return err
	}
	found := map[string]*cubby.Context{}
	for _, k := range there {
		language := codeexec.NormalizeLanguage(k.Language)
		mine := k.ID != "" && k.Cwd == e.v.dir && languageName.MatchString(language) && !(own && known(language))
		if mine && (found[language] != nil || len(found) < e.x.h.cfg.MaxContexts) {
			found[language] = k // the newest comes last
		}
	}
	e.x.conversations.addKernels(e.v, found)
	e.v.kernelsSought, e.v.used = true, true
	e.v.lost = e.v.lost || !own && len(found) == 0
	return nil
}

// folder makes the conversation's folder.
func (e *execution) folder(ctx context.Context) error {
	if e.v.ready || e.v.dir == cubby.Home {
		return nil
	}
	if err := e.b.sbx.Files().MakeDir(ctx, e.v.dir, 0o755); err != nil {
		e.b.doubt(err)
		return err
	}
	e.v.ready = true
	return nil
}

// put brings input files into the folder, in one archive.
func (e *execution) put(ctx context.Context, files *workdir.Packer) error {
	if err := e.folder(ctx); err != nil {
		return err
	}
	archive := files.Reader()
	defer archive.Close()
	e.v.used = true
	// Kernels are the default user's, and so are their files.
	if err := posixws.Extract(ctx, machine{b: e.b}, e.v.dir, archive); err != nil {
		return execerr.Wrap("put input files", cubby.CodeInternal, err)
	}
	return nil
}

// block runs one block, and never twice.
func (e *execution) block(ctx context.Context, block codeexec.CodeBlock) error {
	language := codeexec.NormalizeLanguage(block.Language)
	k := e.built.Begin(block.Language)
	cfg := e.x.h.cfg
	switch {
	case strings.TrimSpace(block.Code) == "":
		k.EndExecution(&cubby.Execution{})
		return nil
	case cfg.runs(language):
	case known(language) || !cfg.asks(language):
		k.EndUnsupported(cfg.RunsLanguages())
		return nil
	}
	if err := e.folder(ctx); err != nil {
		return err
	}
	how, err := e.where(ctx, language)
	if err != nil && !known(language) && refused(err) {
		k.EndUnsupported(cfg.RunsLanguages()) // the server's word: nothing ran
		return nil
	}
	if err != nil {
		return err
	}
	ex, err := e.run(ctx, k, block.Code, how)
	if cubby.CodeOf(err) == cubby.CodeNotFound && ex == nil && e.v.kernels[language] != nil {
		// The server does not know the kernel any more, so nothing ran.
		e.x.conversations.forgetKernel(e.v, language)
		e.lost = true
		if how, err = e.where(ctx, language); err != nil {
			return err
		}
		ex, err = e.run(ctx, k, block.Code, how)
	}
	e.v.used = true
	switch {
	case err == nil:
	case cubby.CodeOf(err) == cubby.CodeTimeout && ctx.Err() == nil:
		// A server that knows nothing of timeouts: the code runs on.
		if ex == nil {
			ex = &cubby.Execution{}
		}
		ex.TimedOut, ex.ExitCode, ex.Limit, ex.StateLost = true, codeexec.ExitTimedOut, "time", true
		ex.Duration = e.x.h.cfg.ExecutionTimeout
		err = e.restart(ctx, language)
	default:
		if ex == nil {
			ex = &cubby.Execution{}
		}
		ex.ExitCode = cmp.Or(ex.ExitCode, -1)
		e.b.doubt(err)
	}
	// A kernel that counts from the beginning is another one: somebody has restarted
	// it.
	restarted := ex.Count > 0 && ex.Count <= e.v.counts[language]
	if (ex.FreshKernel || restarted) && !e.v.lossTold[language] {
		e.lost = true
	}
	e.v.lossTold[language] = ex.StateLost
	if e.v.counts[language] = ex.Count; ex.StateLost {
		delete(e.v.counts, language)
	}
	if ex.Limit == "" && ex.ExitCode != 0 {
		ex.Limit = limitOf(ex)
	}
	k.EndExecution(ex)
	return err
}

// where returns the option that names the kernel in which code is to run.
func (e *execution) where(ctx context.Context, language string) (cubby.RunOption, error) {
	h := e.x.h
	own := h.cfg.Fresh == Stateful && e.v.id == "" || h.cfg.Fresh == FreshSandbox
	if own && known(language) {
		return cubby.WithLanguage(language), nil
	}
	if h.cfg.Fresh == FreshSandbox {
		k, err := e.b.sbx.CreateContext(ctx, language)
		if err != nil {
			return nil, err
		}
		return cubby.InContext(k), nil
	}
	k, err := e.x.conversations.kernel(ctx, e.v, language)
	if err != nil {
		e.b.doubt(err)
		return nil, err
	}
	return cubby.InContext(k), nil
}

func (e *execution) run(ctx context.Context, k *backend.Block, code string, how cubby.RunOption) (*cubby.Execution, error) {
	cfg := e.x.h.cfg
	opts := append(k.Options(), how, cubby.WithTimeout(cfg.ExecutionTimeout), cubby.WithMaxOutput(int64(cfg.MaxOutput)), cubby.WithDrain())
	if len(cfg.Env) > 0 {
		opts = append(opts, cubby.WithEnv(cfg.Env))
	}
	return e.b.sbx.RunCode(ctx, code, opts...)
}

// refused reports whether an error says that the server cannot do what it was asked for.
func refused(err error) bool {
	switch cubby.CodeOf(err) {
	case cubby.CodeInvalidArgument, cubby.CodeNotFound, cubby.CodeUnimplemented, cubby.CodeInternal:
		return true
	}
	return false
}

// restart ends code that did not end at its timeout, by a new kernel in the place of its
// own.
func (e *execution) restart(ctx context.Context, language string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, restartTime,
		fmt.Errorf("code that does not end could not be ended within %v: %w", restartTime, context.DeadlineExceeded))
	defer cancel()
	k := e.v.kernels[language]
	if k == nil {
		all, err := e.b.sbx.Contexts(ctx)
		if err != nil {
			return err
		}
		for _, c := range all { // the default ones come first
			if codeexec.NormalizeLanguage(c.Language) == language {
				k = c
				break
			}
		}
	}
	if k == nil {
		return &cubby.Error{Code: cubby.CodeInternal, Err: errors.New("code that does not end could not be ended: its kernel is not in the list")}
	}
	return e.b.sbx.RestartContext(ctx, k)
}

// limitTexts are what programs write when they meet a limit: no server says which it was.
var limitTexts = []struct {
	limit string
	texts []string
}{
	{"disk", []string{"No space left on device", "ENOSPC", "File too large", "EFBIG", "File size limit exceeded", "Disk quota exceeded"}},
	{"processes", []string{"can't start new thread", "fork: Resource temporarily unavailable", "fork: retry", "BlockingIOError: [Errno 11]", "spawn EAGAIN"}},
}

// limitOf guesses which limit a failed block has met, by the end of its output.
func limitOf(ex *cubby.Execution) string {
	said := tail(ex.Stderr, 4<<10)
	if e := ex.Error; e != nil {
		said = tail(e.Name+": "+e.Value, 4<<10) // what it printed may be about something else
	}
	for _, l := range limitTexts {
		if slices.ContainsFunc(l.texts, func(text string) bool { return strings.Contains(said, text) }) {
			return l.limit
		}
	}
	return ""
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
