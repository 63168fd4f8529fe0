package posixws_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/creack/pty"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/codeexectest"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
)

// hostMachine is this machine, without any wall.
type hostMachine struct{}

func (hostMachine) Start(_ context.Context, p posixws.Program) (posixws.Process, error) {
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	h := &hostProcess{cmd: cmd}
	if p.TTY {
		tty, err := pty.Start(cmd)
		if err != nil {
			return nil, err
		}
		h.in, h.tty, h.read = tty, tty, make(chan struct{})
		go func() {
			defer close(h.read)
			io.Copy(p.Stdout, tty)
		}()
		return h, nil
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Stdin, p.Stdout, p.Stderr
	if p.Interactive {
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		h.in = in
	}
	return h, cmd.Start()
}

func (m hostMachine) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	return posixws.Extract(ctx, m, folder, archive)
}

type hostProcess struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	tty  *os.File
	read chan struct{}
}

func (h *hostProcess) Write(p []byte) (int, error) { return h.in.Write(p) }
func (h *hostProcess) Kill() error                 { return h.cmd.Process.Kill() }

func (h *hostProcess) Wait() (int, error) {
	err := h.cmd.Wait()
	if h.tty != nil {
		<-h.read
		h.tty.Close()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if err != nil && h.cmd.ProcessState != nil {
		return h.cmd.ProcessState.ExitCode(), nil // its input was not read to the end
	}
	return 0, err
}

func newEngine(t *testing.T, m posixws.Machine, cfg posixws.Config) *posixws.Engine {
	t.Helper()
	if cfg.Root == "" {
		cfg.Root = filepath.Join(t.TempDir(), "run")
	}
	e, err := posixws.New(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestWorkspaces(t *testing.T) {
	codeexectest.Workspaces(t, func(t *testing.T) codeexec.Engine {
		return newEngine(t, hostMachine{}, posixws.Config{FileSize: true})
	}, codeexectest.WorkspaceTraits{MaxOutput: cubby.DefaultMaxOutput})
}

// newStore holds versions of the artifact "a".
func newStore(t *testing.T, versions ...string) artifact.Service {
	t.Helper()
	store := &artifact.Memory{}
	for _, v := range versions {
		if _, err := store.Save(t.Context(), artifact.SessionInfo{}, "a", &artifact.Artifact{Data: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}
