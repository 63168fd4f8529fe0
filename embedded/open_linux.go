package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/supervisor"
)

// Open starts a private Cubby. ctx bounds the start only.
func Open(ctx context.Context, cfg Config) (*Cubby, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = 10 * time.Second
	}
	ch, socket, err := start(ctx, cfg)
	if err != nil {
		return nil, fault.Within("open", fault.Unavailable, err)
	}
	transport := newTransport(ch, socket)
	child := &child{ch, transport}
	client, err := cubby.NewClient(cubby.Config{
		APIURL: "http://cubby", SandboxURL: "http://cubby", APIKey: "embedded",
		HTTPClient: &http.Client{Transport: transport}, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, child.close())
	}
	return &Cubby{Client: client, child: child}, nil
}

// child is the process, and the connections to it.
type child struct {
	process   *supervisor.Child
	transport *transport
}

func (c *child) close() error {
	c.transport.CloseIdleConnections()
	if err := c.process.Close(); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return nil
}

func start(ctx context.Context, cfg Config) (_ *supervisor.Child, socket string, err error) {
	binary, err := supervisor.FindBinary(cfg.Binary)
	if err != nil {
		return nil, "", err
	}
	dir, err := supervisor.MakeRunDir()
	if err != nil {
		return nil, "", err
	}
	listener, err := dir.Listen()
	if err != nil {
		dir.Remove()
		return nil, "", err
	}
	defer listener.Close()
	level := slog.LevelWarn
	if cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		level = slog.LevelDebug
	}
	args := []string{"--" + handshake.FlagLogLevel, level.String()}
	if cfg.Engine != "" {
		args = append(args, "--"+handshake.FlagEngine, cfg.Engine)
	}
	for _, at := range cfg.Reach {
		args = append(args, "--"+handshake.FlagReach+"="+at)
	}
	for _, port := range cfg.HostPorts {
		args = append(args, "--"+handshake.FlagHostPort+"="+strconv.Itoa(port))
	}
	for _, at := range cfg.Resolvers {
		args = append(args, "--"+handshake.FlagResolver+"="+at)
	}
	if cfg.IndexEnv {
		args = append(args, "--"+handshake.FlagIndexEnv)
	}
	c, err := supervisor.Start(ctx, supervisor.Config{
		Binary: binary, RunDir: dir, Listener: listener, Args: args,
		Python: cmp.Or(cfg.Python, os.Getenv("CUBBY_PYTHON")), Node: cmp.Or(cfg.Node, os.Getenv("CUBBY_NODE")),
		Output: supervisor.Lines(cfg.Logger), StopTimeout: cfg.StopTimeout,
	})
	return c, dir.Socket(), err
}
