package posixws

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/session"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// exitScript is the exit code of the script launch where it could not start the program.
const exitScript = 125

type runner struct{ e *Engine }

// RunProgram implements [codeexec.ProgramRunner].
func (r runner) RunProgram(ctx context.Context, ws codeexec.Workspace, spec codeexec.RunProgramSpec) (codeexec.RunResult, error) {
	const op = "run program"
	s, err := r.start(ctx, ws, codeexec.InteractiveProgramSpec{RunProgramSpec: spec}, false)
	if err != nil {
		return codeexec.RunResult{ExitCode: -1}, execerr.Wrap(op, cubby.CodeUnavailable, err)
	}
	res, err := s.WaitOrKill(ctx)
	return res, execerr.Wrap(op, cubby.CodeUnavailable, err)
}

// StartProgram implements [codeexec.ProgramRunner].
func (r runner) StartProgram(ctx context.Context, ws codeexec.Workspace,
	spec codeexec.InteractiveProgramSpec) (codeexec.ProgramSession, error) {
	const op = "start program"
	s, err := r.start(ctx, ws, spec, true)
	if err != nil {
		return nil, execerr.Wrap(op, cubby.CodeUnavailable, err)
	}
	if spec.Stdin != "" {
		if err := s.Write(spec.Stdin, false); err != nil {
			return nil, execerr.Wrap(op, cubby.CodeUnavailable, errors.Join(err, s.Close()))
		}
	}
	return s, nil
}

func (r runner) start(ctx context.Context, ws codeexec.Workspace, spec codeexec.InteractiveProgramSpec,
	interactive bool) (*session.Session, error) {
	e := r.e
	if err := e.check(ws); err != nil {
		return nil, err
	}
	l := &launched{
		e: e, ws: ws, nonce: rand.Text(), run: workdir.RunDir(time.Now(), e.n.Add(1)),
		out: session.NewQuietOutput(e.cfg.MaxOutput), ended: make(chan struct{}),
	}
	if interactive {
		l.out = session.NewOutput(e.cfg.MaxOutput)
	}
	argv, err := l.argv(spec)
	if err != nil {
		return nil, err
	}
	timeout := spec.Timeout
	switch {
	case timeout < 0:
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("the timeout is negative")}
	case timeout == 0 && interactive:
		timeout = e.cfg.SessionTimeout
	case timeout == 0:
		timeout = e.cfg.Timeout
	}
	if err := e.registry.Admit(); err != nil {
		return nil, err
	}
	p := Program{Argv: argv, Interactive: interactive, TTY: spec.TTY, Stdout: l.out.Stdout(), Stderr: l.out.Stderr()}
	if !interactive && spec.Stdin != "" {
		p.Stdin = strings.NewReader(spec.Stdin)
	}
	if l.p, err = e.m.Start(ctx, p); err != nil {
		e.registry.Release()
		return nil, markLost(err, false)
	}
	return e.registry.Follow(ws, l, l.out, timeout)
}

// launched is a program that runs in a workspace, with its process group.
type launched struct {
	e     *Engine
	ws    codeexec.Workspace
	p     Process
	out   *session.Output
	nonce string
	run   string        // its folder, below the workspace
	ended chan struct{} // closed when the program has ended
}

// argv returns the command line with which the machine starts a program.
func (l *launched) argv(spec codeexec.InteractiveProgramSpec) ([]string, error) {
	if spec.Cmd == "" {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("there is no command")}
	}
	cwd, err := workdir.Clean(spec.Cwd)
	if err != nil {
		return nil, err
	}
	if err := l.e.checkLimits(spec.Limits); err != nil {
		return nil, err
	}
	env := workdir.Env(l.ws.Path, l.run, spec.Env)
	if err := workdir.CheckEnv(env); err != nil {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: err}
	}
	blocks := int64(0)
	if l.e.cfg.FileSize {
		blocks = spec.Limits.FileSizeBytes / 512
	}
	argv := []string{"sh", "-c"}
	if !l.e.cfg.ShareGroups && !spec.TTY {
		argv = append(argv, lead, "sh")
	}
	argv = append(argv, launch, "sh", l.nonce, l.ws.Path, "./"+cwd, l.run, strconv.FormatInt(blocks, 10))
	if spec.CleanEnv {
		if _, ok := env["PATH"]; !ok {
			env["PATH"] = workdir.CleanPath
		}
		argv = append(argv, "-i")
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		argv = append(argv, name+"="+env[name])
	}
	if strings.Contains(spec.Cmd, "=") {
		argv = append(argv, "sh", "-c", `exec "$@"`, "sh") // or env would set a variable
	}
	argv = append(append(argv, spec.Cmd), spec.Args...)
	return argv, workdir.CheckArgs(argv)
}

// Write implements [session.Process].
func (l *launched) Write(p []byte) (int, error) { return l.p.Write(p) }

// Wait implements [session.Process]. Where the program could not be started, the error
// says why.
func (l *launched) Wait() (int, error) {
	code, err := l.p.Wait()
	close(l.ended)
	if err != nil {
		return code, markLost(err, true)
	}
	if code == exitScript {
		err = l.complaint()
	}
	return code, err
}

func (l *launched) complaint() error {
	for _, text := range l.out.Heads() {
		for line := range strings.Lines(text) {
			word, ok := strings.CutPrefix(line, l.nonce+" ")
			if !ok {
				continue
			}
			switch strings.TrimSpace(word) {
			case "gone":
				return codeexec.ErrWorkspaceGone
			case "cwd":
				return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: errors.New("the working directory is not there")}
			case "outside":
				return fmt.Errorf("%w: a link leads the working directory outside", codeexec.ErrBadPath)
			case "limit":
				return fmt.Errorf("%w: file_size_bytes", codeexec.ErrLimitNotEnforceable)
			case "run":
				return &cubby.Error{Code: cubby.CodeNoSpace, Err: errors.New("cannot make the program's folder in the workspace")}
			}
		}
	}
	return nil
}

// Terminate implements [session.Process].
func (l *launched) Terminate() error { return l.signal("TERM") }

// Kill implements [session.Process]. It kills the process group, and has the machine end
// the program if that does not help.
func (l *launched) Kill() error {
	if !l.e.cfg.ShareGroups && l.signal("KILL") == nil {
		timer := time.NewTimer(endTime)
		defer timer.Stop()
		select {
		case <-l.ended:
			return nil
		case <-timer.C:
		}
	}
	return l.p.Kill()
}

func (l *launched) signal(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	argv := []string{"sh", "-c", signal, "sh", path.Join(l.ws.Path, l.run, ".leader"), name}
	p, err := l.e.m.Start(ctx, Program{Argv: argv, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return err
	}
	code, err := wait(ctx, p)
	if err == nil && code != 0 {
		err = fmt.Errorf("the signal could not be sent: exit code %d", code)
	}
	return err
}
