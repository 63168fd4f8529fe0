package cubby

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// DefaultTemplate is the template of [Client.Create]. A Cubby server gives the
// host's own toolchain under this name.
const DefaultTemplate = "code-interpreter-v1"

// Config says where the server is. The zero value follows the environment like
// E2B's own clients: E2B_API_URL, E2B_SANDBOX_URL, E2B_DOMAIN and E2B_API_KEY.
//
// Servers find the sandbox that a request is for in its headers or in its host
// name; Cubby does either. Which one is used follows from SandboxURL and Domain.
type Config struct {
	// APIURL is the base URL of the control plane. Empty means E2B_API_URL, else
	// https://api.<E2B_DOMAIN>, else E2B's cloud.
	APIURL string
	// SandboxURL is the base URL of the sandboxes' ports, which are told apart by
	// headers. Empty means E2B_SANDBOX_URL; else Domain's host names, if that is
	// set; else, when APIURL is known, the same server (Cubby serves both); else
	// E2B's cloud.
	SandboxURL string
	// Domain makes each port a host of its own, PORT-ID.DOMAIN, with the API's
	// scheme; it may end in a port. Servers that know no headers need it. Empty
	// means E2B_DOMAIN; the domain of E2B's own clouds stands for those.
	Domain string
	// APIKey authenticates to the control plane. Empty means E2B_API_KEY; a
	// private Cubby needs none.
	APIKey string
	// HTTPClient sends every request; nil means a client of our own without a
	// timeout (contexts bound calls, see [Client]), which follows no redirects, as the key
	// would go with them. Its Timeout, if set, also cuts streams.
	HTTPClient *http.Client
	// Transport is used when HTTPClient is nil; nil means a copy of
	// http.DefaultTransport.
	Transport http.RoundTripper
	// Logger gets one line per sandbox created and ended; never code, output or
	// environment. Nil discards.
	Logger *slog.Logger
}

// Client makes and finds sandboxes. It is safe for concurrent use.
//
// Its calls, and those of a [Sandbox] about the sandbox itself, fail with
// [CodeUnavailable] when their context has no deadline and the server has not
// answered within 30 seconds; [Client.Create] within two minutes, and those that move
// memory, [Client.Connect], [Sandbox.Pause], [Sandbox.Snapshot], [Sandbox.Fork] and
// [Sandbox.Rollback], within ten.
type Client struct {
	api     *url.URL
	sandbox *url.URL // nil: each port is a host of domain
	domain  string   // of host names; may be empty beside a sandbox URL
	cloud   bool     // E2B's own
	key     string
	http    *http.Client
	log     *slog.Logger
	quiet   time.Duration // how long a stream may say nothing
	v1      atomic.Bool   // the server knows only the older form of some calls
}

// NewClient returns a client; it sends nothing yet. It fails with
// [CodeInvalidArgument] when a URL is malformed.
func NewClient(cfg Config) (*Client, error) {
	c := &Client{key: cmp.Or(cfg.APIKey, os.Getenv("E2B_API_KEY")), http: cfg.HTTPClient, log: cfg.Logger, quiet: silence}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.http == nil {
		t := cfg.Transport
		if t == nil {
			if d, ok := http.DefaultTransport.(*http.Transport); ok {
				own := d.Clone()
				own.MaxIdleConnsPerHost = maxIdle
				t = own
			}
		}
		c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if err := c.address(cfg); err != nil {
		return nil, fail("new client", CodeInvalidArgument, err)
	}
	return c, nil
}

// address finds out where the server and the sandboxes are.
func (c *Client) address(cfg Config) (err error) {
	c.domain = cmp.Or(cfg.Domain, os.Getenv("E2B_DOMAIN"))
	if c.domain != "" && !isDomain(c.domain) {
		return fmt.Errorf("Domain: %q is not a domain", c.domain)
	}
	api := cmp.Or(cfg.APIURL, os.Getenv("E2B_API_URL"))
	sandbox := cmp.Or(cfg.SandboxURL, os.Getenv("E2B_SANDBOX_URL"))
	if sandbox == "" && (c.domain == "" && api == "" || slices.Contains(clouds, c.domain)) {
		c.cloud = true
		c.domain = cmp.Or(c.domain, clouds[0])
		sandbox = "https://sandbox." + c.domain
	}
	if sandbox == "" && c.domain == "" {
		sandbox = api
	}
	if c.api, err = parseBase(cmp.Or(api, "https://api."+cmp.Or(c.domain, clouds[0]))); err != nil {
		return fmt.Errorf("APIURL: %w", err)
	}
	if sandbox != "" {
		if c.sandbox, err = parseBase(sandbox); err != nil {
			return fmt.Errorf("SandboxURL: %w", err)
		}
	}
	return nil
}

// clouds are the domains of E2B's own, which route by headers at one host.
var clouds = []string{"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"}

func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is not an http or https URL", s)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// Limits bound a sandbox. A zero field means the server's default. A limit that
// is asked for and cannot be enforced there makes [Client.Create] fail with
// [CodeUnimplemented] or [CodeInvalidArgument]; it is never quietly ignored.
type Limits struct {
	Memory int64   // bytes; rounded up to whole MiB
	CPUs   float64 // processors
	Disk   int64   // bytes; rounded up to whole MiB
	PIDs   int     // processes and threads
}

// CreateOption modifies [Client.Create].
type CreateOption interface{ applyCreate(*createConfig) }

// ConnectOption modifies [Client.Connect].
type ConnectOption interface {
	applyConnect(*protocol.ConnectSandbox)
}

type createOption func(*createConfig)

func (f createOption) applyCreate(c *createConfig) { f(c) }

// createConfig is what the options of a create say.
type createConfig struct {
	protocol.NewSandbox
	network  Network
	packages Packages
}

// WithTemplate names what the sandbox is made of: a template, whose files it begins with,
// or the ID of a [Snapshot], whose memory and files it has; without it
// [DefaultTemplate]. One of a snapshot has an id, tokens and rules of its own,
// connections to the outside have ended, and random numbers differ between two of them;
// its limits are the snapshot's, and its variables of [WithSandboxEnv], unless it asks
// for others. With a snapshot's memory, the size of the disk cannot be another.
func WithTemplate(id string) CreateOption {
	return createOption(func(r *createConfig) { r.TemplateID = id })
}

// WithLimits asks for limits other than the server's defaults.
func WithLimits(l Limits) CreateOption {
	const mib = 1 << 20
	return createOption(func(r *createConfig) {
		if l == (Limits{}) {
			r.Limits = nil
			return
		}
		r.Limits = &protocol.Limits{
			MemoryMB: int((l.Memory + mib - 1) / mib),
			CPUs:     l.CPUs,
			DiskMB:   int((l.Disk + mib - 1) / mib),
			PIDs:     l.PIDs,
		}
	})
}

// WithMetadata attaches labels to the sandbox.
func WithMetadata(m map[string]string) CreateOption {
	return createOption(func(r *createConfig) { r.Metadata = m })
}

// WithSandboxEnv sets environment variables for everything in the sandbox.
func WithSandboxEnv(env map[string]string) CreateOption {
	return createOption(func(r *createConfig) { r.EnvVars = env })
}

// WithWarm starts the kernels of these languages together with the sandbox, so
// that the first RunCode does not wait for them.
func WithWarm(languages ...string) CreateOption {
	return createOption(func(r *createConfig) { r.Warm = languages })
}

// WithOpenContexts lets whoever knows the sandbox's id list, make, restart and
// remove its contexts without the access token. It is for a sandbox that programs
// with E2B's packages will connect to: those send the token with executions only.
// Without it a Cubby server asks for the token there, too.
func WithOpenContexts() CreateOption {
	return createOption(func(r *createConfig) { r.ContextToken = false })
}

// maxIdle is how many connections to a server wait for their next use: all
// sandboxes share them, and each stream has one of its own.
const maxIdle = 64

// defaultTimeout is the sandbox's, where [WithTimeout] names none.
const defaultTimeout = 5 * time.Minute

// Create starts a sandbox. The caller ends it with [Sandbox.Close]; the server
// does when its timeout ([WithTimeout]) is over.
func (c *Client) Create(ctx context.Context, opts ...CreateOption) (*Sandbox, error) {
	const op = "create sandbox"
	cfg := createConfig{NewSandbox: protocol.NewSandbox{TemplateID: DefaultTemplate, ContextToken: true}}
	WithTimeout(defaultTimeout).applyCreate(&cfg)
	for _, o := range opts {
		o.applyCreate(&cfg)
	}
	req := cfg.NewSandbox
	allow, rules, err := cfg.network.wire()
	if err == nil {
		err = cfg.packages.Check()
	}
	if err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	if !cfg.packages.empty() {
		req.Warm = nil // a kernel sees what is there when it starts, and some packages need that
	}
	// It is always said: a server's own default may be another.
	req.AllowInternetAccess, req.Network = &allow, rules
	createCtx, cancel := bounded(ctx, createTimeout)
	defer cancel()
	var answer protocol.Sandbox
	err = c.versioned(func(v2 bool) error {
		if v2 {
			return c.newSandbox(createCtx, "/v2/sandboxes", &req, &answer)
		}
		old := req
		old.Secure = new(true) // as the newer form always is
		return c.newSandbox(createCtx, "/sandboxes", &old, &answer)
	})
	if err != nil {
		return nil, cfg.network.redact(fail(op, CodeUnavailable, err))
	}
	sbx, err := c.adopt(answer)
	if err != nil {
		return nil, fail(op, CodeInternal, err)
	}
	var ignored error // a server of another kind has taken no notice of it
	switch {
	case req.Limits != nil && !sbx.cubby:
		ignored = &Error{Code: CodeUnimplemented, Err: errors.New("the server does not say that it keeps limits"), Hint: "leave WithLimits out: its templates decide"}
	case rules != nil && len(rules.DenyHosts) > 0 && !sbx.cubby:
		ignored = errDenyUnknown()
	case req.IdleTimeout != nil && !sbx.cubby:
		ignored = onlyCubby(op, "an idle timeout", "leave WithIdleTimeout out, and give WithTimeout")
	}
	if err, ok := errors.AsType[*Error](ignored); ok {
		err.Op = op
		if gone := sbx.Close(); gone != nil {
			err.Err = fmt.Errorf("%w; and the sandbox could not be ended: %w", err.Err, gone)
		}
		return nil, err
	}
	c.log.Info("sandbox created", "sandbox_id", sbx.id, "template", answer.TemplateID)
	if !cfg.packages.empty() {
		if err := sbx.withPackages(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return sbx, nil
}

// newSandbox sends a create in one of its forms.
func (c *Client) newSandbox(ctx context.Context, path string, body *protocol.NewSandbox, answer *protocol.Sandbox) error {
	req, err := newRequest(ctx, http.MethodPost, c.api, path, nil, body)
	if err != nil {
		return err
	}
	c.authorise(req)
	if body.ContextToken {
		req.Header.Set(protocol.HeaderContextToken, protocol.ContextTokenRequired)
	}
	return c.exchange(req, answer)
}

// Connect finds a sandbox that already runs, or is paused, and resumes that one; it lets
// it live for at least [WithTimeout]'s time from now, or five minutes. It fails with
// [CodeNotFound] when there is none of that id, with [CodeRateLimited] and
// [CodeUnavailable] when the server has no room for one that is paused, and with
// [CodeIncompatible] when it cannot restore its memory any more: [WithFilesOnly] then
// brings it back with its files. After an error it is paused as before.
func (c *Client) Connect(ctx context.Context, id string, opts ...ConnectOption) (*Sandbox, error) {
	const op = "connect to sandbox"
	if err := checkID(id); err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	var req protocol.ConnectSandbox
	WithTimeout(defaultTimeout).applyConnect(&req)
	for _, o := range opts {
		o.applyConnect(&req)
	}
	ctx, cancel := bounded(ctx, memoryTimeout)
	defer cancel()
	var answer protocol.Sandbox
	err := c.versioned(func(v2 bool) error {
		path := "/sandboxes/" + id + "/connect"
		if v2 {
			path = "/v2" + path
		}
		return c.control(ctx, http.MethodPost, path, nil, &req, &answer)
	})
	if err != nil {
		return nil, fail(op, CodeUnavailable, err)
	}
	sbx, err := c.adopt(answer)
	if err != nil {
		return nil, fail(op, CodeInternal, err)
	}
	return sbx, nil
}

// Get finds a sandbox without touching its timeout. It fails with
// [CodeNotFound] when there is none of that id.
func (c *Client) Get(ctx context.Context, id string) (*Sandbox, error) {
	const op = "get sandbox"
	if err := checkID(id); err != nil {
		return nil, fail(op, CodeInvalidArgument, err)
	}
	var d protocol.SandboxDetail
	if err := c.control(ctx, http.MethodGet, "/sandboxes/"+id, nil, nil, &d); err != nil {
		return nil, fail(op, CodeUnavailable, err)
	}
	sbx, err := c.adopt(protocol.Sandbox{
		SandboxID: d.SandboxID, EnvdAccessToken: d.EnvdAccessToken, Domain: d.Domain, LimitsNotEnforced: d.LimitsNotEnforced, Limits: d.Limits,
	})
	if err != nil {
		return nil, fail(op, CodeInternal, err)
	}
	return sbx, nil
}

// adopt makes a Sandbox of a server's answer, which is checked first: the id
// goes into paths and headers.
func (c *Client) adopt(a protocol.Sandbox) (*Sandbox, error) {
	if err := checkID(a.SandboxID); err != nil {
		return nil, fmt.Errorf("the server answered a bad sandbox id: %w", err)
	}
	s := &Sandbox{client: c, id: a.SandboxID, token: a.EnvdAccessToken, unenforced: a.LimitsNotEnforced, cubby: a.Limits != nil}
	if a.TrafficAccessToken != nil {
		s.traffic = *a.TrafficAccessToken
	}
	if a.Domain != nil && isDomain(*a.Domain) {
		s.domain = *a.Domain
	}
	if checkID(a.PublicID) == nil {
		s.publicID = a.PublicID
	}
	return s, nil
}

var errBadID = errors.New("a sandbox id is 1 to 64 lower-case letters and digits")

// checkID accepts E2B's ids, with the client's id after a dash as older servers
// have it.
func checkID(id string) error {
	if id == "" || len(id) > 64 {
		return errBadID
	}
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return errBadID
		}
	}
	return nil
}
