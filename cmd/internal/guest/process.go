//go:build linux

package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

const (
	coalesce     = 20 * time.Millisecond // how long the start of a line waits for the rest
	maxEvent     = 96 << 20              // bytes of one event of a kernel
	readSize     = 64 << 10
	pieceSize    = 64 << 10 // of source that is sent at once
	drainSize    = 1 << 20  // bytes read of one stream before the others get a turn
	startTail    = 4 << 10  // of what a kernel says before it is ready
	deadPoll     = time.Second
	closedStatus = time.Second // between the end of the wire and of the process
)

// sink takes what a kernel says during a cell, from the kernel's reading
// goroutine. A sink that blocks holds the code up, which is wanted.
type sink interface {
	text(stderr bool, text string)
	event(kernel.Event)
	// died says that the process ended before it was done.
	died(syscall.WaitStatus)
}

// kernelProcess is a kernel that runs. Its goroutine lives until the process and
// whatever holds its output open are gone, or close is called.
type kernelProcess struct {
	cmd     *exec.Cmd
	sock    int           // the end of the wire; the reading goroutine closes it
	ready   chan struct{} // closed after the ready event
	ended   chan struct{} // closed when the process is dead and its last words are read
	exited  chan struct{} // closed when the process is dead
	status  syscall.WaitStatus
	stopped atomic.Bool
	oom     atomic.Bool // it, or its shell, was killed because memory was over

	mu   sync.Mutex // held while the sink is called
	sink sink
	out  [2]int // ends of stdout and stderr, -1 once closed; only the reading goroutine changes them
	tail []byte // said before ready

	wmu    sync.Mutex // guards closed and writes to sock
	closed bool

	group controlGroup // guarded by groups.mu

	identity identity // that it has been told; guarded by the turn of its context

	streams [2]textStream
	wire    []byte // of an event that is not whole yet
}

// startKernel starts a kernel. env is what the code sees.
func (g *Guest) startKernel(c kernel.Command, cwd string) (_ *kernelProcess, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start the kernel: %w", err)
	}
	ours, theirs := []int{pair[0]}, []*os.File{os.NewFile(uintptr(pair[1]), "wire")}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, fd := range ours {
				unix.Close(fd)
			}
		}
	}()
	for _, name := range []string{"stdout", "stderr"} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("start the kernel: %w", err)
		}
		ours, theirs = append(ours, pipe[0]), append(theirs, os.NewFile(uintptr(pipe[1]), name))
	}
	for _, fd := range ours {
		_ = unix.SetNonblock(fd, true)
	}
	k := &kernelProcess{
		sock: ours[0], out: [2]int{ours[1], ours[2]},
		ready: make(chan struct{}), ended: make(chan struct{}), exited: make(chan struct{}),
	}
	k.cmd = exec.Command(c.Path, c.Args...)
	if c.Path == "/proc/self/exe" {
		k.cmd.Args[0] = Name // main looks at it
	}
	k.cmd.Stdout, k.cmd.Stderr, k.cmd.ExtraFiles = theirs[1], theirs[2], theirs[:1]
	k.cmd.Dir = cwd
	s := g.settings.Load()
	k.identity = s.identity
	k.cmd.Env = append(g.userEnv(s), "PWD="+cwd)
	k.cmd.Env = append(k.cmd.Env, c.Env...)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: g.credential()}
	if err := g.children.start(k.cmd); err != nil {
		return nil, fmt.Errorf("start the kernel: %w", err)
	}
	g.wg.Go(func() {
		k.status = g.children.wait(k.cmd)
		close(k.exited)
		k.wmu.Lock()
		defer k.wmu.Unlock()
		if !k.closed {
			// A child may hold the wire open: what is on it can still be read.
			_ = unix.Shutdown(k.sock, unix.SHUT_RDWR)
		}
	})
	g.wg.Go(k.read)
	return k, nil
}

func (k *kernelProcess) pid() int { return k.cmd.Process.Pid }

func (k *kernelProcess) interrupt() { _ = syscall.Kill(k.pid(), syscall.SIGINT) }

// interruptByWire says to the kernel itself that a request is to end.
func (k *kernelProcess) interruptByWire(id int64) {
	if b, err := json.Marshal(kernel.Request{Op: kernel.OpInterrupt, ID: id}); err == nil {
		_ = k.write(append(b, '\n')) // one that has ended needs none
	}
}

// stop kills the process and gives up on output that others hold open.
func (k *kernelProcess) stop() {
	k.stopped.Store(true)
	select {
	case <-k.exited:
	default:
		_ = syscall.Kill(k.pid(), syscall.SIGKILL)
	}
}

// execute hands q to the kernel; s takes what comes until done or died.
func (k *kernelProcess) execute(q kernel.Request, s sink) error {
	code := q.Code
	q.Code = ""
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	// The source may be large: it is quoted piece by piece, into its place.
	const place = `"code":"`
	at := bytes.Index(b, []byte(place))
	if at < 0 {
		return errors.New("a request without code")
	}
	at += len(place)
	k.mu.Lock()
	k.dropLocked()
	k.sink = s
	k.mu.Unlock()
	k.wmu.Lock()
	defer k.wmu.Unlock()
	pieces := append([]byte(nil), b[:at]...)
	for code != "" {
		n := min(len(code), pieceSize)
		for n < len(code) && n > 0 && !utf8.RuneStart(code[n]) {
			n--
		}
		quoted, err := json.Marshal(code[:n])
		if err != nil {
			return err
		}
		code = code[n:]
		pieces = append(pieces, quoted[1:len(quoted)-1]...)
		if len(pieces) >= pieceSize {
			if err := k.writeLocked(pieces); err != nil {
				return err
			}
			pieces = pieces[:0]
		}
	}
	pieces = append(append(pieces, b[at:]...), '\n')
	return k.writeLocked(pieces)
}

// dropLocked forgets what was said between two cells: it is nobody's, although the
// reading goroutine may not have come to it yet.
func (k *kernelProcess) dropLocked() {
	var buf [4 << 10]byte
	for i, fd := range k.out {
		k.streams[i].held = nil
		for total := 0; fd >= 0 && total < drainSize; {
			n, err := unix.Read(fd, buf[:])
			if err != unix.EINTR && (err != nil || n == 0) {
				break
			}
			total += max(n, 0)
		}
	}
}

// release lets go of the sink: after it returns the sink is not called again.
func (k *kernelProcess) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sink = nil
}

var errEnded = errors.New("the kernel has ended")

func (k *kernelProcess) write(b []byte) error {
	k.wmu.Lock()
	defer k.wmu.Unlock()
	return k.writeLocked(b)
}

func (k *kernelProcess) writeLocked(b []byte) error {
	for len(b) > 0 {
		if k.closed {
			return errEnded
		}
		n, err := unix.SendmsgN(k.sock, b, nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			b = b[n:]
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			select {
			case <-k.exited:
				return errEnded
			default:
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(k.sock), Events: unix.POLLOUT}}, 50)
		default:
			return errEnded
		}
	}
	return nil
}

// read is the kernel's goroutine. Text is always read before the wire is acted
// on, because the kernel flushes the one before it writes the other.
func (k *kernelProcess) read() {
	buf := make([]byte, readSize)
	wireOpen := true
	defer func() {
		for i := range k.out {
			k.closeOutput(i)
		}
	}()
	for wireOpen || k.out[0] >= 0 || k.out[1] >= 0 {
		fds := []unix.PollFd{{Fd: int32(k.out[0]), Events: unix.POLLIN}, {Fd: int32(k.out[1]), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
		timeout := -1
		if wireOpen {
			fds[2].Fd = int32(k.sock)
		} else if timeout = int(deadPoll.Milliseconds()); k.stopped.Load() {
			return
		}
		k.mu.Lock()
		held := len(k.streams[0].held)+len(k.streams[1].held) > 0
		k.mu.Unlock()
		if held {
			timeout = int(coalesce.Milliseconds())
		}
		n, err := unix.Poll(fds, timeout)
		if err == unix.EINTR {
			continue
		}
		if n == 0 && held {
			k.flush(false)
		}
		drain := func() {
			for i := range k.out {
				if !k.drain(i, buf) {
					k.closeOutput(i)
				}
			}
		}
		drain()
		if wireOpen && fds[2].Revents != 0 {
			more := k.readWire(buf)
			drain()
			k.act()
			if !more {
				wireOpen = false
				k.end(drain)
			}
		}
	}
}

// drain forwards what stream i has, up to a bound, and says whether it goes on.
func (k *kernelProcess) drain(i int, buf []byte) bool {
	for total := 0; total < drainSize; {
		n, err := k.piece(i, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return true
		case err != nil || n == 0:
			return false
		default:
			total += n
		}
	}
	return true
}

// piece reads from stream i and hands on what comes: at once, lest a cell that
// begins in between gets what was said before it.
func (k *kernelProcess) piece(i int, buf []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := unix.Read(k.out[i], buf)
	if n > 0 {
		k.sayLocked(i, buf[:n])
	}
	return n, err
}

func (k *kernelProcess) closeOutput(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.out[i] >= 0 {
		unix.Close(k.out[i])
		k.out[i] = -1
	}
}

func (k *kernelProcess) sayLocked(i int, b []byte) {
	if k.sink == nil {
		// Nobody asked: what a background job says between cells is dropped.
		k.streams[i].held = nil
		if k.tail = append(k.tail, b...); len(k.tail) > startTail {
			k.tail = append(k.tail[:0], k.tail[len(k.tail)-startTail:]...)
		}
		return
	}
	if text := k.streams[i].add(b); text != "" {
		k.sink.text(i == 1, text)
	}
}

func (k *kernelProcess) flush(all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flushLocked(all)
}

func (k *kernelProcess) flushLocked(all bool) {
	for i := range k.streams {
		text := k.streams[i].flush(all)
		if text != "" && k.sink != nil {
			k.sink.text(i == 1, text)
		}
	}
}

// readWire reads what is on the wire, and says whether it goes on.
func (k *kernelProcess) readWire(buf []byte) bool {
	for total := 0; total < drainSize; {
		n, err := unix.Read(k.sock, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return true
		case err != nil || n == 0:
			return false
		default:
			total += n
			if len(k.wire)+n > maxEvent {
				k.stop() // it is no kernel any more
				return true
			}
			k.wire = append(k.wire, buf[:n]...)
		}
	}
	return true
}

var ack = []byte(`{"op":"` + kernel.OpAck + `"}` + "\n")

// act hands on the events that are whole. What is not one is ignored: the code
// can write to the wire too.
func (k *kernelProcess) act() {
	rest := k.wire
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			break
		}
		rest = after
		var e kernel.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if e.Ev == "ready" {
			select {
			case <-k.ready:
			default:
				close(k.ready)
			}
			continue
		}
		k.mu.Lock()
		if k.sink != nil {
			k.flushLocked(e.Ev == "done")
			k.sink.event(e)
		}
		k.mu.Unlock()
		if e.Ev == "result" && !e.Main {
			_ = k.write(ack) // a kernel that has ended waits for nothing
		}
	}
	if len(rest) == 0 && cap(k.wire) > 1<<20 {
		k.wire = nil
		return
	}
	k.wire = append(k.wire[:0], rest...)
}

// end waits for the process whose wire has ended and reports its death.
func (k *kernelProcess) end(drain func()) {
	select {
	case <-k.exited:
	case <-time.After(closedStatus):
		_ = syscall.Kill(k.pid(), syscall.SIGKILL)
		<-k.exited
	}
	k.wmu.Lock()
	k.closed = true
	unix.Close(k.sock)
	k.wmu.Unlock()
	drain()
	k.mu.Lock()
	k.flushLocked(true)
	if s := k.sink; s != nil {
		k.sink = nil
		s.died(k.status)
	}
	k.mu.Unlock()
	close(k.ended)
}
