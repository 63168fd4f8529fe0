package enginetest

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

func (s Suite) testNoNetwork(t *testing.T) {
	s.start(t, engine.Limits{}).noNetwork(t)
}

// noNetwork fails the test if anything but the machine itself can be reached.
func (m *machine) noNetwork(t *testing.T) {
	t.Helper()
	got := m.must(t, "", `
import socket
for host in ("1.1.1.1", "169.254.169.254", "10.0.0.1"):
    s = socket.socket(); s.settimeout(1)
    try: s.connect((host, 80)); print("connected", host)
    except OSError as e: pass
print([n for _, n in socket.if_nameindex()])`)
	if got != "['lo']" {
		t.Errorf("got %q", got)
	}
}

// testNoNetworkCard: an engine without cards says so, and leaves nothing.
func (s Suite) testNoNetworkCard(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	_, spec.Net = cardPair(t)
	m, err := s.Engine.Start(t.Context(), spec)
	if err == nil {
		newMachine(t, m)
	}
	if !errors.Is(err, engine.ErrNotSupported) {
		t.Errorf("a machine with a network card: %v", err)
	}
}

// testNetworkCard: packets come out of a machine by its card, and answers go in.
func (s Suite) testNetworkCard(t *testing.T) {
	spec := s.spec(t, engine.Limits{})
	ours, theirs := cardPair(t)
	spec.Net = theirs
	m0, err := s.Engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	m := newMachine(t, m0)
	m.talksUDP(t, ours)
	// Whoever holds the other end may be gone: that cuts the network only.
	ours.Close()
	m.must(t, "", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.sendto(b'?', ('192.0.2.1', 9))
except OSError: pass`)
}

// testRestoredNetworkCard: a machine that is restored has the network that it is
// restored with, whatever it had when it was checkpointed.
func (s Suite) testRestoredNetworkCard(t *testing.T) {
	restorer := can[engine.Restorer](t, s.Engine)
	for _, had := range []bool{true, false} {
		spec := s.spec(t, engine.Limits{})
		if had {
			_, spec.Net = cardPair(t)
		}
		m0, err := s.Engine.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(t, m0)
		m.must(t, "", "pass")
		image := t.TempDir()
		if err := can[engine.Checkpointer](t, m0).Checkpoint(t.Context(), image, engine.CheckpointOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		for _, has := range []bool{true, false} {
			var ours *os.File
			if spec.Net = nil; has {
				ours, spec.Net = cardPair(t)
			}
			r0, err := restorer.Restore(t.Context(), spec, image, engine.RestoreOptions{})
			if err != nil {
				t.Fatalf("it had a card: %v, has one: %v: %v", had, has, err)
			}
			r := newMachine(t, r0)
			if has {
				r.talksUDP(t, ours)
			} else {
				r.noNetwork(t)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cardPair returns both ends of a network card.
func cardPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "network"), os.NewFile(uintptr(fds[1]), "network card")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// talksUDP sends a datagram from the machine to two addresses and answers each in
// capital letters, as a gateway would.
func (m *machine) talksUDP(t *testing.T, card *os.File) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := card.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := answer(card); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	got := m.must(t, "", `
import socket
for to in ("`+engine.NetGateway+`", "192.0.2.1"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(60)
    s.sendto(b"is anybody there?", (to, 7)); print(*s.recvfrom(100)[::-1])`)
	<-done
	want := "('" + engine.NetGateway + "', 7) b'IS ANYBODY THERE?'\n('192.0.2.1', 7) b'IS ANYBODY THERE?'"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// answer reads packets until there is a UDP datagram over IPv4, and sends it back
// from where it was sent to, in capital letters.
func answer(card *os.File) error {
	p := make([]byte, engine.NetMTU)
	for {
		n, err := card.Read(p)
		if err != nil {
			return err
		}
		if n >= 28 && p[0] == 0x45 && p[9] == unix.IPPROTO_UDP {
			p = p[:n]
			break
		}
	}
	from, _ := netip.AddrFromSlice(p[12:16])
	if want := netip.MustParsePrefix(engine.NetAddress).Addr(); from != want {
		return errors.New("the packet is from " + from.String())
	}
	if sum := onesSum(p[:20]); sum != 0xffff {
		return errors.New("the packet's header has a wrong checksum")
	}
	pseudo := append(append([]byte{}, p[12:20]...), 0, unix.IPPROTO_UDP, p[24], p[25])
	if sum := onesSum(append(pseudo, p[20:]...)); sum != 0xffff {
		return errors.New("the datagram has a wrong checksum")
	}
	for i, c := range p[28:] {
		if 'a' <= c && c <= 'z' {
			p[28+i] = c - 'a' + 'A'
		}
	}
	for _, swap := range [][2]int{{12, 16}, {13, 17}, {14, 18}, {15, 19}, {20, 22}, {21, 23}} {
		p[swap[0]], p[swap[1]] = p[swap[1]], p[swap[0]]
	}
	p[26], p[27] = 0, 0 // none; the header's is a sum, and so stays right
	_, err := card.Write(p)
	return err
}

// onesSum is the internet checksum's sum, which is all ones over what has its own in
// it.
func onesSum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
