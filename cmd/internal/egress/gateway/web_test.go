//go:build linux

package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway/web"
)

// request sends a request over a connection and returns the answer's status and body.
func request(t *testing.T, c net.Conn, text string) (int, string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(body)
}

// answerHTTP answers each request of a connection with its host and a header.
func answerHTTP(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body := r.Host + " " + r.Header.Get("Authorization")
		a := http.Response{
			StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
		}
		if a.Write(c) != nil {
			return
		}
	}
}

// TestHTTP: a request to a name that an address stands for is for that name.
func TestHTTP(t *testing.T) {
	own := ownAddr(t)
	server := serve(t, own, func(c *net.TCPConn) { answerHTTP(c) })
	g, told := newGateway(t, Config{Operator: egress.Operator{
		Reach: []string{own.String()}, Resolvers: []netip.AddrPort{resolver(t, map[string]netip.Addr{"ok.test": own})},
	}})
	g.ports.http = server.Port()
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{"ok.test"}}))
	at := netip.AddrPortFrom(b.lookup("ok.test"), server.Port())
	c := b.mustDial(at)
	for range 2 {
		if code, body := request(t, c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"); code != 200 || body != "ok.test " {
			t.Errorf("%d %q", code, body)
		}
	}
	c.Close()
	f := told.wait(t, func(f egress.Flow) bool { return !f.End.IsZero() })
	if f.Sent == 0 || f.Received == 0 || f.Host != "ok.test" || f.Reason != "" {
		t.Errorf("%+v", f)
	}
	code, body := request(t, b.mustDial(at), "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
	if code < 400 || strings.Contains(body, "other.test ") {
		t.Errorf("another host: %d %q", code, body)
	}
	// A change of the rules ends what is kept open.
	kept := b.mustDial(at)
	request(t, kept, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	if err := g.Update("a", policy(t, g, egress.Rules{})); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Read(make([]byte, 1)); err == nil {
		t.Error("it goes on")
	}
}

// TestHeaders: where a rule adds headers, TLS ends in the gateway, and the server's is
// verified.
func TestHeaders(t *testing.T) {
	own := ownAddr(t)
	var servers *web.Authority
	server, servers := certified(t, own, "ok.test", func(c *tls.Conn) { answerHTTP(c) })
	plain := serve(t, own, func(c *net.TCPConn) { answerHTTP(c) })
	inner, err := web.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	operator := egress.Operator{
		Reach: []string{own.String()}, Resolvers: []netip.AddrPort{resolver(t, map[string]netip.Addr{"ok.test": own})},
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(inner.Certificate())
	rules := func(port uint16) egress.Rules {
		return egress.Rules{Allow: []string{"ok.test"}, Headers: []egress.HeaderRule{
			{Host: "ok.test", Port: int(port), Headers: map[string]string{"Authorization": "Bearer the-secret-value"}},
		}}
	}
	connect := func(t *testing.T, roots []byte, port uint16, name string) (*tls.Conn, *Gateway, *flows) {
		g, told := newGateway(t, Config{Operator: operator, Authority: inner.PEM(), Roots: roots})
		b := newBox(t, g, "a", policy(t, g, rules(port)))
		return tls.Client(b.mustDial(netip.AddrPortFrom(b.lookup("ok.test"), port)), &tls.Config{ServerName: name, RootCAs: trusted}), g, told
	}
	const ask = "GET / HTTP/1.1\r\nHost: ok.test:%\r\nAuthorization: none\r\n\r\n"
	asked := func(port uint16) string {
		return strings.ReplaceAll(ask, "%", netip.AddrPortFrom(own, port).String()[len(own.String())+1:])
	}

	t.Run("verified", func(t *testing.T) {
		c, g, _ := connect(t, servers.Certificate(), server.Port(), "ok.test")
		for range 2 {
			code, body := request(t, c, asked(server.Port()))
			if code != 200 || strings.Contains(body, "secret") || !strings.HasSuffix(body, strings.Repeat("*", len("the-secret-value"))) {
				t.Errorf("%d %q", code, body)
			}
		}
		// A rule that is gone, or has another value, ends the connection.
		other := rules(server.Port())
		other.Headers[0].Headers["Authorization"] = "Bearer another-value"
		if err := g.Update("a", policy(t, g, other)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it goes on with the value of a rule that is gone")
		}
	})
	t.Run("not verified", func(t *testing.T) {
		c, _, told := connect(t, inner.Certificate(), server.Port(), "ok.test")
		if code, body := request(t, c, asked(server.Port())); code != 502 {
			t.Errorf("%d %q", code, body)
		}
		c.Close()
		f := told.wait(t, func(f egress.Flow) bool { return !f.End.IsZero() })
		if !strings.Contains(f.Reason, "certificate") || strings.Contains(f.Reason, "secret") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("no TLS outside", func(t *testing.T) {
		c, _, _ := connect(t, servers.Certificate(), plain.Port(), "ok.test")
		if code, body := request(t, c, asked(plain.Port())); code != 502 {
			t.Errorf("%d %q", code, body)
		}
	})
	t.Run("another name", func(t *testing.T) {
		c, _, _ := connect(t, servers.Certificate(), server.Port(), "other.test")
		if err := c.Handshake(); err == nil {
			t.Error("it is answered")
		}
	})
	t.Run("no TLS inside", func(t *testing.T) {
		c, _, _ := connect(t, servers.Certificate(), server.Port(), "ok.test")
		n := c.NetConn()
		_, _ = io.WriteString(n, asked(server.Port()))
		if _, err := n.Read(make([]byte, 1)); err == nil {
			t.Error("it is answered")
		}
	})
}

// TestHeadersBelow: with a rule for the names below one, each connection is held to its own
// name as with a rule of that name: inside, in TLS and in the certificate outside.
func TestHeadersBelow(t *testing.T) {
	own := ownAddr(t)
	server, servers := certified(t, own, "ok.test", func(c *tls.Conn) { answerHTTP(c) })
	inner, err := web.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(inner.Certificate())
	g, _ := newGateway(t, Config{
		Authority: inner.PEM(), Roots: servers.Certificate(),
		Operator: egress.Operator{Reach: []string{own.String()},
			Resolvers: []netip.AddrPort{resolver(t, map[string]netip.Addr{"ok.test": own, "other.test": own})}},
	})
	b := newBox(t, g, "a", policy(t, g, egress.Rules{Allow: []string{"*.test"}, Headers: []egress.HeaderRule{
		{Host: "*.test", Port: int(server.Port()), Headers: map[string]string{"Authorization": "Bearer the-secret-value"}},
	}}))
	_, port, _ := strings.Cut(server.String(), ":")
	ask := func(dialled, sni, host string) (int, string) {
		t.Helper()
		c := tls.Client(b.mustDial(netip.AddrPortFrom(b.lookup(dialled), server.Port())), &tls.Config{ServerName: sni, RootCAs: trusted})
		if err := c.Handshake(); err != nil {
			return 0, err.Error()
		}
		return request(t, c, "GET / HTTP/1.1\r\nHost: "+host+":"+port+"\r\nConnection: close\r\n\r\n")
	}
	if code, body := ask("ok.test", "ok.test", "ok.test"); code != 200 || !strings.HasSuffix(body, strings.Repeat("*", len("the-secret-value"))) {
		t.Errorf("a name below: %d %q", code, body)
	}
	for _, test := range []struct {
		is, dialled, sni, host string
		code                   int
	}{
		{"another name below, whose certificate the server has not", "other.test", "other.test", "other.test", 502},
		{"another name below in TLS", "other.test", "ok.test", "ok.test", 0},
		{"another name below in the request", "ok.test", "ok.test", "other.test", 421},
	} {
		if code, body := ask(test.dialled, test.sni, test.host); code != test.code || strings.Contains(body, "*") {
			t.Errorf("%s: %d %q", test.is, code, body)
		}
	}
}
