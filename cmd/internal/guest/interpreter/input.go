//go:build linux

package interpreter

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

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
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

	end  sync.Once // closes over, and the rest
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
func (ip *Interpreter) openInput(id string) (in *codeInput, status int, err error) {
	in = &codeInput{
		id: id, path: filepath.Join(ip.settings.Config.KernelDir, "stdin-"+id),
		turn: make(chan struct{}, 1), opened: make(chan struct{}), over: make(chan struct{}), r: -1,
	}
	ip.inputs.mu.Lock()
	defer ip.inputs.mu.Unlock()
	if ip.inputs.all[id] != nil {
		return nil, http.StatusConflict, errors.New("an execution with an input of this id runs already")
	}
	if err := in.open(ip.settings.Config); err != nil {
		return nil, http.StatusInternalServerError, fmt.Errorf("make the standard input: %w", err)
	}
	if ip.inputs.all == nil {
		ip.inputs.all = map[string]*codeInput{}
	}
	ip.inputs.all[id] = in
	return in, 0, nil
}

func (in *codeInput) open(cfg settings.Config) error {
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

// closeInput ends an input, once or more often. Who still holds the pipe, such as a
// process in the background, reads its end.
func (ip *Interpreter) closeInput(in *codeInput) {
	ip.inputs.mu.Lock()
	if ip.inputs.all[in.id] == in {
		delete(ip.inputs.all, in.id)
	}
	ip.inputs.mu.Unlock()
	in.end.Do(func() {
		close(in.over)
		in.close()
	})
}

// handleStdinProbe says that executions take an input and arguments.
func (ip *Interpreter) handleStdinProbe(w http.ResponseWriter, r *http.Request) {
	if !ip.settings.Authorised(r) {
		reply.Text(w, http.StatusUnauthorized, reply.Unauthorised)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// handleStdin writes the body to an execution's input and answers when the pipe
// has taken all of it: 410 says that nobody will read more.
func (ip *Interpreter) handleStdin(w http.ResponseWriter, r *http.Request) {
	if !ip.settings.Authorised(r) {
		reply.Text(w, http.StatusUnauthorized, reply.Unauthorised)
		return
	}
	ip.inputs.mu.Lock()
	in := ip.inputs.all[r.PathValue("id")]
	ip.inputs.mu.Unlock()
	if in == nil {
		reply.Text(w, http.StatusGone, "no execution reads this input")
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
		reply.Text(w, status, err.Error())
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
