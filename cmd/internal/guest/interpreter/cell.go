//go:build linux

package interpreter

import (
	"bytes"
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/asciijson"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/cellgroup"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	defaultMaxOutput = 64 << 20
	maxResults       = 128 << 20       // bytes of the results of one cell
	graceTime        = 2 * time.Second // between SIGINT and SIGKILL
	// frozenTime is how long nothing looks at a cell only if the machine was frozen.
	frozenTime = 5 * time.Second
)

var (
	// keepaliveTime is between two signs of life of a call. Only a test sets it.
	keepaliveTime = 5 * time.Second
	// stuckTime is for a client to take output once its cell is over. Only a test
	// sets it.
	stuckTime = 10 * time.Second
	// unreadTime is how long a client that takes nothing may hold up others who wait
	// for the same context; shortUnread is the same once it was another's fault that
	// they wait. Only a test sets it.
	unreadTime  = 5 * time.Second
	shortUnread = 500 * time.Millisecond
)

// pieceOfLine is what is written of a line at a time, in bytes: what tells a client
// that is slow from one that takes nothing.
const pieceOfLine = 32 << 10

// cell is one execution: it turns what the kernel says into lines of the answer.
type cell struct {
	rc        *http.ResponseController
	w         http.ResponseWriter
	maxOutput int64
	done      chan struct{} // closed when the kernel is done or dead
	restores  int64         // of the machine when the cell was asked for

	// Set by who must not wait for mu, which is held while a slow client takes
	// its time.
	stopped atomic.Int32 // one of the reasons below
	oom     atomic.Bool  // it lost a process because memory was over
	pressed atomic.Bool  // it ran when memory was over
	writing atomic.Int64 // since when a write is under way, in Unix nanoseconds; 0 if none is

	cutting sync.Mutex // guards the deadline of writes and what follows
	cut     bool
	closed  bool // the response belongs to the server again

	mu      sync.Mutex
	buf     bytes.Buffer
	last    time.Time   // when a line was written
	flusher *time.Timer // runs flush; nil before the first line

	unflushed bool // lines wait for flusher
	werr      error
	written   [2]int64
	results   int // bytes
	sent      int // results
	end       protocol.EndOfExecution
	failure   *protocol.ErrorData // held back: what the interrupt did to the code
	died      *syscall.WaitStatus // of the kernel
	input     *codeInput          // nil without one
	group     *cellgroup.Group
}

// Why a cell was interrupted.
const (
	notStopped = iota
	pastTime
	clientGone
)

// flushDelay is how long a line may wait for the next. Every flush is a message
// through three connections: a short cell's lines travel as one.
const flushDelay = time.Millisecond

// emit writes one line, of a protocol.Event. The caller holds c.mu.
func (c *cell) emit(e any) {
	if c.werr != nil {
		return
	}
	c.buf.Reset()
	if err := asciijson.Encode(&c.buf, e); err != nil {
		return // a result that JSON cannot hold, such as NaN, cannot come out of JSON
	}
	c.last = time.Now()
	for b := c.buf.Bytes(); len(b) > 0 && c.werr == nil; b = b[min(len(b), pieceOfLine):] {
		c.writing.Store(time.Now().UnixNano())
		_, c.werr = c.w.Write(b[:min(len(b), pieceOfLine)])
	}
	c.writing.Store(0)
	if c.werr == nil && !c.unflushed {
		c.unflushed = true
		if c.flusher == nil {
			c.flusher = time.AfterFunc(flushDelay, c.flush)
		} else {
			c.flusher.Reset(flushDelay)
		}
	}
	if c.buf.Cap() > 1<<20 {
		c.buf = bytes.Buffer{}
	}
}

// flush sends what was written, unless the cell is finished meanwhile and the
// response belongs to the server again.
func (c *cell) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unflushed && c.werr == nil {
		c.writing.Store(time.Now().UnixNano())
		c.werr = c.rc.Flush()
		c.writing.Store(0)
	}
	c.unflushed = false
}

// unread says that the client has taken nothing of what is written to it for d.
func (c *cell) unread(d time.Duration) bool {
	since := c.writing.Load()
	return since != 0 && time.Since(time.Unix(0, since)) >= d
}

// startAgain gives a client as long for what is being written to it as if that had
// begun now.
func (c *cell) startAgain() {
	if since := c.writing.Load(); since != 0 {
		c.writing.CompareAndSwap(since, time.Now().UnixNano())
	}
}

// leave lets the cell go on without its client, which a restore has cut off: what it
// says is dropped, and its input has ended.
func (c *cell) leave(ip *Interpreter) {
	if c.input != nil {
		ip.closeInput(c.input)
	}
}

// cutOff gives up on the client: what is being written to it fails, and so does
// what is written later.
func (c *cell) cutOff() {
	c.cutting.Lock()
	defer c.cutting.Unlock()
	if c.closed {
		return
	}
	c.cut = true
	_ = c.rc.SetWriteDeadline(time.Unix(1, 0))
}

// hurry gives the client no more than d to take the rest.
func (c *cell) hurry(d time.Duration) {
	c.cutting.Lock()
	defer c.cutting.Unlock()
	if !c.cut && !c.closed {
		_ = c.rc.SetWriteDeadline(time.Now().Add(d))
	}
}

// close ends what the cell does to its response, which is the server's again: the
// server flushes when the handler returns.
func (c *cell) close() {
	c.mu.Lock()
	if c.flusher != nil { // else there was no line
		c.flusher.Stop()
	}
	c.unflushed = false
	c.mu.Unlock()
	c.cutting.Lock()
	c.closed = true
	c.cutting.Unlock()
}

func (c *cell) wasCut() bool {
	c.cutting.Lock()
	defer c.cutting.Unlock()
	return c.cut
}

// Text writes what the code prints, up to the limit of the output.
func (c *cell) Text(stderr bool, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	if stderr {
		i = 1
	}
	if room := c.maxOutput - c.written[i]; int64(len(text)) > room {
		c.end.Truncated, c.end.Limit = true, cmp.Or(c.end.Limit, "output")
		cut := max(0, int(room))
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
		c.written[i] = c.maxOutput
		if text == "" {
			return
		}
	} else {
		c.written[i] += int64(len(text))
	}
	c.say(stderr, text)
}

func (c *cell) say(stderr bool, text string) {
	kind := protocol.EventStdout
	if stderr {
		kind = protocol.EventStderr
	}
	c.emit(protocol.Event{Type: kind, Text: text, Timestamp: time.Now().UTC().Format(time.RFC3339Nano)})
}

// Event acts on what the kernel says.
func (c *cell) Event(e kernel.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Ev {
	case "result":
		size := 0
		for _, v := range e.Data {
			size += len(v)
		}
		if c.results += size; c.results > maxResults {
			c.end.Truncated, c.end.Limit = true, cmp.Or(c.end.Limit, "output")
			return
		}
		for _, form := range leftOut(e) {
			if len(c.end.LeftOut) < protocol.MaxLeftOut {
				c.end.LeftOut = append(c.end.LeftOut, protocol.LeftOut{Result: c.sent, Form: form})
			}
		}
		c.sent++
		c.emit(resultLine(e))
	case "error":
		failure := &protocol.ErrorData{Name: e.Name, Value: e.Value, Traceback: e.Traceback}
		if c.stopped.Load() != notStopped {
			c.failure = failure
			return
		}
		c.emit(protocol.Event{Type: protocol.EventError, ErrorData: failure})
	case "input":
		if c.input != nil {
			c.input.isOpen()
		}
	case "done":
		select {
		case <-c.done:
		default:
			c.end.ExitCode, c.end.CommandFailed = e.ExitCode, e.CommandFailed
			close(c.done)
		}
	}
}

func (c *cell) diedWith(ws syscall.WaitStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		c.died = &ws
		close(c.done)
	}
}

// cellSink is how a kernel sees a cell.
type cellSink struct{ *cell }

func (s cellSink) Died(ws syscall.WaitStatus) { s.diedWith(ws) }
