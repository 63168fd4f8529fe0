package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Defaults of [Config].
const (
	DefaultTimeout    = 5 * time.Minute
	DefaultMaxTimeout = 30 * time.Minute
	defaultSessions   = 16
)

// Config says what the tools of one conversation work with.
type Config struct {
	// Repository and Engine must be set. EngineOf finds an executor's engine.
	Repository Repository
	Engine     codeexec.Engine
	// ExecutionID names the conversation; its workspace is made by the first tool
	// that needs it.
	ExecutionID string
	// Workspaces, if set, is where that workspace is kept, for others to use it, too.
	// Close then leaves it.
	Workspaces *Workspaces

	// Timeout is that of commands that name none, MaxTimeout what they may name; 0
	// means 5 and 30 minutes.
	Timeout, MaxTimeout time.Duration
	// Shell runs commands; empty means bash.
	Shell string
	// Env are variables for all commands; a command's own win.
	Env    map[string]string
	Limits codeexec.ResourceLimits
	// MaxSessions bounds how many interactive commands run at a time; 0 means 16.
	MaxSessions int
	// AllowHostInputs lets a model stage host:// inputs: any file of this machine
	// that the engine's own options do not refuse.
	AllowHostInputs bool
	// Logger gets a line for each skill that is staged; nil drops them.
	Logger *slog.Logger
}

// Tools are the skills of one conversation. Methods are safe for concurrent use.
type Tools struct {
	cfg Config
	own bool // the registry is

	mu       sync.Mutex
	closed   bool
	selected map[string][]string // documents of each skill that was loaded
	sessions map[string]*running
	handle   held // of the last command
	replaced bool // it took the place of one that was lost, and nobody was told

	staging sync.Mutex
	staged  map[string]string // fingerprints, by workspace and skill
	used    map[string]codeexec.Workspace
}

// NewTools returns the tools of a conversation. It does nothing in the engine
// yet.
func NewTools(cfg Config) (*Tools, error) {
	const op = "new skill tools"
	switch {
	case cfg.Repository == nil || cfg.Engine == nil:
		return nil, execerr.Wrap(op, cubby.CodeInvalidArgument, errors.New("a repository and an engine are needed"))
	case cfg.Timeout < 0 || cfg.MaxTimeout < 0 || cfg.MaxSessions < 0:
		return nil, execerr.Wrap(op, cubby.CodeInvalidArgument, errors.New("a bound is negative"))
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.MaxTimeout = max(cmp.Or(cfg.MaxTimeout, DefaultMaxTimeout), cfg.Timeout)
	cfg.Shell = cmp.Or(cfg.Shell, "bash")
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, defaultSessions)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tools{
		cfg: cfg, own: cfg.Workspaces == nil, selected: map[string][]string{}, sessions: map[string]*running{},
		staged: map[string]string{}, used: map[string]codeexec.Workspace{},
	}
	if t.own {
		t.cfg.Workspaces = NewWorkspaces()
	}
	return t, nil
}

var errClosed = &cubby.Error{Code: cubby.CodeConflict, Err: errors.New("the skills' tools are closed")}

// Close ends the commands that run and cleans up the workspace, unless that is
// kept in a registry of the caller's.
func (t *Tools) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	open := slices.Collect(maps.Values(t.sessions))
	clear(t.sessions)
	t.mu.Unlock()
	var errs []error
	for _, r := range open {
		errs = append(errs, r.session.Close())
	}
	if t.own {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		t.staging.Lock()
		defer t.staging.Unlock()
		for _, ws := range t.used {
			errs = append(errs, t.cfg.Engine.Manager().Cleanup(ctx, ws))
		}
	}
	return errors.Join(errs...)
}

func (t *Tools) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errClosed
	}
	return nil
}

// workspace returns the conversation's workspace with a skill in it. One that
// was lost is made anew, once: nothing has run in it for this call.
func (t *Tools) workspace(ctx context.Context, name string) (h held, err error) {
	if err := t.check(); err != nil {
		return h, err
	}
	for again := true; ; again = false {
		if h, err = t.cfg.Workspaces.acquire(ctx, t.cfg.Engine.Manager(), t.cfg.ExecutionID); err != nil {
			return h, err
		}
		if err = t.stage(ctx, h.Workspace, name); err == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			// The registry, too, replaces one whose sandbox is gone.
			t.replaced = t.replaced || t.handle != held{} && t.handle != h
			t.handle = h
			return h, nil
		}
		t.lost(h, err)
		if !again || !codeexec.IsWorkspaceRetrySafe(err) {
			return h, err
		}
	}
}

// renewed reports, once, whether the workspace is another one than before.
func (t *Tools) renewed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.replaced
	t.replaced = false
	return was
}

// lost forgets a workspace if an error says that it is no more.
func (t *Tools) lost(h held, err error) {
	if !errors.Is(err, codeexec.ErrWorkspaceGone) && !errors.Is(err, codeexec.ErrWorkspaceStale) &&
		!errors.Is(err, codeexec.ErrWorkspaceRetryUnsafe) {
		return
	}
	t.cfg.Workspaces.invalidate(h)
	t.staging.Lock()
	defer t.staging.Unlock()
	for key := range t.staged {
		if strings.HasPrefix(key, h.Workspace.Path+"\x00") {
			delete(t.staged, key)
		}
	}
}

// settle is run after a skill was staged, in the workspace: the folders where a
// command's files go are reached from the skill's, which becomes read-only.
const settle = `cd -P -- "$1" && chmod u+w . && mkdir -p ../../work/inputs || exit 1
link() { [ -e "$2" ] || [ -L "$2" ] || ln -s -- "$1" "$2" || exit 1; }
link ../../out out; link ../../work work; link ../../work/inputs inputs
chmod a-w .`

// unstage removes what was staged before.
const unstage = `[ -e "$1" ] || [ -L "$1" ] || exit 0
[ -L "$1" ] || chmod -R u+rwX -- "$1"
rm -rf -- "$1"`

// stage copies a skill into a workspace unless the same is there.
func (t *Tools) stage(ctx context.Context, ws codeexec.Workspace, name string) error {
	dir, err := t.cfg.Repository.Path(name)
	if err != nil {
		return err
	}
	t.staging.Lock()
	defer t.staging.Unlock()
	t.used[ws.Path] = ws
	hash, err := fingerprint(dir)
	if err != nil {
		return fmt.Errorf("skill %s: %w", name, err)
	}
	key := ws.Path + "\x00" + name
	if t.staged[key] == hash {
		return nil
	}
	to := path.Join(codeexec.DirSkills, name)
	if err := t.script(ctx, ws, unstage, to); err != nil {
		return err
	}
	delete(t.staged, key)
	if err := t.cfg.Engine.FS().StageDirectory(ctx, ws, dir, to, codeexec.StageOptions{ReadOnly: true}); err != nil {
		return err
	}
	if err := t.script(ctx, ws, settle, to); err != nil {
		return err
	}
	t.staged[key] = hash
	t.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "skill staged", slog.String("skill", name), slog.String("hash", hash[:16]))
	return nil
}

func (t *Tools) script(ctx context.Context, ws codeexec.Workspace, text string, args ...string) error {
	r, err := t.cfg.Engine.Runner().RunProgram(ctx, ws, codeexec.RunProgramSpec{
		Cmd: "sh", Args: append([]string{"-c", text, "sh"}, args...), Timeout: time.Minute,
	})
	if err == nil && (r.ExitCode != 0 || r.TimedOut) {
		err = fmt.Errorf("the skill could not be staged: exit code %d: %s", r.ExitCode, oneLine(r.Stderr, 300))
	}
	return err
}

// folderVariables are what a working directory may begin with.
var folderVariables = map[string]string{
	codeexec.EnvWorkspaceDir: "", codeexec.EnvSkillsDir: codeexec.DirSkills, codeexec.EnvWorkDir: codeexec.DirWork,
	codeexec.EnvOutputDir: codeexec.DirOut,
}

// workingDir says where a command runs: below the skill's folder, unless the path
// begins with one of the workspace's folders or its variable.
func workingDir(name, cwd string) (string, error) {
	home := path.Join(codeexec.DirSkills, name)
	cwd = strings.TrimSpace(cwd)
	if rest, ok := strings.CutPrefix(cwd, "$"); ok {
		variable, after, _ := strings.Cut(rest, "/")
		if strings.HasPrefix(variable, "{") && strings.HasSuffix(variable, "}") {
			variable = variable[1 : len(variable)-1]
		}
		switch folder, ok := folderVariables[variable]; {
		case ok:
			return path.Join(folder, after), nil
		case variable == "SKILL_DIR":
			return path.Join(home, after), nil
		}
		return "", invalid("the working directory %.100q: no folder is called $%s", cwd, variable)
	}
	if path.IsAbs(cwd) {
		return "", invalid("the working directory %.100q is absolute: give one below the skill's folder, or one that begins with $WORK_DIR, $OUTPUT_DIR or $SKILLS_DIR", cwd)
	}
	first, _, _ := strings.Cut(path.Clean(cwd), "/")
	switch first {
	case codeexec.DirSkills, codeexec.DirWork, codeexec.DirRuns, codeexec.DirOut:
		return path.Clean(cwd), nil
	}
	return path.Join(home, cwd), nil
}
