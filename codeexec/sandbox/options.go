package sandbox

import (
	"log/slog"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
	"github.com/cubby-sandbox/cubby/embedded"
)

// Defaults.
const (
	DefaultExecutionTimeout = e2bexec.DefaultExecutionTimeout
	DefaultIdleTimeout      = e2bexec.DefaultIdleTimeout
)

// Option modifies [New].
type Option func(*config)

type config struct {
	embedded embedded.Config
	boxes    e2bexec.Config
}

func configure(opts []Option) *config {
	c := &config{boxes: e2bexec.Config{
		Backend: "sandbox", Recreate: true, Root: codeexec.DefaultRoot,
		Describe: codeexec.Capabilities{Isolation: "gvisor"},
	}}
	for _, o := range opts {
		o(c)
	}
	return c
}

// WithEmbedded configures the private Cubby.
func WithEmbedded(cfg embedded.Config) Option { return func(c *config) { c.embedded = cfg } }

// WithClient uses a Cubby that runs already; Close leaves it running.
func WithClient(client *cubby.Client) Option { return func(c *config) { c.boxes.Client = client } }

// WithFreshSandbox gives each ExecuteCode a sandbox of its own, which takes some
// hundred milliseconds; nothing lasts. Workspaces have one that lasts.
func WithFreshSandbox() Option { return func(c *config) { c.boxes.Fresh = e2bexec.FreshSandbox } }

// WithExecutionTimeout bounds each block, and each program in a workspace that
// names no timeout; without it 60 seconds.
func WithExecutionTimeout(d time.Duration) Option {
	return func(c *config) { c.boxes.ExecutionTimeout = d }
}

// WithIdleTimeout is how long a sandbox lives without being used, in whole
// seconds and at least one; without it an hour.
func WithIdleTimeout(d time.Duration) Option { return func(c *config) { c.boxes.IdleTimeout = d } }

// WithLimits bounds the sandbox: all that runs in it together. A limit that this
// machine cannot keep makes [New] fail with [codeexec.ErrLimitNotEnforceable]
// or invalid argument. The size of files is bounded by the disk's, so a
// FileSizeBytes needs a DiskBytes that is not larger.
func WithLimits(l codeexec.ResourceLimits) Option { return func(c *config) { c.boxes.Limits = l } }

// WithMaxOutput bounds stdout and stderr of a block, and the output of all, in
// bytes; without it [cubby.DefaultMaxOutput].
func WithMaxOutput(bytes int) Option { return func(c *config) { c.boxes.MaxOutput = bytes } }

// WithMaxKernels bounds the kernels of the execution ids, each of which takes
// some 20 MiB of the sandbox's memory; without it 16. When there are more, the id
// that was not used for longest loses its variables, and is told.
func WithMaxKernels(n int) Option { return func(c *config) { c.boxes.MaxContexts = n } }

// WithEnv sets environment variables for all that runs.
func WithEnv(env map[string]string) Option { return func(c *config) { c.boxes.Env = env } }

// WithUser runs the programs of workspaces as another user of the sandbox, such
// as "root"; without it as "user".
func WithUser(name string) Option { return func(c *config) { c.boxes.User = name } }

// WithWorkspaceRoot is the absolute folder of the workspaces; without it
// [codeexec.DefaultRoot].
func WithWorkspaceRoot(dir string) Option { return func(c *config) { c.boxes.Root = dir } }

// WithPersistentWorkspaces keeps one workspace for each execution id, as if each
// policy said Persist.
func WithPersistentWorkspaces() Option { return func(c *config) { c.boxes.Persist = true } }

// WithInputsHostBase is the only folder of this machine that host:// inputs of
// workspaces may come from; without it they may come from anywhere.
func WithInputsHostBase(dir string) Option { return func(c *config) { c.boxes.HostBase = dir } }

// WithCodeBlockDelimiters sets what of a reply is code; without it every fence
// in one of the four languages.
func WithCodeBlockDelimiters(d ...codeexec.CodeBlockDelimiter) Option {
	return func(c *config) { c.boxes.Delimiters = d }
}

// WithLogger takes a line for each execution, and for each sandbox made and
// ended. Never code, output or variables.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.boxes.Logger = l } }
