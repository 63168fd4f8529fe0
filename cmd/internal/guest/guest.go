//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/channel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/sudo"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// Name is the base name of argv[0] under which the guest is started. A program
// that embeds this package must call Main first thing if IsGuest says so.
const Name = "cubby-guest"

// channelFD is where the host puts the guest's end of the channel.
const channelFD = 3

// IsGuest reports whether a program that embeds this package was started as one
// of the guest's programs, by its argv[0].
func IsGuest(arg0 string) bool { return filepath.Base(arg0) == Name || sudo.Is(arg0) }

// Main is the program of process 1, and of the helpers that it starts from its own
// binary. It returns the exit status.
func Main() int {
	if sudo.Is(os.Args[0]) {
		return sudo.Main(os.Args)
	}
	if len(os.Args) > 1 && os.Args[1] == kernel.BashArg {
		return kernel.BashMain()
	}
	// Caught, not ignored: what is ignored stays so in every process of the code.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	unix.CloseOnExec(channelFD)
	if err := unix.SetNonblock(channelFD, true); err != nil {
		fmt.Fprintf(os.Stderr, "cubby-guest: no channel on descriptor %d: only cubby starts this program\n", channelFD)
		return 2
	}
	if err := Run(ctx, ConfigFromEnv(), os.NewFile(channelFD, "channel")); err != nil {
		slog.Error("guest", "err", err)
		return 1
	}
	return 0
}

// Guest is the state of one guest. Make it with New.
type Guest struct {
	cfg      Config
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup // of everything that Close waits for
	children children
	groups   *groups
	contexts contexts
	inputs   codeInputs
	waiting  atomic.Int64 // bytes of the source of calls that run or wait
	watches  watches
	load     load
	commands commands

	initialising sync.Mutex // held while a request of /init is checked and takes effect
	settings     atomic.Pointer[settings]
}

// New prepares the inside of a sandbox. Its handlers serve once they have been told
// by POST /init what sandbox it is.
func New(ctx context.Context, cfg Config) (*Guest, error) {
	g := &Guest{cfg: cfg}
	g.settings.Store(&settings{})
	g.ctx, g.cancel = context.WithCancel(ctx)
	if err := g.prepare(); err != nil {
		g.cancel()
		return nil, err
	}
	g.groups = newGroups(g.cfg.CgroupDir)
	if cfg.Init {
		g.wg.Go(func() { g.children.reap(g.ctx) })
	}
	return g, nil
}

// prepare makes what the host could not: owners, limits, the kernels' scripts.
func (g *Guest) prepare() error {
	if g.cfg.Init {
		// The token is in our memory, and the code may become root.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		_ = syscall.Umask(0o022)
		if err := os.Chown(g.cfg.Home, int(g.cfg.UID), int(g.cfg.GID)); err != nil {
			return fmt.Errorf("own the home folder: %w", err)
		}
		limits := map[int]syscall.Rlimit{
			syscall.RLIMIT_NOFILE: {Cur: 4096, Max: 65536},
			syscall.RLIMIT_CORE:   {},
		}
		for which, limit := range limits {
			if err := syscall.Setrlimit(which, &limit); err != nil {
				slog.Warn("guest: set a limit", "resource", which, "err", err)
			}
		}
		var err error
		if g.cfg.CgroupDir, err = mountCgroups(g.cfg.Cgroup); err != nil {
			return err
		}
		if err := sudo.Install("/usr/bin"); err != nil {
			slog.Warn("guest: no sudo", "err", err)
		}
		// E2B's users install there without sudo.
		for _, dir := range []string{"/usr/local", "/usr/local/bin"} {
			if err := os.Chmod(dir, 0o777); err != nil && !errors.Is(err, os.ErrNotExist) {
				slog.Warn("guest: open to everybody", "folder", dir, "err", err)
			}
		}
		if err := withhold(); err != nil {
			return err
		}
	}
	files, err := kernel.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.cfg.KernelDir, 0o755); err != nil {
		return fmt.Errorf("write the kernels: %w", err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(g.cfg.KernelDir, name), b, 0o644); err != nil {
			return fmt.Errorf("write the kernels: %w", err)
		}
	}
	return nil
}

// Close kills the kernels and the commands, and waits until nothing of the guest runs.
func (g *Guest) Close() {
	g.commands.close()
	g.cancel()
	g.contexts.mu.Lock()
	all := g.contexts.all
	g.contexts.all, g.contexts.defaults = nil, nil
	g.contexts.mu.Unlock()
	for _, c := range all {
		c.discard()
	}
	g.wg.Wait()
}

// Run is a guest on f, the end of the channel, until ctx is done. It takes over f.
func Run(ctx context.Context, cfg Config, f *os.File) error {
	g, err := New(ctx, cfg)
	if err != nil {
		_ = f.Close()
		return err
	}
	defer g.Close()
	var servers sync.WaitGroup
	defer servers.Wait()
	listeners := map[int]*listener{}
	for port, h := range map[int]http.Handler{protocol.EnvdPort: g.Envd(), protocol.CodeInterpreterPort: g.CodeInterpreter()} {
		l := &listener{conns: make(chan net.Conn, 64), closed: make(chan struct{})}
		listeners[port] = l
		srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug)}
		servers.Go(func() { _ = srv.Serve(l) })
		defer srv.Close()
	}
	return channel.Serve(ctx, f, func(port int, c net.Conn) bool {
		l := listeners[port]
		if l == nil {
			return false
		}
		go l.give(c)
		return true
	})
}

// listener hands the channel's connections to an http.Server.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "channel", Net: "cubby"} }

// CodeInterpreter returns the handler of port 49999.
func (g *Guest) CodeInterpreter() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, "OK") })
	mux.HandleFunc("POST /execute", g.handleExecute)
	mux.HandleFunc("GET "+protocol.StdinPath, g.handleStdinProbe)
	mux.HandleFunc("POST "+protocol.StdinPath+"/{id}", g.handleStdin)
	mux.HandleFunc("GET /contexts", g.handleContexts)
	mux.HandleFunc("POST /contexts", g.handleCreateContext)
	mux.HandleFunc("POST /contexts/{id}/restart", g.handleRestartContext)
	mux.HandleFunc("DELETE /contexts/{id}", g.handleDeleteContext)
	return cors(g.initialised(mux))
}

func (g *Guest) credential() *syscall.Credential {
	if !g.cfg.SwitchUser {
		return nil
	}
	return &syscall.Credential{Uid: g.cfg.UID, Gid: g.cfg.GID, Groups: []uint32{g.cfg.GID}}
}

// variables returns a copy of those that the host set for all calls.
func (g *Guest) variables() map[string]string {
	env := maps.Clone(g.settings.Load().env)
	if env == nil {
		env = map[string]string{}
	}
	return env
}
