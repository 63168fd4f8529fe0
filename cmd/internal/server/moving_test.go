package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// places waits until as many of a sandbox's places are taken.
func (l *liveSandbox) places(t *testing.T, n int32) {
	t.Helper()
	for end := time.Now().Add(patience); l.conns.Load() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d places are taken, not %d", l.conns.Load(), n)
		}
	}
}

// TestPlacesOfThoseWhoDoNotMove fills a sandbox's places with requests whose bodies
// do not go on and with answers that nobody reads. It recovers by itself, and the
// control plane answers meanwhile.
func TestPlacesOfThoseWhoDoNotMove(t *testing.T) {
	flood := &endless{}
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(echo), 3001: flood})
	tn.server.allowance = allowance{usual: time.Hour, short: 500 * time.Millisecond}
	box := tn.create()
	l := tn.server.liveSandbox(portsOf(box))
	half := func(port int, head string) net.Conn {
		c := tn.dial()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %d-%s.x\r\n%s", port, box.ID, head)
		return c
	}

	early := half(3000, "Content-Length: 100\r\n\r\nhalf") // while there is room: it may take its time
	l.places(t, 1)
	for l.conns.Load() < maxConns-3 { // others, who move
		l.conns.Add(1)
	}
	late := []net.Conn{
		half(3000, "Content-Length: 100\r\n\r\nhalf"),
		half(3000, "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
		half(3001, "Content-Length: 0\r\n\r\n"), // and does not read
	}
	l.places(t, maxConns)
	if got := tn.do(tn.to(box, 3000, "GET", "/", nil)); got.status != 429 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", tn.URL+"/sandboxes/"+box.ID, nil)
	if got := tn.do(r); got.status != 200 {
		t.Errorf("the control plane: %d %s", got.status, got.body)
	}
	l.places(t, maxConns-3)
	tn.do(tn.to(box, 3000, "GET", "/", nil)).echo(t)
	for _, c := range late[:2] {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
			t.Errorf("%+v %v", resp, err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(late[2]), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err == nil {
		t.Error("an answer that was cut looks whole")
	}

	// Bodies and answers that move are not bounded in time.
	slow := half(3000, "Content-Length: 20\r\n\r\n")
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		fmt.Fprint(slow, "x")
	}
	for c, want := range map[net.Conn]string{slow: strings.Repeat("x", 20), early: "half" + strings.Repeat("y", 96)} {
		fmt.Fprint(c, strings.TrimLeft(want, "xhalf"))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		if got := (answered{status: resp.StatusCode, body: b}).echo(t); got.Body != want {
			t.Errorf("got %q, want %q", got.Body, want)
		}
	}
}
