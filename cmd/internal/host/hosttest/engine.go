// Package hosttest gives tests a host whose sandboxes are HTTP servers in the
// test's own process: everything but the walls.
package hosttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestversion"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Engine is an engine.Engine. The zero value's machines have an envd that knows
// what the host asks of it, and nothing else. It is safe for concurrent use; the
// fields are set before the first Start.
type Engine struct {
	// Ports answers on further ports, and on envd's what the host does not ask.
	Ports map[int]http.Handler
	// Init, if not nil, answers POST /init in the guest's place.
	Init http.Handler
	// Boot is called for each Start and may take its time or fail.
	Boot func(ctx context.Context, spec engine.Spec) error
	// Unenforced is what each machine does not enforce.
	Unenforced []string
	// Close is called when a machine is closed; its error is the machine's.
	Close func(spec engine.Spec) error
	// Save and Load are called for each Checkpoint and Restore and may take their
	// time or fail.
	Save, Load func(ctx context.Context, spec engine.Spec) error

	mu       sync.Mutex
	machines []*Machine
}

var (
	_ engine.Engine       = (*Engine)(nil)
	_ engine.Restorer     = (*Engine)(nil)
	_ engine.Checkpointer = (*Machine)(nil)
	_ engine.Pauser       = (*Machine)(nil)
)

// Name implements engine.Engine.
func (e *Engine) Name() string { return "test" }

// Commit implements engine.Engine.
func (e *Engine) Commit() string { return "1" }

// Probe implements engine.Engine.
func (e *Engine) Probe(context.Context) error { return nil }

// Start implements engine.Engine.
func (e *Engine) Start(ctx context.Context, spec engine.Spec) (engine.Machine, error) {
	if e.Boot != nil {
		if err := e.Boot(ctx, spec); err != nil {
			return nil, err
		}
	}
	return e.add(spec, ""), nil
}

func (e *Engine) add(spec engine.Spec, memory string) *Machine {
	m := &Machine{Spec: spec, engine: e, memory: memory, servers: map[int]*server{}, exit: make(chan engine.Exit, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.machines = append(e.machines, m)
	return m
}

// An image of a machine has one of these.
const (
	memoryFile = "memory"
	filesFile  = "files"
)

// Restore implements engine.Restorer. What the machine remembers is memory.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, checkpoint string, opts engine.RestoreOptions) (engine.Machine, error) {
	if e.Load != nil {
		if err := e.Load(ctx, spec); err != nil {
			return nil, err
		}
	}
	if err := e.Check(checkpoint, opts); err != nil {
		return nil, err
	}
	if opts.FilesOnly {
		return e.add(spec, ""), nil
	}
	memory, err := os.ReadFile(filepath.Join(checkpoint, memoryFile))
	if err != nil {
		return nil, err
	}
	return e.add(spec, string(memory)), nil
}

// Check implements engine.Restorer.
func (e *Engine) Check(checkpoint string, opts engine.RestoreOptions) error {
	_, memory := os.Stat(filepath.Join(checkpoint, memoryFile))
	_, files := os.Stat(filepath.Join(checkpoint, filesFile))
	switch {
	case memory == nil || opts.FilesOnly && files == nil:
		return nil
	case files == nil:
		return engine.ErrFilesOnly
	}
	return memory
}

// Machines returns every machine that was started.
func (e *Engine) Machines() []*Machine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*Machine(nil), e.machines...)
}

// Machine is an engine.Machine.
type Machine struct {
	Spec   engine.Spec
	engine *Engine
	exit   chan engine.Exit

	mu      sync.Mutex
	memory  string
	init    protocol.InitRequest
	usage   engine.Usage
	cpu     time.Duration
	servers map[int]*server // by port
	closed  bool
	frozen  bool
	closes  int
}

// Init is what the host told the guest.
func (m *Machine) Init() protocol.InitRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.init
}

// Forget forgets what the host told the guest last, but not its token.
func (m *Machine) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.init = protocol.InitRequest{HostToken: m.init.HostToken}
}

// Memory is what the machine remembers: what SetMemory said, or its image.
func (m *Machine) Memory() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory
}

// SetMemory has the machine remember something.
func (m *Machine) SetMemory(memory string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory = memory
}

// Checkpoint implements engine.Checkpointer.
func (m *Machine) Checkpoint(ctx context.Context, dir string, opts engine.CheckpointOptions) error {
	if m.engine.Save != nil {
		if err := m.engine.Save(ctx, m.Spec); err != nil {
			return err
		}
	}
	m.mu.Lock()
	memory, closed := m.memory, m.closed
	m.mu.Unlock()
	if closed {
		return engine.ErrEnded
	}
	if opts.FilesOnly {
		return os.WriteFile(filepath.Join(dir, filesFile), nil, 0o600)
	}
	return os.WriteFile(filepath.Join(dir, memoryFile), []byte(memory), 0o600)
}

// Pause implements engine.Pauser. A machine that is frozen answers all the same.
func (m *Machine) Pause(context.Context) error { return m.freeze(true) }

// Resume implements engine.Pauser.
func (m *Machine) Resume(context.Context) error { return m.freeze(false) }

func (m *Machine) freeze(frozen bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return engine.ErrEnded
	}
	if m.frozen == frozen {
		return fmt.Errorf("the machine is frozen: %v", frozen)
	}
	m.frozen = frozen
	return nil
}

// Frozen says whether the host has paused the machine.
func (m *Machine) Frozen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frozen
}

// Closed says whether, and how many times, the host closed the machine.
func (m *Machine) Closed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closes
}

// SetUsage sets what Usage and CPUTime say from now on.
func (m *Machine) SetUsage(u engine.Usage, cpu time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage, m.cpu = u, cpu
}

// Die ends the machine as if its kernel had crashed.
func (m *Machine) Die(why string) { m.stop(engine.Exit{Err: errors.New(why)}) }

// Dial implements engine.Machine.
func (m *Machine) Dial(_ context.Context, port int) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, engine.ErrEnded
	}
	s := m.servers[port]
	if s == nil {
		handler := m.engine.Ports[port]
		if port == protocol.EnvdPort {
			handler = m.envd(handler)
		}
		if handler == nil {
			return nil, fmt.Errorf("port %d: %w", port, engine.ErrPortClosed)
		}
		s = serve(handler)
		m.servers[port] = s
	}
	return s.dial()
}

// envd answers what the host asks of a guest.
func (m *Machine) envd(other http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /init", func(w http.ResponseWriter, r *http.Request) {
		if m.engine.Init != nil {
			m.engine.Init.ServeHTTP(w, r)
			return
		}
		var req protocol.InitRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m.mu.Lock()
		m.init = req
		m.mu.Unlock()
		w.Header().Set(protocol.HeaderVersion, guestversion.Build())
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /cubby/oom", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(protocol.HeaderHostToken) != m.Init().HostToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if other != nil {
		mux.Handle("/", other)
	}
	return mux
}

// Usage implements engine.Machine.
func (m *Machine) Usage(context.Context) (engine.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return engine.Usage{}, engine.ErrEnded
	}
	return m.usage, nil
}

// CPUTime implements engine.Machine.
func (m *Machine) CPUTime(context.Context) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cpu, nil
}

// Fixed implements engine.Machine.
func (m *Machine) Fixed() engine.Fixed {
	limits := m.Spec.Limits
	return engine.Fixed{Disk: limits.Disk, CPUs: int(math.Ceil(limits.CPUs)), Memory: limits.Memory}
}

// Unenforced implements engine.Machine.
func (m *Machine) Unenforced() []string { return m.engine.Unenforced }

// Wait implements engine.Machine.
func (m *Machine) Wait() <-chan engine.Exit { return m.exit }

// Close implements engine.Machine.
func (m *Machine) Close() error {
	m.mu.Lock()
	m.closes++
	m.mu.Unlock()
	m.stop(engine.Exit{})
	if m.engine.Close != nil {
		return m.engine.Close(m.Spec)
	}
	return nil
}

func (m *Machine) stop(exit engine.Exit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	for _, s := range m.servers {
		s.close()
	}
	m.exit <- exit
	close(m.exit)
}

// server is one port of a machine.
type server struct {
	http  *http.Server
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	ended chan struct{}
}

func serve(h http.Handler) *server {
	s := &server{http: &http.Server{Handler: h}, conns: make(chan net.Conn), done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(s) // ends with Close
	}()
	return s
}

func (s *server) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-s.done:
		return nil, engine.ErrEnded
	}
}

func (s *server) close() {
	_ = s.http.Close()
	<-s.ended
}

// Accept implements net.Listener.
func (s *server) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *server) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener.
func (s *server) Addr() net.Addr { return &net.UnixAddr{Name: "machine", Net: "test"} }
