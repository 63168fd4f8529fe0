//go:build linux

package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

const (
	// handshakeTime bounds the sandbox's side of a connection's beginning.
	handshakeTime = 10 * time.Second
	// How soon a side that says nothing is asked whether it is there.
	keepAliveIdle     = 60 * time.Second
	keepAliveInterval = 30 * time.Second
	keepAliveCount    = 4
)

// inner is the sandbox's end of a connection.
type inner struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
	wq *waiter.Queue
}

// abort resets the connection.
func (c *inner) abort() { c.ep.Abort() }

// connect makes a connection that a sandbox asked for: first to its target, so that the
// sandbox sees how that went, and then to the sandbox.
func (n *network) connect(r *tcp.ForwarderRequest) {
	s := n.sandbox
	id := r.ID()
	completed := false
	complete := func(reset bool) {
		if !completed {
			completed = true
			r.Complete(reset)
			n.takeSYN(id)
		}
	}
	defer complete(false)
	f := s.begin(s.target(addrPort(id.LocalAddress, id.LocalPort), egress.TCP))
	if f == nil {
		return
	}
	defer f.end()
	if f.addr.Port() == dnsPort {
		if c := n.accept(f, r); c != nil {
			complete(false)
			f.serveDNS(c)
		}
		return
	}
	p, d := f.decideNow()
	if !d.Allowed {
		f.refused(d)
		complete(true)
		return
	}
	up, err := f.dial(p, d)
	if err != nil {
		f.fail(err)
		switch answerTo(err) {
		case refuse:
			complete(true)
		case unreachableHost:
			s.report(header.ICMPv4HostUnreachable, n.syn(id))
		case silence:
		}
		return
	}
	defer up.Close()
	c := n.accept(f, r)
	if c == nil {
		f.fail(errors.New("the sandbox did not complete the connection"))
		return
	}
	defer c.Close()
	complete(false)
	f.own(up)
	stop := context.AfterFunc(f.ctx, c.abort)
	defer stop()
	f.join(p, c, up)
}

// accept completes the handshake with the sandbox; nil if that fails.
func (n *network) accept(f *flow, r *tcp.ForwarderRequest) *inner {
	c := &inner{wq: new(waiter.Queue)}
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTime)
	defer cancel()
	finished := make(chan struct{})
	defer close(finished)
	context.AfterFunc(ctx, func() {
		// CreateEndpoint takes this for the end of the handshake, which has failed
		// then. It may not have begun to listen.
		for {
			select {
			case <-finished:
				return
			case <-time.After(20 * time.Millisecond):
				c.wq.Notify(waiter.WritableEvents)
			}
		}
	})
	var err tcpip.Error
	if c.ep, err = r.CreateEndpoint(c.wq); err != nil {
		return nil
	}
	c.TCPConn = gonet.NewTCPConn(c.wq, c.ep)
	o := c.ep.SocketOptions()
	if f.big {
		o.SetSendBufferSize(bigBuffer, false)
		o.SetReceiveBufferSize(bigBuffer, false)
	}
	idle, interval := tcpip.KeepaliveIdleOption(keepAliveIdle), tcpip.KeepaliveIntervalOption(keepAliveInterval)
	_ = c.ep.SetSockOpt(&idle)
	_ = c.ep.SetSockOpt(&interval)
	_ = c.ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepAliveCount)
	o.SetKeepAlive(true)
	return c
}

// reset ends a connection at once, so that the other side sees that it was not closed.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// What a sandbox is told of a connection that was not made.
type answer int

const (
	silence answer = iota // as of a host that says nothing
	refuse
	unreachableHost
)

// errRefused is a flow that may not be, told already.
type errRefused struct{ d egress.Decision }

func (e *errRefused) Error() string { return e.d.Reason }

func answerTo(err error) answer {
	var refused *errRefused
	var name *net.DNSError
	switch {
	case errors.As(err, &refused), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET), errors.Is(err, errProxy):
		return refuse
	case errors.As(err, &name):
		return unreachableHost
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT),
		errors.Is(err, errPorts):
		return silence
	case errors.Is(err, context.Canceled):
		return refuse // the rules changed, or the sandbox ends
	}
	return unreachableHost
}
