//go:build linux

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/dns"
	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

const (
	// idleUDP is how long datagrams of a flow may fail to come.
	idleUDP = 30 * time.Second
	// maxDatagram is what a packet holds of one, in bytes.
	maxDatagram = engine.NetMTU - header.IPv4MinimumSize - header.UDPMinimumSize
	// dnsIdle is how long a connection may ask nothing.
	dnsIdle = 10 * time.Second
	// udpBuffer bounds the datagrams that wait for a flow to begin, in bytes.
	udpBuffer = 64 << 10
)

// udpPacket is called with datagrams of no flow. What it does not handle is answered
// with "port unreachable".
func (n *network) udpPacket(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
	s := n.sandbox
	t := s.target(addrPort(id.LocalAddress, id.LocalPort), egress.UDP)
	if t.addr.Port() == dnsPort {
		n.ask(t.addr, id.RemotePort, p)
		return true
	}
	if d := t.decide(s.policy.Load()); !d.Allowed {
		s.refuse(t, d)
		return false
	}
	f := s.begin(t)
	if f == nil {
		return true
	}
	about := firstHeader(p)
	wq := new(waiter.Queue)
	clone := p.Clone()
	ep, err := udp.NewForwarderRequest(n.stack, id, clone).CreateEndpoint(wq)
	clone.DecRef()
	if err != nil {
		f.end()
		return true
	}
	ep.SocketOptions().SetReceiveBufferSize(udpBuffer, false)
	c := gonet.NewUDPConn(wq, ep)
	go func() {
		defer f.end()
		defer c.Close()
		f.exchange(c, about)
	}()
	return true
}

// exchange passes datagrams until none come.
func (f *flow) exchange(c *gonet.UDPConn, about []byte) {
	s := f.sandbox
	p, d := f.decideNow()
	if !d.Allowed {
		f.refused(d)
		s.report(header.ICMPv4PortUnreachable, about)
		return
	}
	up, err := f.dial(p, d)
	if err != nil {
		f.fail(err)
		if answerTo(err) == refuse {
			s.report(header.ICMPv4PortUnreachable, about)
		} else {
			s.report(header.ICMPv4HostUnreachable, about)
		}
		return
	}
	defer up.Close()
	f.own(up)
	stop := context.AfterFunc(f.ctx, func() {
		c.Close()
		_ = c.SetDeadline(time.Unix(1, 0)) // Close wakes nobody
	})
	defer stop()
	var last atomic.Int64 // when something came
	last.Store(time.Now().UnixNano())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := f.datagrams(up, c, &f.sent, &last); err != nil {
			f.fail(err)
		}
		f.cut()
	}()
	err = f.datagrams(c, up, &f.received, &last)
	if errors.Is(err, unix.ECONNREFUSED) {
		s.report(header.ICMPv4PortUnreachable, about)
	}
	f.fail(err)
	f.cut()
	<-sent
}

// datagrams passes them in one direction.
func (f *flow) datagrams(to, from net.Conn, count *atomic.Int64, last *atomic.Int64) error {
	limit := f.sandbox.down
	if count == &f.sent {
		limit = f.sandbox.up
	}
	b := make([]byte, 1<<16)
	for {
		_ = from.SetReadDeadline(time.Now().Add(idleUDP))
		if f.ctx.Err() != nil {
			return nil
		}
		n, err := from.Read(b)
		switch {
		case f.ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err):
			if time.Since(time.Unix(0, last.Load())) < idleUDP {
				continue // the other direction is in use
			}
			return nil
		case err != nil:
			return err
		}
		last.Store(time.Now().UnixNano())
		if err := wait(f.ctx, limit, n); err != nil {
			return nil
		}
		// A datagram that cannot be sent is lost, as they may be.
		if _, err := to.Write(b[:n]); err == nil {
			count.Add(int64(n))
		} else if errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// ask answers a question that was sent to any address.
func (n *network) ask(to netip.AddrPort, port uint16, p *stack.PacketBuffer) {
	s := n.sandbox
	if !s.start() {
		return
	}
	select {
	case s.questions <- struct{}{}:
	default:
		s.limited.Add(1)
		s.running.Done()
		return
	}
	question := p.Data().AsRange().ToSlice()
	go func() {
		defer s.running.Done()
		defer func() { <-s.questions }()
		answer := s.names.Answer(s.ctx, question, maxDatagram)
		if answer != nil && len(answer) <= maxDatagram {
			_ = s.card.write([][]byte{datagram(to, port, answer)})
		}
	}()
}

// serveDNS answers the questions of a connection, one after the other.
func (f *flow) serveDNS(c *inner) {
	stop := context.AfterFunc(f.ctx, c.abort)
	defer stop()
	defer c.Close()
	var length [2]byte
	for {
		_ = c.SetDeadline(time.Now().Add(dnsIdle))
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		select {
		case f.sandbox.questions <- struct{}{}:
		case <-f.ctx.Done():
			return
		}
		answer := f.sandbox.names.Answer(f.ctx, question, dns.MaxMessage)
		<-f.sandbox.questions
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
