package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultIdle = 30 * time.Minute
	// What a client still sends while it has not seen the answer: as much is read,
	// so that the answer is not lost.
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

// ForwardOptions say where requests go. What is printed or logged of them shows
// no values of Headers and Redact.
type ForwardOptions struct {
	// Host is the name, or the address, that the client has connected to, and Port
	// its port: every request must be for it. A Host header may leave the port out.
	Host string
	Port uint16
	// TLS says that client is what was decrypted of TLS, and that Dial's connection
	// is verified TLS. Without it no header is added.
	TLS bool
	// Dial connects to the host, at the first request that is passed on. Forward
	// closes the connection.
	Dial func(ctx context.Context) (net.Conn, error)
	// Headers are set in every request, in the place of those of these names that
	// the client sends, if TLS.
	Headers map[string]string
	// Redact are values that are replaced by as many stars in answers: where they
	// stand as they are. Servers are asked not to compress, and values in what they
	// compress nevertheless are not found, nor those that the client asks for in
	// parts (Range). A value has at most 16 KiB.
	Redact [][]byte
	// Idle is how long nothing may pass in any direction, at the least; it is cut
	// before twice the time. 0 means 30 minutes.
	Idle time.Duration
}

// Format shows where requests go, for every verb.
func (o ForwardOptions) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "web.ForwardOptions{%s:%d, TLS %t, %d headers}", o.Host, o.Port, o.TLS, len(o.Headers))
}

// MarshalText shows where requests go, for logs in JSON.
func (o ForwardOptions) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(o)), nil }

// ErrIdle says that nothing has passed for ForwardOptions.Idle.
var ErrIdle = errors.New("nothing has passed for too long")

// Forward passes the HTTP/1 requests of client to one host, and the answers back.
// What is passed on is written anew, so that the host cannot read more or other
// requests than were judged; what is not as it should be, or not for the host, is
// refused with an answer, and the connection ends.
//
// Bodies are passed on as they come. To "Expect: 100-continue" the gateway agrees
// itself. An upgrade to WebSocket passes, one to another protocol is left out of
// the request. The host's connection lives as long as the client's.
//
// Forward closes client and returns when both sides are done: nil if they ended
// between messages, a *Refused, ErrIdle, the context's cause, or what went wrong
// with a connection. No error has a value of Headers or Redact.
func Forward(ctx context.Context, client net.Conn, opts ForwardOptions) error {
	defer cut(client)
	o, err := newTarget(opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &forwarding{
		target:      o,
		dial:        opts.Dial,
		client:      &stream{Conn: client},
		asked:       make(chan *exchange, 1),
		ended:       make(chan struct{}),
		clientEnded: make(chan struct{}),
	}
	f.client.active = &f.active
	f.clientIn = bufio.NewReaderSize(f.client, bufferSize)
	defer context.AfterFunc(ctx, f.cut)()
	if opts.Idle <= 0 {
		opts.Idle = defaultIdle
	}
	defer f.watch(opts.Idle, cancel)()
	err = f.run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	f.finish(err)
	return err
}

func newTarget(opts ForwardOptions) (*target, error) {
	o := &target{host: strings.ToLower(opts.Host), port: opts.Port, scheme: "http", replaces: map[string]bool{}}
	if a, err := netip.ParseAddr(o.host); err == nil && a.Zone() == "" {
		if o.address = a.Unmap(); o.address.Is6() {
			o.host = "[" + o.address.String() + "]"
		} else {
			o.host = o.address.String()
		}
	} else {
		for i := range len(o.host) {
			if !isNameByte(o.host[i]) {
				return nil, fmt.Errorf("%q is not the name of a host", opts.Host)
			}
		}
		if o.host == "" || strings.HasSuffix(o.host, ".") {
			return nil, fmt.Errorf("%q is not the name of a host", opts.Host)
		}
	}
	var err error
	if o.redact, err = newRedaction(opts.Redact); err != nil {
		return nil, err
	}
	if !opts.TLS {
		return o, nil
	}
	o.scheme = "https"
	for name, value := range opts.Headers {
		if !isToken(name) || !isValue(value) {
			return nil, fmt.Errorf("the header %q cannot be added: its name or its value has characters that headers do not have", name)
		}
		key := folded(name)
		if hopByHop[key] || key == "host" || key == "trailer" {
			return nil, fmt.Errorf("the header %q cannot be added: requests are understood by it", name)
		}
		if o.replaces[key] {
			return nil, fmt.Errorf("the header %q is added twice", name)
		}
		o.replaces[key] = true
		o.inject = append(o.inject, field{name, strings.Trim(value, " \t")})
	}
	sort.Slice(o.inject, func(i, j int) bool { return o.inject[i].name < o.inject[j].name })
	return o, nil
}

// stream is one of the two connections.
type stream struct {
	net.Conn
	active *atomic.Bool
	// before is called before a read that may wait. Only who reads sets it.
	before func() error
	// held says whether something is held back until more is read; release passes it
	// on. Both are nil unless values are redacted.
	held    func() bool
	release func() error
}

func (s *stream) Read(p []byte) (int, error) {
	if s.before != nil {
		if err := s.before(); err != nil {
			return 0, err
		}
	}
	n, err := s.read(p)
	if n > 0 {
		s.active.Store(true)
	}
	return n, err
}

func (s *stream) read(p []byte) (int, error) {
	if s.held == nil || !s.held() {
		return s.Conn.Read(p)
	}
	s.Conn.SetReadDeadline(time.Now().Add(releaseAfter))
	n, err := s.Conn.Read(p)
	s.Conn.SetReadDeadline(time.Time{})
	var timeout net.Error
	if n > 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		return n, err
	}
	if err := s.release(); err != nil {
		return 0, err
	}
	return s.Conn.Read(p)
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if n > 0 {
		s.active.Store(true)
	}
	return n, err
}

// forwarding is one call of Forward. Two goroutines work on it: run reads requests
// and writes them to the host, one at a time; answers reads the host's answers.
type forwarding struct {
	target *target
	dial   func(context.Context) (net.Conn, error)
	active atomic.Bool

	client      *stream
	clientIn    *bufio.Reader // run's
	server      *stream       // nil before the first request
	serverIn    *bufio.Reader // answers'
	asked       chan *exchange
	ended       chan struct{} // closed when answers has returned
	clientEnded chan struct{} // closed when no more comes from the client after 101

	silent bool // the client has what is, or looks like, the beginning of an answer

	mu     sync.Mutex
	dialed net.Conn // the server's, for cut
	isCut  bool
}

// cut ends both connections at once.
func (f *forwarding) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isCut = true
	cut(f.client.Conn)
	if f.dialed != nil {
		cut(f.dialed)
	}
}

// hangUp ends the server's connection, and makes run leave what it reads.
func (f *forwarding) hangUp() {
	cut(f.server.Conn)
	f.client.SetReadDeadline(time.Unix(1, 0))
}

// watch cancels when nothing has passed for idle. The function that it returns
// ends it.
func (f *forwarding) watch(idle time.Duration, cancel context.CancelCauseFunc) func() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(idle, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.active.Swap(false) {
			timer.Reset(idle)
		} else {
			cancel(ErrIdle)
		}
	})
	return timer.Stop
}

// connect dials the host.
func (f *forwarding) connect(ctx context.Context) error {
	conn, err := f.dial(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.dialed = conn
	if f.isCut {
		cut(conn)
	}
	f.mu.Unlock()
	f.server = &stream{Conn: conn, active: &f.active}
	f.serverIn = bufio.NewReaderSize(f.server, bufferSize)
	go f.answers()
	return nil
}

// run passes requests on until there are no more.
func (f *forwarding) run(ctx context.Context) error {
	var last *exchange
	for {
		// The next request is read while the last one's answer passes: so we see a
		// client that leaves.
		q, err := readRequest(f.clientIn, f.target)
		if last != nil {
			if more, lastErr := f.settle(last, err); !more {
				return lastErr
			}
		}
		if err != nil {
			return f.clientError(err)
		}
		if f.server == nil {
			if err := f.connect(ctx); err != nil {
				return fmt.Errorf("%w: %w", &Refused{http.StatusBadGateway, "the host cannot be reached"}, err)
			}
		}
		x := &exchange{request: q, done: make(chan struct{})}
		last = x
		if err := f.ask(x); err != nil {
			return err
		}
		if x.upgrade {
			f.wait(x)
			if x.upgraded {
				return f.raw()
			}
		}
		if !x.keep {
			_, err := f.clientIn.Peek(1)
			_, err = f.settle(x, err)
			return err
		}
	}
}

// ask passes a request on. The error says why the connection cannot be used any
// more, after the answer, if there is one.
func (f *forwarding) ask(x *exchange) error {
	if x.expect && f.clientIn.Buffered() == 0 {
		if _, err := io.WriteString(f.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return fmt.Errorf("to the client: %w", err)
		}
	}
	w := buffers.writer(f.server)
	defer buffers.putWriter(w)
	f.client.before = w.Flush
	defer func() { f.client.before = nil }()
	f.asked <- x
	x.write(w)
	readErr, writeErr := f.askBody(x, w)
	if err := w.Flush(); writeErr == nil {
		writeErr = err
	}
	switch {
	case writeErr != nil:
		// It may have answered before it has read everything.
		f.wait(x)
		return f.outcome(x)
	case readErr != nil:
		f.hangUp()
		<-f.ended
		f.silent = f.silent || x.began
		return f.clientError(readErr)
	}
	return nil
}

func (f *forwarding) askBody(x *exchange, w *bufio.Writer) (readErr, writeErr error) {
	switch {
	case x.length > 0:
		return pass(sink{w: w}, &sized{f.clientIn, x.length}, nil, nil)
	case x.length == lengthChunked:
		body := &chunked{r: f.clientIn, strict: true}
		readErr, writeErr = pass(sink{w, true}, body, nil, nil)
		if readErr == nil && writeErr == nil {
			w.WriteString("0\r\n")
			writeFields(w, trailers(body.fields, f.target.replaces))
			w.WriteString("\r\n")
		}
	}
	return readErr, writeErr
}

// wait returns when x's answer has been passed on, or nothing more comes of it.
func (f *forwarding) wait(x *exchange) {
	select {
	case <-x.done:
	case <-f.ended:
	}
}

// settle waits for x's answer while the client has sent its next request, or
// readErr is why there is none. It says whether the connections can be used further,
// and if not, why.
func (f *forwarding) settle(x *exchange, readErr error) (more bool, err error) {
	var refused *Refused
	switch {
	case readErr == nil || errors.As(readErr, &refused):
	case errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF):
		select {
		case <-x.done:
		default:
			// It may still read. The server decides, as if it were connected to it.
			closeWrite(f.server.Conn)
		}
	default:
		cut(f.server.Conn)
	}
	f.wait(x)
	if x.again {
		return true, nil
	}
	return false, f.outcome(x)
}

// outcome says how an exchange that was waited for ended both connections.
func (f *forwarding) outcome(x *exchange) error {
	f.hangUp()
	<-f.ended
	f.silent = f.silent || x.began
	var bad *badAnswer
	if errors.As(x.err, &bad) && !x.began {
		return &Refused{http.StatusBadGateway, bad.Error()}
	}
	if x.err == nil && !x.began {
		return errors.New("the host has closed the connection instead of an answer")
	}
	return x.err
}

// clientError says how the client ended the connection.
func (f *forwarding) clientError(err error) error {
	var refused *Refused
	if err == io.EOF || errors.As(err, &refused) {
		if err == io.EOF {
			err = nil
		}
		return err
	}
	if f.server != nil {
		select {
		case <-f.ended:
			return nil // the server has ended the connection between messages
		default:
		}
	}
	return fmt.Errorf("from the client: %w", err)
}

// raw passes the client's bytes on after 101.
func (f *forwarding) raw() error {
	w := buffers.writer(f.server)
	defer buffers.putWriter(w)
	f.client.before = w.Flush
	defer func() { f.client.before = nil }()
	readErr, writeErr := pass(sink{w: w}, f.clientIn, nil, nil)
	if err := w.Flush(); writeErr == nil {
		writeErr = err
	}
	if readErr != nil || writeErr != nil || closeWrite(f.server.Conn) != nil {
		cut(f.server.Conn)
	}
	close(f.clientEnded)
	<-f.ended
	f.silent = true
	return nil
}

// finish ends both connections, and answers the client if err is to be told.
func (f *forwarding) finish(err error) {
	if f.server != nil {
		f.hangUp()
		<-f.ended
	}
	var refused *Refused
	told := errors.As(err, &refused) && !f.silent
	if err != nil && !told {
		return // cut, so that nobody takes what is not complete for complete
	}
	f.client.SetDeadline(time.Now().Add(lingerTime))
	if told {
		text := "cubby: " + refused.Reason + "\n"
		fmt.Fprintf(f.client, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			refused.Status, http.StatusText(refused.Status), len(text), text)
	}
	if closeWrite(f.client.Conn) == nil {
		io.CopyN(io.Discard, f.client, lingerBytes)
	}
}
