//go:build linux

package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
)

// newCommand prepares the command that req asks for, as user a. Its errors are
// connect's. Whoever gets one starts it with spawn.
func (s *Service) newCommand(a settings.Account, req *envd.StartRequest) (*command, error) {
	config := req.GetProcess()
	if config == nil {
		config = &envd.ProcessConfig{}
	}
	invalid := func(err error) (*command, error) { return nil, connect.NewError(connect.CodeInvalidArgument, err) }
	cwd, err := s.commandDir(a, config.GetCwd())
	if err != nil {
		return invalid(err)
	}
	env, err := s.commandEnv(a, config.GetEnvs(), req.GetPty() != nil)
	if err != nil {
		return invalid(err)
	}
	args := append([]string{config.GetCmd()}, config.GetArgs()...)
	if err := settings.CheckArguments(args, env); err != nil {
		return invalid(err)
	}
	path, err := lookPath(config.GetCmd(), env)
	if err != nil {
		return invalid(fmt.Errorf("start '%s': %w", config.GetCmd(), err))
	}
	c := &command{
		info:     &envd.ProcessInfo{Config: config, Tag: req.Tag},
		ended:    make(chan struct{}),
		stop:     s.ctx.Done(),
		patience: defaultPatience,
	}
	c.cmd = &exec.Cmd{
		Path: path, Args: args, Dir: cwd, Env: env,
		// A session of its own: a signal to its process group is none to ours.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if s.settings.Config.SwitchUser {
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID), Groups: []uint32{uint32(a.GID)}}
	}
	return c, nil
}

func configSize(c *envd.ProcessConfig) int {
	n := len(c.GetCmd())
	for _, arg := range c.GetArgs() {
		n += len(arg) + 1
	}
	for k, v := range c.GetEnvs() {
		n += len(k) + len(v) + 2
	}
	return n
}

// commandDir returns where a command runs: dir, which may be relative to the home,
// or the folder of the sandbox, whoever runs it.
func (s *Service) commandDir(a settings.Account, dir string) (string, error) {
	if dir == "" {
		dir = s.settings.Workdir()
	}
	cwd, err := a.Path(dir)
	if err != nil {
		return "", fmt.Errorf("cwd: %w", err)
	}
	switch st, err := os.Stat(cwd); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "", fmt.Errorf("cwd '%s' does not exist", cwd)
	case err != nil:
		return "", fmt.Errorf("cwd '%s': %w", cwd, err)
	case !st.IsDir():
		return "", fmt.Errorf("cwd '%s' is not a directory", cwd)
	}
	return cwd, nil
}

// commandEnv returns the environment of a command. Of a name that is there twice,
// the last one counts: the request's goes before the sandbox's.
func (s *Service) commandEnv(a settings.Account, request map[string]string, pty bool) ([]string, error) {
	if err := settings.CheckEnv(request); err != nil {
		return nil, err
	}
	var env []string
	if pty {
		env = append(env, "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	}
	now := s.settings.Load()
	env = append(env, s.settings.UserEnv(now)...)
	env = append(env, "HOME="+a.Home, "USER="+a.Name, "LOGNAME="+a.Name)
	for k, v := range now.Env {
		env = append(env, k+"="+v)
	}
	for k, v := range request {
		env = append(env, k+"="+v)
	}
	return env, nil
}

// lookPath finds a program along the PATH of env. A name with a slash is itself.
func lookPath(name string, env []string) (string, error) {
	if name == "" {
		return "", errors.New("no command")
	}
	if strings.Contains(name, "/") {
		return name, nil
	}
	var path string
	for _, e := range env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); filepath.IsAbs(p) && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// spawn starts c: on a terminal if pty is not nil, else with pipes. Then whoever
// called it calls c.run. Its errors are connect's.
func (s *Service) spawn(c *command, a settings.Account, pty *envd.PTY, stdin bool) error {
	attach := func() ([]*os.File, error) { return c.pipes(stdin) }
	if pty != nil {
		attach = func() ([]*os.File, error) { return s.terminal(c, a, pty) }
	}
	theirs, err := attach()
	if err == nil {
		err = s.children.Start(c.cmd)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		c.closeAll()
		return startError(c.info.GetConfig().GetCmd(), c.cmd.Dir, err)
	}
	c.info.Pid = uint32(c.cmd.Process.Pid)
	return nil
}

func startError(name, dir string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("start '%s' in '%s': %w", name, dir, err)) // either may be refused
	}
	code := connect.CodeInvalidArgument
	for _, short := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC} {
		if errors.Is(err, short) {
			code = connect.CodeResourceExhausted
		}
	}
	return connect.NewError(code, fmt.Errorf("start '%s': %w", name, err))
}

// closeAll closes our ends of a command that has not started.
func (c *command) closeAll() {
	if c.in != nil {
		_ = c.in.f.Close()
	}
	for _, o := range c.outs {
		_ = o.f.Close()
	}
}

// pipes gives the command standard streams and returns the ends that are the
// command's.
func (c *command) pipes(stdin bool) (theirs []*os.File, err error) {
	for _, p := range []struct {
		what string
		to   func(theirs, ours *os.File)
		in   bool
	}{
		{"stdin", func(theirs, ours *os.File) { c.cmd.Stdin, c.in = theirs, newInput(ours) }, true},
		{"stdout", func(theirs, ours *os.File) {
			c.cmd.Stdout, c.outs = theirs, append(c.outs, &output{ours, pipeChunk, stdoutEvent})
		}, false},
		{"stderr", func(theirs, ours *os.File) {
			c.cmd.Stderr, c.outs = theirs, append(c.outs, &output{ours, pipeChunk, stderrEvent})
		}, false},
	} {
		if p.in && !stdin {
			continue // the null device
		}
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return theirs, err
		}
		our, their := fds[0], fds[1]
		if p.in {
			our, their = fds[1], fds[0]
		}
		// Ours only: the command expects reads and writes that wait.
		_ = unix.SetNonblock(our, true)
		f := os.NewFile(uintptr(their), p.what)
		theirs = append(theirs, f)
		p.to(f, os.NewFile(uintptr(our), p.what))
	}
	return theirs, nil
}

// terminal gives the command a terminal and returns the end that is the command's.
func (s *Service) terminal(c *command, a settings.Account, pty *envd.PTY) (theirs []*os.File, err error) {
	size, err := windowSize(pty)
	if err != nil {
		return nil, err
	}
	master, slave, err := s.openPTY(a)
	if err != nil {
		return nil, err
	}
	c.pty, c.in = master, newInput(master)
	c.outs = []*output{{master, ptyChunk, ptyEvent}}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
	c.cmd.SysProcAttr.Setctty = true // of descriptor 0
	if err := resize(master, size); err != nil {
		return []*os.File{slave}, fmt.Errorf("size of the terminal: %w", err)
	}
	return []*os.File{slave}, nil
}
