package container

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
)

// Images without Python (with ctypes) have no agent. Their programs are started by Docker's
// exec, which cannot end one: the container is given up then. What a program
// leaves running is ended as soon as no other one runs.

// probe finds out what the image has.
func (b *box) probe(ctx context.Context) error {
	var out strings.Builder
	p, err := b.exec(ctx, spec{
		Argv:   []string{"sh", "-c", "for tool in bash sh node tar python3; do command -v $tool; done; :"},
		output: func(stderr bool, p []byte) { out.Write(p[:min(len(p), max(0, maxTail-out.Len()))]) },
	})
	if err != nil {
		return err
	}
	if _, err := p.wait(ctx); err != nil {
		return err
	}
	b.tools = map[string]string{}
	for path := range strings.FieldsSeq(out.String()) {
		b.tools[path[strings.LastIndexByte(path, '/')+1:]] = path
	}
	return nil
}

// execution is a program that Docker's exec started.
type execution struct {
	b        *box
	id       string
	conn     net.Conn
	half     interface{ CloseWrite() error }
	output   func(stderr bool, p []byte)
	left     int64 // bytes of output to pass on; negative: all
	dropped  int64
	deadline *time.Timer
	late     atomic.Bool
	done     chan struct{} // all output was written; exit and err are set
	exit     exit
	err      error
}

// errEnded is why a container of programs without an agent is given up.
var errEnded = errors.New("it was ended with a program in it: without Python in the image there is no other way")

func (b *box) exec(ctx context.Context, s spec) (*execution, error) {
	vars := make([]string, 0, len(s.Env))
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		vars = append(vars, k+"="+s.Env[k])
	}
	made, err := b.d.api.ExecCreate(ctx, b.id, client.ExecCreateOptions{
		Cmd: s.Argv, Env: vars, WorkingDir: s.Cwd, TTY: s.TTY, AttachStdin: s.Input, AttachStdout: true, AttachStderr: !s.TTY,
	})
	if err != nil {
		return nil, b.d.explain(ctx, "start program", err)
	}
	b.programs.RLock()
	conn, err := b.d.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{TTY: s.TTY})
	if err != nil {
		b.programs.RUnlock()
		return nil, b.d.explain(ctx, "start program", err)
	}
	e := &execution{b: b, id: made.ID, conn: conn.Conn, half: &conn.HijackedResponse, output: s.output, left: -1, done: make(chan struct{})}
	if s.MaxOutput > 0 {
		e.left = s.MaxOutput
	}
	if s.Timeout > 0 {
		e.deadline = time.AfterFunc(time.Duration(s.Timeout*float64(time.Second)), func() {
			e.late.Store(true)
			_ = e.kill()
		})
	}
	ended := make(chan struct{})
	go e.read(conn.Reader, s.TTY, ended)
	go e.watch(ended)
	return e, nil
}

// read passes output on until its end, and finds out how the program ended.
func (e *execution) read(r *bufio.Reader, tty bool, ended chan struct{}) {
	defer close(e.done)
	defer e.b.leave()
	in := &streams{r: r, log: logFunc(func(p []byte) { e.pass(true, p) })}
	var from io.Reader = in
	if tty {
		from = r
	}
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		e.pass(false, buf[:n])
		if err != nil {
			break
		}
	}
	close(ended)
	if e.deadline != nil {
		e.deadline.Stop()
	}
	e.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	for {
		state, err := e.b.d.api.ExecInspect(ctx, e.id, client.ExecInspectOptions{})
		switch {
		case err == nil && state.Running && e.b.link.cause() == nil:
			// Its output has ended, it has not.
			select {
			case <-time.After(50 * time.Millisecond):
			case <-e.b.link.lost:
			}
			if ctx.Err() == nil {
				continue
			}
			_ = e.kill()
			e.err = errEnded
		case err == nil && e.b.link.cause() == nil:
			e.exit = exit{Code: state.ExitCode, Dropped: e.dropped}
		case e.late.Load():
			e.exit = exit{Code: -9, TimedOut: true, Dropped: e.dropped}
		default:
			if e.err = e.b.link.cause(); e.err == nil {
				e.err = err
			}
		}
		return
	}
}

// watch closes the connection soon after the program has ended: what it left
// running may hold its output open.
func (e *execution) watch(ended chan struct{}) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		select {
		case <-ended:
			return
		case <-e.b.link.lost:
			e.conn.Close()
			return
		case <-time.After(wait):
		}
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		state, err := e.b.d.api.ExecInspect(ctx, e.id, client.ExecInspectOptions{})
		cancel()
		if err == nil && !state.Running {
			select {
			case <-ended:
			case <-time.After(500 * time.Millisecond):
				e.conn.Close()
			}
			return
		}
	}
}

func (e *execution) pass(stderr bool, p []byte) {
	if e.left >= 0 {
		keep := p[:min(int64(len(p)), e.left)]
		e.dropped += int64(len(p) - len(keep))
		e.left -= int64(len(keep))
		p = keep
	}
	if len(p) > 0 {
		e.output(stderr, p)
	}
}

// leave notes the end of a program, and ends what it left if it was the last.
func (b *box) leave() {
	b.programs.RUnlock()
	if b.link.cause() != nil || !b.programs.TryLock() {
		return
	}
	defer b.programs.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	made, err := b.d.api.ExecCreate(ctx, b.id, client.ExecCreateOptions{Cmd: []string{"sh", "-c", "kill -9 -1 2>/dev/null; :"}})
	if err == nil {
		_, err = b.d.api.ExecStart(ctx, made.ID, client.ExecStartOptions{Detach: true})
	}
	for err == nil {
		var state client.ExecInspectResult
		if state, err = b.d.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{}); err == nil && !state.Running {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.link.close(errors.New("what a program left running could not be ended"))
}

func (e *execution) write(p []byte) (int, error) { return e.conn.Write(p) }

func (e *execution) closeInput() { _ = e.half.CloseWrite() }

func (e *execution) kill() error {
	e.b.link.close(errEnded)
	return nil
}

func (e *execution) wait(ctx context.Context) (exit, error) {
	select {
	case <-e.done:
	case <-ctx.Done():
		_ = e.kill()
		<-e.done
	}
	return e.exit, e.err
}

// logFunc is an io.Writer.
type logFunc func(p []byte)

func (f logFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}
