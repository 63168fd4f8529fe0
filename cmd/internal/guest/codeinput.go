//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// codeInput is the standard input of one execution: a named pipe that the kernel
// opens for the time of the cell, since only a name can be handed to a kernel
// that runs already.
type codeInput struct {
	id, path string
	w        *os.File
	turn     chan struct{} // held while a request's bytes are written
	opened   chan struct{} // closed once the kernel has opened the pipe
	over     chan struct{} // closed when the execution has ended

	once sync.Once // closes r and opened
	r    int       // our own end for reading: until the kernel has one, the pipe must have a reader
}

// answerTime is how long who opens /dev/stdin after the end of the input may wait.
const answerTime = 20 * time.Millisecond

// codeInputs are the open inputs by id.
type codeInputs struct {
	mu  sync.Mutex
	all map[string]*codeInput
}

func validInput(id string) bool {
	return len(id) <= 64 && strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// openInput makes an input, which takes bytes from then on: as many as fit into a
// pipe before the code reads them. Its error is for the client, with this status.
func (g *Guest) openInput(id string) (in *codeInput, status int, err error) {
	in = &codeInput{
		id: id, path: filepath.Join(g.cfg.KernelDir, "stdin-"+id),
		turn: make(chan struct{}, 1), opened: make(chan struct{}), over: make(chan struct{}), r: -1,
	}
	g.inputs.mu.Lock()
	defer g.inputs.mu.Unlock()
	if g.inputs.all[id] != nil {
		return nil, http.StatusConflict, errors.New("an execution with an input of this id runs already")
	}
	if err := in.open(g.cfg); err != nil {
		return nil, http.StatusInternalServerError, fmt.Errorf("make the standard input: %w", err)
	}
	if g.inputs.all == nil {
		g.inputs.all = map[string]*codeInput{}
	}
	g.inputs.all[id] = in
	return in, 0, nil
}

func (in *codeInput) open(cfg Config) error {
	if err := unix.Mkfifo(in.path, 0o600); err != nil {
		return err
	}
	err := func() (err error) {
		if cfg.SwitchUser {
			if err := os.Chown(in.path, int(cfg.UID), int(cfg.GID)); err != nil {
				return err
			}
		}
		// The one for reading comes first: without a reader the other would not open.
		if in.r, err = unix.Open(in.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		// Not blocking, so that the runtime can wait for room and be told to stop.
		in.w, err = os.OpenFile(in.path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		return err
	}()
	if err != nil {
		in.close()
	}
	return err
}

// isOpen is called when the kernel has opened the pipe.
func (in *codeInput) isOpen() {
	in.once.Do(func() {
		if in.r >= 0 {
			_ = unix.Close(in.r)
		}
		close(in.opened)
	})
}

func (in *codeInput) close() {
	if in.w != nil {
		_ = in.w.Close() // wakes who writes
	}
	in.isOpen()
	_ = os.Remove(in.path)
}

// closeInput ends an input. Who still holds the pipe, such as a process in the
// background, reads its end.
func (g *Guest) closeInput(in *codeInput) {
	g.inputs.mu.Lock()
	delete(g.inputs.all, in.id)
	g.inputs.mu.Unlock()
	close(in.over)
	in.close()
}

// handleStdinProbe says that executions take an input and arguments.
func (g *Guest) handleStdinProbe(w http.ResponseWriter, r *http.Request) {
	if !g.authorised(r) {
		writeText(w, http.StatusUnauthorized, unauthorised)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// handleStdin writes the body to an execution's input and answers when the pipe
// has taken all of it: 410 says that nobody will read more.
func (g *Guest) handleStdin(w http.ResponseWriter, r *http.Request) {
	if !g.authorised(r) {
		writeText(w, http.StatusUnauthorized, unauthorised)
		return
	}
	g.inputs.mu.Lock()
	in := g.inputs.all[r.PathValue("id")]
	g.inputs.mu.Unlock()
	if in == nil {
		writeText(w, http.StatusGone, "no execution reads this input")
		return
	}
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-in.over:
	case <-r.Context().Done():
		return
	}
	ended, err := in.take(r)
	if ended {
		go in.answer() // until the execution ends
	}
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) {
			status, err = http.StatusGone, errors.New("the code reads no more input")
		}
		writeText(w, status, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// take writes the body of r, and ends the input if r says so. The caller has the
// turn.
func (in *codeInput) take(r *http.Request) (ended bool, err error) {
	// A client that goes away in the middle leaves a broken input: the deadline
	// stays, and its execution ends, too.
	stop := context.AfterFunc(r.Context(), func() { _ = in.w.SetWriteDeadline(time.Now()) })
	defer stop()
	// Not the file's own ReadFrom, which would take the connection's descriptor.
	if _, err := io.Copy(struct{ io.Writer }{in.w}, r.Body); err != nil {
		return false, err
	}
	if !r.URL.Query().Has("end") {
		return false, nil
	}
	select {
	case <-in.opened: // else the kernel that opens the pipe later would wait for ever
	case <-in.over:
	case <-r.Context().Done():
		return false, context.Cause(r.Context())
	}
	err = in.w.Close()
	return err == nil, err
}

// answer lets /dev/stdin be opened after the end of the input. That opens the named
// pipe again, which waits for somebody who writes; where a program of its own has
// an ordinary pipe it would not.
func (in *codeInput) answer() {
	tick := time.NewTicker(answerTime)
	defer tick.Stop()
	for {
		select {
		case <-in.over:
			return
		case <-tick.C:
			if fd, err := unix.Open(in.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				_ = unix.Close(fd)
			}
		}
	}
}

// makeProgram prepares what the kernel is told about the program and its input,
// and writes its file. The error is for the client, with this status.
func (g *Guest) makeProgram(c *codeContext, req protocol.ExecuteRequest) (q kernel.Request, status int, err error) {
	if req.Stdin != nil {
		q.Stdin = os.DevNull
	}
	p := req.Program
	if p == nil {
		return q, 0, nil
	}
	q.Program = &kernel.Program{Name: p.Name, Args: p.Args}
	if p.Name == "" || p.Name == "-" {
		return q, 0, nil
	}
	q.Program.File = filepath.Join(c.Cwd, p.Name)
	f, err := os.OpenFile(q.Program.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return q, 0, nil
	}
	if err == nil {
		if g.cfg.SwitchUser {
			err = f.Chown(int(g.cfg.UID), int(g.cfg.GID))
		}
		_, werr := io.WriteString(f, req.Code)
		err = errors.Join(err, werr, f.Close())
	}
	if err != nil {
		return q, http.StatusInternalServerError, fmt.Errorf("write the program's file: %w", err)
	}
	return q, 0, nil
}
