package container

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// writeTime is how long the daemon may take to accept a frame; one that takes
// longer is lost.
const writeTime = time.Minute

// link is the connection to the agent of one container. Nothing that comes over
// it is believed further than that it spoils its own container: frames, windows
// and programs are bounded here.
type link struct {
	conn  net.Conn
	log   words
	hello hello
	lost  chan struct{} // closed when the connection has ended

	writing sync.Mutex
	out     []byte

	mu       sync.Mutex
	err      error // why it ended
	next     uint32
	programs map[uint32]*program
}

// hello is the agent's greeting.
type hello struct {
	Version int               `json:"version"`
	Python  string            `json:"python"`
	Tools   map[string]string `json:"tools"`
	UID     int               `json:"uid"`
}

// spec is a program to start.
type spec struct {
	Argv      []string          `json:"argv"`
	Env       map[string]string `json:"env,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	TTY       bool              `json:"tty,omitempty"`
	Input     bool              `json:"input,omitempty"`
	Timeout   float64           `json:"timeout,omitempty"` // seconds
	MaxOutput int64             `json:"max_output,omitempty"`

	// output takes the output in the order in which it came. It does not keep
	// what it is given.
	output func(stderr bool, p []byte)
}

// exit is how a program ended.
type exit struct {
	Code     int   `json:"code"` // negative: the signal
	TimedOut bool  `json:"timed_out"`
	Dropped  int64 `json:"dropped"` // bytes of output
	OOM      bool  `json:"oom"`
	PIDs     bool  `json:"pids"`
}

// notStarted is why a program was not started.
type notStarted struct {
	Errno string `json:"errno"`
	Text  string `json:"text"`
}

func (e *notStarted) Error() string {
	return fmt.Sprintf("cannot start %.300q: %.20s", e.Text, e.Errno)
}

// newLink reads the greeting. It owns conn from here on.
func newLink(ctx context.Context, conn net.Conn, r io.Reader) (*link, error) {
	l := &link{conn: conn, lost: make(chan struct{}), programs: map[uint32]*program{}}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	in := bufio.NewReaderSize(&streams{r: r, log: &l.log}, maxReply)
	buf := make([]byte, maxReply)
	f, err := readFrame(in, buf)
	if err == nil && (f.kind != 'H' || json.Unmarshal(f.payload, &l.hello) != nil || l.hello.Version != agentVersion && l.hello.Version != 0) {
		err = errProtocol
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return l, err
	}
	go l.read(in, buf)
	return l, nil
}

// close ends the connection, and with it the container.
func (l *link) close(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = why
		l.conn.Close()
		close(l.lost)
	}
}

// cause is why the connection ended; nil if it has not.
func (l *link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) read(in io.Reader, buf []byte) {
	for {
		f, err := readFrame(in, buf)
		if err == nil {
			err = l.take(f)
		}
		if err != nil {
			l.close(err)
			return
		}
	}
}

// take acts on a frame of the agent.
func (l *link) take(f frame) error {
	l.mu.Lock()
	p := l.programs[f.program]
	l.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%w: a frame %q of no program", errProtocol, f.kind)
	}
	switch f.kind {
	case 'S':
		return p.begin(nil)
	case 'F':
		why := &notStarted{}
		if json.Unmarshal(f.payload, why) != nil {
			return errProtocol
		}
		l.forget(f.program)
		return p.begin(why)
	case 'O', 'E':
		return p.take(f.kind == 'E', f.payload)
	case 'A':
		if len(f.payload) != 4 {
			return errProtocol
		}
		return p.allow(int(binary.BigEndian.Uint32(f.payload)))
	case 'X':
		var x exit
		if json.Unmarshal(f.payload, &x) != nil {
			return errProtocol
		}
		l.forget(f.program)
		return p.end(x)
	}
	return fmt.Errorf("%w: a frame of kind %q", errProtocol, f.kind)
}

// busy reports whether programs run.
func (l *link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.programs) > 0
}

func (l *link) forget(number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.programs, number)
}

// send sends a frame. A connection that does not take it is lost.
func (l *link) send(kind byte, number uint32, payload []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.cause(); err != nil {
		return err
	}
	l.out = appendFrame(l.out[:0], kind, number, payload)
	_ = l.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := l.conn.Write(l.out); err != nil {
		l.close(err)
		return err
	}
	if cap(l.out) > 4*chunk {
		l.out = nil
	}
	return nil
}

// startTime is how long the agent may take to say whether it has started a
// program. It gives up itself well before that.
const startTime = 30 * time.Second

var (
	// errSilent: the agent does not say whether it has started a program.
	errSilent = errors.New("the agent in the container does not answer")
	// errStopped: another program stops or holds each one that is started.
	errStopped = errors.New("programs cannot begin in the container: one that runs there stops them")
)

// start starts a program. The error is a *notStarted if the container could not.
// A container that does not answer, or where no program can begin, is lost.
func (l *link) start(ctx context.Context, s spec) (*program, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("arguments and variables of %d bytes: at most %d", len(body), maxFrame)}
	}
	p := &program{link: l, started: make(chan error, 1), credit: window, output: s.output, more: make(chan struct{}, 1),
		room: make(chan struct{}, 1), done: make(chan struct{}), exited: make(chan struct{})}
	if s.Timeout > 0 {
		p.endBy = time.Now().Add(time.Duration(s.Timeout*float64(time.Second)) + startTime + endTime)
	}
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return nil, l.err
	}
	l.next++
	p.number = l.next
	l.programs[p.number] = p
	l.mu.Unlock()
	if err := l.send('R', p.number, body); err != nil {
		return nil, err
	}
	go p.pump()
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	select {
	case err := <-p.started:
		if why, ok := errors.AsType[*notStarted](err); ok && why.Errno == "ETIMEDOUT" {
			l.close(errStopped)
			return nil, errStopped
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	case <-timer.C:
		l.close(errSilent)
		return nil, errSilent
	case <-l.lost:
		return nil, l.cause()
	case <-ctx.Done():
		// Whether it was started is not known: it is ended.
		_ = p.kill()
		return nil, context.Cause(ctx)
	}
}

// program is one that was started.
type program struct {
	link    *link
	number  uint32
	started chan error
	output  func(stderr bool, p []byte)
	endBy   time.Time // when the agent must have ended it; zero: when it is told to

	mu     sync.Mutex
	state  int // 0: asked for, 1: runs, 2: has ended
	queue  []piece
	queued int // bytes in queue, and of what is being written
	exit   exit
	credit int // bytes of input that the agent takes

	more   chan struct{} // something was queued
	room   chan struct{} // credit has grown
	exited chan struct{} // no more input is needed
	done   chan struct{} // exit is set, all output was written
}

type piece struct {
	stderr bool
	b      []byte
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *program) begin(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != 0 {
		return errProtocol
	}
	p.state = 1
	if err != nil {
		p.state = 2
		close(p.exited)
		poke(p.more)
	}
	p.started <- err
	return nil
}

// take queues output. It keeps to the window that the agent was given.
func (p *program) take(stderr bool, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// An empty piece would cost memory and count for nothing.
	if p.state != 1 || len(b) == 0 || p.queued+len(b) > window {
		return fmt.Errorf("%w: output that it was not asked for", errProtocol)
	}
	p.queued += len(b)
	if n := len(p.queue); n > 0 && p.queue[n-1].stderr == stderr && len(p.queue[n-1].b)+len(b) <= chunk {
		p.queue[n-1].b = append(p.queue[n-1].b, b...)
	} else {
		p.queue = append(p.queue, piece{stderr, append(make([]byte, 0, len(b)), b...)})
	}
	poke(p.more)
	return nil
}

func (p *program) allow(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 || n > window || p.credit+n > window {
		return fmt.Errorf("%w: input that it was not given", errProtocol)
	}
	p.credit += n
	poke(p.room)
	return nil
}

func (p *program) end(x exit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != 1 || x.Code < -maxSignal || x.Code > 255 || x.Dropped < 0 {
		return errProtocol
	}
	p.state, p.exit = 2, x
	close(p.exited)
	poke(p.more)
	return nil
}

// pump writes output and tells the agent that there is room for more.
func (p *program) pump() {
	defer close(p.done)
	for {
		p.mu.Lock()
		queue, ended := p.queue, p.state == 2
		p.queue = nil
		p.mu.Unlock()
		for _, q := range queue {
			p.output(q.stderr, q.b)
			p.mu.Lock()
			p.queued -= len(q.b)
			p.mu.Unlock()
			if !ended {
				_ = p.link.send('A', p.number, binary.BigEndian.AppendUint32(nil, uint32(len(q.b))))
			}
		}
		if len(queue) > 0 {
			continue
		}
		if ended {
			return
		}
		select {
		case <-p.more:
		case <-p.link.lost:
			p.mu.Lock()
			rest := len(p.queue) > 0 || p.state == 2
			p.mu.Unlock()
			if !rest {
				return
			}
		}
	}
}

// write sends input. It waits for room, until the program has ended.
func (p *program) write(b []byte) (int, error) {
	sent := 0
	select {
	case <-p.exited:
		return 0, io.ErrClosedPipe
	default:
	}
	for sent < len(b) {
		p.mu.Lock()
		n := min(len(b)-sent, p.credit, chunk)
		p.credit -= n
		p.mu.Unlock()
		if n > 0 {
			if err := p.link.send('I', p.number, b[sent:sent+n]); err != nil {
				return sent, err
			}
			sent += n
			continue
		}
		select {
		case <-p.room:
		case <-p.exited:
			return sent, io.ErrClosedPipe
		case <-p.link.lost:
			return sent, p.link.cause()
		}
	}
	return sent, nil
}

func (p *program) closeInput() { _ = p.link.send('C', p.number, nil) }

// kill ends it and all that it started.
func (p *program) kill() error { return p.link.send('K', p.number, nil) }

// errKilledInVain: the agent was told to end a program, and did not.
var errKilledInVain = errors.New("the agent in the container does not end a program")

// maxSignal is the largest number of a signal.
const maxSignal = 128

// endTime is how long the agent may take to end a program and what it started.
const endTime = 10 * time.Second

// wait waits for the end. When ctx is done before, the program is ended, and with
// it the container if the agent does not do it; so it is when the program's time
// is over and the agent does not act.
func (p *program) wait(ctx context.Context) (exit, error) {
	var late <-chan time.Time
	if !p.endBy.IsZero() {
		timer := time.NewTimer(time.Until(p.endBy))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-p.done:
	case <-late:
		p.link.close(errKilledInVain)
	case <-ctx.Done():
		_ = p.kill()
		select {
		case <-p.done:
		case <-time.After(endTime):
			p.link.close(errKilledInVain)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != 2 {
		return exit{}, p.link.cause()
	}
	return p.exit, nil
}
