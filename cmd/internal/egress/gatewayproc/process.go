//go:build linux

// Package gatewayproc runs the gateway of package gateway in one process for all
// sandboxes of a server, which has no files, no capabilities, and a filter of its system
// calls; and is what the server's process knows of it.
//
// The server keeps the gateway's end of each sandbox's network card, and its rules. If
// the process dies, another is started and is given all of them again: flows are lost,
// and nothing is open in between, for nobody else reads the cards.
package gatewayproc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/hostuser"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Config configures a Process. Only Operator is needed.
type Config struct {
	Operator egress.Operator
	// Authority is the certificate authority with its key, and Roots are the
	// certificates by which servers outside are verified, both as PEM, for rules
	// that add headers.
	Authority []byte
	Roots     []byte
	// Group, if it is not nil, is the control group that the process runs in.
	Group  *cgroup.Group
	Logger *slog.Logger // nil discards
	// OnFlow is told what was decided of each flow, and how it ended. It is called
	// by one goroutine, must not block, and may miss some of a flood.
	OnFlow func(egress.Flow)
}

// cardBuffer is how many bytes of packets wait in a card in each direction, as the
// kernel counts them; without privileges it gives fewer.
const cardBuffer = 1 << 20

// How soon a process that died is started again, and when one that lived for a time
// begins with the first again.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	longLife   = 30 * time.Second
)

// updateTimeout is how long the process may take for a sandbox's new rules before it
// counts as dead.
const updateTimeout = 5 * time.Second

// ErrUnknown is what a sandbox without a card is.
var ErrUnknown = errors.New("the sandbox has no network card")

// Process is the gateway of a server's sandboxes. Its methods are safe for concurrent
// use.
type Process struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	needed func()          // starts the process, once
	need   <-chan struct{} // closed by that

	mu       sync.Mutex
	operator egress.Operator
	cards    map[string]*card
	wire     *wire // nil while there is no process
	pid      int
	ready    bool // the process is confined, and serves
	seq      uint64
	waiting  map[uint64]chan error
	failure  error // why the last process could not be started or ended
}

// card is one that a sandbox has.
type card struct {
	end   *os.File // the gateway's; not in this process's poller, see cardPair
	rules egress.Rules
	// unwatch ends needWhenUsed; it may be called again.
	unwatch func()
}

func (c *card) close() {
	c.unwatch()
	c.end.Close()
}

// Start returns at once. The process itself is started with the first sandbox that may
// reach something, or when code in another sends its first packet: most sandboxes never
// do, and it costs as much as half of a sandbox. Close ends it.
func Start(cfg Config) *Process {
	p := &Process{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), operator: cfg.Operator, ended: make(chan struct{}),
		cards: map[string]*card{}, waiting: map[uint64]chan error{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	need := make(chan struct{})
	p.need, p.needed = need, sync.OnceFunc(func() { close(need) })
	go p.run()
	return p
}

// Attach makes a sandbox's network card and returns the end that belongs into its
// machine, which is the caller's. An error is one of the rules, or of this computer. A
// sandbox that has a card gets another.
func (p *Process) Attach(sandbox string, rules egress.Rules) (*os.File, error) {
	if _, err := egress.Compile(rules, p.cfg.Operator); err != nil {
		return nil, err
	}
	ours, theirs, err := cardPair()
	if err != nil {
		return nil, fmt.Errorf("network card: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &card{end: ours, rules: rules, unwatch: func() {}}
	switch {
	case rules.Open || len(rules.Allow) > 0:
		p.needed()
	default:
		if c.unwatch, err = p.needWhenUsed(ours); err != nil {
			ours.Close()
			theirs.Close()
			return nil, fmt.Errorf("network card: %w", err)
		}
	}
	if old := p.cards[sandbox]; old != nil {
		old.close()
		p.send(&message{Op: opDetach, Sandbox: sandbox}, nil)
	}
	p.cards[sandbox] = c
	p.send(&message{Op: opAttach, Sandbox: sandbox, Rules: &rules}, ours)
	return theirs, nil
}

// needWhenUsed starts the process when there is a packet in a card. It watches a
// descriptor of its own, which it closes then, when the process is needed for another
// reason, or at unwatch: while a card is in this process's poller, each packet in it
// wakes this process, too.
func (p *Process) needWhenUsed(end *os.File) (unwatch func(), err error) {
	select {
	case <-p.need:
		return func() {}, nil
	default:
	}
	raw, err := end.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if controlErr := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) }); controlErr != nil {
		err = controlErr
	}
	if err != nil {
		return nil, err
	}
	watched := os.NewFile(uintptr(fd), "watched card") // in the poller, as it never blocks
	if raw, err = watched.SyscallConn(); err != nil {
		watched.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-p.need:
		case <-ended:
		}
		watched.Close() // which ends the wait
	}()
	go func() {
		defer close(ended)
		used := false
		_ = raw.Read(func(fd uintptr) bool {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(ready, 0); n == 0 || err != nil {
				return false
			}
			used = ready[0].Revents&unix.POLLHUP == 0 // else the machine has ended
			return true
		})
		if used {
			p.needed()
		}
	}()
	return func() { watched.Close() }, nil
}

// Update replaces a sandbox's rules. When it returns nil, no flow is left that they do
// not allow. Without a card it is ErrUnknown.
func (p *Process) Update(ctx context.Context, sandbox string, rules egress.Rules) error {
	if _, err := egress.Compile(rules, p.cfg.Operator); err != nil {
		return err
	}
	p.mu.Lock()
	c := p.cards[sandbox]
	if c == nil {
		p.mu.Unlock()
		return ErrUnknown
	}
	c.rules = rules
	if rules.Open || len(rules.Allow) > 0 {
		p.needed()
	}
	if p.wire == nil {
		p.mu.Unlock()
		return nil // nothing is open, and the next process begins with these
	}
	seq, done := p.ask(&message{Op: opUpdate, Sandbox: sandbox, Rules: &rules})
	w := p.wire
	p.mu.Unlock()
	late := time.NewTimer(updateTimeout)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		// What it still lets pass is not known. It is killed, and the next one begins
		// with these rules.
		p.log.Error("the network's gateway did not take new rules in time", "sandbox_id", sandbox, "after", updateTimeout)
		w.conn.Close()
		return <-done
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, seq)
		p.mu.Unlock()
		return fmt.Errorf("new network rules of %s: %w", sandbox, context.Cause(ctx))
	}
}

// ask sends a message whose answer comes from the channel. The caller holds p.mu, and
// there is a process.
func (p *Process) ask(m *message) (seq uint64, done <-chan error) {
	p.seq++
	m.Seq = p.seq
	answer := make(chan error, 1)
	p.waiting[m.Seq] = answer
	p.send(m, nil)
	return m.Seq, answer
}

// Flush returns when OnFlow has been told of every flow that was decided before the
// call, or when ctx ends. What code in a sandbox has seen refused is among them.
func (p *Process) Flush(ctx context.Context) error {
	p.mu.Lock()
	if p.wire == nil {
		p.mu.Unlock()
		return nil // what the last process did not tell is lost
	}
	seq, done := p.ask(&message{Op: opFlush})
	p.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, seq)
		p.mu.Unlock()
		return fmt.Errorf("what the network's gateway has to tell: %w", context.Cause(ctx))
	}
}

// Detach takes a sandbox's card away; its flows end.
func (p *Process) Detach(sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.cards[sandbox]; c != nil {
		delete(p.cards, sandbox)
		c.close()
		p.send(&message{Op: opDetach, Sandbox: sandbox}, nil)
	}
}

// Configure replaces what holds for all sandboxes, as when the computer has other name
// servers.
func (p *Process) Configure(op egress.Operator) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.operator = op
	p.send(&message{Op: opConfig, Operator: &op}, nil)
}

// Failure says why there is no gateway at this moment; nil if there is one, or none was
// needed yet.
func (p *Process) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wire != nil {
		return nil
	}
	return p.failure
}

// PID is that of the process; 0 while there is none that serves.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		return 0
	}
	return p.pid
}

// Close ends the process and every card, and waits for its end.
func (p *Process) Close() error {
	p.cancel()
	p.mu.Lock()
	for sandbox, c := range p.cards {
		c.close()
		delete(p.cards, sandbox)
	}
	if p.wire != nil {
		p.wire.conn.Close() // who reads it closes the rest
	}
	p.mu.Unlock()
	<-p.ended
	return nil
}

// send gives the process a message. One that cannot be given ends it: the next is told
// everything. The caller holds p.mu.
func (p *Process) send(m *message, file *os.File) {
	if p.wire == nil {
		return
	}
	if err := p.wire.send(m, file); err != nil {
		p.wire.conn.Close()
	}
}

// run starts the process again and again until Close.
func (p *Process) run() {
	defer close(p.ended)
	runtime.LockOSThread() // a process that is started dies with the thread, see Pdeathsig
	select {
	case <-p.need:
	case <-p.ctx.Done():
		return
	}
	pause := firstPause
	for p.ctx.Err() == nil {
		began := time.Now()
		err := p.once()
		if p.ctx.Err() != nil {
			return
		}
		if time.Since(began) > longLife {
			pause = firstPause
		}
		p.log.Error("the network's gateway has ended; sandboxes have no network until it is back", "err", err, "again_in", pause)
		p.mu.Lock()
		p.failure = err
		p.mu.Unlock()
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-p.ctx.Done():
		}
	}
}

// once is one process's life.
func (p *Process) once() error {
	w, cmd, release, err := p.start()
	if err != nil {
		return err
	}
	defer release()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = p.converse(w, cmd.Process.Pid)
	// What it has read of its messages nobody knows: only its end ends its flows.
	_ = cmd.Process.Kill()
	if waitErr := <-ended; waitErr != nil {
		err = errors.Join(waitErr, err)
	}
	p.gone(w)
	return err
}

// converse tells the process everything, and reads what it says until it ends.
func (p *Process) converse(w *wire, pid int) error {
	p.mu.Lock()
	p.wire, p.pid = w, pid
	if p.ctx.Err() != nil {
		w.conn.Close() // Close has not seen it
	}
	op := p.operator
	p.send(&message{Op: opConfig, Operator: &op, Authority: p.cfg.Authority, Roots: p.cfg.Roots}, nil)
	for sandbox, c := range p.cards {
		p.send(&message{Op: opAttach, Sandbox: sandbox, Rules: &c.rules}, c.end)
	}
	p.mu.Unlock()
	lines := rate.NewLimiter(linesPerSecond, linesAtOnce)
	for {
		m, _, err := w.receive()
		if err != nil {
			return err
		}
		switch m.Op {
		case opReady:
			p.mu.Lock()
			p.ready = true
			p.mu.Unlock()
			p.log.Debug("the network's gateway serves", "pid", pid)
		case opDone:
			p.answered(m)
		case opFlow:
			if m.Flow != nil && p.cfg.OnFlow != nil {
				p.cfg.OnFlow(bounded(*m.Flow))
			}
		case opLog:
			if lines.Allow() {
				logLine(p.log, m.Log)
			}
		}
	}
}

// linesPerSecond and linesAtOnce bound what the process writes into the log.
const linesPerSecond, linesAtOnce = 50, 500

// maxText bounds each text of a flow that is kept, in bytes.
const maxText = 1 << 10

// bounded is a flow with short texts: many are kept.
func bounded(f egress.Flow) egress.Flow {
	for _, text := range []*string{&f.Host, &f.Rule, &f.Reason, &f.Entry} {
		*text = clip.Ellipsis(*text, maxText)
	}
	return f
}

// answered hands an answer to who waits for it.
func (p *Process) answered(m *message) {
	var err error
	if m.Error != "" {
		err = errors.New(m.Error)
	}
	p.mu.Lock()
	done := p.waiting[m.Seq]
	delete(p.waiting, m.Seq)
	p.mu.Unlock()
	switch {
	case done != nil:
		done <- err
	case err != nil:
		p.log.Error("the network's gateway", "sandbox_id", m.Sandbox, "err", err)
	}
}

// gone forgets a process that has ended. Whoever waits for new rules has them: nothing is open any
// more, and the next process begins with them.
func (p *Process) gone(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wire, p.pid, p.ready = nil, 0, false
	w.close()
	for seq, done := range p.waiting {
		done <- nil
		delete(p.waiting, seq)
	}
}

// start starts the process, as a user of its own and in namespaces of its own, except
// the network's.
func (p *Process) start() (_ *wire, _ *exec.Cmd, release func(), err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "server")
	defer theirs.Close()
	w, err := serversWire(os.NewFile(uintptr(fds[0]), "gateway"))
	if err != nil {
		return nil, nil, nil, err
	}
	host, release := os.Geteuid(), func() {}
	root, err := hostuser.Initial()
	if err == nil && root {
		var user *hostuser.User
		if user, err = hostuser.Take(); err == nil {
			host, release = int(user.ID()), func() { user.Release() }
		}
	}
	if err != nil {
		w.close()
		return nil, nil, nil, err
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{programName}, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs}, Dir: "/",
		// Its processors do not change, and it could not look.
		Env: []string{"GODEBUG=updatemaxprocs=0"},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:                 unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			UidMappings:                []syscall.SysProcIDMap{{HostID: host, Size: 1}},
			GidMappings:                []syscall.SysProcIDMap{{HostID: host, Size: 1}},
			GidMappingsEnableSetgroups: root, // to have none; who is not root may not
			Credential:                 &syscall.Credential{NoSetGroups: !root},
			Setsid:                     true,         // a terminal's Ctrl-C is the server's alone
			Pdeathsig:                  unix.SIGKILL, // it ends with its socket, but not while it is stopped
		},
	}
	if err := cmd.Start(); err != nil {
		w.close()
		release()
		return nil, nil, nil, fmt.Errorf("the gateway's process: %w", err)
	}
	if p.cfg.Group != nil {
		if err := p.cfg.Group.Add(cmd.Process.Pid); err != nil {
			p.log.Warn("the network's gateway has no control group", "err", err)
		}
	}
	return w, cmd, release, nil
}

// cardPair makes a card: both ends pass packets whole and never block. Neither is in this
// process's poller, although [os.NewFile] puts there what does not block: what is in it
// wakes this process with each packet, whoever reads them.
func cardPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "gateway's end"), os.NewFile(uintptr(fds[1]), "network card")
	for _, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			ours.Close()
			theirs.Close()
			return nil, nil, os.NewSyscallError("fcntl", err)
		}
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, cardBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, cardBuffer) // what the kernel gives will do
		}
	}
	return ours, theirs, nil
}

// logLine repeats a line of the gateway's log.
func logLine(log *slog.Logger, line json.RawMessage) {
	var fields map[string]any
	if json.Unmarshal(line, &fields) != nil {
		return
	}
	var level slog.Level
	if text, ok := fields[slog.LevelKey].(string); !ok || level.UnmarshalText([]byte(text)) != nil {
		level = slog.LevelInfo
	}
	text, _ := fields[slog.MessageKey].(string)
	attrs := []any{"process", "gateway"}
	for key, value := range fields {
		if key != slog.LevelKey && key != slog.MessageKey && key != slog.TimeKey {
			attrs = append(attrs, key, value)
		}
	}
	log.Log(context.Background(), level, text, attrs...)
}
