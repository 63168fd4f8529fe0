package cubby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// takesPrograms asks once whether the sandbox's code interpreter knows standard
// input and arguments: others would ignore them and run the code without.
func (s *Sandbox) takesPrograms(ctx context.Context) error {
	if s.programs.Load() {
		return nil
	}
	req, err := s.request(ctx, http.MethodGet, protocol.CodeInterpreterPort, protocol.StdinPath, nil, nil)
	if err != nil {
		return err
	}
	err = s.client.exchange(req, nil)
	if c := CodeOf(err); c == CodeNotFound || c == CodeUnimplemented {
		return &Error{
			Code: CodeUnimplemented, Err: errors.New("this server's code has neither standard input nor arguments"),
			Hint: "put them into the code, a file or the environment",
		}
	}
	if err != nil {
		return s.diagnose(ctx, err)
	}
	s.programs.Store(true)
	return nil
}

// feeder sends a reader's bytes to the standard input of an execution.
type feeder struct {
	s      *Sandbox
	id     string
	r      io.Reader
	ctx    context.Context
	cancel context.CancelFunc
	giveUp context.CancelCauseFunc // ends the execution
	done   chan struct{}

	mu      sync.Mutex
	over    bool // nothing more is to be read
	reading bool // a Read is under way
}

// feed starts a feeder; giveUp ends the execution with a reason.
func (s *Sandbox) feed(ctx context.Context, giveUp context.CancelCauseFunc, id string, r io.Reader) *feeder {
	f := &feeder{s: s, id: id, r: r, giveUp: giveUp, done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(ctx)
	go f.run()
	return f
}

// stop ends the feeder and waits for it, but not for a Read that is under way.
func (f *feeder) stop() {
	f.mu.Lock()
	f.over = true
	reading := f.reading
	f.mu.Unlock()
	f.cancel()
	if !reading {
		<-f.done
	}
}

func (f *feeder) run() {
	defer close(f.done)
	defer f.cancel()
	buf := make([]byte, 32<<10)
	for {
		n, err, over := f.read(buf)
		if over {
			return
		}
		end := errors.Is(err, io.EOF)
		if (n > 0 || end) && !f.send(buf[:n], end) {
			return
		}
		switch {
		case end:
			return
		case err != nil:
			f.giveUp(&Error{Code: CodeInvalidArgument, Err: fmt.Errorf("the code's input could not be read: %w", err)})
			return
		}
		if n == len(buf) && n < maxInput {
			buf = make([]byte, 2*n) // there is much of it
		}
	}
}

// read waits for the reader, unless the execution is over before or after.
func (f *feeder) read(buf []byte) (n int, err error, over bool) {
	f.mu.Lock()
	f.reading = !f.over
	over = f.over
	f.mu.Unlock()
	if over {
		return 0, nil, true
	}
	n, err = readSome(f.r, buf)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = false
	return n, err, f.over
}

// send hands over b, which the code may be slow to read, and says whether there is
// any point in another one.
func (f *feeder) send(b []byte, end bool) bool {
	var query url.Values
	if end {
		query = url.Values{"end": {""}}
	}
	path := protocol.StdinPath + "/" + f.id
	req, err := f.s.request(f.ctx, http.MethodPost, protocol.CodeInterpreterPort, path, query, bytes.NewReader(b))
	if err == nil {
		req.Header.Set("Content-Type", "application/octet-stream")
		err = f.s.client.exchange(req, nil)
	}
	e, _ := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return true
	case statusOf(err) == http.StatusGone, f.ctx.Err() != nil:
		// The code has ended, or reads no more.
	case e != nil && (e.Code == CodeSandboxGone || e.Code == CodeUnavailable):
		// The execution's own stream tells what has happened.
	default:
		f.giveUp(&Error{Code: CodeInternal, Err: fmt.Errorf("the code's input could not be sent: %w", err)})
	}
	return false
}
