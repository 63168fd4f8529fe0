//go:build linux

package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// socks runs a SOCKS5 server (RFC 1928) that wants a password (RFC 1929), connects to
// whatever it is asked for, names of .test at one address, and keeps what that was.
func socks(t *testing.T, at, test netip.Addr) (addr netip.AddrPort, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	addr = serve(t, at, func(c *net.TCPConn) {
		read := func(n int) []byte {
			b := make([]byte, n)
			_, _ = io.ReadFull(c, b)
			return b
		}
		read(int(read(2)[1]))
		_, _ = c.Write([]byte{5, 2})
		name := read(int(read(2)[1]))
		password := read(int(read(1)[0]))
		if string(name) != "user" || string(password) != "secret" {
			_, _ = c.Write([]byte{1, 1})
			return
		}
		_, _ = c.Write([]byte{1, 0})
		var host string
		switch read(4)[3] {
		case 1:
			host = netip.AddrFrom4([4]byte(read(4))).String()
		case 3:
			host = string(read(int(read(1)[0])))
		}
		port := binary.BigEndian.Uint16(read(2))
		mu.Lock()
		all = append(all, net.JoinHostPort(host, strconv.Itoa(int(port))))
		mu.Unlock()
		if strings.HasSuffix(host, ".test") {
			host = test.String()
		}
		up, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil {
			_, _ = c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
			return
		}
		defer up.Close()
		_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		go func() {
			_, _ = io.Copy(up, c)
			_ = up.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(c, up)
	})
	return addr, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// tunnel runs an HTTP proxy with CONNECT, which asks, connects and tells like socks.
func tunnel(t *testing.T, at, test netip.Addr) (addr netip.AddrPort, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	addr = serve(t, at, func(c *net.TCPConn) {
		answer := func(status string) { _, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\n\r\n") }
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil || r.Method != http.MethodConnect {
			answer("400 Bad Request")
			return
		}
		r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
		if name, password, _ := r.BasicAuth(); name != "user" || password != "secret" {
			answer("407 Proxy Authentication Required")
			return
		}
		mu.Lock()
		all = append(all, r.Host)
		mu.Unlock()
		host, port, _ := net.SplitHostPort(r.Host)
		if strings.HasSuffix(host, ".test") {
			host = test.String()
		}
		up, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			answer("502 Bad Gateway")
			return
		}
		defer up.Close()
		answer("200 OK")
		go func() {
			_, _ = io.Copy(up, in)
			_ = up.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(c, up)
	})
	return addr, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestConnectAnswers: what an HTTP proxy says instead of connecting is an error that does
// not hang, and shows nothing that it should not.
func TestConnectAnswers(t *testing.T) {
	for name, test := range map[string]struct{ says, want string }{
		"refused":          {"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"},
		"no HTTP":          {"SSH-2.0-x\r\n\r\n", "none of HTTP"},
		"ends in the head": {"HTTP/1.1 200 OK\r\n", "EOF"},
		"never ends":       {"HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", maxConnectAnswer), "no end"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			go func() {
				_, _ = http.ReadRequest(bufio.NewReader(b))
				_, _ = io.WriteString(b, test.says)
				b.Close()
			}()
			err := connectHTTP(t.Context(), a, &egress.Proxy{HTTP: true, Username: "user", Password: "hidden"}, "ok.test:1")
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hidden") {
				t.Error(err)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		go func() { _, _ = http.ReadRequest(bufio.NewReader(b)) }()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := connectHTTP(ctx, a, &egress.Proxy{HTTP: true}, "ok.test:1"); err == nil {
			t.Error("it is connected")
		}
	})
}

// TestProxy: connections go through the owner's proxy, and through it through the
// sandbox's own, which are told addresses unless they resolve names.
func TestProxy(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, echo)
	port := strconv.Itoa(int(server.Port()))
	names := map[string]netip.Addr{"ok.test": own, "proxy.test": loopback}
	for name, test := range map[string]struct {
		owners, sandboxes bool
		resolves          bool
		http              bool // the proxies are of HTTP
		password          string
		unreachable       bool   // the sandbox's proxy is where it may not reach
		want              string // that a proxy is asked for at the end; empty: refused
	}{
		"the owner's":                 {owners: true, password: "secret", want: own.String()},
		"the owner's, which resolves": {owners: true, resolves: true, password: "secret", want: "ok.test"},
		"the sandbox's":               {sandboxes: true, password: "secret", want: own.String()},
		"both":                        {owners: true, sandboxes: true, password: "secret", want: own.String()},
		"a wrong password":            {owners: true, password: "wrong"},
		"HTTP":                        {owners: true, http: true, password: "secret", want: own.String()},
		"HTTP, which resolves":        {owners: true, http: true, resolves: true, password: "secret", want: "ok.test"},
		"HTTP, a wrong password":      {owners: true, http: true, password: "wrong"},
		"one that is closed to it":    {sandboxes: true, password: "secret", unreachable: true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := socks
			if test.http {
				proxy = tunnel
			}
			first, askedFirst := proxy(t, loopback, own)
			second, askedSecond := proxy(t, own, own)
			op := egress.Operator{Reach: []string{own.String()}, Resolvers: []netip.AddrPort{resolver(t, names)}}
			rules := egress.Rules{Allow: []string{"ok.test"}}
			if test.owners { // may be anywhere
				op.Proxy = &egress.Proxy{HTTP: test.http, Address: first.String(), Username: "user", Password: test.password, Resolves: test.resolves}
			}
			if test.sandboxes {
				rules.Proxy = &egress.Proxy{Address: second.String(), Username: "user", Password: test.password}
			}
			if test.unreachable {
				rules.Proxy.Address = net.JoinHostPort("proxy.test", strconv.Itoa(int(first.Port())))
			}
			g, told := newGateway(t, Config{Operator: op})
			b := newBox(t, g, "a", policy(t, g, rules))
			c, err := b.dial(netip.AddrPortFrom(b.lookup("ok.test"), server.Port()))
			if test.want == "" {
				if err == nil {
					t.Fatal("it is connected")
				}
				f := told.wait(t, func(f egress.Flow) bool { return strings.Contains(f.Reason, "proxy") })
				if strings.Contains(f.Reason, test.password) {
					t.Errorf("%+v", f)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			want := [][]string{nil, nil}
			last := net.JoinHostPort(test.want, port)
			switch {
			case test.owners && test.sandboxes:
				want = [][]string{{second.String()}, {last}}
			case test.owners:
				want[0] = []string{last}
			default:
				want[1] = []string{last}
			}
			if !slices.Equal(askedFirst(), want[0]) || !slices.Equal(askedSecond(), want[1]) {
				t.Errorf("asked for %v and %v, want %v", askedFirst(), askedSecond(), want)
			}
			u := b.udp(netip.AddrPortFrom(b.lookup("ok.test"), 9))
			_, _ = u.Write([]byte("x"))
			told.wait(t, func(f egress.Flow) bool { return f.Proto == egress.UDP && strings.Contains(f.Reason, "proxy") })
		})
	}
}
