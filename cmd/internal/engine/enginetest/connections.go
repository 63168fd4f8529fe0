package enginetest

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// echoes has the other end of a card answer TCP connections to the gateway's port 7 in
// capital letters.
func echoes(t *testing.T, card *os.File) {
	t.Helper()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	link := channel.New(256, engine.NetMTU, "")
	address := tcpip.AddrFrom4(netip.MustParseAddr(engine.NetGateway).As4())
	err := s.CreateNIC(1, link)
	if err == nil {
		err = s.AddProtocolAddress(1, tcpip.ProtocolAddress{
			Protocol: ipv4.ProtocolNumber, AddressWithPrefix: address.WithPrefix(),
		}, stack.AddressProperties{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	in, out := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(in)
		packet := make([]byte, engine.NetMTU)
		for {
			n, err := card.Read(packet)
			if err != nil || n == 0 {
				return
			}
			p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(append([]byte{}, packet[:n]...))})
			link.InjectInbound(ipv4.ProtocolNumber, p)
			p.DecRef()
		}
	}()
	go func() {
		defer close(out)
		for {
			p := link.ReadContext(ctx)
			if p == nil {
				return
			}
			view := p.ToView()
			_, _ = card.Write(view.AsSlice()) // a machine that is gone misses nothing
			view.Release()
			p.DecRef()
		}
	}()
	listener, listenErr := gonet.ListenTCP(s, tcpip.FullAddress{NIC: 1, Addr: address, Port: 7}, ipv4.ProtocolNumber)
	if listenErr != nil {
		t.Fatal(listenErr)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 1000)
				for {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					if _, err := io.WriteString(conn, strings.ToUpper(string(b[:n]))); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() {
		cancel()
		card.Close()
		<-in
		<-out
		s.Destroy()
		link.Close()
		s.Wait()
	})
}

// testCheckpointConnections: connections out of a machine are cut in what is
// restored from it, whether it has a card or not, and everything that waits for them
// wakes. The machine itself keeps them, and connections within go on everywhere.
func (s Suite) testCheckpointConnections(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	ours, theirs := cardPair(t)
	echoes(t, ours)
	spec.Net = theirs
	m, checkpointer, pauser, restorer := s.checkpointed(t, spec, `
import errno, select, socket, threading, time
def connect():
    s = socket.create_connection(('`+engine.NetGateway+`', 7), 60); s.settimeout(None)
    s.sendall(b'hello'); assert s.recv(100) == b'HELLO'
    return s
out, waiting, polled, writing = connect(), connect(), connect(), connect()
inside = socket.socketpair()
listener = socket.create_server(('', 0))
own = socket.create_connection(('127.0.0.1', listener.getsockname()[1])); accepted = listener.accept()[0]
woke = []
def wait():
    try: woke.append(waiting.recv(100))
    except OSError as e: woke.append(errno.errorcode[e.errno])
def wait_polled():
    p = select.poll(); p.register(polled, select.POLLIN)
    woke.append([e for _, e in p.poll()][0] & (select.POLLERR | select.POLLHUP | select.POLLIN) != 0)
threads = [threading.Thread(target=f, daemon=True) for f in (wait, wait_polled)]
for thread in threads: thread.start()
time.sleep(0.3)
def ask(s, text=b'still there?'):
    try: s.sendall(text); return s.recv(100)
    except OSError as e: return errno.errorcode[e.errno]
def within():
    own.sendall(b'a'); accepted.sendall(b'b'); inside[0].send(b'c')
    return accepted.recv(1) + own.recv(1) + inside[1].recv(1)`)
	keeps := func(when string) {
		t.Helper()
		if got := m.must(t, "", "print(ask(out), ask(writing), within(), woke)"); got != "b'STILL THERE?' b'STILL THERE?' b'abc' []" {
			t.Errorf("%s: its connections say %s", when, got)
		}
	}
	running, frozen := t.TempDir(), t.TempDir()
	if err := checkpointer.Checkpoint(t.Context(), running, engine.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	keeps("after a checkpoint")
	if err := pauser.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := checkpointer.Checkpoint(t.Context(), frozen, engine.CheckpointOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pauser.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	keeps("frozen and thawed")
	for i, image := range []string{running, frozen, running} {
		spec := spec
		if spec.Net = nil; i < 2 {
			ours, theirs := cardPair(t)
			echoes(t, ours)
			spec.Net = theirs
		}
		r := restore(t, restorer, spec, fmt.Sprint("r", i), image)
		got := r.must(t, "", `
for thread in threads: thread.join(20)
print(sorted(map(str, woke)), ask(out), ask(writing), within())`)
		if got != "['True', \"b''\"] EPIPE EPIPE b'abc'" {
			t.Errorf("restored %d: its connections say %s", i, got)
		}
		if spec.Net != nil {
			if got := r.must(t, "", "print(ask(connect()))"); got != "b'STILL THERE?'" {
				t.Errorf("restored %d: a new connection says %s", i, got)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	keeps("while it was restored")
}
