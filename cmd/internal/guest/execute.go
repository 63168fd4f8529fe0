//go:build linux

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

const (
	defaultMaxOutput = 64 << 20
	maxResults       = 128 << 20       // bytes of the results of one cell
	graceTime        = 2 * time.Second // between SIGINT and SIGKILL
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
	group     *processGroup
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
	if err := encodeASCII(&c.buf, e); err != nil {
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

func (c *cell) text(stderr bool, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	if stderr {
		i = 1
	}
	if room := c.maxOutput - c.written[i]; int64(len(text)) > room {
		c.end.Truncated, c.end.Limit = true, cmpOr(c.end.Limit, "output")
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

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (c *cell) say(stderr bool, text string) {
	kind := protocol.EventStdout
	if stderr {
		kind = protocol.EventStderr
	}
	c.emit(protocol.Event{Type: kind, Text: text, Timestamp: time.Now().UTC().Format(time.RFC3339Nano)})
}

func (c *cell) event(e kernel.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Ev {
	case "result":
		size := 0
		for _, v := range e.Data {
			size += len(v)
		}
		if c.results += size; c.results > maxResults {
			c.end.Truncated, c.end.Limit = true, cmpOr(c.end.Limit, "output")
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
			c.end.ExitCode = e.ExitCode
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

func (s cellSink) died(ws syscall.WaitStatus) { s.diedWith(ws) }

func (g *Guest) handleExecute(w http.ResponseWriter, r *http.Request) {
	if !g.authorised(r) {
		writeText(w, http.StatusUnauthorized, unauthorised)
		return
	}
	req, status, err := readExecute(w, r)
	if err != nil {
		writeText(w, status, err.Error())
		return
	}
	timeout, err := headerNumber(r, protocol.HeaderTimeoutMS, 0)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	maxOutput, err := headerNumber(r, protocol.HeaderMaxOutput, defaultMaxOutput)
	if err != nil {
		writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	var c *codeContext
	var language string
	if req.ContextID != "" {
		if c = g.contextByID(req.ContextID); c == nil {
			writeText(w, http.StatusNotFound, fmt.Sprintf("Context %s not found", req.ContextID))
			return
		}
		language = c.Language
	} else {
		lang, kernelLanguage, err := normalise(req.Language)
		if err != nil {
			g.writeNoKernel(w, req.Language, err)
			return
		}
		language, c = lang, g.byDefault(kernelLanguage)
	}
	size := int64(len(req.Code))
	defer g.waiting.Add(-size)
	if g.waiting.Add(size) > maxWaiting {
		writeText(w, http.StatusTooManyRequests, fmt.Sprintf("calls with %d MiB of source are waiting already", maxWaiting>>20))
		return
	}
	run := &cell{rc: http.NewResponseController(w), w: w, maxOutput: maxOutput, done: make(chan struct{}), last: time.Now()}
	defer run.close()
	q, status, err := g.makeProgram(c, req)
	if err != nil {
		writeText(w, status, err.Error())
		return
	}
	if req.Stdin != nil && req.Stdin.ID != "" {
		if run.input, status, err = g.openInput(req.Stdin.ID); err != nil {
			writeText(w, status, err.Error())
			return
		}
		defer g.closeInput(run.input)
		q.Stdin = run.input.path
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	queued := !c.tryTake()
	if queued && !run.queue(r.Context(), c) {
		return
	}
	// Given back before the last line: a client that does not take that holds up
	// nobody.
	give := sync.OnceFunc(c.give)
	defer give()
	start := time.Now()
	k, ended, err := g.ensure(r.Context(), c)
	if err != nil {
		if queued { // too late for a status
			run.fail("KernelError", err.Error())
			give()
			run.finish(start)
			return
		}
		g.writeNoKernel(w, language, err)
		return
	}
	c.count++
	run.mu.Lock()
	run.emit(protocol.Event{Type: protocol.EventExecutions, ExecutionCount: c.count})
	if ended != "" {
		run.end.FreshKernel = true
		run.say(true, fmt.Sprintf("[cubby] the previous %s kernel ended (%s): this is a fresh one, earlier variables are gone\n", c.kernel, ended))
	}
	run.mu.Unlock()

	code := req.Code
	if language == typescript {
		js, err := kernel.StripTypes(code)
		if err != nil {
			run.syntaxError(err)
			give()
			run.finish(start)
			return
		}
		code = js
	}
	s := g.settings.Load()
	env := maps.Clone(s.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.EnvVars)
	if k.identity != s.identity { // it was started before the sandbox became another
		k.identity, q.Keep = s.identity, s.identity.variables()
	}
	q.Op, q.ID, q.Code, q.Env, q.Ack = "execute", int64(c.count), code, env, true
	q.Drain = r.Header.Get(protocol.HeaderDrain) == "1"
	g.runCell(r, c, k, run, q, time.Duration(timeout)*time.Millisecond)
	give()
	run.finish(start)
}

// queue waits for the context's turn and says whether it came. The client gets
// the head of its answer at once and a sign of life while it waits; one that goes
// away leaves the queue.
func (c *cell) queue(ctx context.Context, turn *codeContext) bool {
	c.werr = c.rc.Flush()
	turn.waiters.Add(1)
	defer turn.waiters.Add(-1)
	alive := time.NewTicker(keepaliveTime)
	defer alive.Stop()
	for {
		select {
		case turn.turn <- struct{}{}:
			if ctx.Err() != nil { // both came at once: what nobody waits for does not run
				turn.give()
				return false
			}
			return true
		case <-ctx.Done():
			return false
		case <-alive.C:
			c.mu.Lock()
			c.emit(protocol.Event{Type: protocol.EventKeepalive})
			c.mu.Unlock()
		}
	}
}

// fail reports an error that is not the code's.
func (c *cell) fail(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.ExitCode = 1
	c.emit(protocol.Event{Type: protocol.EventError, ErrorData: &protocol.ErrorData{Name: name, Value: value, Traceback: name + ": " + value}})
}

func (c *cell) syntaxError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.ExitCode = 1
	failure := &protocol.ErrorData{Name: "SyntaxError", Value: err.Error(), Traceback: "SyntaxError: " + err.Error()}
	var at *kernel.SyntaxError
	if errors.As(err, &at) && at.Line > 0 {
		failure.Value = fmt.Sprintf("%s (line %d)", at.Text, at.Line)
		failure.Traceback = fmt.Sprintf("cell.ts:%d\n%s\n%*s\n\nSyntaxError: %s", at.Line, at.LineText, at.Column, "^", at.Text)
	}
	c.emit(protocol.Event{Type: protocol.EventError, ErrorData: failure})
}

// runCell runs q and returns when the kernel is done or dead, and what must not
// outlive the cell is gone.
func (g *Guest) runCell(r *http.Request, c *codeContext, k *kernelProcess, run *cell, q kernel.Request, timeout time.Duration) {
	gr := g.groups.begin(k, c.kernel == bash)
	run.group = gr
	c.mu.Lock()
	c.cell = run
	if gr.dir != "" {
		c.groups = slices.DeleteFunc(c.groups, func(old *processGroup) bool { return old.dir == gr.dir })
	}
	c.groups = append(c.groups, gr)
	if len(c.groups) > 32 {
		c.groups = slices.DeleteFunc(c.groups, func(old *processGroup) bool { return old != gr && len(old.pids()) == 0 })
	}
	c.mu.Unlock()
	defer func() {
		gr.end()
		c.mu.Lock()
		c.cell = nil
		c.mu.Unlock()
	}()

	keepalive := time.NewTicker(keepaliveTime / 5)
	defer keepalive.Stop()
	var limit, signal, grace <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		limit = t.C
	}
	gone := r.Context().Done()
	sent := make(chan struct{})
	interrupt := func(why int32) {
		run.stopped.Store(why)
		if c.kernel == javascript {
			go func() { // waits for a kernel that does not read, but not longer than it lives
				<-sent
				k.interruptByWire(q.ID)
			}()
			signal = time.After(kernel.SignalDelay)
		} else {
			k.interrupt()
		}
		gr.interruptOthers(int(g.cfg.UID))
		grace = time.After(graceTime)
		limit, gone = nil, nil
	}
	go func() {
		defer close(sent)
		if k.execute(q, cellSink{run}) != nil {
			<-k.ended // which has told the cell, if it had begun
			run.diedWith(k.status)
		}
	}()
	shutdown := g.ctx.Done()
	// A client that takes nothing must not keep a cell that is over, nor its
	// context; from over on it has no more than stuckTime in all.
	over := sync.OnceFunc(func() { run.hurry(stuckTime) })
	patience := unreadTime
	if c.cuts > 0 {
		patience = shortUnread
	}
wait:
	for {
		select {
		case <-run.done:
			break wait
		case <-limit:
			interrupt(pastTime)
		case <-gone:
			interrupt(clientGone)
		case <-signal:
			k.interrupt()
		case <-shutdown:
			gr.kill()
			k.stop()
			shutdown = nil
		case <-grace:
			gr.kill()
			k.stop()
			grace = nil
		case <-keepalive.C:
			if c.waiters.Load() > 0 && !run.wasCut() && run.unread(patience) {
				run.cutOff() // others wait for the context
				if run.stopped.Load() == notStopped {
					interrupt(clientGone)
				}
			}
			if run.mu.TryLock() { // else a line is being written just now
				if time.Since(run.last) >= keepaliveTime {
					run.emit(protocol.Event{Type: protocol.EventKeepalive})
				}
				run.mu.Unlock()
			}
		}
		if grace == nil && limit == nil && gone == nil {
			over()
		}
	}
	if run.stopped.Load() != notStopped {
		over()
	}
	select {
	case <-sent:
	case <-time.After(graceTime): // done, before it has read what to do
		k.stop()
		<-sent
	}
	k.release()
	if c.cuts++; !run.wasCut() {
		c.cuts = 0
	}
	run.mu.Lock()
	died := run.died
	run.mu.Unlock()
	stopped := run.stopped.Load()
	if stopped != notStopped {
		// The kernel obeyed; what the cell started goes too.
		keep := []int{k.pid()}
		if c.kernel == bash {
			keep = append(keep, childrenOf(k.pid())...)
		}
		if died != nil {
			keep = nil
		}
		gr.kill(keep...)
	}
	if died != nil {
		if k.oom.Load() { // perhaps before the cell began
			run.oom.Store(true)
		}
		c.ended = k.describeEnd(*died)
		if stopped == pastTime {
			c.ended = "killed, past its time"
		}
		c.mu.Lock()
		if c.proc == k {
			c.proc = nil
		}
		c.mu.Unlock()
	}
	run.conclude(c.kernel, timeout)
}

func childrenOf(pid int) []int {
	var pids []int
	for _, p := range processes() {
		if p.ppid == pid {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// conclude says how the cell ended, as errors and as the fields of the last line.
func (c *cell) conclude(language string, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.died != nil
	c.end.StateLost = lost
	var failure *protocol.ErrorData
	switch {
	case c.stopped.Load() == pastTime:
		c.end.TimedOut, c.end.Limit, c.end.ExitCode = true, "time", 124
		failure = &protocol.ErrorData{Name: "TimeoutError", Value: fmt.Sprintf("execution exceeded %g s", timeout.Seconds())}
		failure.Traceback = failure.Name + ": " + failure.Value
		if c.failure != nil && c.failure.Traceback != "" {
			failure.Traceback = c.failure.Traceback + "\n\n" + failure.Traceback
		}
		if lost {
			c.say(true, fmt.Sprintf("[cubby] the %s kernel did not stop and was killed: its variables are gone\n", language))
		}
	case c.oom.Load():
		c.end.OOMKilled = true
		c.end.Limit, c.end.ExitCode = "memory", 137
		failure = &protocol.ErrorData{Name: "MemoryError", Value: "the sandbox is out of memory: its largest process was killed"}
		failure.Traceback = failure.Name + ": " + failure.Value
	case c.stopped.Load() == clientGone:
		c.end.Interrupted, c.end.ExitCode = true, 130
	case lost && c.died.Signaled():
		c.end.ExitCode = 128 + int(c.died.Signal())
		failure = &protocol.ErrorData{Name: "KernelDied", Value: describe(*c.died)}
		failure.Traceback = failure.Name + ": " + failure.Value
	case lost:
		if c.end.ExitCode = c.died.ExitStatus(); c.end.ExitCode != 0 {
			failure = &protocol.ErrorData{Name: "KernelExited", Value: describe(*c.died)}
			failure.Traceback = failure.Name + ": " + failure.Value
		}
	}
	if failure != nil {
		c.emit(protocol.Event{Type: protocol.EventError, ErrorData: failure})
	}
}

// finish writes the last line.
func (c *cell) finish(start time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.DurationMS = time.Since(start).Milliseconds()
	end := c.end
	c.emit(protocol.Event{Type: protocol.EventEnd, EndOfExecution: &end})
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
