package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

type runner struct{ e *engine }

// RunProgram implements [codeexec.ProgramRunner].
func (r runner) RunProgram(ctx context.Context, ws codeexec.Workspace, spec codeexec.RunProgramSpec) (codeexec.RunResult, error) {
	const op = "run program"
	s, missing, err := r.start(ctx, ws, codeexec.InteractiveProgramSpec{RunProgramSpec: spec}, false)
	if err != nil {
		return codeexec.RunResult{ExitCode: -1}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	if missing != nil {
		return *missing, nil
	}
	res, err := s.WaitOrKill(ctx)
	return res, execerr.Wrap(op, cubby.CodeInternal, err)
}

// StartProgram implements [codeexec.ProgramRunner].
func (r runner) StartProgram(ctx context.Context, ws codeexec.Workspace,
	spec codeexec.InteractiveProgramSpec) (codeexec.ProgramSession, error) {
	const op = "start program"
	s, missing, err := r.start(ctx, ws, spec, true)
	if err == nil && missing != nil {
		err = &cubby.Error{Code: cubby.CodeNotFound, Err: errors.New(strings.TrimSpace(missing.Stderr))}
	}
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	if spec.Stdin != "" {
		if err := s.Write(spec.Stdin, false); err != nil {
			return nil, execerr.Wrap(op, cubby.CodeInternal, errors.Join(err, s.Close()))
		}
	}
	return s, nil
}

// start starts a program; a command that is not there is a result, as of a
// shell.
func (r runner) start(ctx context.Context, ws codeexec.Workspace, spec codeexec.InteractiveProgramSpec,
	interactive bool) (_ *session.Session, missing *codeexec.RunResult, err error) {
	e := r.e
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	t, err := e.open(ws)
	if err != nil {
		return nil, nil, err
	}
	defer t.root.Close()
	run, timeout, err := e.check(spec, interactive)
	if err != nil {
		return nil, nil, err
	}
	folder, cwd, err := t.folder(spec.Cwd)
	if err != nil {
		return nil, nil, err
	}
	defer folder.Close()
	if _, err := t.mkdirAll(run); err != nil {
		return nil, nil, fmt.Errorf("make the program's folder: %w", err)
	}
	env := e.env(ws, run, spec.RunProgramSpec)
	if err := workdir.CheckEnv(env); err != nil {
		return nil, nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	if _, set := env["TERM"]; spec.TTY && !spec.CleanEnv && !set {
		env["TERM"] = "xterm-256color"
	}
	mark := codeexec.EnvRunDir + "=" + path.Join(ws.Path, run)
	if env[codeexec.EnvRunDir] != path.Join(ws.Path, run) {
		env["CUBBY_RUN"] = rand.Text()
		mark = "CUBBY_RUN=" + env["CUBBY_RUN"]
	}
	exe, failed := look(spec.Cmd, env["PATH"], filepath.Join(ws.Path, cwd))
	if failed != nil {
		return nil, failed, nil
	}
	argv, err := e.limits.wrap(append([]string{exe}, spec.Args...), spec.Limits, e.cfg.MaxOpenFiles)
	if err != nil {
		return nil, nil, err
	}
	file := argv[0]
	if file == exe {
		argv[0] = spec.Cmd
	}
	list := environ(env)
	if err := workdir.CheckArgs(argv, list); err != nil {
		return nil, nil, err
	}
	if err := e.known.Admit(); err != nil {
		return nil, nil, err
	}
	out := session.NewOutput(e.cfg.MaxOutput)
	p, err := start(program{
		path: file, argv: argv, env: list, dir: filepath.Join(ws.Path, cwd), folder: folder, stdin: spec.Stdin, interactive: interactive,
		tty: spec.TTY, stdout: out.Stdout(), stderr: out.Stderr(), mark: mark,
	})
	if err != nil {
		e.known.Release()
		return nil, nil, err
	}
	s, err := e.known.Follow(ws, p, out, timeout)
	return s, nil, err
}

// check checks what does not depend on the workspace.
func (e *engine) check(spec codeexec.InteractiveProgramSpec, interactive bool) (run string, timeout time.Duration, err error) {
	invalid := func(text string) error { return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New(text)} }
	timeout = spec.Timeout
	switch {
	case spec.Cmd == "":
		return "", 0, invalid("there is no command")
	case strings.IndexByte(spec.Cmd, 0) >= 0:
		return "", 0, invalid("the command holds a NUL")
	case timeout < 0:
		return "", 0, invalid("the timeout is negative")
	case timeout == 0 && interactive:
		timeout = e.cfg.SessionTimeout
	case timeout == 0:
		timeout = e.cfg.Timeout
	}
	return workdir.RunDir(time.Now(), e.n.Add(1)), timeout, e.limits.check(spec.Limits)
}

// folder opens the folder to run in and returns its path below the workspace.
func (t tree) folder(cwd string) (*os.File, string, error) {
	clean, err := workdir.Clean(cwd)
	if err != nil {
		return nil, "", err
	}
	real, err := t.resolve(clean)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("the working directory is not there")}
	} else if err != nil {
		return nil, "", err
	}
	dir, err := t.root.Open(real)
	if err != nil {
		return nil, "", err
	}
	if info, err := dir.Stat(); err != nil || !info.IsDir() {
		dir.Close()
		return nil, "", &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("the working directory is no folder")}
	}
	return dir, real, nil
}

// env returns a program's variables.
func (e *engine) env(ws codeexec.Workspace, run string, spec codeexec.RunProgramSpec) map[string]string {
	env := map[string]string{"PATH": workdir.CleanPath}
	if !spec.CleanEnv {
		env = e.hostEnv(ws.Path)
		maps.Copy(env, e.cfg.Env)
	}
	maps.Copy(env, workdir.Env(ws.Path, run, spec.Env))
	return env
}

// hostEnv returns what code inherits of this process.
func (e *engine) hostEnv(home string) map[string]string {
	env := map[string]string{"PATH": workdir.CleanPath, "LANG": "C.UTF-8"}
	names := append([]string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}, e.cfg.Inherit...)
	for _, v := range os.Environ() {
		name, value, ok := strings.Cut(v, "=")
		if ok && name != "" && (e.cfg.InheritAll || slices.Contains(names, name)) {
			env[name] = value
		}
	}
	if !e.cfg.InheritAll && !slices.Contains(e.cfg.Inherit, "HOME") {
		env["HOME"] = home
	}
	return env
}

// environ writes variables as a system wants them; later ones win.
func environ(all ...map[string]string) []string {
	env := map[string]string{}
	for _, m := range all {
		maps.Copy(env, m)
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// look finds a command as a shell does, but by the program's own PATH and
// folder.
func look(cmd, list, dir string) (string, *codeexec.RunResult) {
	candidates := []string{}
	if strings.Contains(cmd, "/") {
		candidates = append(candidates, cmd)
	} else {
		for _, folder := range filepath.SplitList(list) {
			candidates = append(candidates, filepath.Join(folder, cmd))
		}
	}
	code, why := 127, "command not found"
	for _, c := range candidates {
		if !filepath.IsAbs(c) {
			c = filepath.Join(dir, c)
		}
		info, err := os.Stat(c)
		switch {
		case err != nil && errors.Is(err, fs.ErrPermission):
			code, why = exitNotStarted, "permission denied"
		case err != nil:
		case info.IsDir():
			if strings.Contains(cmd, "/") {
				code, why = exitNotStarted, "is a directory"
			}
		case info.Mode()&0o111 == 0:
			code, why = exitNotStarted, "permission denied"
		default:
			return c, nil
		}
	}
	return "", &codeexec.RunResult{Stderr: fmt.Sprintf("%.200s: %s\n", workdir.Show(cmd), why), ExitCode: code, Duration: time.Nanosecond}
}
