//go:build linux

package gateway

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

func sendNothing(fd int) error { return unix.Sendto(fd, nil, 0, nil) }

// TestAttach: what is no card is refused, and is closed.
func TestAttach(t *testing.T) {
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := policy(t, g, egress.Rules{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := g.Attach("a", r, p); err == nil {
		t.Error("a pipe")
	}
	if _, err := r.Stat(); err == nil {
		t.Error("it is open")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	if err := g.Attach("a", os.NewFile(uintptr(fds[0]), "stream"), p); err == nil {
		t.Error("a stream")
	}
	ours, theirs := cardPair(t)
	defer theirs.Close()
	if err := g.Attach("a", ours, p); err != nil {
		t.Fatal(err)
	}
	again, theirs2 := cardPair(t)
	defer theirs2.Close()
	if err := g.Attach("a", again, p); err == nil {
		t.Error("a sandbox that is attached")
	}
	g.Detach("a")
	g.Detach("a")
	if err := g.Update("a", p); err != ErrUnknown {
		t.Errorf("detached: %v", err)
	}
	g.Close()
	last, theirs3 := cardPair(t)
	defer theirs3.Close()
	if err := g.Attach("b", last, p); err == nil {
		t.Error("the gateway is closed")
	}
}

// TestPeerGone: with the sandbox's end of its card its connections end.
func TestPeerGone(t *testing.T) {
	own := ownAddr(t)
	ended := make(chan error, 1)
	server := serve(t, own, func(c *net.TCPConn) {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	})
	g, _ := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Open: true}))
	b.mustDial(server)
	b.card.close() // as a sandbox that is killed
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the server's connection is still open")
	}
	g.Detach("a")
}

// TestUnreadCard: a sandbox that does not read its card can be detached, and is in
// nobody's way.
func TestUnreadCard(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, func(c *net.TCPConn) {
		b := make([]byte, 1<<16)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	echoes := serve(t, own, echo)
	g, _ := newGateway(t, Config{Operator: egress.Operator{Reach: []string{own.String()}}})
	p := policy(t, g, egress.Rules{Open: true})
	ours, theirs := cardPair(t)
	if err := g.Attach("a", ours, p); err != nil {
		t.Fatal(err)
	}
	b := stackOn(t, theirs)
	c := b.mustDial(server)
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	// Pings fill the card when nobody reads it.
	_ = b.card.file.SetReadDeadline(time.Unix(1, 0))
	ping := packet("10.88.0.2", "10.88.0.1", 1, echoRequest())
	_ = b.card.file.SetWriteDeadline(time.Now().Add(2 * time.Second))
	for {
		if b.card.write([][]byte{ping}) != nil {
			break // full in both directions
		}
	}
	other := newBox(t, g, "b", p)
	o := other.mustDial(echoes)
	if _, err := o.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Update("a", policy(t, g, egress.Rules{})); err != nil {
			t.Error(err)
		}
		g.Detach("a")
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it cannot be detached")
	}
}

// TestIdleCard: a card that was never used takes little, and so does one that is no
// longer.
func TestIdleCard(t *testing.T) {
	g, _ := newGateway(t, Config{})
	p := policy(t, g, egress.Rules{})
	memory := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const n = 100
	before, threads := memory(), threadCount(t)
	for i := range n {
		ours, theirs := cardPair(t)
		defer theirs.Close()
		if err := g.Attach(string(rune('0'+i)), ours, p); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	each := (memory() - before) / n
	t.Logf("an idle card takes %d bytes", each)
	if each > 100<<10 {
		t.Errorf("an idle card takes %d bytes", each)
	}
	if more := threadCount(t) - threads; more > n/4 {
		t.Errorf("%d cards take %d threads", n, more)
	}
}

func threadCount(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
