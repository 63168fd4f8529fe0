package e2b

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
)

// Defaults.
const (
	DefaultExecutionTimeout = e2bexec.DefaultExecutionTimeout
	DefaultIdleTimeout      = e2bexec.DefaultIdleTimeout
	DefaultRemoteWorkspace  = codeexec.DefaultRemoteRoot
)

// WorkspacePersistence says how long a workspace is kept.
type WorkspacePersistence int

// How long a workspace is kept.
const (
	// WorkspacePersistencePerTurn makes a new one each time, unless the policy says
	// Persist. It is the default.
	WorkspacePersistencePerTurn WorkspacePersistence = iota
	// WorkspacePersistencePerSession keeps one for each execution id.
	WorkspacePersistencePerSession
)

// Option modifies [New] and the others.
type Option func(*config)

type config struct {
	apiURL, apiKey, template string
	sandboxURL, domain       string
	metadata                 map[string]string
	http                     *http.Client
	boxes                    e2bexec.Config
	err                      error
}

func configure(opts []Option) *config {
	c := &config{boxes: e2bexec.Config{
		Backend: "e2b", Root: DefaultRemoteWorkspace, Delimiters: codeexec.E2BDelimiters(), AnyLanguage: true,
		Describe: codeexec.Capabilities{Isolation: "remote", NetworkAllowed: true},
	}}
	for _, o := range opts {
		o(c)
	}
	return c
}

// WithAPIURL is the server's base URL; without it E2B_API_URL.
func WithAPIURL(url string) Option { return func(c *config) { c.apiURL = url } }

// WithAPIKey authenticates to the server; without it E2B_API_KEY.
func WithAPIKey(key string) Option { return func(c *config) { c.apiKey = key } }

// WithTemplate is what sandboxes are made from; without it CUBE_TEMPLATE_ID.
func WithTemplate(id string) Option { return func(c *config) { c.template = id } }

// WithSandboxURL is the base URL of sandboxes' ports, where that is not the
// server's; without it E2B_SANDBOX_URL. See [cubby.Config].
func WithSandboxURL(url string) Option { return func(c *config) { c.sandboxURL = url } }

// WithDomain makes each port a host of its own below domain; without it
// E2B_DOMAIN. See [cubby.Config].
func WithDomain(domain string) Option { return func(c *config) { c.domain = domain } }

// WithHTTPClient sends every request.
func WithHTTPClient(hc *http.Client) Option { return func(c *config) { c.http = hc } }

// WithSandboxID attaches to a sandbox that runs already.
func WithSandboxID(id string) Option { return func(c *config) { c.boxes.ID = id } }

// WithSandboxTimeout bounds the sandbox's whole life, however busy it is, in
// whole seconds; without it only the idle timeout does. For a sandbox that was
// attached to, it counts from then, and bounds what this executor asks for.
func WithSandboxTimeout(d time.Duration) Option {
	return func(c *config) {
		if d <= 0 {
			c.err = errors.Join(c.err, fmt.Errorf("WithSandboxTimeout: %v is not positive", d))
		}
		c.boxes.SandboxTimeout = d
	}
}

// WithExecutionTimeout bounds each block, and each program in a workspace that
// names no timeout; without it 60 seconds.
func WithExecutionTimeout(d time.Duration) Option {
	return func(c *config) {
		if d <= 0 {
			c.err = errors.Join(c.err, fmt.Errorf("WithExecutionTimeout: %v is not positive", d))
		}
		c.boxes.ExecutionTimeout = d
	}
}

// WithIdleTimeout is how long the sandbox lives without being used, in whole
// seconds and at least one; without it an hour. Every execution and every
// operation on a workspace renews it, for as long as it takes; a sandbox that was
// attached to and is to live longer, is left to.
func WithIdleTimeout(d time.Duration) Option {
	return func(c *config) {
		if d < time.Second || d%time.Second != 0 {
			c.err = errors.Join(c.err, fmt.Errorf("WithIdleTimeout: %v: it must be whole seconds, at least one", d))
		}
		c.boxes.IdleTimeout = d
	}
}

// WithKeepSandbox has Close leave the sandbox alone.
func WithKeepSandbox() Option { return func(c *config) { c.boxes.Keep = true } }

// WithFreshContext gives each ExecuteCode new kernels: no variables last, files
// do.
func WithFreshContext() Option { return func(c *config) { c.boxes.Fresh = e2bexec.FreshContext } }

// WithMaxKernels bounds the kernels of the execution ids; without it 16. When
// there are more, the id that was not used for longest loses its variables, and
// is told.
func WithMaxKernels(n int) Option { return func(c *config) { c.boxes.MaxContexts = n } }

// WithMaxOutput bounds stdout and stderr of a block, and the output of all, in
// bytes; without it [cubby.DefaultMaxOutput].
func WithMaxOutput(bytes int) Option { return func(c *config) { c.boxes.MaxOutput = bytes } }

// WithLimits asks for a sandbox with these limits: all that runs in it together.
// A server that does not say that it keeps them (only Cubby's does), and a
// sandbox to attach to that has none or wider ones, fail with
// [codeexec.ErrLimitNotEnforceable]. The size of files is bounded by the disk's,
// so a FileSizeBytes needs a DiskBytes that is not larger.
func WithLimits(l codeexec.ResourceLimits) Option { return func(c *config) { c.boxes.Limits = l } }

// WithMetadata labels new sandboxes.
func WithMetadata(m map[string]string) Option { return func(c *config) { c.metadata = m } }

// WithEnv sets environment variables for all that runs.
func WithEnv(env map[string]string) Option { return func(c *config) { c.boxes.Env = env } }

// WithRemoteWorkspace is the absolute folder of the workspaces; without it
// [DefaultRemoteWorkspace]. Where the programs' user may not make it, root makes
// it, for everybody.
func WithRemoteWorkspace(dir string) Option { return func(c *config) { c.boxes.Root = dir } }

// WithUser runs the programs of workspaces as another user of the sandbox, such
// as "root"; without it as the one that code blocks run as, too.
func WithUser(name string) Option { return func(c *config) { c.boxes.User = name } }

// WithWorkspacePersistence says how long a workspace is kept.
func WithWorkspacePersistence(p WorkspacePersistence) Option {
	return func(c *config) { c.boxes.Persist = p == WorkspacePersistencePerSession }
}

// WithInputsHostBase is the only folder of this machine that host:// inputs of
// workspaces may come from; without it they may come from anywhere.
func WithInputsHostBase(dir string) Option { return func(c *config) { c.boxes.HostBase = dir } }

// WithCodeBlockDelimiters sets what of a reply is code; without it the fences
// python, tool_code and bash. None means every fence in one of the four
// languages.
func WithCodeBlockDelimiters(d ...codeexec.CodeBlockDelimiter) Option {
	return func(c *config) { c.boxes.Delimiters = d }
}

// WithLogger takes a line for each execution, and for each sandbox made and
// ended. Never code, output or variables.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.boxes.Logger = l } }
