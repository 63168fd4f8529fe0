// Package child is the process in which the engine lives: a private Cubby for the
// program that embeds it, or the server behind `cubby serve`. It composes the
// template in its own mount namespace, serves E2B's protocol on the socket it was
// handed, and leaves nothing when its parent goes away, however that happens.
package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/host"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/server"
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/cmd/internal/vault"
	"github.com/cubby-sandbox/cubby/internal/cgroup"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/rlimit"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// Options are what the parent asks for.
type Options struct {
	Expect       string // the parent's version
	RunDir       string // made and locked by the parent, removed here
	Python, Node string // interpreters of the template; empty means to search
	Engines      engine.Table
	Engine       string // the name of one of them
	Logger       *slog.Logger
	Network      Network
	Env          []string // of what runs in sandboxes, besides the template's own

	// DataDir makes it a server for others: with API keys, and records of its
	// sandboxes, in that folder. The rest is for such a server only.
	DataDir      string
	Domain       string   // see server.Config
	MaxSandboxes int      // see host.Config
	TemplateIDs  []string // further names of the template

	RequireContextToken bool // see server.Config
	// SecretsKey is what teams' secrets are sealed with; nil: a key that is derived
	// from the data folder's.
	SecretsKey *secret.Key
	// ImagesKey encrypts paused sandboxes and snapshots; nil leaves them readable for
	// who may read the data folder.
	ImagesKey     *secret.Key
	DiskBudget    int64         // bytes that these may take; zero: what the disk has
	KeepPaused    time.Duration // see host.Config
	KeepSnapshots int           // see host.Config
}

// ErrTold is in an error that the parent was told, and will say.
var ErrTold = errors.New("told the parent")

// Serve runs until the parent is gone or the process is told to end.
func Serve(ctx context.Context, opts Options) error {
	// Folders and sockets of the run are traversed by sandboxes' users; what is
	// secret has a mode that says so. The parent's umask may be anything.
	unix.Umask(0o022)
	ready := os.NewFile(handshake.FDReady, "ready")
	hello := func(h handshake.Hello) {
		h.Version = version.Build()
		// A parent that is gone reads nothing; the life line says so next.
		_ = json.NewEncoder(ready).Encode(h)
		ready.Close()
	}
	refuse := func(err error) error {
		hello(handshake.Hello{Error: fault.ToWire(fault.Unavailable, err)})
		return errors.Join(ErrTold, err)
	}
	if opts.Expect != version.Build() {
		return refuse(&fault.Error{Code: fault.Incompatible,
			Err: fmt.Errorf("this cubby is %s, the program that started it wants %s", version.Build(), opts.Expect)})
	}
	kind, err := opts.Engines.Lookup(opts.Engine)
	if err != nil {
		return refuse(err)
	}
	for _, fd := range []int{handshake.FDListener, handshake.FDReady, handshake.FDLife, handshake.FDLock} {
		unix.CloseOnExec(fd) // none is a sandbox's business
	}
	// A parent that is gone reads no log: a line to it must not end this process
	// before it has cleaned up. Caught, not ignored, which children would inherit.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// Nothing is ever written: reading ends when the last holder of the
		// other end, the parent, has closed it or died.
		io.Copy(io.Discard, os.NewFile(handshake.FDLife, "life"))
		cancel()
	}()
	var kept atomic.Pointer[host.Host]
	defer backstop(ctx, opts.Logger, func() time.Duration {
		return patience(opts.DataDir, func() int {
			if h := kept.Load(); h != nil {
				return h.ToKeep()
			}
			return 0
		})
	}, kind.IsHelper)()

	// A limit that cannot be raised shows in what fails of it.
	if err := rlimit.Raise(); err != nil {
		opts.Logger.Warn("limits of this process", "err", err)
	}
	p, err := open(ctx, opts)
	if err != nil {
		return errors.Join(refuse(err), p.close())
	}
	kept.Store(p.host)
	listener, err := net.FileListener(os.NewFile(handshake.FDListener, "listener"))
	if err != nil {
		return errors.Join(refuse(err), p.close())
	}
	srv := &http.Server{
		Handler: p.server(opts), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	hello(handshake.Hello{NewKey: p.newKey, Recovered: p.recovered})
	go p.host.ResumeKept(ctx) // Close waits for what it has begun
	select {
	case <-ctx.Done():
		if p.store != nil {
			finish(srv)
		}
	case err = <-served:
	}
	// Sandboxes first: their streams end, and so do the requests that wait.
	return errors.Join(err, p.close(), srv.Close())
}

const (
	// idleTimeout is how long a client's connection is kept for its next
	// request; E2B's keep theirs for some minutes.
	idleTimeout = 10 * time.Minute
	maxHeader   = 64 << 10 // bytes
	// finishTimeout is what requests under way get when a server is told to
	// end. Streams can be endless: they are cut.
	finishTimeout = 3 * time.Second
)

// patience is how long the end of the process may take before its sandboxes are killed.
// toKeep is how many are to be paused for the next server.
func patience(dataDir string, toKeep func() int) time.Duration {
	switch {
	case dataDir == "":
		return killAfter
	case toKeep() == 0:
		return killAfterServing
	}
	return killAfterServing + keepTimeout
}

// finish stops accepting and lets the requests that are short come to their end.
func finish(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	_ = srv.Shutdown(ctx) // what is left ends with its sandbox
}

func (p *private) server(opts Options) http.Handler {
	cfg := server.Config{Host: server.Local(p.host), Logger: opts.Logger, Domain: opts.Domain, RequireContextToken: opts.RequireContextToken}
	if p.store != nil {
		cfg.Keys, cfg.Access, cfg.Secrets = keys{p.store}, opts.Logger, p.vault
	}
	return server.New(cfg)
}

// private is everything that the child holds.
type private struct {
	runDir    string
	store     *store.Store // nil in a private Cubby
	key       *secret.Key  // the data folder's
	vault     *vault.Vault // nil in a private Cubby
	unlock    func() error
	newKey    string
	recovered int

	guest   guestPrograms
	kept    *keptPrograms // nil until they are open
	root    *template.Root
	cgroups *cgroup.Manager // nil without
	host    *host.Host
	network *network // nil until it is open
	fonts   *fonts   // nil without matplotlib
}

// open builds the child's parts; on an error, what it returns is to be closed
// as well.
func open(ctx context.Context, opts Options) (*private, error) {
	p := &private{runDir: opts.RunDir}
	// Before anything is touched: if the records cannot be read, nothing is.
	if opts.DataDir != "" {
		if err := p.openStore(ctx, opts.DataDir); err != nil {
			return p, err
		}
		if err := p.openVault(ctx, opts.SecretsKey); err != nil {
			return p, err
		}
	}
	// What is mounted here must not reach the host, and what the host unmounts
	// must not stay busy here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return p, &fault.Error{Code: fault.Unavailable, Err: fmt.Errorf("mount namespace: %w", err),
			Hint: "run `cubby doctor`: this process needs a mount namespace of its own"}
	}
	tools, err := template.Find(ctx, template.Options{Python: opts.Python, Node: opts.Node})
	if err != nil {
		return p, err
	}
	opts.Logger.Info("template of this machine's own tools", "python", tools.Python.Path, "node", tools.Node.Path)
	if p.guest, err = openGuestPrograms(ctx, opts.RunDir); err != nil {
		return p, err
	}
	if p.kept, err = openKeptPrograms(opts.DataDir, opts.RunDir, p.guest); err != nil {
		return p, err
	}
	rootDir, state := filepath.Join(opts.RunDir, "root"), filepath.Join(opts.RunDir, "gv")
	for _, dir := range []string{rootDir, state} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return p, err
		}
	}
	cgroups, err := cgroup.Detect("", "", "")
	if err != nil {
		opts.Logger.Info("no cgroups", "err", err)
		cgroups = nil
	} else if _, err := cgroups.Sweep(); err != nil {
		opts.Logger.Warn("cgroups of dead servers", "err", err)
	}
	p.cgroups = cgroups
	if p.network, err = openNetwork(&opts, p.key, cgroups); err != nil {
		return p, err
	}
	fontKey := make(chan string, 1) // meanwhile: it takes half a millisecond
	go func() { fontKey <- template.FontKey(tools) }()
	root, err := template.Compose(ctx, rootDir, tools, template.Additions{
		Programs: template.Programs{ID: programsID(), Guest: p.guest.guest, TypeScript: p.guest.typescript}, Earlier: p.kept.all,
		Authority: p.network.ca, NameServer: engine.NetGateway,
	})
	if err != nil {
		return p, err
	}
	p.root = &root
	eng, err := opts.Engines.Open(opts.Engine, engine.Config{
		StateDir: state, OverlayDir: overlayDir(opts.RunDir), Cgroups: cgroups, Logger: opts.Logger,
		DebugLog: os.Getenv("CUBBY_ENGINE_LOG"),
	})
	if err != nil {
		return p, err
	}
	if err := eng.Probe(ctx); err != nil {
		return p, err
	}
	opts.Logger.Info("engine", "name", eng.Name(), "commit", eng.Commit())
	most, err := mostSandboxes(opts.MaxSandboxes)
	if err != nil {
		return p, err
	}
	cfg := host.Config{
		Engine: limited(eng), Templates: templates(root, tools, p.kept.ids(), opts.Env, opts.TemplateIDs),
		MaxSandboxes: most, Logger: opts.Logger, KeepPaused: opts.KeepPaused, KeepSnapshots: opts.KeepSnapshots,
		Networks: p.network.process, Operator: opts.Network.Operator, OpenNetwork: opts.Network.Open,
	}
	if p.store != nil {
		cfg.Recorder, cfg.Key, cfg.Secrets, cfg.Snapshots = recorder{p.store, p.key}, p.key, p.vault, snapshots{p.store, p.key}
	}
	if cfg.Images, err = p.openImages(opts); err != nil {
		return p, err
	}
	p.host = host.New(cfg)
	p.network.host.Store(p.host)
	if p.store != nil {
		if err := p.takeUp(ctx); err != nil {
			return p, err
		}
	}
	if key := <-fontKey; key != "" {
		p.fonts = provideFonts(key, root, cfg)
	}
	if p.store != nil {
		if err := p.firstKey(ctx); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *private) close() error {
	var errs []error
	if p.fonts != nil {
		p.fonts.close()
	}
	if p.host != nil {
		errs = append(errs, p.host.Close())
	}
	if p.network != nil {
		errs = append(errs, p.network.close())
	}
	if p.cgroups != nil {
		errs = append(errs, p.cgroups.Close())
	}
	if p.root != nil {
		errs = append(errs, p.root.Close())
	}
	errs = append(errs, p.kept.Close(), p.guest.Close())
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.unlock != nil {
		errs = append(errs, p.unlock())
	}
	for _, dir := range []string{guestDir, plainDir} {
		_ = unix.Unmount(filepath.Join(p.runDir, dir), unix.MNT_DETACH) // seldom there
	}
	return errors.Join(append(errs, os.RemoveAll(p.runDir))...)
}

// overlayDir is a folder on a real disk: what sandboxes write must not be
// memory. The files there are unlinked as soon as they are made.
func overlayDir(runDir string) string {
	const dir = "/var/tmp"
	var fs unix.Statfs_t
	if unix.Access(dir, unix.W_OK) == nil && unix.Statfs(dir, &fs) == nil && fs.Type != unix.TMPFS_MAGIC {
		return dir
	}
	return runDir
}

// templates are the names of the one template that there is.
func templates(root template.Root, tools template.Toolchain, programs, extra, aliases []string) host.Templates {
	env := append(environment(root, tools), extra...)
	return host.Toolchain(host.Template{
		Digest: template.Digest(tools), Programs: programs, Root: root.Dir, Guest: []string{root.GuestPath}, Env: env,
	}, aliases...)
}

// environment is what the guest is told of the template.
func environment(root template.Root, tools template.Toolchain) []string {
	return append([]string{
		"PATH=" + root.Path,
		"LANG=C.UTF-8",
		"MPLCONFIGDIR=" + template.FontDir,
		"CUBBY_PYTHON=" + root.Python, "CUBBY_PYTHON_MISSING=" + tools.Python.Missing,
		"CUBBY_NODE=" + root.Node, "CUBBY_NODE_MISSING=" + tools.Node.Missing,
		"CUBBY_BASH=" + root.Bash, "CUBBY_BASH_MISSING=" + tools.Bash.Missing,
		"CUBBY_TYPESCRIPT=" + root.TypeScriptPath,
	}, root.Env...)
}
