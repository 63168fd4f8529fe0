package container

import (
	"context"
	"errors"
	"io"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/internal/posixws"
)

// machine is where an execution id's workspaces are: the container of its place.
type machine struct{ p *place }

var _ posixws.Machine = machine{}

// Start implements [posixws.Machine].
func (m machine) Start(ctx context.Context, p posixws.Program) (posixws.Process, error) {
	b, err := m.p.resident(ctx)
	if err != nil {
		return nil, err
	}
	b.used.Store(true)
	return boxMachine{b}.Start(ctx, p)
}

// boxMachine is one container.
type boxMachine struct{ b *box }

// Start implements [posixws.Machine].
func (m boxMachine) Start(ctx context.Context, p posixws.Program) (posixws.Process, error) {
	const op = "start program"
	b := m.b
	if p.Stdout == nil {
		p.Stdout = io.Discard
	}
	if p.Stderr == nil {
		p.Stderr = io.Discard
	}
	run, err := b.run(ctx, spec{Argv: p.Argv, Cwd: "/", TTY: p.TTY, Input: p.Stdin != nil ||
		p.Interactive, output: func(stderr bool, out []byte) {
		w := p.Stdout
		if stderr {
			w = p.Stderr
		}
		_, _ = w.Write(out) // it does not fail
	}})
	if err != nil {
		if ctx.Err() != nil && b.link.cause() == nil {
			err = context.Cause(ctx)
		}
		return nil, b.failure(op, err)
	}
	proc := &process{b: b, run: run}
	proc.ctx, proc.cancel = context.WithCancel(context.Background())
	if p.Stdin != nil {
		go feed(run, &source{r: p.Stdin})
	}
	return proc, nil
}

// Unpack implements [posixws.Machine].
func (m machine) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	return posixws.Extract(ctx, m, folder, archive)
}

// Unpack implements [posixws.Machine].
func (m boxMachine) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	return posixws.Extract(ctx, m, folder, archive)
}

// process is a program of a workspace.
type process struct {
	b      *box
	run    running
	ctx    context.Context // done when it is to be ended
	cancel context.CancelFunc
}

func (p *process) Write(data []byte) (int, error) {
	n, err := p.run.write(data)
	if err != nil && errors.Is(err, io.ErrClosedPipe) {
		return n, &cubby.Error{Op: "write to program", Code: cubby.CodeConflict, Err: errors.New("the program has ended")}
	}
	return n, p.b.failure("write to program", err)
}

func (p *process) Kill() error {
	p.b.suspect.Store(true) // perhaps it had to be ended because nothing goes on there
	err := p.run.kill()
	p.cancel()
	return p.b.failure("end program", err)
}

func (p *process) Wait() (int, error) {
	defer p.cancel()
	ended, err := p.run.wait(p.ctx)
	if err != nil {
		return -1, p.b.failure("run program", err)
	}
	if ended.Code < 0 {
		return -1, nil
	}
	return ended.Code, nil
}
