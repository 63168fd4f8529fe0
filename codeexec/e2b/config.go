package e2b

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/backend"
	"github.com/cubby-sandbox/cubby/codeexec/internal/e2bexec"
)

// Defaults of [Config].
const (
	DefaultTimeout       = e2bexec.DefaultExecutionTimeout
	DefaultIdleTimeout   = e2bexec.DefaultIdleTimeout
	DefaultMaxKernels    = e2bexec.DefaultMaxContexts
	DefaultWorkspaceRoot = codeexec.DefaultRemoteRoot
)

// Config says which server runs the code, and how. The zero value takes server,
// key and template from the environment. Executors and pools keep a copy; they do
// not change what its maps, slices and pointers refer to, and neither may anybody
// else.
type Config struct {
	// APIURL is the server's base URL; empty means E2B_API_URL.
	APIURL string
	// APIKey authenticates to the server; empty means E2B_API_KEY.
	APIKey string
	// SandboxURL is the base URL of sandboxes' ports, where that is not the
	// server's; empty means E2B_SANDBOX_URL. See [cubby.Config].
	SandboxURL string
	// Domain makes each port a host of its own below it; empty means E2B_DOMAIN.
	// See [cubby.Config].
	Domain string
	// HTTPClient sends every request; nil means one of the executor's own.
	HTTPClient *http.Client
	// Client reaches the server, in place of the five above, which must be empty
	// then. Who made it closes it.
	Client *cubby.Client

	// Template is what sandboxes are made from; empty means CUBE_TEMPLATE_ID, or with
	// a Client, the server's default.
	Template string
	// Metadata labels new sandboxes.
	Metadata map[string]string
	// Limits are asked for when a sandbox is made: all that runs in it together
	// stays within them. A server that does not say that it keeps them (only Cubby's
	// does), and a sandbox to attach to that has none or wider ones, fail with
	// [codeexec.ErrLimitNotEnforceable]. The size of files is bounded by the disk's,
	// so a FileSizeBytes needs a DiskBytes that is not larger.
	Limits codeexec.ResourceLimits
	// Network says where code may connect to; nil means nowhere. A sandbox to attach
	// to gets it, too, in place of its own; with nil that one keeps what it has.
	Network *cubby.Network
	// Packages are installed in each sandbox that is made; see [cubby.WithPackages]. A
	// sandbox to attach to gets none.
	Packages cubby.Packages
	// SandboxID is a sandbox that runs already, to attach to.
	SandboxID string
	// KeepSandbox has Close leave the sandbox alone.
	KeepSandbox bool
	// SandboxTimeout bounds the sandbox's whole life, however busy it is, in whole
	// seconds; 0 leaves it to IdleTimeout. For a sandbox that was attached to, it
	// counts from then, and bounds what this executor asks for.
	SandboxTimeout time.Duration
	// IdleTimeout is how long the sandbox lives without being used, in whole seconds
	// and at least one; 0 means DefaultIdleTimeout. Every execution and every
	// operation on a workspace renews it, for as long as it takes; a sandbox that was
	// attached to and is to live longer, is left to.
	IdleTimeout time.Duration

	// PauseAfter, if positive, pauses the sandbox when nothing has used it for so long: it
	// takes disk then, and neither memory nor processor. A millisecond means after each
	// turn. The next use resumes it, which takes some seconds for each gigabyte of its
	// memory, and finds variables, files and what runs in the background as they were:
	// the Instance is the same, and nothing is lost. Where the server cannot restore the
	// memory any more the files come back alone, and results say StateLost. It must be
	// less than IdleTimeout, which does not end a sandbox that is paused: Close does. One
	// of a server, whose program ends without that, stays on the server's disk. A
	// sandbox to attach to may be paused. A server that cannot pause is left to
	// IdleTimeout.
	PauseAfter time.Duration

	// Timeout bounds each block, and each program in a workspace that names no
	// timeout; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxOutput bounds stdout and stderr of a block, and the output of all, in
	// bytes; 0 means [cubby.DefaultMaxOutput].
	MaxOutput int
	// Env are variables of all that runs.
	Env map[string]string
	// FreshKernels gives each ExecuteCode new kernels: no variables last, files do.
	FreshKernels bool
	// FreshSandbox gives each ExecuteCode a sandbox of its own: nothing lasts.
	// Workspaces have one that lasts.
	FreshSandbox bool
	// MaxKernels bounds the kernels of the execution ids, each of which takes some
	// 20 MiB of the sandbox's memory; at least 4, and 0 means DefaultMaxKernels. When
	// there are more, the id that was not used for longest loses its variables, and
	// is told.
	MaxKernels int
	// Languages are those that may run; nil means python, javascript, typescript
	// and bash, and any other that the server has when it is asked for it.
	Languages []string
	// Delimiters say what of a reply is code; nil means the fences python, tool_code
	// and bash, as in tRPC-Agent. Empty and not nil means every fence in one of the
	// languages.
	Delimiters []codeexec.CodeBlockDelimiter

	// WorkspaceRoot is the absolute folder of the workspaces; empty means
	// DefaultWorkspaceRoot. Where the programs' user may not make it, root makes it,
	// for everybody.
	WorkspaceRoot string
	// User runs the programs of workspaces as another user of the sandbox, such as
	// "root"; empty means the one that code blocks run as, too.
	User string
	// PersistentWorkspaces keeps one workspace for each execution id, as if each
	// policy said Persist.
	PersistentWorkspaces bool
	// HostInputs, if set, is the only folder of this machine that host:// inputs of
	// workspaces may come from; without it they may come from anywhere.
	HostInputs string

	// Backend names the executor in logs, spans and metrics; empty means "e2b".
	Backend string
	// Describe is what the workspaces' engine says of the server, which cannot be
	// asked for it: how it isolates, whether there is a network. Limits and what this
	// package adds need not be in it, nor a network that Network opens. The zero value
	// means isolation "remote"; a sandbox to attach to has a network, unless Network
	// says otherwise.
	Describe codeexec.Capabilities
	// Logger takes a line for each execution, and for each sandbox made and ended,
	// never code, output or variables; nil discards them.
	Logger *slog.Logger
	// OnClose, if set, is called once, when the executor or pool has ended: to end
	// what was started only for it. Close returns its error. One that could not be
	// made does not call it.
	OnClose func() error
}

// template is what sandboxes are made from; empty means the server's default.
func (c Config) template() string {
	if c.Client != nil {
		return c.Template
	}
	return cmp.Or(c.Template, os.Getenv("CUBE_TEMPLATE_ID"))
}

// languages returns the normalised names, each once; nil for nil.
func (c Config) languages() []string {
	if c.Languages == nil {
		return nil
	}
	names := make([]string, 0, len(c.Languages))
	for _, l := range c.Languages {
		if name := codeexec.NormalizeLanguage(l); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// resolve says the configuration in the terms of package e2bexec, and connects to
// the server. release ends the connections of an executor that could not be made;
// that of one that was does it when it closes. An executor that makes sandboxes has
// to be told from what, unless its client knows.
func (c Config) resolve(makes bool) (x e2bexec.Config, release func(), err error) {
	x = e2bexec.Config{
		Client: c.Client, Backend: cmp.Or(c.Backend, "e2b"), ID: c.SandboxID, Keep: c.KeepSandbox,
		IdleTimeout: c.IdleTimeout, PauseAfter: c.PauseAfter, SandboxTimeout: c.SandboxTimeout,
		ExecutionTimeout: c.Timeout, MaxOutput: c.MaxOutput,
		Limits: c.Limits, Network: c.Network, Packages: c.Packages, Env: c.Env, MaxContexts: c.MaxKernels,
		User: c.User, Root: cmp.Or(c.WorkspaceRoot, DefaultWorkspaceRoot),
		Persist: c.PersistentWorkspaces, HostBase: c.HostInputs, Delimiters: c.Delimiters, Languages: c.languages(),
		Describe: c.Describe, Logger: c.Logger, OnClose: c.OnClose,
	}
	switch {
	case c.FreshSandbox:
		x.Fresh = e2bexec.FreshSandbox
	case c.FreshKernels:
		x.Fresh = e2bexec.FreshContext
	}
	if x.Delimiters == nil {
		x.Delimiters = backend.Fences("python", "tool_code", "bash")
	}
	if d := x.Describe; d.Isolation == "" && !d.NetworkAllowed {
		x.Describe.Isolation, x.Describe.NetworkAllowed = "remote", c.SandboxID != "" && c.Network == nil
	}
	if n := c.Network; n != nil && (n.Open || len(n.Allow) > 0) {
		x.Describe.NetworkAllowed = true
	}
	if template := c.template(); template != "" {
		x.Create = append(x.Create, cubby.WithTemplate(template))
	}
	if len(c.Metadata) > 0 {
		x.Create = append(x.Create, cubby.WithMetadata(c.Metadata))
	}
	if c.Client == nil {
		x.Client, release, err = c.connect()
		if err == nil && makes && c.template() == "" {
			err = missing("a template", "Template", "CUBE_TEMPLATE_ID")
		}
		x.OnClose = func() error {
			release()
			if c.OnClose != nil {
				return c.OnClose()
			}
			return nil
		}
		return x, release, err
	}
	if c.APIURL != "" || c.APIKey != "" || c.SandboxURL != "" || c.Domain != "" || c.HTTPClient != nil {
		err = &cubby.Error{
			Code: cubby.CodeInvalidArgument, Err: errors.New("a client is given, and how to make one"),
			Hint: "leave out Config.Client, or APIURL, APIKey, SandboxURL, Domain and HTTPClient",
		}
	}
	return x, func() {}, err
}

// connect makes the client. release ends its connections, if those are its own.
func (c Config) connect() (client *cubby.Client, release func(), err error) {
	release = func() {}
	url := cmp.Or(c.APIURL, os.Getenv("E2B_API_URL"))
	key := cmp.Or(c.APIKey, os.Getenv("E2B_API_KEY"))
	switch {
	case url == "":
		return nil, release, missing("the server's URL", "APIURL", "E2B_API_URL")
	case key == "":
		return nil, release, missing("an API key", "APIKey", "E2B_API_KEY")
	}
	hc := c.HTTPClient
	if hc == nil {
		hc = &http.Client{}
		if t, ok := http.DefaultTransport.(*http.Transport); ok {
			hc.Transport = t.Clone()
			release = hc.CloseIdleConnections
		}
	}
	client, err = cubby.NewClient(cubby.Config{
		APIURL: url, APIKey: key, SandboxURL: c.SandboxURL, Domain: c.Domain, HTTPClient: hc, Logger: c.Logger,
	})
	return client, release, err
}

func missing(what, field, variable string) error {
	return &cubby.Error{
		Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%s is missing", what),
		Hint: fmt.Sprintf("set %s; in Go, Config.%s or With%s gives it", variable, field, field),
	}
}
