// Package gvisor runs machines on gVisor, the user-space kernel, used as a
// library: no daemon, no KVM, no root.
//
// It must live in a process of its own. gVisor's library swaps the standard
// streams, raises limits and marks every descriptor close-on-exec, and each
// sentry and gofer is that process's binary executed again: the binary's main
// calls [Dispatch] before anything else. Root filesystems have to be visible in
// the process's mount namespace.
package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/hostuser"
)

// Name is the engine's.
const Name = "gvisor"

// commit is the version of gVisor's module that is linked: its checkpoints are read
// by the build that wrote them. A test compares it with go.mod.
const commit = "v0.0.0-20260905035102-160fafc42237"

// platformName is that of gVisor's ways to run code inside that needs no KVM.
const platformName = "systrap"

// MaxStateDir leaves room in the 107 bytes of a socket's path (unix(7)) for
// "/runsc-", an id of 21 letters and ".sock".
const MaxStateDir = 107 - 7 - 21 - 5

// Engine is the gVisor engine. It holds no resources between machines.
type Engine struct {
	cfg  engine.Config
	root bool // real root: machines get an unprivileged user namespace

	features []string // of this processor
	sums     sums     // of files that images depend on

	helper *os.File // what sentries and gofers execute; nil for the running program

	// making holds a value while sentry and gofer of a machine are made, one
	// machine at a time.
	making chan struct{}

	nextCPU atomic.Uint32 // spreads the machines over the processors
	ended   atomic.Uint32 // machines, and starts that failed
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Restorer = (*Engine)(nil)
)

// Kind is this engine for a table.
func Kind() engine.Kind {
	return engine.Kind{
		Commit:   commit,
		Open:     func(cfg engine.Config) (engine.Engine, error) { return New(cfg) },
		Dispatch: Dispatch,
		IsHelper: func(arg0 string) bool { return strings.HasPrefix(arg0, helperPrefix) },
	}
}

// helperPrefix begins the names of sentries and gofers.
const helperPrefix = "runsc-"

// New returns an engine, which keeps nothing of its own in cfg.StateDir between two
// machines: the path has at most MaxStateDir bytes. It sets gVisor's process-wide log
// target.
func New(cfg engine.Config) (*Engine, error) {
	if len(cfg.StateDir) > MaxStateDir {
		return nil, fmt.Errorf("gvisor: state folder %q: socket paths below it would be too long; set TMPDIR to a shorter one", cfg.StateDir)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	file, err := openHelper(cmp.Or(cfg.Helper, runningProgram))
	if err != nil {
		return nil, err
	}
	gvlog.SetTarget(gvlog.GoogleEmitter{Writer: &gvlog.Writer{Next: logWriter{cfg.Logger}}})
	root, err := hostuser.Initial()
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	return &Engine{cfg: cfg, root: root, features: hostFeatures(), helper: file, making: make(chan struct{}, 1)}, nil
}

// Name implements engine.Engine.
func (*Engine) Name() string { return Name }

// Commit implements engine.Engine: it is the version of gVisor's module.
func (*Engine) Commit() string { return commit }

// Probe implements engine.Engine.
func (e *Engine) Probe(context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("gvisor needs root or a user namespace of its own: allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0) or run as root")
	}
	return checkStatic(cmp.Or(e.cfg.Helper, runningProgram))
}

// Start implements engine.Engine.
func (e *Engine) Start(ctx context.Context, spec engine.Spec) (engine.Machine, error) {
	return e.boot(ctx, spec, source{})
}

// Restore implements engine.Restorer.
func (e *Engine) Restore(ctx context.Context, spec engine.Spec, checkpoint string, opts engine.RestoreOptions) (engine.Machine, error) {
	return e.boot(ctx, spec, source{checkpoint, opts})
}

// Check implements engine.Restorer.
func (e *Engine) Check(checkpoint string, opts engine.RestoreOptions) error {
	_, err := e.readImage(checkpoint, opts)
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// collectAfter is how many machines may end until what package os keeps of their
// processes, a descriptor of each, is collected. Nobody but gVisor could close it.
const collectAfter = 32

// collect is called for each machine that has ended.
func (e *Engine) collect() {
	if e.ended.Add(1)%collectAfter == 0 {
		go runtime.GC()
	}
}

func (e *Engine) config(fixed engine.Fixed) (*config.Config, error) {
	fs := flag.NewFlagSet("gvisor", flag.ContinueOnError)
	config.RegisterFlags(fs)
	overlay := "none"
	if e.cfg.OverlayDir != "" {
		overlay = "root:dir=" + e.cfg.OverlayDir
	} else {
		overlay = "root:memory"
	}
	if fixed.Disk > 0 {
		overlay += fmt.Sprintf(",size=%d", fixed.Disk)
	}
	flags := map[string]string{
		"root":          e.cfg.StateDir,
		"platform":      platformName,
		"network":       "sandbox",
		"overlay2":      overlay,
		"host-settings": "ignore",
		// gVisor's own placement would move this whole process on cgroup v1.
		"ignore-cgroups": "true",
		// Boot from our own binary; see RATIONALE.md, "Why is gVisor pinned?".
		"sidecar-usage-policy": "LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK",
		"net-disconnect-ok":    "true",
		// For sudo. Nothing of the host leads to root that way: its files belong
		// to nobody inside.
		"allow-suid": "true",
		// Joining a shared empty namespace, gVisor's default, moves a thread of
		// this process there, which without root can never come back.
		"gofer-network-namespace": "new",
		// A restored machine is another host user than the one that was
		// checkpointed. The rest of its spec is equal by Engine's contract.
		"restore-spec-validation": "ignore",
	}
	var files unix.Rlimit // of this process, which the sentry inherits
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("gvisor: limit of open files: %w", err)
	}
	flags["dcache"] = strconv.Itoa(cachedFiles(files.Cur))
	if e.cfg.DebugLog != "" {
		flags["debug"] = "true"
		flags["debug-log"] = e.cfg.DebugLog + "/"
	}
	for name, value := range flags {
		if err := fs.Set(name, value); err != nil {
			return nil, fmt.Errorf("gvisor: option %s=%s: %w", name, value, err)
		}
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("gvisor: options: %w", err)
	}
	return conf, nil
}

func writeBundle(dir string, oci *specs.Spec) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(oci)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
}

// logWriter hands gVisor's lines to slog.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.Debug("gvisor", "line", string(p))
	return len(p), nil
}

var _ io.Writer = logWriter{}
