//go:build linux

// Package commands starts and follows commands: it is envd's process.Process.
package commands

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
	"github.com/cubby-sandbox/cubby/cmd/internal/envd/envdconnect"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reaper"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/reply"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	maxRequest = 8 << 20 // bytes of a message that is no input: JSON of maxConfig
	// maxInput is for one input of 64 MiB, as JSON; whoever has more sends it in
	// pieces.
	maxInput = 88 << 20
	// largeInput is the body of an input, in bytes, of which inputs can be in
	// memory at once at most.
	largeInput = 4 << 20
	inputs     = 2
	inputTime  = 30 * time.Second // to wait for room
)

// Service is envd's process.Process.
type Service struct {
	settings *settings.Store
	ctx      context.Context // done when the guest ends
	wg       sync.WaitGroup  // of the commands
	children *reaper.Children
	machine  *restored.Machine
	table    table
	// large has a place for each large input.
	large chan struct{}
}

var _ envdconnect.ProcessHandler = (*Service)(nil)

// New returns a service that lives until ctx is done; then wait
// must be called.
func New(ctx context.Context, s *settings.Store, c *reaper.Children, m *restored.Machine) *Service {
	return &Service{settings: s, ctx: ctx, children: c, machine: m, large: make(chan struct{}, inputs)}
}

// Bound changes how many commands there are at a time; 0 is as many as ever. Those
// that run go on.
func (s *Service) Bound(n int) { s.table.bound(n) }

// Restored says that the machine was restored: ends that were remembered before are for
// as long again.
func (s *Service) Restored() { s.table.restored() }

// Wait waits until nothing of the commands is left. The service's context is done.
func (s *Service) Wait() { s.wg.Wait() }

// Busy reports whether a command runs that has no terminal.
func (s *Service) Busy() bool { return s.table.busy() }

// Refuse makes that no command is started from now on.
func (s *Service) Refuse() { s.table.close() }

// Handler returns the service and the path that it is served under.
func (s *Service) Handler() (string, http.Handler) {
	prefix, h := envdconnect.NewProcessHandler(s, connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		if spec.Procedure == envdconnect.ProcessSendInputProcedure {
			return []connect.HandlerOption{connect.WithReadMaxBytes(maxInput)}
		}
		return []connect.HandlerOption{connect.WithReadMaxBytes(maxRequest)}
	}), connect.WithCompressMinBytes(math.MaxInt)) // nothing: the way to the host is short
	return prefix, s.bounded(h)
}

// bounded lets few large inputs in at once: each is in memory as a whole, more
// than once.
func (s *Service) bounded(h http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != envdconnect.ProcessSendInputProcedure || r.ContentLength >= 0 && r.ContentLength <= largeInput {
			h.ServeHTTP(w, r)
			return
		}
		t := time.NewTimer(inputTime)
		defer t.Stop()
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
			h.ServeHTTP(w, r)
		case <-t.C:
			_ = refuse.Write(w, r, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("other inputs of more than %d MiB wait for their commands to read: send less at a time", largeInput>>20)))
		case <-r.Context().Done():
		}
	})
}

func notFound(s *envd.ProcessSelector) error {
	if _, byTag := s.GetSelector().(*envd.ProcessSelector_Tag); byTag {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", s.GetTag()))
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.GetPid()))
}

// find returns the command that sel selects.
func (s *Service) find(sel *envd.ProcessSelector) (*command, error) {
	if sel.GetSelector() == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("select a process by its pid or its tag"))
	}
	if c := s.table.find(sel); c != nil {
		return c, nil
	}
	return nil, notFound(sel)
}

// List lists the commands that run.
func (s *Service) List(context.Context, *connect.Request[envd.ListRequest]) (*connect.Response[envd.ListResponse], error) {
	return connect.NewResponse(&envd.ListResponse{Processes: s.table.list()}), nil
}

// Start starts a command and follows it until its end. The deadline of the call is
// the command's too, in time that the machine ran; the client's going away is not its
// end, except with the header Cubby-Attached, and a restore is never.
func (s *Service) Start(ctx context.Context, req *connect.Request[envd.StartRequest],
	stream *connect.ServerStream[envd.StartResponse]) error {
	a, err := s.settings.Account(settings.RequestUser(req.Header()))
	if err != nil {
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	c, f, err := s.startCommand(ctx, a, req.Msg)
	if err != nil {
		return err
	}
	defer c.leave(f)
	if req.Header().Get(protocol.HeaderAttached) == "1" {
		restores := s.machine.Restores()
		defer func() {
			// At its deadline it is killed anyway, but that counts a checkpoint's time.
			if s.machine.Restores() == restores && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c.kill() // nothing, if it has ended
			}
		}()
	}
	send := func(e *envd.ProcessEvent) error { return stream.Send(&envd.StartResponse{Event: e}) }
	return s.tellAll(ctx, c, f, req.Header(), send, func() error {
		if c.late.Load() {
			return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
		}
		return send(endEvent(c.end))
	})
}

// startCommand starts what req asks for, with a follower that misses nothing.
func (s *Service) startCommand(ctx context.Context, a settings.Account, req *envd.StartRequest) (*command, *follower, error) {
	c, err := s.newCommand(a, req)
	if err != nil {
		return nil, nil, err
	}
	size := configSize(req.GetProcess())
	switch err := s.table.reserve(ctx, &s.wg, size); {
	case err == nil:
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	default:
		return nil, nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	if err := s.spawn(c, a, req.GetPty(), req.Stdin == nil || req.GetStdin()); err != nil {
		s.table.free(&s.wg, size)
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.timer = s.machine.AfterFunc(time.Until(deadline), func() {
			c.late.Store(true)
			c.kill()
		})
	}
	s.table.add(c)
	f := c.follow()
	stop := context.AfterFunc(s.ctx, c.abandon)
	go func() {
		defer s.table.free(&s.wg, size)
		c.run(s.children, func() { s.table.over(c) })
		stop()
	}()
	return c, f, nil
}

// Connect follows a command that runs, or tells the end of one that did a moment
// ago.
func (s *Service) Connect(ctx context.Context, req *connect.Request[envd.ConnectRequest],
	stream *connect.ServerStream[envd.ConnectResponse]) error {
	send := func(e *envd.ProcessEvent) error { return stream.Send(&envd.ConnectResponse{Event: e}) }
	sel := req.Msg.GetProcess()
	c, err := s.find(sel)
	if err == nil {
		f := c.follow()
		defer c.leave(f)
		return s.tellAll(ctx, c, f, req.Header(), send, func() error { return send(endEvent(c.end)) })
	}
	p, ok := s.table.findPast(sel)
	if !ok {
		return err
	}
	if err := send(startEvent(p.pid)); err != nil {
		return err
	}
	return send(endEvent(p.end))
}

// tellAll sends the events of c that f follows, first its start; after its end it
// returns what last does.
func (s *Service) tellAll(ctx context.Context, c *command, f *follower, h http.Header,
	send func(*envd.ProcessEvent) error, last func() error) error {
	if err := send(startEvent(c.info.GetPid())); err != nil {
		return err
	}
	interval := reply.KeepaliveInterval(h)
	silence := time.NewTicker(interval)
	defer silence.Stop()
	for {
		select {
		case e := <-f.events:
			if err := send(e); err != nil {
				return err
			}
			silence.Reset(interval)
		case <-silence.C:
			if err := send(&envd.ProcessEvent{Event: &envd.ProcessEvent_Keepalive{Keepalive: &envd.ProcessEvent_KeepAlive{}}}); err != nil {
				return err
			}
		case <-f.slow:
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("others follow this process and have waited for %v for this client to read: connect again", c.patience))
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errClosing)
		case <-c.ended:
			// Nothing is added any more, but the last may still be there.
			for len(f.events) > 0 {
				if err := send(<-f.events); err != nil {
					return err
				}
			}
			return last()
		}
	}
}

// Update resizes a terminal.
func (s *Service) Update(_ context.Context, req *connect.Request[envd.UpdateRequest]) (*connect.Response[envd.UpdateResponse], error) {
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if p := req.Msg.GetPty(); p != nil {
		size, err := windowSize(p)
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		if c.pty == nil {
			return nil, connect.NewError(connect.CodeInternal, errors.New("the process has no terminal"))
		}
		if err := resize(c.pty, size); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("resize the terminal: %w", err))
		}
	}
	return connect.NewResponse(&envd.UpdateResponse{}), nil
}

// SendInput writes to a command and returns when the command has room for all of
// it.
func (s *Service) SendInput(ctx context.Context,
	req *connect.Request[envd.SendInputRequest]) (*connect.Response[envd.SendInputResponse], error) {
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, req.Msg.GetInput()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&envd.SendInputResponse{}), nil
}

// write writes an input to where it says that it belongs.
func (c *command) write(ctx context.Context, in *envd.ProcessInput) error {
	var b []byte
	switch x := in.GetInput().(type) {
	case *envd.ProcessInput_Stdin:
		b = x.Stdin
		if c.pty != nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process has a terminal: send the input to it, not to stdin"))
		}
	case *envd.ProcessInput_Pty:
		b = x.Pty
		if c.pty == nil {
			return connect.NewError(connect.CodeInternal, errors.New("the process has no terminal: send the input to stdin"))
		}
	default:
		return connect.NewError(connect.CodeUnimplemented, errors.New("an input is for stdin or for a terminal"))
	}
	if c.in == nil {
		return connect.NewError(connect.CodeInternal, errInputClosed)
	}
	err := c.in.write(ctx, b)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("write to process %d: %w", c.info.GetPid(), err))
}

// StreamInput writes what comes to the command that the first message selects.
func (s *Service) StreamInput(ctx context.Context,
	stream *connect.ClientStream[envd.StreamInputRequest]) (*connect.Response[envd.StreamInputResponse], error) {
	var c *command
	for stream.Receive() {
		var err error
		switch e := stream.Msg().GetEvent().(type) {
		case *envd.StreamInputRequest_Start:
			c, err = s.find(e.Start.GetProcess())
		case *envd.StreamInputRequest_Data:
			if c == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("say first which process the input is for"))
			}
			err = c.write(ctx, e.Data.GetInput())
		case *envd.StreamInputRequest_Keepalive:
		default:
			err = connect.NewError(connect.CodeUnimplemented, errors.New("an event is start, data or keepalive"))
		}
		if err != nil {
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&envd.StreamInputResponse{}), nil
}

// SendSignal signals the process and none of what it started; with the header
// Cubby-Signal-Group, its whole process group.
func (s *Service) SendSignal(_ context.Context,
	req *connect.Request[envd.SendSignalRequest]) (*connect.Response[envd.SendSignalResponse], error) {
	c, err := s.find(req.Msg.GetProcess())
	if err != nil {
		return nil, err
	}
	switch sig := req.Msg.GetSignal(); sig {
	case envd.Signal_SIGNAL_SIGKILL, envd.Signal_SIGNAL_SIGTERM:
		if err = c.signal(0); err == nil && req.Header().Get(protocol.HeaderSignalGroup) == "1" {
			err = syscall.Kill(-c.cmd.Process.Pid, syscall.Signal(sig))
		} else if err == nil {
			err = c.signal(syscall.Signal(sig))
		}
	default:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("invalid signal: %s", sig))
	}
	switch {
	case errors.Is(err, os.ErrProcessDone), errors.Is(err, unix.ESRCH):
		return nil, notFound(req.Msg.GetProcess())
	case err != nil:
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("signal process %d: %w", c.info.GetPid(), err))
	}
	return connect.NewResponse(&envd.SendSignalResponse{}), nil
}

// CloseStdin ends what a command reads from its standard input.
func (s *Service) CloseStdin(ctx context.Context,
	req *connect.Request[envd.CloseStdinRequest]) (*connect.Response[envd.CloseStdinResponse], error) {
	c, err := s.find(req.Msg.GetProcess())
	switch {
	case err != nil:
		return nil, err
	case c.pty != nil:
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal's input is not closed: send it Ctrl+D (0x04)"))
	case c.in != nil:
		if err := c.in.close(ctx); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("close stdin: %w", err))
		}
	}
	return connect.NewResponse(&envd.CloseStdinResponse{}), nil
}
