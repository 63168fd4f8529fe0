//go:build linux

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/web"
)

// ports are those on which what a client sends first is known.
type ports struct{ http, https uint16 }

const (
	// maxHello bounds a client hello, in bytes.
	maxHello = 64 << 10
	// helloTime is how long one may take where one has to come.
	helloTime = 15 * time.Second
)

// join leads a connection of a sandbox to what was dialled for it. What goes to a name
// that an address stands for has to name it itself, as far as it names anything.
func (f *flow) join(p *egress.Policy, c *inner, up net.Conn) {
	outer, ok := up.(*net.TCPConn)
	if !ok {
		f.fail(fmt.Errorf("a connection of TCP is a %T", up))
		return
	}
	rule, hasHeaders := (*egress.HeaderRule)(nil), false
	if f.name != "" {
		rule, hasHeaders = p.HeadersFor(f.name, f.addr.Port())
	}
	switch {
	case hasHeaders:
		f.fail(f.openTLS(p, rule, c, outer))
	case f.name != "" && f.addr.Port() == f.sandbox.gateway.ports.http:
		f.fail(f.forward(c, web.ForwardOptions{Host: f.name, Port: f.addr.Port(), Dial: f.dialFirst(p, outer)}))
	case f.name != "" && f.addr.Port() == f.sandbox.gateway.ports.https:
		// The hello comes first here: nothing is answered before it.
		ctx, cancel := context.WithTimeout(f.ctx, helloTime)
		defer cancel()
		first, err := f.hello(ctx, c)
		if err == nil && len(first) == 0 {
			err = errors.New("a connection without a TLS client hello")
		}
		if err != nil {
			f.fail(err)
			f.cut()
			return
		}
		f.copyBoth(c, outer, first)
	case f.name != "":
		f.copyNamed(c, outer)
	default:
		f.copyBoth(c, outer, nil)
	}
}

// copyNamed copies both ways, and looks whether what the sandbox sends first is a client
// hello. The server may speak first.
func (f *flow) copyNamed(c *inner, up *net.TCPConn) {
	p := &pipe{flow: f, inner: c, outer: up, chunks: smallChunks}
	if f.big {
		p.chunks = bigChunks
	}
	var err error
	if p.raw, err = up.SyscallConn(); err != nil {
		f.fail(err)
		return
	}
	p.both(func() error {
		first, err := f.hello(f.ctx, c)
		var none *noHello
		if errors.As(err, &none) {
			first, err = none.first, nil
		}
		if err != nil {
			return err
		}
		return p.up(first)
	})
}

// noHello is that something else came.
type noHello struct{ first []byte }

func (*noHello) Error() string { return web.ErrNoHello.Error() }

// hello reads a client hello whose server name is the flow's, and returns its bytes. A
// side that ended without a byte has none.
func (f *flow) hello(ctx context.Context, c *inner) ([]byte, error) {
	r := &recorded{Conn: c}
	h, _, err := web.ReadHello(ctx, r, maxHello)
	switch {
	case errors.Is(err, io.EOF) && len(r.read) == 0:
		return nil, nil
	case errors.Is(err, web.ErrNoHello):
		return nil, &noHello{r.read}
	case err != nil:
		return nil, err
	}
	return r.read, f.names(h)
}

// names says whether a hello asks for the flow's name.
func (f *flow) names(h web.Hello) error {
	if !strings.EqualFold(h.ServerName, f.name) {
		if h.ServerName == "" {
			return fmt.Errorf("a TLS client hello without a server name, to %s", f.name)
		}
		return fmt.Errorf("a TLS client hello for %q, to %s", h.ServerName, f.name)
	}
	return nil
}

// forward passes requests on.
func (f *flow) forward(c net.Conn, o web.ForwardOptions) error {
	if i, ok := c.(*inner); ok {
		c = &counted{i, f}
	}
	defer c.Close()
	return web.Forward(f.ctx, c, o)
}

// dialFirst returns a connection that was made already, and then new ones.
func (f *flow) dialFirst(p *egress.Policy, first net.Conn) func(context.Context) (net.Conn, error) {
	var mu sync.Mutex
	return func(ctx context.Context) (net.Conn, error) {
		mu.Lock()
		c := first
		first = nil
		mu.Unlock()
		if c != nil {
			return c, nil
		}
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		c, err := f.dialAgain(ctx, p, func() {})
		if err == nil {
			f.own(c)
		}
		return c, err
	}
}

// openTLS reads the requests of a host that a rule adds headers for.
func (f *flow) openTLS(p *egress.Policy, rule *egress.HeaderRule, c *inner, up net.Conn) error {
	g := f.sandbox.gateway
	if g.authority == nil {
		return errors.New("there is no certificate authority to open TLS with")
	}
	ctx, cancel := context.WithTimeout(f.ctx, helloTime)
	defer cancel()
	h, replay, err := web.ReadHello(ctx, &counted{c, f}, maxHello)
	if err == nil {
		err = f.names(h)
	}
	if err != nil {
		f.cut()
		return err
	}
	client := tls.Server(web.Replay(&counted{c, f}, replay), g.authority.ServerConfig(f.name))
	if err := client.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS with the sandbox: %w", err)
	}
	dial := f.dialFirst(p, up)
	return f.forward(client, web.ForwardOptions{
		Host: f.name, Port: f.addr.Port(), TLS: true, Headers: rule.Headers, Redact: secrets(rule),
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialTime)
			defer cancel()
			server := tls.Client(c, web.ClientConfig(f.name, g.roots))
			if err := server.HandshakeContext(ctx); err != nil {
				c.Close()
				return nil, fmt.Errorf("TLS with %s: %w", f.name, err)
			}
			return server, nil
		},
	})
}

// minSecret is the length from which a value, or a word of it, is taken for a secret, in
// bytes: a shorter one would be found in answers that have nothing to do with it.
const minSecret = 8

// secrets are what must not come back to the sandbox: the values of a rule, what
// follows a scheme such as "Bearer" in one, and the secrets that were put into them.
func secrets(rule *egress.HeaderRule) [][]byte {
	var all [][]byte
	add := func(value string) {
		if len(value) >= minSecret {
			all = append(all, []byte(value))
		}
	}
	for _, value := range rule.Headers {
		add(value)
		if _, rest, ok := strings.Cut(value, " "); ok {
			add(rest)
		}
	}
	for _, secret := range rule.Secrets {
		add(secret)
	}
	return all
}
