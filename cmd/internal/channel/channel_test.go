//go:build linux

package channel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cubby-sandbox/cubby/cmd/internal/channel"
)

const echoPort, httpPort = 49999, 49983

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest runs the guest's end. host is a second descriptor of the host's end:
// what the next host gets, as after a restore.
type guest struct {
	t     *testing.T
	host  int
	conns chan net.Conn // of echoPort

	replaced atomic.Int32 // hosts
}

func startGuest(t *testing.T) (*guest, *channel.Host) {
	t.Helper()
	hostEnd, guestEnd, err := channel.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(hostEnd.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &guest{t: t, host: fd, conns: make(chan net.Conn, 1024)}
	web := &listener{conns: make(chan net.Conn, 1024), closed: make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(handle)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(web) })
	wg.Go(func() {
		err := channel.Serve(ctx, guestEnd, func(port int, c net.Conn) bool {
			switch port {
			case echoPort:
				g.conns <- c
			case httpPort:
				web.conns <- c
			default:
				return false
			}
			return true
		}, func() { g.replaced.Add(1) })
		if err != nil {
			t.Error(err)
		}
	})
	h := newHost(t, hostEnd)
	t.Cleanup(func() {
		cancel()
		_ = srv.Close()
		wg.Wait()
		_ = unix.Close(fd)
	})
	return g, h
}

func newHost(t *testing.T, f *os.File) *channel.Host {
	t.Helper()
	h, err := channel.NewHost(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// restore returns a host that knows nothing of the guest's session, with all
// that the guest sent to the old one still on its way.
func (g *guest) restore(old *channel.Host) *channel.Host {
	g.t.Helper()
	_ = old.Close()
	fd, err := unix.FcntlInt(uintptr(g.host), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		g.t.Fatal(err)
	}
	return newHost(g.t, os.NewFile(uintptr(fd), "restored"))
}

type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{} }

func handle(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	switch r.URL.Path {
	case "/echo":
		_ = rc.EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	case "/wait": // until the client is gone, which is told to /gone
		w.WriteHeader(200)
		_ = rc.Flush()
		<-r.Context().Done()
		r.Context().Value(http.ServerContextKey)
		gone <- struct{}{}
	}
}

var gone = make(chan struct{}, 1)

func dial(t *testing.T, h *channel.Host, port int) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := h.Dial(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func pair(t *testing.T, g *guest, h *channel.Host) (hostSide, guestSide net.Conn) {
	t.Helper()
	hostSide = dial(t, h, echoPort)
	guestSide = <-g.conns
	t.Cleanup(func() { _ = guestSide.Close() })
	return hostSide, guestSide
}

func client(t *testing.T, h *channel.Host) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.Dial(ctx, httpPort) }}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func echo(c *http.Client, n int, seed byte) error {
	want := bytes.Repeat([]byte{seed, 1, 2, 3, 4, 5, 6}, n/7+1)[:n]
	resp, err := c.Post("http://guest/echo", "application/octet-stream", bytes.NewReader(want))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if sha256.Sum256(got) != sha256.Sum256(want) {
		return fmt.Errorf("%d bytes came back as %d others", n, len(got))
	}
	return nil
}

func TestEcho32MB(t *testing.T) {
	_, h := startGuest(t)
	if err := echo(client(t, h), 32<<20, 9); err != nil {
		t.Fatal(err)
	}
}

func TestManyStreamsInParallel(t *testing.T) {
	_, h := startGuest(t)
	c := client(t, h)
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			if err := echo(c, 1+i*531, byte(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestManyIdleConnections: a thousand that nobody uses cost little, hold nobody
// up, and each still works.
func TestManyIdleConnections(t *testing.T) {
	g, h := startGuest(t)
	const n = 1000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // empties what is pooled
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := heap()
	type ends struct{ host, guest net.Conn }
	var idle []ends
	for range n {
		a, b := pair(t, g, h)
		idle = append(idle, ends{a, b})
	}
	if per := (heap() - before) / n; per > 128<<10 {
		t.Errorf("an idle connection costs %d KB of both ends", per>>10)
	}
	if err := echo(client(t, h), 1<<20, 1); err != nil {
		t.Fatal(err)
	}
	for i, e := range idle {
		for _, way := range []ends{e, {e.guest, e.host}} {
			_, _ = way.host.Write([]byte("on"))
			if b := make([]byte, 2); !read(way.guest, b) || string(b) != "on" {
				t.Fatalf("connection %d: %q", i, b)
			}
		}
	}
}

func TestStalledStreamsDoNotHoldOthersUp(t *testing.T) {
	g, h := startGuest(t)
	var stalled sync.WaitGroup
	for range 300 { // nobody reads these, in either direction
		c, gc := pair(t, g, h)
		for _, end := range []net.Conn{c, gc} {
			stalled.Go(func() {
				_ = end.SetWriteDeadline(time.Now().Add(time.Second))
				if n, err := end.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("wrote %d bytes to nobody: %v", n, err)
				}
			})
		}
	}
	stalled.Wait()
	if err := echo(client(t, h), 1<<20, 1); err != nil {
		t.Fatal(err)
	}
}

func TestDeadlines(t *testing.T) {
	g, h := startGuest(t)
	c, gc := pair(t, g, h)
	for name, end := range map[string]net.Conn{"host": c, "guest": gc} {
		t.Run(name, func(t *testing.T) {
			_ = end.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := end.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("read: %v", err)
			}
			_ = end.SetReadDeadline(time.Time{})
			time.AfterFunc(20*time.Millisecond, func() { _ = end.SetReadDeadline(time.Unix(1, 0)) })
			if _, err := end.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("read that was under way: %v", err)
			}
			_ = end.SetDeadline(time.Time{})
		})
	}
	if _, err := c.Write([]byte("on")); err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 2); !read(gc, b) || string(b) != "on" {
		t.Fatalf("after the deadlines: %q", b)
	}
}

func read(c net.Conn, b []byte) bool {
	_, err := io.ReadFull(c, b)
	return err == nil
}

func TestHalfClose(t *testing.T) {
	for _, first := range []string{"host", "guest"} {
		t.Run(first+" ends first", func(t *testing.T) {
			g, h := startGuest(t)
			a, b := pair(t, g, h)
			if first == "guest" {
				a, b = b, a
			}
			_, _ = a.Write([]byte("question"))
			_ = a.(interface{ CloseWrite() error }).CloseWrite()
			if q, err := io.ReadAll(b); err != nil || string(q) != "question" {
				t.Fatalf("%q, %v", q, err)
			}
			_, _ = b.Write([]byte("answer"))
			_ = b.Close()
			if q, err := io.ReadAll(a); err != nil || string(q) != "answer" {
				t.Fatalf("%q, %v", q, err)
			}
		})
	}
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	g, h := startGuest(t)
	for _, first := range []string{"host", "guest"} {
		a, b := pair(t, g, h)
		if first == "guest" {
			a, b = b, a
		}
		want := bytes.Repeat([]byte("x"), 50_000)
		_, _ = a.Write(want)
		_ = a.Close()
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v", first, len(got), err)
		}
	}
}

func TestClientThatLeavesIsNoticed(t *testing.T) {
	_, h := startGuest(t)
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://guest/wait", nil)
	resp, err := client(t, h).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the guest still waits")
	}
}

func TestOtherPortsAreDialledInside(t *testing.T) {
	_, h := startGuest(t)
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", network)
		if err != nil {
			t.Skip(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.Copy(c, c)
				c.Close()
			}
		}()
		c := dial(t, h, port)
		_, _ = c.Write([]byte("hello"))
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
		c = dial(t, h, port) // closed without a word
		_ = c.Close()
		_ = l.Close()

		if _, err := h.Dial(context.Background(), port); !errors.Is(err, channel.ErrRefused) {
			t.Fatalf("closed port: %v", err)
		}
	}
	if _, err := h.Dial(context.Background(), 70000); err == nil || errors.Is(err, channel.ErrRefused) {
		t.Fatalf("bad port: %v", err)
	}
}

func TestNewSessionAfterRestore(t *testing.T) {
	g, h := startGuest(t)
	for i := range int32(5) {
		c, gc := pair(t, g, h)
		_, _ = c.Write([]byte("before"))
		// The old session is left in the middle of a lot of output.
		begun, flood := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(flood)
			for n := 0; ; n++ {
				if _, err := gc.Write(make([]byte, 4096)); err != nil {
					return
				}
				if n == 3 {
					close(begun)
				}
			}
		}()
		<-begun
		h = g.restore(h)
		if err := echo(client(t, h), 200_000, 3); err != nil {
			t.Fatal(err)
		}
		<-flood // ended by the new session
		if _, err := io.ReadAll(gc); !errors.Is(err, channel.ErrReset) {
			t.Fatalf("guest's old connection: %v", err)
		}
		if n := g.replaced.Load(); n != i+1 {
			t.Fatalf("%d hosts were replaced, want %d", n, i+1)
		}
	}
}

func TestGuestThatIsGone(t *testing.T) {
	hostEnd, guestEnd, err := channel.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- channel.Serve(ctx, guestEnd, func(_ int, c net.Conn) bool { return true }, nil)
	}()
	h := newHost(t, hostEnd)
	c := dial(t, h, 49983)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); !errors.Is(err, channel.ErrReset) {
		t.Fatal(err)
	}
	if _, err := h.Dial(context.Background(), 49983); err == nil {
		t.Fatal("connected to nobody")
	}
}

func TestDialWaitsNoLongerThanItsContext(t *testing.T) {
	hostEnd, guestEnd, err := channel.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer guestEnd.Close() // nobody serves it
	h := newHost(t, hostEnd)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := h.Dial(ctx, 49983); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() { _, err := h.Dial(context.Background(), 49983); waiting <- err }()
	time.Sleep(20 * time.Millisecond)
	_ = h.Close()
	if err := <-waiting; !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := h.Dial(context.Background(), 49983); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// A hostile guest may send anything.
func TestGarbageFromTheGuest(t *testing.T) {
	for name, messages := range map[string][][]byte{
		"data before the session": {{0, 'x'}},
		"unknown type":            {{9, 9, 9}},
		"empty":                   {{}},
		"end at once":             {{2}},
		"wrong acknowledgement":   {append([]byte{1}, "other"...), {0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			hostEnd, guestEnd, err := channel.Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer guestEnd.Close()
			h := newHost(t, hostEnd)
			for _, m := range messages {
				_, _ = guestEnd.Write(m)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			if _, err := h.Dial(ctx, 49983); err == nil {
				t.Fatal("connected to nothing")
			}
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	hostEnd, guestEnd, err := channel.Pair()
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	conns := make(chan net.Conn, 1)
	done := make(chan error)
	go func() {
		done <- channel.Serve(ctx, guestEnd, func(_ int, c net.Conn) bool { conns <- c; return true }, nil)
	}()
	h, err := channel.NewHost(hostEnd)
	if err != nil {
		b.Fatal(err)
	}
	c, err := h.Dial(ctx, 49983)
	if err != nil {
		b.Fatal(err)
	}
	go func() { g := <-conns; _, _ = io.Copy(g, g) }()
	msg := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Write(msg)
		if _, err := io.ReadFull(c, msg); err != nil {
			b.Fatal(err)
		}
	}
	_ = h.Close()
	cancel()
	<-done
}
