//go:build linux

package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// proxy asks for a user and password and notes who wanted to be led where. It is one of
// SOCKS5 (RFC 1928, 1929) or of HTTP, with CONNECT and Basic (RFC 9110, 9.3.6; RFC 7617).
type proxy struct {
	http           bool
	user, password string
	resolve        func(name string) string // nil: names are refused

	mu  sync.Mutex
	led []string // "user host:port"
}

// take returns what was noted since the last call.
func (s *proxy) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	led := s.led
	s.led = nil
	return led
}

func (s *proxy) listen(t *testing.T, at string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Skipf("the world's proxy cannot be started: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				// The client sees that it ends.
				if s.http {
					_ = s.serveHTTP(c)
				} else {
					_ = s.serveSOCKS(c)
				}
			}()
		}
	}()
}

func (s *proxy) serveSOCKS(c net.Conn) error {
	r := bufio.NewReader(c)
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(r, b) // zeros are refused below
		return b
	}
	methods := read(int(read(2)[1]))
	if !slices.Contains(methods, 2) {
		_, err := c.Write([]byte{5, 0xff})
		return err
	}
	if _, err := c.Write([]byte{5, 2}); err != nil {
		return err
	}
	user := string(read(int(read(2)[1])))
	password := string(read(int(read(1)[0])))
	if user != s.user || password != s.password {
		_, err := c.Write([]byte{1, 1})
		return err
	}
	if _, err := c.Write([]byte{1, 0}); err != nil {
		return err
	}
	head, host := read(4), ""
	switch head[3] {
	case 1:
		host = net.IP(read(4)).String()
	case 3:
		host = string(read(int(read(1)[0])))
	}
	port := int(binary.BigEndian.Uint16(read(2)))
	up, err := s.lead(user, host, port)
	if err != nil {
		_, err := c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return err
	}
	defer up.Close()
	if _, err := c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	return between(c, r, up)
}

func (s *proxy) serveHTTP(c net.Conn) error {
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	refuse := func(status int) error {
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
		return err
	}
	credentials := &http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}
	user, password, _ := credentials.BasicAuth()
	host, portText, err := net.SplitHostPort(req.RequestURI)
	port, numberErr := strconv.Atoi(portText)
	switch {
	case req.Method != http.MethodConnect || err != nil || numberErr != nil || req.Host != req.RequestURI:
		return refuse(http.StatusBadRequest)
	case user != s.user || password != s.password:
		return refuse(http.StatusProxyAuthRequired)
	}
	up, err := s.lead(user, host, port)
	if err != nil {
		return refuse(http.StatusBadGateway)
	}
	defer up.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: 1.1 world\r\n\r\n"); err != nil {
		return err
	}
	return between(c, r, up)
}

// lead notes who is led where and connects there.
func (s *proxy) lead(user, host string, port int) (*net.TCPConn, error) {
	s.mu.Lock()
	s.led = append(s.led, fmt.Sprintf("%s %s:%d", user, host, port))
	s.mu.Unlock()
	if net.ParseIP(host) == nil && s.resolve != nil {
		host = s.resolve(host)
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, fmt.Errorf("%q is no address", host)
	}
	return net.DialTCP("tcp", nil, &net.TCPAddr{IP: ip, Port: port})
}

// between copies both ways until up has ended.
func between(c net.Conn, from io.Reader, up *net.TCPConn) error {
	go func() {
		_, _ = io.Copy(up, from)
		_ = up.CloseWrite()
	}()
	_, err := io.Copy(c, up)
	return err
}

// TestEgressProxy: a sandbox's connections go through its proxy, to what we resolved and
// checked, and nowhere if the proxy does not take them.
func TestEgressProxy(t *testing.T) {
	w := newWorld(t)
	proxy := &proxy{user: "ann", password: "hidden-0123"}
	proxy.listen(t, worldProxy+":1080")
	allow, deny := []string{apiName, otherName}, []string{"0.0.0.0/0"} // so that no name is one of the sandbox's own loopback inside
	with := func(address, password string) map[string]any {
		return map[string]any{"allowOut": allow, "denyOut": deny, "egressProxy": map[string]any{"address": address, "username": "ann", "password": password}, "rules": map[string]any{
			apiName: []any{map[string]any{"transform": map[string]any{"headers": map[string]any{"X-Key": credential}}}},
		}}
	}
	b := w.sandbox(t, with(proxyName+":1080", proxy.password))
	for _, test := range []struct{ name, command, led string }{
		{"http", "curl -sSf http://" + otherName + "/", worldOther + ":80"},
		{"https", "curl -sSfk https://" + otherName + "/", worldOther + ":443"},
		{"another port", "curl -sSf http://" + otherName + ":8080/", worldOther + ":8080"},
		{"opened TLS", "curl -sSf https://" + apiName + "/", worldAPI + ":443"},
	} {
		out := w.run(t, b, test.command)
		led, seen := proxy.take(), w.requests()
		if out.Exit != 0 || len(seen) != 1 || !slices.Equal(led, []string{"ann " + test.led}) {
			t.Errorf("%s: %+v, led %q, %d requests", test.name, out, led, len(seen))
		}
		if len(seen) == 1 && (seen[0].Header.Get("X-Key") == credential) != (test.name == "opened TLS") {
			t.Errorf("%s: %+v", test.name, seen[0])
		}
	}
	// What may not be reached is not asked of the proxy either.
	for _, host := range []string{"169.254.169.254", "127.0.0.1:22", "10.1.2.3"} {
		if out := w.run(t, b, "curl -sS --max-time 5 http://"+host+"/"); out.Exit == 0 {
			t.Errorf("%s: %+v", host, out)
		}
	}
	if led := proxy.take(); len(led) > 0 {
		t.Errorf("led to %q", led)
	}
	// No proxy, no connection.
	for name, network := range map[string]map[string]any{
		"wrong password": with(proxyName+":1080", "guess"), "nobody there": with(worldProxy+":1081", "x"),
		"no proxy": with(worldOther+":80", "x"),
	} {
		box := w.sandbox(t, network)
		if out := w.run(t, box, "curl -sS --max-time 20 http://"+otherName+":8080/"); out.Exit == 0 {
			t.Errorf("%s: %+v", name, out)
		}
		for _, r := range w.requests() {
			if r.At != worldOther+":80" || r.Path != "" { // a proxy that is a web server is sent SOCKS, which is no request
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	for _, at := range []string{"10.1.2.3:1080", "localhost:1080"} {
		refused := call(t, http.DefaultClient, "POST", w.server.URL+"/v2/sandboxes",
			map[string]any{"templateID": "base", "network": with(at, "hidden-4567")}, "X-API-KEY", w.server.Key)
		if refused.Status != http.StatusBadRequest || !strings.Contains(string(refused.Body), "internal / denied IP range") ||
			strings.Contains(string(refused.Body), "hidden-4567") {
			t.Errorf("a proxy at %s: %v", at, refused)
		}
	}
	// A name is known for closed when it is dialled.
	w.mu.Lock()
	w.names["closed."+proxyName] = "10.1.2.3"
	w.mu.Unlock()
	closed := w.sandbox(t, with("closed."+proxyName+":1080", "x"))
	if out := w.run(t, closed, "curl -sS --max-time 20 http://"+otherName+":8080/"); out.Exit == 0 || len(w.requests()) > 0 {
		t.Errorf("a proxy whose name is closed: %+v", out)
	}
	flows := call(t, http.DefaultClient, "GET", w.server.URL+"/sandboxes/"+closed.ID+"/network", nil, "X-API-KEY", w.server.Key)
	if !strings.Contains(string(flows.Body), "the proxy cannot be used: 10.1.2.3 is") {
		t.Errorf("why is not said: %s", flows.Body)
	}
	// Nobody is told the password.
	a := call(t, http.DefaultClient, "GET", w.server.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", w.server.Key)
	if strings.Contains(string(a.Body), proxy.password) || !strings.Contains(string(a.Body), `"username":"ann"`) {
		t.Errorf("%s", a.Body)
	}
	if strings.Contains(w.server.log.tail(100<<20), proxy.password) {
		t.Error("the log has the password")
	}
}

// TestUpstreamProxy: the owner's proxy leads all sandboxes', also to their own.
func TestUpstreamProxy(t *testing.T) {
	for _, scheme := range []string{"socks5", "http"} {
		t.Run(scheme, func(t *testing.T) { testUpstreamProxy(t, scheme) })
	}
}

func testUpstreamProxy(t *testing.T, scheme string) {
	owners := &proxy{http: scheme == "http", user: "owner", password: "p@ss/word"}
	owners.listen(t, worldProxy+":1080")
	t.Setenv("THE_PROXY", scheme+"://owner:p%40ss%2Fword@"+worldProxy+":1080")
	t.Run("we resolve", func(t *testing.T) {
		w := newWorld(t, "--upstream-proxy", "THE_PROXY")
		named := map[string]any{"allowOut": []string{otherName}, "denyOut": []string{"0.0.0.0/0"}}
		b := w.sandbox(t, named)
		for url, led := range map[string]string{"http://" + otherName + "/": ":80", "https://" + otherName + "/": ":443", "http://" + otherName + ":8080/": ":8080"} {
			out := w.run(t, b, "curl -sSfk "+url)
			if led := []string{"owner " + worldOther + led}; out.Exit != 0 || len(w.requests()) != 1 || !slices.Equal(owners.take(), led) {
				t.Errorf("%s: %+v", url, out)
			}
		}
		own := &proxy{user: "ann", password: "hidden"}
		own.listen(t, worldSecond+":1080")
		named["egressProxy"] = map[string]any{"address": worldSecond + ":1080", "username": "ann", "password": "hidden"}
		b = w.sandbox(t, named)
		out := w.run(t, b, "curl -sSf http://"+otherName+"/")
		if first, second := owners.take(), own.take(); out.Exit != 0 || !slices.Equal(first, []string{"owner " + worldSecond + ":1080"}) ||
			!slices.Equal(second, []string{"ann " + worldOther + ":80"}) {
			t.Errorf("%+v, led %q, then %q", out, first, second)
		}
		if strings.Contains(w.server.log.tail(100<<20), owners.password) {
			t.Error("the log has the password")
		}
	})
	t.Run("it resolves", func(t *testing.T) {
		owners.resolve = func(name string) string {
			if name == "only.the-proxy-knows.com" {
				return worldOther
			}
			return ""
		}
		w := newWorld(t, "--upstream-proxy", "THE_PROXY", "--proxy-resolves")
		b := w.sandbox(t, map[string]any{"allowOut": []string{"only.the-proxy-knows.com"}, "denyOut": []string{"0.0.0.0/0"}})
		out := w.run(t, b, "curl -sSf http://only.the-proxy-knows.com/")
		if led := owners.take(); out.Exit != 0 || !slices.Equal(led, []string{"owner only.the-proxy-knows.com:80"}) {
			t.Errorf("%+v, led %q", out, led)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if slices.Contains(w.asked, "only.the-proxy-knows.com") {
			t.Errorf("our name server was asked: %q", w.asked)
		}
	})
	t.Run("it does not take us", func(t *testing.T) {
		t.Setenv("THE_PROXY", scheme+"://owner:guess-0123@"+worldProxy+":1080")
		w := newWorld(t, "--upstream-proxy", "THE_PROXY")
		b := w.sandbox(t, map[string]any{"allowOut": []string{otherName}, "denyOut": []string{"0.0.0.0/0"}})
		out := w.run(t, b, "curl -sS --max-time 20 http://"+otherName+":8080/")
		if led := owners.take(); out.Exit == 0 || len(led) > 0 || len(w.requests()) > 0 {
			t.Errorf("%+v, led %q", out, led)
		}
		a := call(t, http.DefaultClient, "GET", w.server.URL+"/sandboxes/"+b.ID+"/network", nil, "X-API-KEY", w.server.Key)
		if !strings.Contains(string(a.Body), "the proxy") || strings.Contains(string(a.Body)+w.server.log.tail(100<<20), "guess-0123") {
			t.Errorf("%s", a.Body)
		}
	})
}
