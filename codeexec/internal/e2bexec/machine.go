package e2bexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
)

const (
	// killTime bounds the request that ends a program.
	killTime = 10 * time.Second
	// dieTime is how long a killed program may take to end.
	dieTime = 3 * time.Second

	terminalColumns, terminalRows = 120, 40
)

// machine is a sandbox as package posixws sees it: it starts the programs of workspaces, as
// one user.
type machine struct {
	b    *sandbox
	user string // empty: the sandbox's default
}

// Start implements [posixws.Machine]. The sandbox's lease is renewed for as long
// as the program runs.
func (m machine) Start(ctx context.Context, p posixws.Program) (_ posixws.Process, err error) {
	b := m.b
	release, err := b.h.hold(ctx, b)
	if err != nil {
		return nil, err
	}
	opts := []cubby.CommandOption{cubby.WithCwd("/"), cubby.StdoutTo(p.Stdout)}
	if m.user != "" {
		opts = append(opts, cubby.WithUser(m.user))
	}
	if len(b.h.cfg.Env) > 0 {
		opts = append(opts, cubby.WithEnv(b.h.cfg.Env))
	}
	switch {
	case p.TTY:
		opts = append(opts, cubby.WithPTY(terminalColumns, terminalRows))
	case p.Interactive:
		opts = append(opts, cubby.WithOpenStdin(), cubby.StderrTo(p.Stderr))
	default:
		opts = append(opts, cubby.StderrTo(p.Stderr))
		if p.Stdin != nil {
			opts = append(opts, cubby.WithStdin(p.Stdin))
		}
	}
	// The program lives until it ends or the executor does; ctx is the start's.
	life, cancel := context.WithCancelCause(b.h.ctx)
	started := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	cmd, err := b.sbx.Commands().StartExec(life, p.Argv, opts...)
	if !started() && err == nil {
		cmd.Detach()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		release()
		b.doubt(err)
		return nil, b.h.why(ctx, err)
	}
	return &process{b: b, cmd: cmd, life: life, cancel: cancel, release: release}, nil
}

// Unpack implements [posixws.Machine].
func (m machine) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	return posixws.Extract(ctx, m, folder, archive)
}

// why returns the cause of err: that the executor was closed, or that ctx ended, if it was
// one of these, and else err.
func (h *holder) why(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case h.ctx.Err() != nil:
		return closedError()
	}
	return err
}

// process is a program in a sandbox.
type process struct {
	b       *sandbox
	cmd     *cubby.Command
	life    context.Context
	cancel  context.CancelCauseFunc
	release func()
}

// Write implements [posixws.Process].
func (p *process) Write(b []byte) (int, error) {
	ctx, cancel := context.WithCancel(p.b.h.ctx)
	defer cancel()
	// What a program read last, before it ended, was written all the same.
	stop := context.AfterFunc(p.life, func() { time.AfterFunc(dieTime, cancel) })
	defer stop()
	if err := p.cmd.Write(ctx, b); err != nil {
		return 0, p.b.h.why(context.Background(), err)
	}
	return len(b), nil
}

// Kill implements [posixws.Process].
func (p *process) Kill() error {
	if p.b.h.ctx.Err() != nil {
		return nil // it was let go of, and may be somebody else's to end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.life), killTime)
	defer cancel()
	err := p.cmd.Kill(ctx)
	timer := time.NewTimer(dieTime)
	defer timer.Stop()
	select {
	case <-p.cmd.Done():
	case <-timer.C:
		p.cancel(fmt.Errorf("the program was killed and its end did not come: %w", context.Canceled))
	}
	return err
}

// Wait implements [posixws.Process].
func (p *process) Wait() (int, error) {
	res, err := p.cmd.Wait(context.WithoutCancel(p.life))
	p.release()
	defer p.cancel(nil)
	if err == nil {
		return res.ExitCode, nil
	}
	p.b.doubt(err)
	if p.life.Err() != nil && p.b.h.ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return -1, nil // it was killed
	}
	return -1, p.b.h.why(context.WithoutCancel(p.life), err)
}
