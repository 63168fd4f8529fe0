package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// patience bounds what must happen; a loaded machine needs some.
const patience = 30 * time.Second

// TestProxyHeaders: what is between client and server stays there, and the rest
// arrives as it was sent.
func TestProxyHeaders(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(echo)})
	box := tn.create()
	box.MaskRequestHost = "localhost:${PORT}"
	for _, test := range []struct {
		port        int
		host        string // that the program sees; empty for the client's
		accessToken bool
	}{
		{protocol.EnvdPort, "", true},
		{protocol.CodeInterpreterPort, "localhost:49999", true},
		{3000, "localhost:3000", false},
	} {
		t.Run(strconv.Itoa(test.port), func(t *testing.T) {
			r := tn.to(box, test.port, "POST", "/a%2Fb//c?x=1;y=%zz&&q", strings.NewReader("body"))
			r.Host = "www.example.com"
			for k, v := range map[string]string{
				"X-API-Key": "e2b_key", "Authorization": "Bearer e2b_key", "E2b-Traffic-Access-Token": "tt", "X-Access-Token": box.Token, protocol.HeaderHostToken: "guessed",
				"X-Forwarded-Host": "forged", "X-Forwarded-For": "forged", "Proxy-Connection": "keep-alive", "Cookie": "a=b", "X-Mine": "stays", "User-Agent": "mine",
			} {
				r.Header.Set(k, v)
			}
			got := tn.do(r).echo(t)
			if got.Machine != box.ID || got.Port != test.port || got.Method != "POST" || got.Body != "body" {
				t.Errorf("got %+v", got)
			}
			if got.URI != "/a%2Fb//c?x=1;y=%zz&&q" {
				t.Errorf("request target %q", got.URI)
			}
			for _, k := range []string{"X-Api-Key", "Authorization", "E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", protocol.HeaderHostToken, "X-Forwarded-For", "Proxy-Connection"} {
				if v := got.Header.Get(k); v != "" {
					t.Errorf("the sandbox got %s: %q", k, v)
				}
			}
			for k, v := range map[string]string{"Cookie": "a=b", "X-Mine": "stays", "User-Agent": "mine"} {
				if got.Header.Get(k) != v {
					t.Errorf("%s: %q", k, got.Header.Get(k))
				}
			}
			if has := got.Header.Get("X-Access-Token") != ""; has != test.accessToken {
				t.Errorf("access token passed: %v", has)
			}
			host, forwarded := test.host, "www.example.com"
			if host == "" {
				host, forwarded = "www.example.com", ""
			}
			if got.Host != host || got.Header.Get("X-Forwarded-Host") != forwarded {
				t.Errorf("host %q, X-Forwarded-Host %q", got.Host, got.Header.Get("X-Forwarded-Host"))
			}
		})
	}
	t.Run("other authorisation passes", func(t *testing.T) {
		r := tn.to(box, 3000, "GET", "/", nil)
		r.SetBasicAuth("root", "")
		if got := tn.do(r).echo(t); got.Header.Get("Authorization") == "" {
			t.Error("the program's own was taken")
		}
	})
}

// TestHostOnly: what the host tells a guest is nobody else's to say, in whatever
// form it is said.
func TestHostOnly(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(echo)})
	box := tn.create()
	for target, blocked := range map[string]bool{
		"/init": true, "/INIT": true, "//init": true, "/./init": true, "/x/../init": true, "/init/": true, "/%69nit": true, "/x%2f..%2finit": true,
		"/cubby/oom": true, "/Cubby/oom": true, "//cubby//oom": true, "/cubby%2Foom": true, "/%63ubby/oom": true, "/cubby": true, "/x/../../cubby/oom": true,
		"http://x/init": true,
		"/files":        false, "/initial": false, "/cubbyhole": false, "/x/init": false,
	} {
		t.Run(target, func(t *testing.T) {
			for port, want := range map[int]bool{protocol.EnvdPort: blocked, 3000: false} {
				if status := tn.raw("POST "+target, box.ID, port); (status == http.StatusNotFound) != want {
					t.Errorf("port %d: %d", port, status)
				}
			}
		})
	}
	t.Run("opaque", func(t *testing.T) {
		// Go's client would send what follows the scheme as it is.
		if status := tn.raw("POST x:http:/init", box.ID, protocol.EnvdPort); status != http.StatusBadRequest {
			t.Errorf("%d", status)
		}
	})
	t.Run("in a tunnel", func(t *testing.T) {
		c := tn.dial()
		br := tn.connect(c, fmt.Sprintf("49983-%s.dom:80", box.ID))
		fmt.Fprintf(c, "POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("%v %v", resp, err)
		}
	})
}

// raw sends a request line that Go's client would not, and returns the status.
func (tn *town) raw(line, id string, port int) int {
	tn.t.Helper()
	c := tn.dial()
	defer c.Close()
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", line, id, port)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		tn.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// connect opens a tunnel in c and returns what reads from it.
func (tn *town) connect(c net.Conn, authority string) *bufio.Reader {
	tn.t.Helper()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", authority)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		tn.t.Fatalf("CONNECT %s: %v %v", authority, resp, err)
	}
	return br
}

func TestTrafficToken(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(echo)})
	box := tn.create()
	box.TrafficToken = "secret"
	const missing = "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
	const invalid = "Provided token in header 'e2b-traffic-access-token' is invalid"
	for _, test := range []struct {
		port  int
		token string
		says  string
	}{
		{3000, "", missing}, {3000, "wrong", invalid}, {3000, "secret", ""},
		{protocol.CodeInterpreterPort, "", missing}, {protocol.CodeInterpreterPort, "secret", ""},
		{protocol.EnvdPort, "", ""}, // it has a token of its own
	} {
		t.Run(fmt.Sprintf("%d %q", test.port, test.token), func(t *testing.T) {
			r := tn.to(box, test.port, "GET", "/", nil)
			if test.token != "" {
				r.Header.Set("e2b-traffic-access-token", test.token)
			}
			got := tn.do(r)
			if test.says == "" {
				got.echo(t)
				return
			}
			var body protocol.ProxyError
			if err := json.Unmarshal(got.body, &body); err != nil || got.status != 403 || body.Code != 403 ||
				body.SandboxID != box.ID || !strings.Contains(body.Message, test.says) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	t.Run("in a tunnel, with each request", func(t *testing.T) {
		c := tn.dial()
		br := tn.connect(c, fmt.Sprintf("3000-%s.dom:80", box.ID))
		for token, want := range map[string]int{"": 403, "secret": 200} {
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nE2b-Traffic-Access-Token: %s\r\n\r\n", token)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%q: %v %v", token, resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
	})
}

// TestClosedPort: E2B's answer, at once, by every way.
func TestClosedPort(t *testing.T) {
	tn := newTown(t, Config{}, nil)
	box := tn.create()
	want := fmt.Sprintf(`{"sandboxId":"%s","message":"The sandbox is running but port is not open","port":3000,"code":502}`, box.ID)
	if got := tn.do(tn.to(box, 3000, "GET", "/", nil)); got.status != 502 || strings.TrimSpace(string(got.body)) != want {
		t.Errorf("%d %s", got.status, got.body)
	}
	c := tn.dial()
	fmt.Fprintf(c, "CONNECT 3000-%s.x:80 HTTP/1.1\r\nHost: x\r\n\r\n", box.ID)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 502 {
		t.Errorf("CONNECT: %v %v", resp, err)
	}
}

// TestTooManyConnections: a sandbox has a number of connections, and one that is
// given back can be had again.
func TestTooManyConnections(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(echo)})
	box := tn.create()
	conns := &tn.server.liveSandbox(portsOf(box)).conns
	conns.Store(maxConns - 1)
	tn.do(tn.to(box, 3000, "GET", "/", nil)).echo(t)
	for conns.Load() != maxConns-1 { // the request is counted until its handler is through
		runtime.Gosched()
	}
	conns.Store(maxConns)
	if got := tn.do(tn.to(box, 3000, "GET", "/", nil)); got.status != 429 || !strings.Contains(string(got.body), `"code":429`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := conns.Load(); n != maxConns {
		t.Errorf("%d are counted", n)
	}
}

// TestHostNamesThroughAProxy is how clients reach a sandbox that insist on host
// names, with no DNS: HTTP_PROXY.
func TestHostNamesThroughAProxy(t *testing.T) {
	tn := newTown(t, Config{}, nil)
	box := tn.create()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://49999-"+box.ID+"-6532622b.sbx.local/execute?x", strings.NewReader("code"))
	got := do(t, tn.proxied(), r).echo(t)
	if got.Machine != box.ID || got.Port != 49999 || got.URI != "/execute?x" || got.Body != "code" || got.Host != "49999-"+box.ID+"-6532622b.sbx.local" {
		t.Errorf("got %+v", got)
	}
}

// TestTunnels: what a client sends through CONNECT.
func TestTunnels(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(upgrade)})
	box := tn.create()
	t.Run("requests to the guest's own port", func(t *testing.T) {
		c := tn.dial()
		br := tn.connect(c, "49983-"+box.ID+".dom:80")
		for range 3 {
			fmt.Fprintf(c, "GET /files HTTP/1.1\r\nHost: x\r\nX-API-Key: k\r\n\r\n")
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			if got := (answered{status: resp.StatusCode, body: b}).echo(t); got.Port != 49983 || got.Header.Get("X-Api-Key") != "" {
				t.Fatalf("got %+v", got)
			}
		}
	})
	t.Run("requests to the server itself", func(t *testing.T) {
		c := tn.dial()
		br := tn.connect(c, tn.Listener.Addr().String())
		for request, want := range map[string]int{"GET /health": 200, "CONNECT x:1": 403} {
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\n\r\n", request)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%s: %v %v", request, resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
	})
	t.Run("bytes to a program's port, sent before the answer", func(t *testing.T) {
		c := tn.dial()
		fmt.Fprintf(c, "CONNECT 3000-%s.dom:8000 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", box.ID)
		br := bufio.NewReader(c)
		for _, want := range []int{200, 101} {
			resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%v %v", resp, err)
			}
		}
		parrot(t, c, br)
	})
}

// TestTunnelToNobody: E2B's SDKs understand an answer from a sandbox, and none of
// a proxy. A port that may speak anything refuses the tunnel itself.
func TestTunnelToNobody(t *testing.T) {
	tn := newTown(t, Config{}, nil)
	for _, port := range []int{protocol.EnvdPort, protocol.CodeInterpreterPort} {
		c := tn.dial()
		br := tn.connect(c, fmt.Sprintf("%d-inone.dom:80", port))
		fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if want := `{"sandboxId":"inone","message":"The sandbox was not found","code":502}`; err != nil || resp.StatusCode != 502 || strings.TrimSpace(string(body)) != want {
			t.Errorf("%d: %v %s %v", port, resp.Status, body, err)
		}
		if _, err := br.ReadByte(); err != io.EOF {
			t.Errorf("%d: the tunnel stays open: %v", port, err)
		}
	}
	for _, authority := range []string{"3000-inone.dom:80", "49983-inone.dom:443"} {
		c := tn.dial()
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", authority)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 502 {
			t.Errorf("%s: %v %v", authority, resp, err)
		}
	}
}

// upgrade answers 101 and then every byte, as a WebSocket server would.
func upgrade(w http.ResponseWriter, r *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(c, rw)
}

// parrot sends lines and expects them back.
func parrot(t *testing.T, w io.Writer, r *bufio.Reader) {
	t.Helper()
	for i := range 3 {
		line := fmt.Sprintln("line", i)
		_, _ = io.WriteString(w, line)
		if got, err := r.ReadString('\n'); err != nil || got != line {
			t.Fatalf("%q %v", got, err)
		}
	}
}

// upgraded opens a connection like a WebSocket's to port 3000.
func (tn *town) upgraded(c net.Conn, id string) *bufio.Reader {
	tn.t.Helper()
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: 3000-%s.x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id)
	br := bufio.NewReader(c)
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "websocket" {
		tn.t.Fatalf("%v %v", resp, err)
	}
	return br
}

func TestUpgrade(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(upgrade)})
	c := tn.dial()
	parrot(t, c, tn.upgraded(c, tn.create().ID))
}

// TestFullDuplex: an answer may begin, and a client may read it, before the
// request has ended; and each byte of a stream travels at once.
func TestFullDuplex(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.WriteHeader(200)
		_ = rc.Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	})})
	pr, pw := io.Pipe()
	resp, err := tn.client.Do(tn.to(tn.create(), 3000, "POST", "/", pr))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parrot(t, pw, bufio.NewReader(resp.Body))
	pw.Close()
}

// TestManyStreams: hundreds of streams at once, and none is cut or mixed up.
func TestManyStreams(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		for i := range 50 {
			fmt.Fprintf(w, "%s %d\n", b, i)
			_ = http.NewResponseController(w).Flush()
		}
	})})
	boxes := []string{tn.create().ID, tn.create().ID}
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", tn.URL, strings.NewReader(strconv.Itoa(i)))
			r.Host = "3000-" + boxes[i%2] + ".x"
			resp, err := tn.client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			var want bytes.Buffer
			for n := range 50 {
				fmt.Fprintf(&want, "%d %d\n", i, n)
			}
			if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("stream %d: %d of %d bytes, %v", i, len(got), want.Len(), err)
			}
		})
	}
	wg.Wait()
}

// endless answers until nobody reads it any more, and counts what it wrote.
type endless struct{ written atomic.Int64 }

func (e *endless) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	chunk := make([]byte, 16<<10)
	for {
		n, err := w.Write(chunk)
		if err != nil {
			return
		}
		e.written.Add(int64(n))
	}
}

// stalled waits until every buffer between e and a client that does not read is
// full.
func (e *endless) stalled() {
	for before := int64(-1); before != e.written.Load(); time.Sleep(300 * time.Millisecond) {
		before = e.written.Load()
	}
}

// waiting answers a first byte and then nothing.
func waiting(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, ".")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestKilledDuringAStream: the client's connection breaks. An answer that ended
// in order would be taken for whole.
func TestKilledDuringAStream(t *testing.T) {
	flood := &endless{}
	ports := map[int]http.Handler{
		3000: http.HandlerFunc(upgrade), 4000: http.HandlerFunc(waiting), 5000: flood,
		6000: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		7000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Content-Length", "")
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil { // an answer that only the connection's end ends
				_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n.")
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
		}),
	}
	setup := func(t *testing.T) (*town, string, func()) {
		tn := newTown(t, Config{}, ports)
		box := tn.create()
		return tn, box.ID, func() {
			if err := box.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	for name, port := range map[string]int{"quiet": 4000, "busy": 5000, "without a length": 7000} {
		t.Run(name, func(t *testing.T) {
			tn, id, kill := setup(t)
			r, _ := http.NewRequestWithContext(t.Context(), "GET", tn.URL, nil)
			r.Host = fmt.Sprintf("%d-%s.x", port, id)
			resp, err := tn.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			kill()
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("the answer ended in order")
			}
		})
	}
	t.Run("before the answer", func(t *testing.T) {
		tn, id, kill := setup(t)
		r, _ := http.NewRequestWithContext(t.Context(), "GET", tn.URL, nil)
		r.Host = "6000-" + id + ".x"
		time.AfterFunc(50*time.Millisecond, kill) // sooner is another 502, and right as well
		got := do(t, tn.client, r)
		if got.status != 502 || !strings.Contains(string(got.body), "The sandbox was not found") {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	t.Run("upgraded", func(t *testing.T) {
		tn, id, kill := setup(t)
		c := tn.dial()
		br := tn.upgraded(c, id)
		parrot(t, c, br)
		kill()
		broken(t, c, br)
	})
	t.Run("tunnel", func(t *testing.T) {
		tn, id, kill := setup(t)
		c := tn.dial()
		br := tn.connect(c, "3000-"+id+".x:80")
		kill()
		broken(t, c, br)
	})
	t.Run("a client that does not read", func(t *testing.T) {
		tn, id, kill := setup(t)
		c := tn.dial()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 5000-%s.x\r\n\r\n", id)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		flood.stalled()
		kill()
		tn.Close() // waits for the request
	})
	t.Run("a tunnel whose client does not read", func(t *testing.T) {
		tn, id, kill := setup(t)
		c := tn.dial()
		br := tn.connect(c, "5000-"+id+".x:80")
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := br.ReadByte(); err != nil {
			t.Fatal(err)
		}
		flood.stalled()
		kill() // goleak sees whether its goroutines end
	})
}

// broken waits for the end of a connection.
func broken(t *testing.T, c net.Conn, r io.Reader) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	var timeout net.Error
	if _, err := io.Copy(io.Discard, r); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection is still there")
	}
}

// TestClientThatLeaves ends what it asked for, inside.
func TestClientThatLeaves(t *testing.T) {
	left := make(chan struct{}, 1)
	tn := newTown(t, Config{}, map[int]http.Handler{4000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		waiting(w, r)
		left <- struct{}{}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := tn.client.Do(tn.to(tn.create(), 4000, "GET", "/", nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the sandbox still answers")
	}
}

// TestHalfARequest: a body of which the client sent half is never taken for
// whole, and nothing waits for the rest of it.
func TestHalfARequest(t *testing.T) {
	read := make(chan error, 1)
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})})
	box := tn.create()
	for name, body := range map[string]string{
		"with a length": "Content-Length: 100\r\n\r\nhalf",
		"in chunks":     "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := tn.dial()
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: 3000-%s.x\r\n%s", box.ID, body)
			c.Close()
			select {
			case err := <-read:
				if err == nil {
					t.Error("half a body looked whole")
				}
			case <-time.After(patience):
				t.Error("the sandbox still waits")
			}
		})
	}
}

// TestSlowClient: bytes that come one by one arrive one by one, and hold nobody up.
func TestSlowClient(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		for b := make([]byte, 1); ; {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	})})
	box := tn.create()
	pr, pw := io.Pipe()
	answer := make(chan answered)
	go func() { answer <- tn.do(tn.to(box, 3000, "PUT", "/slow", pr)) }()
	for range 100 {
		_, _ = pw.Write([]byte("x"))
		if got := tn.do(tn.to(box, 3000, "POST", "/", strings.NewReader("quick"))); string(got.body) != "quick" {
			t.Fatalf("%d %q", got.status, got.body)
		}
	}
	pw.Close()
	if got := <-answer; got.err != nil || string(got.body) != strings.Repeat("x", 100) {
		t.Errorf("%q %v", got.body, got.err)
	}
}

// TestHostileAnswers: what a sandbox says is bounded and never a panic.
func TestHostileAnswers(t *testing.T) {
	say := func(head string, forever string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, err = io.WriteString(c, head)
			for err == nil && forever != "" {
				_, err = io.WriteString(c, forever)
			}
		})
	}
	cases := map[string]http.Handler{
		"no HTTP":                  say("SSH-2.0-OpenSSH\r\n", ""),
		"nothing":                  say("", ""),
		"status 0":                 say("HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", ""),
		"status 42":                say("HTTP/1.1 042 X\r\nContent-Length: 0\r\n\r\n", ""),
		"endless header":           say("HTTP/1.1 200 OK\r\n", "X-Y: "+strings.Repeat("z", 1000)+"\r\n"),
		"endless line":             say("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("z", 1000)),
		"endless early hints":      say("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
		"an upgrade nobody asked":  say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", ""),
		"two lengths":              say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", ""),
		"header with a line break": say("HTTP/1.1 200 OK\r\nX: a\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", ""),
	}
	ports := map[int]http.Handler{}
	names := map[int]string{}
	for name, h := range cases {
		port := 3000 + len(ports)
		ports[port], names[port] = h, name
	}
	tn := newTown(t, Config{}, ports)
	box := tn.create()
	for port, name := range names {
		t.Run(name, func(t *testing.T) {
			got := tn.do(tn.to(box, port, "GET", "/", nil))
			var body protocol.ProxyError
			if err := json.Unmarshal(got.body, &body); err != nil || got.status != 502 || body.SandboxID != box.ID ||
				body.Port != port || strings.Contains(body.Message, "not found") {
				t.Errorf("%d %.200s", got.status, got.body)
			}
		})
	}
	if log := tn.log.String(); strings.Contains(log, "panic") {
		t.Error(log)
	}
}

// TestLargeBodies pass in both directions at once.
func TestLargeBodies(t *testing.T) {
	tn := newTown(t, Config{}, map[int]http.Handler{3000: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})})
	want := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	got := tn.do(tn.to(tn.create(), 3000, "POST", "/", bytes.NewReader(want)))
	if got.err != nil || sha256.Sum256(got.body) != sha256.Sum256(want) {
		t.Errorf("%d bytes, %v", len(got.body), got.err)
	}
}
