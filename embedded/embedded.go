// Package embedded runs a private Cubby for this program: a child process in
// which the sandboxes live, reached by the same client as a remote server.
//
//	c, err := embedded.Open(ctx, embedded.Config{})
//	if err != nil { … }
//	defer c.Close()
//	sbx, err := c.Create(ctx)
//	ex, err := sbx.RunCode(ctx, "print(6*7)")
//
// Nothing has to be installed but the cubby binary of the same version, and no
// root is needed. Importing the package changes nothing in the program: engines
// are linked into the child only. Sandboxes end when the program does, however
// it ends, and so do those that are paused, and snapshots.
package embedded

import (
	"log/slog"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// Config configures Open. Its zero value works where `cubby` is on PATH.
type Config struct {
	// Binary is the cubby to run; empty means $CUBBY_BINARY, else the running
	// program if it is cubby, else `cubby` on PATH. It must be of this
	// package's version.
	Binary string
	// Python and Node choose the interpreters, as a path or as a name on PATH;
	// empty means $CUBBY_PYTHON and $CUBBY_NODE, else what python3 and node on
	// PATH resolve to.
	Python, Node string
	// Engine names what keeps the sandboxes apart, one of those that Binary has;
	// empty means gvisor.
	Engine string
	// Reach has addresses that are not public and that a sandbox's [cubby.Network] may
	// allow nevertheless: ADDRESS[:PORT] or ADDRESS/BITS[:PORT]. Without one, code
	// reaches nothing of the local network, whatever is allowed. An address at which a
	// cloud hands out credentials must be named itself.
	Reach []string
	// HostPorts has TCP ports of this machine, on its loopback, that a sandbox's
	// [cubby.Network] may allow as host.cubby.internal:PORT.
	HostPorts []int
	// Resolvers has the DNS servers by which sandboxes' names are resolved, as
	// ADDRESS:PORT; without any, those of this machine's /etc/resolv.conf.
	Resolvers []string
	// IndexEnv gives sandboxes the settings of package registries that are in this
	// program's environment, without passwords: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL,
	// PIP_TRUSTED_HOST, UV_DEFAULT_INDEX, UV_INDEX_URL, NPM_CONFIG_REGISTRY and GOPROXY.
	// @pypi, @npm and @go, and what [cubby.WithPackages] opens, are their hosts then.
	IndexEnv bool
	// Logger takes the child's log; nil discards it.
	Logger *slog.Logger
	// StopTimeout bounds how long Close waits for the child before it kills it;
	// zero means 10 seconds.
	StopTimeout time.Duration
}

// Cubby is a running private Cubby. It is safe for concurrent use.
type Cubby struct {
	*cubby.Client
	child *child
}

// Close ends every sandbox and the child, and removes what they left. It is
// idempotent.
func (c *Cubby) Close() error { return c.child.close() }
