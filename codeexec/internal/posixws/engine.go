package posixws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/registry"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Config says how an Engine works. The zero value is usable.
type Config struct {
	// Root is the absolute folder of the workspaces; empty means
	// codeexec.DefaultRoot. The programs' user must be able to make it or write
	// there.
	Root string
	// Timeout is how long a program of RunProgram may run that names no timeout; 0
	// means 30 s.
	Timeout time.Duration
	// FileTimeout bounds each operation on files, beside its context; 0 means
	// 60 s.
	FileTimeout time.Duration
	// MaxOutput bounds a program's stdout and stderr, in bytes for each; 0 means
	// cubby.DefaultMaxOutput.
	MaxOutput int
	// SessionTimeout is how long a program of StartProgram may run that names no
	// timeout; 0 means an hour.
	SessionTimeout time.Duration
	// MaxPrograms bounds how many programs run at a time; 0 means 64.
	MaxPrograms int
	// Have are the limits that the machine as a whole has. A program that asks for a
	// narrower limit, or for one that is not among them, is refused.
	Have codeexec.ResourceLimits
	// FileSize says that programs cannot undo a limit on the size of their files
	// (RLIMIT_FSIZE), because they are not and cannot become root.
	FileSize bool
	// Instance names the machine that there is now, "" if there is none; nil where
	// machines have no names.
	Instance func() string
	// HostBase, if set, is the only folder of this machine that host:// inputs may
	// come from.
	HostBase string
	// ShareGroups keeps programs in the group that the machine starts them in; for
	// machines whose Process.Kill ends all that a program started.
	ShareGroups bool
	// Describe is what Engine.Describe returns, but for the limits.
	Describe codeexec.Capabilities
}

// Defaults of [Config].
const (
	DefaultTimeout        = 30 * time.Second
	DefaultFileTimeout    = 60 * time.Second
	DefaultSessionTimeout = time.Hour
	defaultMaxPrograms    = 64

	// killTime bounds the sending of a signal; endTime is how long a killed
	// program may take to be gone before the machine is told to drop it.
	killTime = 10 * time.Second
	endTime  = 3 * time.Second

	maxComplaint = 4 << 10  // bytes of what a script says on stderr
	maxListing   = 32 << 20 // bytes of a listing
)

// Engine implements [codeexec.Engine]. Close ends its programs.
type Engine struct {
	m   Machine
	cfg Config
	n   atomic.Uint64

	registry *registry.Registry
}

var _ codeexec.Engine = (*Engine)(nil)

// New returns an engine; it does nothing in the machine yet.
func New(m Machine, cfg Config) (*Engine, error) {
	cfg.Root = path.Clean(cmp.Or(cfg.Root, codeexec.DefaultRoot))
	if !path.IsAbs(cfg.Root) || cfg.Root == "/" || strings.IndexByte(cfg.Root, 0) >= 0 {
		return nil, &cubby.Error{Op: "new workspaces", Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("the root %q is not an absolute folder", cfg.Root)}
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.FileTimeout = cmp.Or(cfg.FileTimeout, DefaultFileTimeout)
	cfg.MaxOutput = cmp.Or(cfg.MaxOutput, cubby.DefaultMaxOutput)
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, DefaultSessionTimeout)
	cfg.MaxPrograms = cmp.Or(cfg.MaxPrograms, defaultMaxPrograms)
	return &Engine{m: m, cfg: cfg, registry: registry.New(cfg.MaxPrograms)}, nil
}

// Manager implements [codeexec.Engine].
func (e *Engine) Manager() codeexec.WorkspaceManager { return manager{e} }

// FS implements [codeexec.Engine].
func (e *Engine) FS() codeexec.WorkspaceFS { return files{e} }

// Runner implements [codeexec.Engine].
func (e *Engine) Runner() codeexec.ProgramRunner { return runner{e} }

// Describe implements [codeexec.Engine].
func (e *Engine) Describe() codeexec.Capabilities {
	c := e.cfg.Describe
	c.Streaming, c.SupportsCleanEnv = true, true
	c.Limits = e.limits()
	c.MaxDiskBytes = e.cfg.Have.DiskBytes
	return c
}

// Close ends the programs that were started in workspaces. The workspaces stay.
func (e *Engine) Close() error { return e.registry.Close() }

// check refuses a workspace that is none of this engine's root: its path is
// removed in the end.
func (e *Engine) check(ws codeexec.Workspace) error {
	if path.Dir(ws.Path) != e.cfg.Root || path.Clean(ws.Path) != ws.Path || !strings.HasPrefix(path.Base(ws.Path), "ws_") ||
		strings.IndexByte(ws.Path, 0) >= 0 {
		return fmt.Errorf("%w: %.200q is no workspace below %s", codeexec.ErrBadPath, ws.Path, e.cfg.Root)
	}
	if now := e.instance(); ws.Instance != "" && now != "" && now != ws.Instance {
		return codeexec.ErrWorkspaceStale // one of the same name may have taken its place
	}
	return e.registry.CheckOpen()
}

func (e *Engine) instance() string {
	if e.cfg.Instance == nil {
		return ""
	}
	return e.cfg.Instance()
}

// script is one run of a script of scripts.go. Its first argument, the nonce, is added
// by run.
type script struct {
	text  string
	args  []string
	stdin io.Reader
	out   io.Writer // of its output; nil means that run returns it, up to maxListing bytes
}

// errAnswerTooLong refuses what a script prints beyond maxListing.
var errAnswerTooLong = fmt.Errorf("the answer has more than %d bytes", maxListing)

// errScriptFailed is wrapped where a script failed and did not say why.
var errScriptFailed = errors.New("the workspace's machine failed")

// run runs a script to its end. out is its output where s.out is nil. said is the word
// that the script wrote after the nonce, "" if none: the script's reason for failing, or
// "found".
func (e *Engine) run(ctx context.Context, s script) (out []byte, said string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.FileTimeout,
		fmt.Errorf("no answer from the workspace's machine within %v: %w", e.cfg.FileTimeout, context.DeadlineExceeded))
	defer cancel()
	nonce := rand.Text()
	var kept *session.Head
	if s.out == nil {
		kept = session.NewHead(maxListing)
		s.out = kept
	}
	complaint := session.NewHead(maxComplaint)
	argv := append([]string{"sh", "-c", s.text, "sh", nonce}, s.args...)
	if err := workdir.CheckArgs(argv); err != nil {
		return nil, "", err
	}
	p, err := e.m.Start(ctx, Program{Argv: argv, Stdin: s.stdin, Stdout: s.out, Stderr: complaint})
	if err != nil {
		return nil, "", markLost(err, false)
	}
	code, err := wait(ctx, p)
	if err != nil {
		return nil, "", markLost(err, false)
	}
	text, _ := complaint.Text()
	for line := range strings.Lines(text) {
		if word, ok := strings.CutPrefix(line, nonce+" "); ok {
			said = strings.TrimSpace(word)
		}
	}
	if kept != nil {
		if _, cut := kept.Text(); cut {
			return nil, said, errAnswerTooLong
		}
		out = kept.Bytes()
	}
	switch {
	case said == "gone":
		return nil, said, codeexec.ErrWorkspaceGone
	case said == "" && code != 0:
		return out, "", fmt.Errorf("%w: exit code %d: %s", errScriptFailed, code, brief(text))
	}
	return out, said, nil
}

// brief makes a line of an error message of what a machine wrote: shortened, and without
// control characters.
func brief(text string) string {
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
	return workdir.Show(clip.Head(text, 300))
}

// wait waits for the end of a program, and kills it when ctx ends.
func wait(ctx context.Context, p Process) (int, error) {
	type end struct {
		code int
		err  error
	}
	done := make(chan end, 1)
	go func() {
		code, err := p.Wait()
		done <- end{code, err}
	}()
	select {
	case e := <-done:
		return e.code, e.err
	case <-ctx.Done():
		_ = p.Kill() // Wait tells what matters
		select {
		case <-done:
		case <-time.After(endTime):
		}
		return -1, context.Cause(ctx)
	}
}

// markLost marks the errors that mean that the machine is no more: they wrap
// ErrWorkspaceStale, or ErrWorkspaceRetryUnsafe if the program had been started.
func markLost(err error, started bool) error {
	switch cubby.CodeOf(err) {
	case cubby.CodeSandboxGone, cubby.CodeNotFound:
		if started {
			return fmt.Errorf("%w: %w", codeexec.ErrWorkspaceRetryUnsafe, err)
		}
		return &cubby.Error{Code: cubby.CodeSandboxGone, Err: fmt.Errorf("%w: %w", codeexec.ErrWorkspaceStale, err), Hint: "make the workspace again"}
	}
	return err
}

type manager struct{ e *Engine }

// CreateWorkspace implements [codeexec.WorkspaceManager].
func (m manager) CreateWorkspace(ctx context.Context, execID string, policy codeexec.WorkspacePolicy) (codeexec.Workspace, error) {
	const op = "create workspace"
	e := m.e
	if err := workdir.CheckID(execID); err != nil {
		return codeexec.Workspace{}, execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	if err := e.checkLimits(codeexec.ResourceLimits{DiskBytes: policy.MaxDiskBytes}); err != nil {
		return codeexec.Workspace{}, execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	if err := e.registry.CheckOpen(); err != nil {
		return codeexec.Workspace{}, execerr.Wrap(op, cubby.CodeConflict, err)
	}
	now := time.Now()
	name, keep := workdir.Name(execID, now), "new"
	if policy.Persist {
		name, keep = workdir.PersistentName(execID), "keep"
	}
	rec := workdir.NewRecord(execID, now)
	out, said, err := e.run(ctx, script{
		text: create, args: append([]string{e.cfg.Root, name, keep}, workdir.Dirs...), stdin: bytes.NewReader(rec.JSON()),
	})
	switch {
	case err != nil:
	case said == "found":
		// It is the workspace's own word; one that cannot be read counts as none.
		if found, damaged := workdir.ParseRecord(out); damaged == nil {
			rec = found
		}
	case said == "exists":
		err = &cubby.Error{Code: cubby.CodeConflict, Err: errors.New("there is a workspace of that name")}
	case said != "":
		err = &cubby.Error{
			Code: cubby.CodePermissionDenied, Err: fmt.Errorf("cannot make a folder below %s", e.cfg.Root),
			Hint: "give a root that the programs' user can write to",
		}
	}
	if err != nil {
		return codeexec.Workspace{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	ws := codeexec.Workspace{ID: execID, Path: path.Join(e.cfg.Root, name)}
	e.registry.Add(ws, rec)
	ws.Instance = e.instance()
	return ws, nil
}

// Cleanup implements [codeexec.WorkspaceManager].
func (m manager) Cleanup(ctx context.Context, ws codeexec.Workspace) error {
	const op = "clean up workspace"
	err := m.e.check(ws)
	if errors.Is(err, codeexec.ErrWorkspaceStale) {
		return nil // it is gone with its machine
	}
	if err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	return execerr.Wrap(op, cubby.CodeInternal, m.e.cleanup(ctx, ws))
}

// CleanupID implements [codeexec.WorkspaceManager]. It knows the workspaces that
// this engine made, and the one that is kept for the id.
func (m manager) CleanupID(ctx context.Context, execID string) error {
	const op = "clean up workspaces"
	e := m.e
	if err := workdir.CheckID(execID); err != nil {
		return execerr.Wrap(op, cubby.CodeInvalidArgument, err)
	}
	all := e.registry.Workspaces(execID, path.Join(e.cfg.Root, workdir.PersistentName(execID)))
	return execerr.Wrap(op, cubby.CodeInternal, e.cleanup(ctx, all...))
}

func (e *Engine) cleanup(ctx context.Context, all ...codeexec.Workspace) error {
	if err := e.registry.EndPrograms(all...); err != nil {
		return err
	}
	var args []string
	for _, ws := range all {
		args = append(args, ws.Path)
	}
	_, _, err := e.run(ctx, script{text: "shift; " + remove, args: args})
	if errors.Is(err, codeexec.ErrWorkspaceStale) {
		err = nil // they are gone with their machine
	}
	if err != nil {
		return err
	}
	e.registry.Remove(all...)
	return nil
}

// limits returns the names of the limits that a program can ask for.
func (e *Engine) limits() []string {
	var names []string
	have := e.cfg.Have
	for _, l := range []struct {
		name string
		ok   bool
	}{
		{"cpus", have.CPUs > 0}, {"memory_bytes", have.MemoryBytes > 0}, {"max_pids", have.MaxPIDs > 0},
		{"disk_bytes", have.DiskBytes > 0}, {"file_size_bytes", e.cfg.FileSize || have.FileSizeBytes > 0},
	} {
		if l.ok {
			names = append(names, l.name)
		}
	}
	return names
}

// checkLimits refuses a limit that is asked for where the machine has none or a wider one.
func (e *Engine) checkLimits(l codeexec.ResourceLimits) error {
	have := e.cfg.Have
	for _, c := range []struct {
		name       string
		want, have float64
	}{
		{"cpus", l.CPUs, have.CPUs}, {"memory_bytes", float64(l.MemoryBytes), float64(have.MemoryBytes)},
		{"max_pids", float64(l.MaxPIDs), float64(have.MaxPIDs)}, {"disk_bytes", float64(l.DiskBytes), float64(have.DiskBytes)},
	} {
		switch {
		case c.want < 0:
			return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("the limit %s is negative", c.name)}
		case c.want > 0 && c.have <= 0:
			return fmt.Errorf("%w: %s", codeexec.ErrLimitNotEnforceable, c.name)
		case c.want > 0 && c.want < c.have:
			return fmt.Errorf("%w: %s of %s, where the whole has %s", codeexec.ErrLimitNotEnforceable, c.name, number(c.want), number(c.have))
		}
	}
	switch {
	case l.FileSizeBytes < 0 || l.FileSizeBytes > 0 && l.FileSizeBytes < 512:
		return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("the limit file_size_bytes is at least 512")}
	case l.FileSizeBytes > 0 && !e.cfg.FileSize && (have.FileSizeBytes <= 0 || l.FileSizeBytes < have.FileSizeBytes):
		return fmt.Errorf("%w: file_size_bytes", codeexec.ErrLimitNotEnforceable)
	}
	return nil
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
