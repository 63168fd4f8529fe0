//go:build linux

// Package transformer has TypeScript made into JavaScript by a program beside the guest,
// which package typescript describes.
package transformer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
)

const (
	// patience is how long the program may take for a source, and patiencePerMiB as
	// much again for each MiB of it: some forty times what it needs.
	patience       = 20 * time.Second
	patiencePerMiB = 10 * time.Second
	// large is from when on, in bytes of a source, the program is ended after it: the
	// memory that it took, some fifty times as much, is the code's.
	large = 1 << 20
	// memory is what the program's collector keeps to as long as it can, in bytes.
	memory = 128 << 20
	// nobody is the user and the group of the program: the code is another user, who
	// cannot change it, and whose processes it is none of.
	nobody = 65534
)

// ErrMissing says that there is no program.
var ErrMissing = errors.New("TypeScript's compiler is not installed beside the guest")

// Transformer keeps one process of the program, from the first source or call of Start on.
// Make it with New. Its methods may be called by several at the same time; one waits for another.
type Transformer struct {
	path     string
	switches bool // to the user nobody
	children *reaper.Children
	turn     chan struct{} // held while the process is used
	proc     *process      // nil without one; guarded by turn
	wg       sync.WaitGroup
}

// process is the program as it runs.
type process struct {
	cmd    *exec.Cmd
	in     *os.File      // where it reads
	out    *os.File      // where it writes
	ended  chan struct{} // closed when it has ended and status is set
	status syscall.WaitStatus
}

// New returns a Transformer that starts the program at path, empty for none, with
// children; as the user nobody if switchUser is set.
func New(path string, switchUser bool, children *reaper.Children) *Transformer {
	return &Transformer{path: path, switches: switchUser, children: children, turn: make(chan struct{}, 1)}
}

// Transform makes JavaScript of source. The error is a *typescript.SyntaxError if the
// source is none, ErrMissing if there is no program, and ctx's own when that is done.
// The program is not trusted: whatever it does, the call ends.
func (t *Transformer) Transform(ctx context.Context, source string) (string, error) {
	if t.path == "" {
		return "", ErrMissing
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	limit := patience + patiencePerMiB*time.Duration(len(source)>>20)
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("TypeScript's compiler took longer than %s", limit))
	defer cancel()
	js, err := t.once(bounded, source)
	if errors.As(err, new(*endedError)) { // of no fault of this source, perhaps
		js, err = t.once(bounded, source)
	}
	return js, err
}

// Start starts the program ahead of the first source, unless it runs already or another
// call uses it. It does not wait until the program can answer, and tells no error: the
// next source does.
func (t *Transformer) Start() {
	if t.path == "" {
		return
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	default:
		return
	}
	if t.proc == nil {
		t.proc, _ = t.start()
	}
}

// endedError says that the process ended instead of answering.
type endedError struct{ status syscall.WaitStatus }

func (e *endedError) Error() string {
	return fmt.Sprintf("TypeScript's compiler ended (%s)", reaper.Describe(e.status))
}

// once makes one attempt. After any error but a syntax error the process is ended: what
// it would say next is not known. The caller has the turn.
func (t *Transformer) once(ctx context.Context, source string) (js string, err error) {
	if t.proc == nil {
		if t.proc, err = t.start(); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = ErrMissing
			}
			return "", err
		}
	}
	p := t.proc
	answer, err := p.exchange(ctx, source)
	if err == nil {
		js, err = typescript.ParseAnswer(answer)
	}
	if err != nil && !errors.As(err, new(*typescript.SyntaxError)) || len(source) >= large {
		ended := p.hasEnded(err)
		t.end()
		if ended {
			err = &endedError{p.status}
		}
	}
	return js, err
}

// start starts the program. It knows nothing of the sandbox but its own file.
func (t *Transformer) start() (_ *process, err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w
	}
	theirIn, in := pipe()
	out, theirOut := pipe()
	if err != nil {
		return nil, fmt.Errorf("start TypeScript's compiler: %w", err)
	}
	p := &process{in: in, out: out, ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: t.path, Args: []string{typescript.Program}, Dir: "/",
		Env:   []string{"GOMEMLIMIT=" + strconv.Itoa(memory), "GOMAXPROCS=" + strconv.Itoa(runtime.GOMAXPROCS(0))},
		Stdin: theirIn, Stdout: theirOut,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if t.switches {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{nobody}}
	}
	if err := t.children.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start TypeScript's compiler: %w", err)
	}
	files = []*os.File{theirIn, theirOut}
	t.wg.Go(func() {
		p.status = t.children.Wait(p.cmd)
		close(p.ended)
	})
	return p, nil
}

// exchange gives the process a source and takes the answer, until ctx is done.
func (p *process) exchange(ctx context.Context, source string) (answer []byte, err error) {
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(late)
		_ = p.in.SetWriteDeadline(time.Unix(1, 0))
		_ = p.out.SetReadDeadline(time.Unix(1, 0))
	})
	if err = typescript.Write(p.in, []byte(source), typescript.MaxSource); err == nil {
		answer, err = typescript.Read(p.out, typescript.MaxAnswer)
	}
	if !stop() {
		<-late
		return nil, context.Cause(ctx) // the deadlines stay: the process is of no use any more
	}
	if err != nil {
		return nil, fmt.Errorf("TypeScript's compiler: %w", err)
	}
	return answer, nil
}

// hasEnded says whether err came because the process has ended, or is about to: it has
// closed its ends.
func (p *process) hasEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE)
}

// end kills the process and its process group, if there is one, and waits for its death. The caller has the
// turn.
func (t *Transformer) end() {
	if t.proc == nil {
		return
	}
	if t.proc.cmd.Process.Kill() == nil { // else it has ended
		_ = syscall.Kill(-t.proc.cmd.Process.Pid, syscall.SIGKILL) // and what it started
	}
	_ = t.proc.in.Close()
	_ = t.proc.out.Close()
	<-t.proc.ended
	t.proc = nil
}

// Close kills the process and waits until nothing of it is left. Calls must have ended.
func (t *Transformer) Close() {
	t.turn <- struct{}{}
	t.end()
	<-t.turn
	t.wg.Wait()
}
