//go:build linux

package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// idlePoll is how often a guest looks for a new host once the old one is gone:
// a restore puts a new socket under the same descriptor.
const idlePoll = 20 * time.Millisecond

// Serve takes over f, the guest's end of the socket, and serves the host's
// connections until ctx is done; then it ends them all and returns nil once
// nothing of it runs. It outlives hosts: a new session may come at any time.
//
// Each connection is offered to accept, which owns it if it answers true and
// must not block; connections that it declines are dialled on the loopback
// interface. accept may be nil.
//
// replaced, which may be nil and must not block, is called when another host has
// taken the place of the one before, as after a restore: before the connections of
// the old one end, and before any of the new one is accepted.
func Serve(ctx context.Context, f *os.File, accept func(port int, c net.Conn) bool, replaced func()) error {
	f, err := pollable(f)
	if err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	s := &server{l: &link{f: f}, accept: accept, replaced: replaced, sessions: make(chan *session)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()

	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+dialPath, s.dial)
	srv := &http.Server{
		Handler:        mux,
		Protocols:      protocols,
		MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              maxUpload,
			MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream:     streamWindow,
		},
	}
	var loops sync.WaitGroup
	loops.Go(s.readLoop)
	loops.Go(func() { _ = srv.Serve(s) })

	<-s.ctx.Done()
	_ = f.Close()
	s.l.end(net.ErrClosed)
	_ = srv.Close()
	loops.Wait()
	s.handlers.Wait()
	return nil
}

type server struct {
	l        *link
	accept   func(int, net.Conn) bool
	replaced func()
	host     string // whose sessions are served; only readLoop's
	ctx      context.Context
	cancel   context.CancelFunc
	sessions chan *session
	handlers sync.WaitGroup
}

func (s *server) readLoop() {
	buf := make([]byte, maxPayload+1)
	for {
		kind, payload, err := s.l.read(buf)
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil:
			s.l.end(ErrReset)
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(idlePoll):
			}
		case kind == msgSession:
			s.meet(string(payload))
			ses, err := s.l.start("guest", string(payload))
			if err != nil {
				continue // the host is gone again
			}
			select {
			case s.sessions <- ses:
			case <-s.ctx.Done():
				return
			}
		case kind == msgData:
			if ses := s.l.cur.Load(); ses != nil {
				_, _ = ses.rx.Write(payload)
			}
		case kind == msgEnd:
			s.l.end(ErrReset)
		}
	}
}

// meet notes whose session begins.
func (s *server) meet(session string) {
	host, _, _ := strings.Cut(session, idSeparator)
	if s.host != "" && s.host != host && s.replaced != nil {
		s.replaced()
	}
	s.host = host
}

// Accept, Close and Addr make the sessions a net.Listener.
func (s *server) Accept() (net.Conn, error) {
	select {
	case ses := <-s.sessions:
		return ses, nil
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (s *server) Close() error { s.cancel(); return nil }

func (s *server) Addr() net.Addr { return addr("guest") }

func (s *server) dial(w http.ResponseWriter, r *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	port, err := strconv.Atoi(r.FormValue("port"))
	if err != nil || port < 1 || port > 65535 {
		http.Error(w, "bad port", http.StatusBadRequest)
		return
	}
	if s.accept != nil {
		c := &conn{rx: newPipe(pipeSize), tx: newPipe(pipeSize), local: addr("guest:" + strconv.Itoa(port)), remote: "host"}
		// A closed connection takes nothing more from the host.
		closed := make(chan struct{})
		c.closed = func() { close(closed) }
		if s.accept(port, c) {
			relay(w, r, bodyPipe{c.tx}, pipeEnd{c.rx}, closed)
			return
		}
	}
	c, err := dialLoopback(r.Context(), port)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer c.Close()
	// Reading from the target must end with the request, whoever ends it.
	defer context.AfterFunc(r.Context(), func() { _ = c.Close() })()
	relay(w, r, c, tcpEnd{c}, nil)
}

// connectTime is how long a port may take to accept: its backlog may be full.
const connectTime = 10 * time.Second

func dialLoopback(ctx context.Context, port int) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: connectTime}
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// writeEnd is where the bytes from the host go: abort ends it because the host
// is gone, CloseWrite because the host ended what it writes.
type writeEnd interface {
	io.Writer
	CloseWrite() error
	abort()
}

type pipeEnd struct{ *pipe }

func (p pipeEnd) CloseWrite() error { p.closeWrite(nil); return nil }
func (p pipeEnd) abort()            { p.closeWrite(ErrReset) }

type tcpEnd struct{ *net.TCPConn }

func (t tcpEnd) abort() { _ = t.SetLinger(0); _ = t.Close() }

// relay moves bytes both ways until both are ended, one fails, or closed is
// closed and all that was written before is sent.
func relay(w http.ResponseWriter, r *http.Request, from io.Reader, to writeEnd, closed <-chan struct{}) {
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	_ = rc.Flush()

	upload := make(chan struct{})
	go func() {
		defer close(upload)
		if err := receive(to, r.Body); err != nil {
			to.abort()
		} else {
			_ = to.CloseWrite()
		}
	}()
	// The body must not be read after the handler: end the upload first.
	defer func() { <-upload }()
	defer r.Body.Close()
	if c, ok := from.(io.Closer); ok {
		defer c.Close()
		// A host that is gone must not leave the writer waiting.
		defer context.AfterFunc(r.Context(), func() { _ = c.Close() })()
	}

	in := newReader()
	defer in.close()
	for {
		buf := in.buf()
		buf = buf[:min(len(buf), 4+maxChunk)]
		n, err := from.Read(buf[4:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, werr := w.Write(buf[:4+n]); werr != nil {
				to.abort()
				return
			}
			if werr := rc.Flush(); werr != nil {
				to.abort()
				return
			}
		}
		in.filled(4+n == len(buf))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			to.abort()
			panic(http.ErrAbortHandler) // a reset, not an end
		}
	}
	if _, err := w.Write(make([]byte, 4)); err == nil && rc.Flush() == nil {
		select {
		case <-upload:
		case <-closed:
		case <-r.Context().Done():
		}
	}
}

// receive copies what the host sends until it ends.
func receive(to io.Writer, body io.Reader) error {
	in := newReader()
	defer in.close()
	for {
		buf := in.buf()
		n, err := body.Read(buf)
		if _, werr := to.Write(buf[:n]); werr != nil {
			return werr
		}
		in.filled(n == len(buf))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
