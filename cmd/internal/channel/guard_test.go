//go:build linux

package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// frame is one of HTTP/2's.
func frame(kind byte, payload []byte) []byte {
	n := len(payload)
	return append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, 0, 0, 0, 0, 0}, payload...)
}

func setting(id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, id), value)
}

func TestGuard(t *testing.T) {
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	large, ours := setting(settingMaxFrameSize, 1<<20), setting(settingMaxFrameSize, maxUpload)
	for _, test := range []struct {
		name string
		sent []byte
		bad  bool
	}{
		{"ours", join(frame(frameSettings, ours), frame(0, []byte("data")), frame(frameSettings, nil)), false},
		{"large frames", frame(frameSettings, large), true},
		{"among others", frame(frameSettings, join(setting(3, 100), setting(4, 1<<30), large)), true},
		{"later", join(frame(frameSettings, ours), frame(0, make([]byte, 300)), frame(frameSettings, large)), true},
		{"data that looks like it", frame(0, frame(frameSettings, large)), false},
		{"another setting of that value", frame(frameSettings, setting(4, 1<<20)), false},
		{"half a setting", frame(frameSettings, large[:5]), false}, // Go's client refuses it
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 7, len(test.sent)} { // however it is cut
				var g guard
				var err error
				for rest := test.sent; len(rest) > 0 && err == nil; {
					m := min(size, len(rest))
					err = g.pass(rest[:m])
					rest = rest[m:]
				}
				if (err != nil) != test.bad {
					t.Errorf("in pieces of %d: %v", size, err)
				}
			}
		})
	}
}

// FuzzGuard: however a stream is cut, the same is found in it.
func FuzzGuard(f *testing.F) {
	f.Add(frame(frameSettings, setting(settingMaxFrameSize, 1<<20)), 3)
	f.Add(frame(0, []byte("data")), 1)
	f.Fuzz(func(t *testing.T, sent []byte, cut int) {
		if cut < 0 || cut > len(sent) {
			return
		}
		var whole, parts guard
		want := whole.pass(sent)
		got := parts.pass(sent[:cut])
		if got == nil {
			got = parts.pass(sent[cut:])
		}
		if (want == nil) != (got == nil) || want == nil && whole != parts {
			t.Fatalf("whole: %v %+v, cut: %v %+v", want, whole, got, parts)
		}
	})
}

// between passes messages from src to dst until either is closed, and stops while
// somebody holds mu.
func between(dst, src *os.File, mu *sync.Mutex) {
	buf := make([]byte, maxPayload+1)
	for {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // waits for whoever stops the traffic
		n, err := src.Read(buf)
		if err == nil {
			_, err = dst.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// TestGuestThatStopsReading loses its session, so that nobody waits for it for
// ever, and may come back.
func TestGuestThatStopsReading(t *testing.T) {
	hostEnd, a, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	b, guestEnd, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var toGuest, toHost sync.Mutex
	all.Go(func() { between(b, a, &toGuest) })
	all.Go(func() { between(a, b, &toHost) })
	all.Go(func() {
		err := Serve(ctx, guestEnd, func(_ int, c net.Conn) bool {
			all.Go(func() { _, _ = io.Copy(c, c); c.Close() })
			return true
		}, nil)
		if err != nil {
			t.Error(err)
		}
	})
	h, err := newHost(hostEnd, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = h.Close()
		cancel()
		a.Close()
		b.Close()
		all.Wait()
	}()
	var conns []net.Conn
	for range 64 { // together they may send more than the sockets hold
		c, err := h.Dial(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	toGuest.Lock()
	for _, c := range conns {
		all.Go(func() { _, _ = c.Write(make([]byte, 1<<20)) })
	}
	for _, c := range conns {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, ErrReset) {
			t.Fatalf("a connection to a guest that reads nothing: %v", err)
		}
	}
	// What a connection begins with may still fit into the sockets: then only its
	// context ends the wait.
	short, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	if _, err := h.Dial(short, 1); err == nil {
		t.Error("connected to a guest that reads nothing")
	}
	toGuest.Unlock()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := h.Dial(ctx, 1)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest reads again: %v", err)
		}
	}
}
