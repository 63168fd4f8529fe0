// Package handshake is what a supervising program and its child process, in which
// the sandboxes live, agree on before they speak E2B's protocol.
package handshake

import "github.com/cubby-sandbox/cubby/internal/fault"

// Descriptors that the parent hands to the child.
const (
	FDListener = 3 // socket that already listens
	FDReady    = 4 // the child writes one Hello and closes it
	FDLife     = 5 // end of file says that the parent is gone
	FDLock     = 6 // flock on the run folder, held by whoever lives longer
)

// Arguments of the child.
const (
	FlagPrivate   = "private" // serve on FDListener
	FlagExpect    = "expect"  // the parent's build
	FlagRunDir    = "run-dir" // folder for sockets and mounts, removed by the child
	FlagPython    = "python"  // interpreter of the template
	FlagNode      = "node"    // interpreter of the template
	FlagEngine    = "engine"  // what keeps the sandboxes apart
	FlagLogLevel  = "log-level"
	FlagLogFormat = "log-format"
	FlagReach     = "reach"     // addresses that are not public and may be allowed nevertheless; any number
	FlagHostPort  = "host-port" // ports of this machine that may be allowed; any number
	FlagResolver  = "resolver"  // DNS servers, ADDRESS:PORT, instead of the computer's; any number
	FlagIndexEnv  = "index-env" // sandboxes have the settings of package registries in the child's environment
	// Only of a server for others: what makes it one is the data folder.
	FlagDataDir      = "data-dir"
	FlagDomain       = "domain"
	FlagMaxSandboxes = "max-sandboxes"
	FlagTemplateID   = "template-id"
	FlagContextToken = "require-context-token"
	FlagNet          = "net"             // NetOpen or NetClosed: of sandboxes whose client does not say
	FlagProxy        = "upstream-proxy"  // the name of the environment variable that has the proxy's URL, with its password
	FlagResolves     = "proxy-resolves"  // the proxy resolves names
	FlagSecretsKey   = "secrets-key-env" // the name of the environment variable that has the secrets' key
	FlagImagesKey    = "images-key-env"  // the same of the key of paused sandboxes and snapshots
	FlagDiskBudget   = "disk-budget"     // bytes that these may take
	FlagKeepPaused   = "keep-paused"     // how long what is paused is kept
	FlagKeepSnapshot = "keep-snapshots"  // how many snapshots without a name a team keeps
)

// Values of FlagNet.
const (
	NetOpen   = "open"
	NetClosed = "closed"
)

// Command begins the child's command line: `cubby serve --private …`.
const Command = "serve"

// IsChild reports whether args (without the program's name) are a child's.
func IsChild(args []string) bool {
	return len(args) >= 2 && args[0] == Command && args[1] == "--"+FlagPrivate
}

// Hello is the child's one message, as JSON: it serves, or says why it cannot.
type Hello struct {
	Version string `json:"version"` // as package version's Build
	// Error is why it cannot serve; the parent returns the same error.
	Error *fault.Wire `json:"error,omitempty"`
	// NewKey is the API key that the first start of a server made. It is said
	// here and nowhere else.
	NewKey string `json:"new_key,omitempty"`
	// Recovered is how many sandboxes of a server that was killed were ended.
	Recovered int `json:"recovered,omitempty"`
}

// Layout of the run folder.
const (
	SocketDir  = "ctl" // mode 0700
	SocketName = "ctl/s"
	LockName   = "lock"
	RunPrefix  = "cubby-run-"
)
