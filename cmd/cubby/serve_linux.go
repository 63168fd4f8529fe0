package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/datafolder"
	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/cmd/internal/flagvalue"
	"github.com/cubby-sandbox/cubby/cmd/internal/netflag"
	"github.com/cubby-sandbox/cubby/cmd/internal/output"
	"github.com/cubby-sandbox/cubby/cmd/internal/ownerconfig"
	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/cmd/internal/vault/keysource"
	"github.com/cubby-sandbox/cubby/internal/fault"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/supervisor"
	"github.com/cubby-sandbox/cubby/internal/version"
)

// defaultListen is reached from this machine only: code is run for whoever has a
// key, and keys travel in the clear over plain HTTP.
const defaultListen = "127.0.0.1:8080"

// serveFlags are those of the server, and of the process that it supervises.
type serveFlags struct {
	listen       string
	dataDir      string
	domain       string
	python, node string
	engine       string
	templateIDs  []string
	contextToken bool
	maxSandboxes int
	logLevel     string
	logFormat    string
	net          netflag.Mode
	owner        netflag.Owner
	proxy        string // the name of an environment variable
	resolves     bool
	secretsKey   keyFlags
	imagesKey    keyFlags
	diskBudget   flagvalue.Size
	keepPaused   time.Duration
	keepSnapshot int
}

// keyFlags say where a key is; at most one does.
type keyFlags struct {
	name               string // what the flags begin with
	file, env, command string
}

// register adds the flags: --NAME-key-file and so on. seals says what the key does.
func (k *keyFlags) register(fl *pflag.FlagSet, name, seals, byDefault string) {
	k.name = name
	fl.StringVar(&k.file, k.flag("file"), "", seals+" with the key in a `file` (default: "+byDefault+")")
	fl.StringVar(&k.env, k.flag("env"), "", "the same with the key in the environment variable `ENVVAR`")
	fl.StringVar(&k.command, k.flag("command"), "", "the same with the key that a shell's `command` prints, such as that of a key manager")
}

func (k *keyFlags) registerSecrets(fl *pflag.FlagSet) {
	k.register(fl, "secrets", "seal teams' secrets", "one that is derived from the data folder's")
}

func (k *keyFlags) flag(kind string) string { return k.name + "-key-" + kind }

// variable is where the sandboxes' process finds the key of a file or command.
func (k *keyFlags) variable() string { return "CUBBY_" + strings.ToUpper(k.name) + "_KEY" }

// check refuses what cannot be meant, before anything starts.
func (k *keyFlags) check() error {
	given := 0
	for _, flag := range []string{k.file, k.env, k.command} {
		if flag != "" {
			given++
		}
	}
	if given > 1 {
		return usagef("--%s, --%s and --%s: give one of them", k.flag("file"), k.flag("env"), k.flag("command"))
	}
	if k.env != "" {
		if os.Getenv(k.env) == "" { // what was given may be the key itself
			return usagef("--%s: give the name of an environment variable that has the key", k.flag("env"))
		}
		if _, err := keysource.Parse(os.Getenv(k.env)); err != nil {
			return usagef("--%s: the variable %s: %w", k.flag("env"), k.env, err)
		}
	}
	return nil
}

// read returns the arguments and variables with which the sandboxes' process has the key.
func (k *keyFlags) read(ctx context.Context) (args, env []string, err error) {
	var key *secret.Key
	switch {
	case k.env != "":
		return []string{"--" + k.flag("env"), k.env}, nil, nil
	case k.file != "":
		if key, err = keysource.File(k.file); err != nil {
			return nil, nil, usagef("--%s: %w", k.flag("file"), err)
		}
	case k.command != "":
		if key, err = keysource.Command(ctx, k.command); err != nil {
			return nil, nil, &cubby.Error{Op: "serve", Code: cubby.CodeUnavailable, Err: fmt.Errorf("--%s: %w", k.flag("command"), err)}
		}
	default:
		return nil, nil, nil
	}
	return []string{"--" + k.flag("env"), k.variable()}, []string{k.variable() + "=" + keysource.Text(key)}, nil
}

func newServe(std stdio, program engineProgram) *cobra.Command {
	f := serveFlags{net: netflag.Open}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve sandboxes over E2B's protocol",
		Long: "Serve sandboxes over E2B's protocol, on one plain-HTTP port: point any E2B client\n" +
			"at it by its URL. The first start makes an API key, shows it once and prints the\n" +
			"lines to paste.\n\n" +
			"It listens on this machine only, unless --listen says otherwise: then put\n" +
			"something that speaks TLS in front, for keys travel with each request.\n\n" +
			"Sandboxes whose clients do not say otherwise may connect to everything public, as\n" +
			"E2B's; --net closed turns that round. What is not public, such as this machine\n" +
			"and its local network, they reach only where --reach or --host-port names it and\n" +
			"their clients allow it.\n\n" +
			"Only what it says of its start goes to standard output; a server that cannot\n" +
			"write it serves nevertheless, and says so in its log on standard error.",
		Example: "  cubby serve\n" +
			"  cubby serve --listen 0.0.0.0:8080 --data-dir /srv/cubby",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := f.logger(std)
			if err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			return f.serve(cmd.Context(), std, log, program)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", defaultListen, "`address` to listen on; port 0 takes a free one")
	fl.StringVar(&f.dataDir, handshake.FlagDataDir, "", "`folder` of keys and records (default /var/lib/cubby for root, else ~/.local/share/cubby)")
	fl.StringVar(&f.domain, handshake.FlagDomain, "", "`domain` told to clients that use host names, PORT-ID.DOMAIN (any is understood)")
	fl.StringVar(&f.python, handshake.FlagPython, "", "python3 of the sandboxes (default $CUBBY_PYTHON, then python3 on PATH)")
	fl.StringVar(&f.node, handshake.FlagNode, "", "node of the sandboxes (default $CUBBY_NODE, then node on PATH)")
	fl.StringVar(&f.engine, handshake.FlagEngine, enginename.Default, engineUsage)
	fl.StringSliceVar(&f.templateIDs, handshake.FlagTemplateID, nil, "further template `id`s that clients ask for and that mean this machine's tools")
	fl.IntVar(&f.maxSandboxes, handshake.FlagMaxSandboxes, 0, "most sandboxes at once (default: what the machine's memory allows)")
	fl.BoolVar(&f.contextToken, handshake.FlagContextToken, false,
		"ask for the access token at the code interpreter's contexts, too (E2B's packages do not send it there)")
	fl.Var(&f.net, handshake.FlagNet, "what sandboxes may connect to whose clients do not say")
	f.owner.Register(cmd)
	fl.StringVar(&f.proxy, handshake.FlagProxy, "",
		"lead connections through the proxy of the environment variable `ENVVAR`, socks5://[user:password@]host:port or http://…")
	fl.BoolVar(&f.resolves, handshake.FlagResolves, false, "the proxy resolves names, and keeps sandboxes from private addresses")
	f.secretsKey.registerSecrets(fl)
	f.imagesKey.register(fl, "images", "encrypt paused sandboxes and snapshots", "they are readable by who may read the data folder")
	fl.Var(&f.diskBudget, handshake.FlagDiskBudget, "most that paused sandboxes and snapshots may take on disk, such as 20GiB (default: what the disk has)")
	fl.DurationVar(&f.keepPaused, handshake.FlagKeepPaused, 0, "remove what has been paused for longer, such as 720h (default: never)")
	fl.IntVar(&f.keepSnapshot, handshake.FlagKeepSnapshot, 0, "keep the newest `n` snapshots without a name of each team (default: all)")
	fl.StringVar(&f.logLevel, handshake.FlagLogLevel, "info", "debug, info, warn or error; info has a line for each request")
	fl.StringVar(&f.logFormat, handshake.FlagLogFormat, "text", "text or json")
	netflag.CompleteMode(cmd)
	return cmd
}

func (f *serveFlags) logger(std stdio) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usagef("--%s: %q is none of debug, info, warn, error", handshake.FlagLogLevel, f.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(std.err, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(std.err, opts)), nil
	}
	return nil, usagef("--%s: %q is neither text nor json", handshake.FlagLogFormat, f.logFormat)
}

func (f *serveFlags) check() error {
	_, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--listen: %q is not HOST:PORT, for example %s", f.listen, defaultListen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return usagef("--listen: %q is not a port", port)
	}
	if err := checkEngine(f.engine); err != nil {
		return err
	}
	if err := f.owner.Check(); err != nil {
		return usageError{err}
	}
	if err := netflag.Proxy(f.proxy, f.resolves, os.Getenv); err != nil {
		return usageError{err}
	}
	if err := errors.Join(f.secretsKey.check(), f.imagesKey.check()); err != nil {
		return err
	}
	if f.keepPaused < 0 {
		return usagef("--%s: %v is negative", handshake.FlagKeepPaused, f.keepPaused)
	}
	if f.keepSnapshot < 0 {
		return usagef("--%s: %d is negative", handshake.FlagKeepSnapshot, f.keepSnapshot)
	}
	if f.maxSandboxes < 0 {
		return usagef("--%s: %d is negative", handshake.FlagMaxSandboxes, f.maxSandboxes)
	}
	if strings.ContainsAny(f.domain, "/ @") {
		return usagef("--%s: %q is not a domain name, for example sandboxes.example.com", handshake.FlagDomain, f.domain)
	}
	return nil
}

// stopTimeout is what the sandboxes' process gets to end them all, and to pause those that
// are to be kept. It bounds itself by less: see package child.
const stopTimeout = 90 * time.Second

// serve listens, starts the process that serves, and watches over it until a
// signal comes or it ends.
func (f *serveFlags) serve(ctx context.Context, std stdio, log *slog.Logger, program engineProgram) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	dataDir := f.dataDir
	if dataDir == "" {
		var err error
		if dataDir, err = datafolder.Default(os.Getenv, os.Geteuid()); err != nil {
			return err
		}
	}
	listener, addr, err := listenTCP(f.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	startCtx, started := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	c, err := f.start(startCtx, std, listener, dataDir, program)
	stopped := startCtx.Err() != nil && ctx.Err() == nil
	started()
	if err != nil {
		if stopped && errors.Is(err, context.Canceled) {
			log.Info("stopping", "signal", (<-signals).String())
			return nil
		}
		return err
	}
	if err := announce(ctx, std.out, addr, dataDir, c.Hello); err != nil {
		// It serves all the same: whoever starts a server may have no use for its output.
		log.Error("where the server is, and its first key, could not be printed", "err", err, "url", url(addr),
			"hint", "`cubby keys create --data-dir "+dataDir+"` makes a key")
	}
	select {
	case <-c.Exited():
		return errors.Join(fault.Within("serve", fault.Unavailable, c.Err()), c.Close())
	case s := <-signals:
		log.Info("stopping", "signal", s.String())
	}
	// A second signal does not wait for what is under way.
	hurried := make(chan struct{})
	go func() {
		select {
		case <-signals:
			close(hurried)
			c.Kill()
		case <-c.Exited():
		}
	}()
	if err := c.Close(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	select {
	case <-hurried:
		return nil // killed as it was asked for
	default:
	}
	if c.Failed() { // to record the ends of its sandboxes, for example
		return fault.Within("serve", fault.Unavailable, c.Err())
	}
	return nil
}

// start starts the process that serves on listener.
func (f *serveFlags) start(ctx context.Context, std stdio, listener *os.File, dataDir string,
	program engineProgram) (*supervisor.Child, error) {
	binary, err := program.Path(ctx)
	if err != nil {
		return nil, err
	}
	keyArgs, keyEnv, err := f.secretsKey.read(ctx)
	if err != nil {
		return nil, err
	}
	imagesArgs, imagesEnv, err := f.imagesKey.read(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := supervisor.MakeRunDir()
	if err != nil {
		return nil, fault.Within("serve", fault.Unavailable, err)
	}
	args := []string{
		"--" + handshake.FlagDataDir, dataDir, "--" + handshake.FlagLogLevel, f.logLevel, "--" + handshake.FlagLogFormat, f.logFormat,
		"--" + handshake.FlagMaxSandboxes, strconv.Itoa(f.maxSandboxes), "--" + handshake.FlagDomain, f.domain,
		"--" + handshake.FlagEngine, f.engine, "--" + handshake.FlagNet, f.net.String(),
	}
	for _, at := range f.owner.Reach {
		args = append(args, "--"+handshake.FlagReach+"="+at)
	}
	for _, port := range f.owner.HostPorts {
		args = append(args, "--"+handshake.FlagHostPort+"="+strconv.Itoa(port))
	}
	if f.owner.IndexEnv {
		args = append(args, "--"+handshake.FlagIndexEnv)
	}
	if f.proxy != "" {
		args = append(args, "--"+handshake.FlagProxy+"="+f.proxy)
	}
	if f.resolves {
		args = append(args, "--"+handshake.FlagResolves)
	}
	args = slices.Concat(args, keyArgs, imagesArgs)
	if f.diskBudget > 0 {
		args = append(args, "--"+handshake.FlagDiskBudget, strconv.FormatInt(int64(f.diskBudget), 10))
	}
	if f.keepPaused > 0 {
		args = append(args, "--"+handshake.FlagKeepPaused, f.keepPaused.String())
	}
	if f.keepSnapshot > 0 {
		args = append(args, "--"+handshake.FlagKeepSnapshot, strconv.Itoa(f.keepSnapshot))
	}
	if f.contextToken {
		args = append(args, "--"+handshake.FlagContextToken)
	}
	for _, id := range f.templateIDs {
		args = append(args, "--"+handshake.FlagTemplateID, id)
	}
	c, err := supervisor.Start(ctx, supervisor.Config{
		Binary: binary, RunDir: dir, Listener: listener, Args: args, Env: append(keyEnv, imagesEnv...),
		Python: cmp.Or(f.python, os.Getenv("CUBBY_PYTHON")), Node: cmp.Or(f.node, os.Getenv("CUBBY_NODE")),
		Output: std.err, StopTimeout: stopTimeout,
	})
	if err != nil {
		return nil, fault.Within("serve", fault.Unavailable, err)
	}
	return c, nil
}

func listenTCP(address string) (*os.File, *net.TCPAddr, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		hint := "choose another address with --listen"
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			hint = "another program listens there: choose another port with --listen, port 0 takes a free one"
		case errors.Is(err, syscall.EACCES):
			hint = "ports below 1024 need privileges: choose a higher one with --listen"
		}
		return nil, nil, &cubby.Error{Op: "serve", Code: cubby.CodeUnavailable, Err: err, Hint: hint}
	}
	defer l.Close()
	tcp := l.(*net.TCPListener)
	f, err := tcp.File()
	return f, tcp.Addr().(*net.TCPAddr), err
}

// url is how this machine reaches a server that listens at addr. Go listens at [::] also
// for 0.0.0.0, and for IPv4, too; many containers have no IPv6 to reach it by.
func url(addr *net.TCPAddr) string {
	ip := addr.IP
	if len(ip) == 0 || ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	return "http://" + net.JoinHostPort(ip.String(), strconv.Itoa(addr.Port))
}

// announce says where the server is and how to use it. A new key is kept in the
// owner's configuration, and shown this once. Its error is the caller's to tell.
func announce(ctx context.Context, out io.Writer, addr *net.TCPAddr, dataDir string, hello handshake.Hello) error {
	at := url(addr)
	var b strings.Builder
	fmt.Fprintf(&b, "Cubby %s serves at %s (keys and records in %s)\n", version.Version, at, dataDir)
	if !addr.IP.IsLoopback() {
		b.WriteString("Other machines can reach it, over plain HTTP: put something that speaks TLS in front.\n")
	}
	if hello.Recovered > 0 {
		fmt.Fprintf(&b, "%d sandboxes of a server that was killed are recorded as ended.\n", hello.Recovered)
	}
	fmt.Fprintf(&b, "\nexport E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\n", at, at)
	if hello.NewKey != "" {
		fmt.Fprintf(&b, "export E2B_API_KEY=%s\n\n", hello.NewKey)
		b.WriteString(keep(ownerconfig.Config{APIURL: at, SandboxURL: at, APIKey: hello.NewKey}))
	} else {
		b.WriteString(recall(ctx, at, dataDir))
	}
	if s, ok := out.(*output.Stream); ok {
		out = s.Unwrap()
	}
	defer output.CatchPipe()()
	_, err := io.WriteString(out, b.String())
	return err
}

// keep stores the first key for the command line and says where. A
// configuration for another server stays as it is.
func keep(c ownerconfig.Config) string {
	path, err := ownerconfig.Path(os.Getenv)
	if err != nil {
		return fmt.Sprintf("This key is shown once and could not be kept: %v\n", err)
	}
	switch old, err := ownerconfig.Load(path); {
	case err == nil && old.APIKey != "" && old.APIURL != c.APIURL:
		return fmt.Sprintf("This key is shown once. %s is for %s and was left as it is.\n", path, old.APIURL)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("This key is shown once and was not kept: %v\n", err)
	}
	if err := ownerconfig.Save(path, c); err != nil {
		return fmt.Sprintf("This key is shown once and could not be kept: %v\n", err)
	}
	return fmt.Sprintf("This key is shown once; %s keeps it for the command line.\n", path)
}

// recall says where the key of an earlier start is. A configuration that was
// written when this server was at another address of this machine follows it.
func recall(ctx context.Context, at, dataDir string) string {
	note := fmt.Sprintf("# an API key: cubby keys create --data-dir %s\n", dataDir)
	path, err := ownerconfig.Path(os.Getenv)
	var c ownerconfig.Config
	if err == nil {
		c, err = ownerconfig.Load(path)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return note
	case err != nil:
		return note + fmt.Sprintf("# %v\n", err)
	case c.APIKey == "":
		return note
	case c.APIURL != at:
		if !ownerconfig.Local(c.APIURL) || c.SandboxURL != c.APIURL || !isKeyOf(ctx, at, c.APIKey) {
			return note + fmt.Sprintf("# %s keeps the key that was made for %s\n", path, c.APIURL)
		}
		if err := ownerconfig.Save(path, ownerconfig.Config{APIURL: at, SandboxURL: at, APIKey: c.APIKey}); err != nil {
			return note + fmt.Sprintf("# %v\n", err)
		}
	}
	return fmt.Sprintf("export E2B_API_KEY=…   # the key is in %s\n", path)
}

// isKeyOf reports whether the server at that address of this machine takes the key.
func isKeyOf(ctx context.Context, at, key string) bool {
	client, err := cubby.NewClient(cubby.Config{APIURL: at, SandboxURL: at, APIKey: key})
	if err != nil {
		return false
	}
	for _, err := range client.List(ctx, cubby.ListOptions{}) {
		return err == nil
	}
	return true
}
