//go:build linux

// Package engineprogram is the program in which sandboxes live: the server's child
// with the engines linked into it, the processes that an engine starts of it, and
// the administration of a server's keys. It is a program of its own, cubby-engine,
// so that these processes, of which each sandbox has several, start without
// initialising the command line; a build without it links it into cubby.
package engineprogram

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/child"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gatewayproc"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine/gvisor"
	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/cmd/internal/guestbin"
	"github.com/cubby-sandbox/cubby/cmd/internal/indexenv"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin/storekeys"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed/ready"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/vault/keysource"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// Exit statuses beside 0.
const (
	statusUsage  = 2
	statusFailed = 125 // it could not do what it is there for
)

// Engines are those that are linked in. Their names are enginename.All.
func Engines() engine.Table { return engine.Table{gvisor.Name: gvisor.Kind()} }

// Dispatch does what an engine, a sandbox, or the network's gateway wants of this process
// if it was started as one of them, and does not return then. It comes first in main.
func Dispatch() {
	gatewayproc.Dispatch()
	Engines().Dispatch()
	guestbin.Dispatch()
}

// Wanted reports whether the arguments (without the program's name) are for Run.
func Wanted(args []string) bool {
	return len(args) > 0 && args[0] == keyadmin.Argument || handshake.IsChild(args)
}

// Run does what args ask for, and returns the exit status.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	switch {
	case handshake.IsChild(args):
		return serve(ctx, args, stderr)
	case len(args) == 1 && args[0] == keyadmin.Argument:
		if err := keyadmin.Serve(ctx, storekeys.Admin{}, stdin, stdout); err != nil {
			fmt.Fprintln(stderr, "cubby-engine:", err)
			return statusFailed
		}
		return 0
	case len(args) > 0 && args[0] == packed.Argument:
		if err := packed.Serve(ctx, args[1:], guestbin.Programs(), stdout); err != nil {
			fmt.Fprintln(stderr, "cubby-engine:", err)
			return statusFailed
		}
		return 0
	case len(args) == 1 && (args[0] == "version" || args[0] == "--version"):
		io.WriteString(stdout, version.Line("cubby-engine"))
		return 0
	}
	fmt.Fprintln(stderr, "cubby-engine is the part of cubby in which sandboxes live, and is started by it: see `cubby --help`")
	return statusUsage
}

// serve is the child of a supervising program.
func serve(ctx context.Context, args []string, stderr io.Writer) int {
	// A process that was started by a descriptor is called by its number else.
	_ = os.WriteFile("/proc/self/comm", []byte("cubby-engine"), 0)
	holdFile()
	opts, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "cubby-engine:", err)
		return statusUsage
	}
	switch err := child.Serve(ctx, opts); {
	case err == nil:
		return 0
	case !errors.Is(err, child.ErrTold):
		fmt.Fprintln(stderr, "cubby:", err)
	}
	return statusFailed
}

// proxyOf reads the URL of the proxy in an environment variable, which it takes away:
// no process that is started needs it.
func proxyOf(variable string, resolves bool) (*egress.Proxy, error) {
	text := os.Getenv(variable)
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	proxy, err := egress.ParseProxy(text)
	if err != nil {
		return nil, fmt.Errorf("--%s: the URL in %s: %w", handshake.FlagProxy, variable, err)
	}
	proxy.Resolves = resolves
	return proxy, nil
}

// keyOf reads a flag's key in an environment variable, which it takes away.
func keyOf(flag, variable string) (*secret.Key, error) {
	text := os.Getenv(variable)
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	key, err := keysource.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %s: %w", flag, variable, err)
	}
	return key, nil
}

// holdFile takes the lock that keeps this program's file from being removed as one of
// an old version, for as long as the process lives. Its processes of sandboxes start
// from /proc/self/exe, which needs no name; the lock keeps the cache in order.
func holdFile() {
	ready.Adopt()
	if f, err := syscall.Open("/proc/self/exe", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		ready.Lock(f)
	}
}

// parse reads the command line that package supervisor writes.
func parse(args []string, stderr io.Writer) (child.Options, error) {
	opts := child.Options{Engines: Engines()}
	var private bool
	level, format := slog.LevelInfo, "text"
	fl := flag.NewFlagSet("serve", flag.ContinueOnError)
	fl.SetOutput(io.Discard)
	fl.BoolVar(&private, handshake.FlagPrivate, false, "")
	fl.StringVar(&opts.Expect, handshake.FlagExpect, "", "")
	fl.StringVar(&opts.RunDir, handshake.FlagRunDir, "", "")
	fl.StringVar(&opts.Python, handshake.FlagPython, "", "")
	fl.StringVar(&opts.Node, handshake.FlagNode, "", "")
	fl.StringVar(&opts.Engine, handshake.FlagEngine, enginename.Default, "")
	fl.StringVar(&opts.DataDir, handshake.FlagDataDir, "", "")
	fl.StringVar(&opts.Domain, handshake.FlagDomain, "", "")
	fl.IntVar(&opts.MaxSandboxes, handshake.FlagMaxSandboxes, 0, "")
	fl.BoolVar(&opts.RequireContextToken, handshake.FlagContextToken, false, "")
	fl.TextVar(&level, handshake.FlagLogLevel, slog.LevelInfo, "")
	fl.StringVar(&format, handshake.FlagLogFormat, "text", "")
	mode, proxy, resolves, secretsKey, imagesKey := handshake.NetClosed, "", false, "", ""
	network := &opts.Network
	indexes := false
	fl.BoolVar(&indexes, handshake.FlagIndexEnv, false, "")
	fl.StringVar(&mode, handshake.FlagNet, mode, "")
	fl.StringVar(&proxy, handshake.FlagProxy, "", "")
	fl.BoolVar(&resolves, handshake.FlagResolves, false, "")
	fl.StringVar(&secretsKey, handshake.FlagSecretsKey, "", "")
	fl.StringVar(&imagesKey, handshake.FlagImagesKey, "", "")
	fl.Int64Var(&opts.DiskBudget, handshake.FlagDiskBudget, 0, "")
	fl.DurationVar(&opts.KeepPaused, handshake.FlagKeepPaused, 0, "")
	fl.IntVar(&opts.KeepSnapshots, handshake.FlagKeepSnapshot, 0, "")
	fl.Func(handshake.FlagReach, "", func(at string) error {
		network.Operator.Reach = append(network.Operator.Reach, at)
		return nil
	})
	fl.Func(handshake.FlagHostPort, "", func(text string) error {
		port, err := strconv.Atoi(text)
		network.Operator.HostPorts = append(network.Operator.HostPorts, port)
		return err
	})
	fl.Func(handshake.FlagResolver, "", func(text string) error {
		at, err := netip.ParseAddrPort(text)
		network.Operator.Resolvers = append(network.Operator.Resolvers, at)
		return err
	})
	fl.Func(handshake.FlagTemplateID, "", func(id string) error {
		opts.TemplateIDs = append(opts.TemplateIDs, id)
		return nil
	})
	if err := fl.Parse(args[1:]); err != nil {
		return opts, err
	}
	if fl.NArg() > 0 {
		return opts, fmt.Errorf("unexpected arguments %q", fl.Args())
	}
	switch mode {
	case handshake.NetOpen:
		network.Open = true
	case handshake.NetClosed:
	default: // it must not be read as open
		return opts, fmt.Errorf("--%s: %q is neither open nor closed", handshake.FlagNet, mode)
	}
	if indexes {
		settings, err := indexenv.Read(os.Getenv)
		if err != nil {
			return opts, fmt.Errorf("--%s: %w", handshake.FlagIndexEnv, err)
		}
		opts.Env, network.Operator.Registries = settings.Env, settings.Registries
	}
	if proxy != "" {
		var err error
		if network.Operator.Proxy, err = proxyOf(proxy, resolves); err != nil {
			return opts, err
		}
	}
	if secretsKey != "" {
		var err error
		if opts.SecretsKey, err = keyOf(handshake.FlagSecretsKey, secretsKey); err != nil {
			return opts, err
		}
	}
	if imagesKey != "" {
		var err error
		if opts.ImagesKey, err = keyOf(handshake.FlagImagesKey, imagesKey); err != nil {
			return opts, err
		}
	}
	handlerOpts := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		opts.Logger = slog.New(slog.NewTextHandler(stderr, handlerOpts))
	case "json":
		opts.Logger = slog.New(slog.NewJSONHandler(stderr, handlerOpts))
	default:
		return opts, fmt.Errorf("--%s: %q is neither text nor json", handshake.FlagLogFormat, format)
	}
	return opts, nil
}
