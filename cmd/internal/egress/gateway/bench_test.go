//go:build linux

package gateway

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// benchmarked attaches a sandbox that may reach everything at an address of this
// machine.
func benchmarked(b *testing.B) (*box, netip.Addr) {
	own := ownAddr(b)
	g, _ := newGateway(b, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	return newBox(b, g, "a", policy(b, g, egress.Rules{Allow: []string{own.String()}})), own
}

// BenchmarkTransfer has a stack as the sandbox's kernel in the same process.
func BenchmarkTransfer(b *testing.B) {
	const chunk = 64 << 10
	b.Run("download", func(b *testing.B) {
		in, own := benchmarked(b)
		data := make([]byte, chunk)
		server := serve(b, own, func(c *net.TCPConn) {
			for {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		})
		c := in.mustDial(server)
		b.SetBytes(chunk)
		got := make([]byte, chunk)
		for b.Loop() {
			if _, err := io.ReadFull(c, got); err != nil {
				b.Fatal(err)
			}
		}
		c.Close()
	})
	b.Run("upload", func(b *testing.B) {
		in, own := benchmarked(b)
		server := serve(b, own, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
		c := in.mustDial(server)
		b.SetBytes(chunk)
		data := make([]byte, chunk)
		for b.Loop() {
			if _, err := c.Write(data); err != nil {
				b.Fatal(err)
			}
		}
		c.Close()
	})
	b.Run("loopback", func(b *testing.B) { // what the others are compared with
		server := serve(b, ownAddr(b), func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
		c, err := net.Dial("tcp", server.String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		b.SetBytes(chunk)
		data := make([]byte, chunk)
		for b.Loop() {
			if _, err := c.Write(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	in, own := benchmarked(b)
	server := serve(b, own, echo)
	message := make([]byte, 1024)
	ask := func(c net.Conn) {
		if _, err := c.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("kept", func(b *testing.B) {
		c := in.mustDial(server)
		for b.Loop() {
			ask(c)
		}
		c.Close()
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			c := in.mustDial(server)
			ask(c)
			c.Close()
		}
	})
}
