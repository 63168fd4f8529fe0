package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const host = "api.example.com"

// gateway forwards what connects to its address to a server.
type gateway struct {
	address string
	mu      sync.Mutex
	dials   int
	ends    chan error // what Forward returned
}

func (g *gateway) dialed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dials
}

// end waits for the end of a connection.
func (g *gateway) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-g.ends:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("Forward does not return")
		return nil
	}
}

// start is a gateway to the server at an address.
func start(t testing.TB, server string, opts ForwardOptions) *gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{address: l.Addr().String(), ends: make(chan error, 1000)}
	if opts.Host == "" {
		opts.Host, opts.Port = host, 80
	}
	if opts.Dial == nil {
		opts.Dial = func(ctx context.Context) (net.Conn, error) {
			g.mu.Lock()
			g.dials++
			g.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, "tcp", server)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { g.ends <- Forward(ctx, conn, opts) })
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); running.Wait() })
	return g
}

func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// client is net/http's, with every name led to the gateway.
func (g *gateway) client(t testing.TB) *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, g.address)
		},
		ExpectContinueTimeout: 20 * time.Second,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// raw sends text and returns everything that comes back.
func (g *gateway) raw(t testing.TB, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	go io.WriteString(conn, text)
	answer, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, net.ErrClosed) && len(answer) == 0 {
		t.Errorf("%.60q: %v", text, err)
	}
	return string(answer)
}

func get(lines ...string) string {
	return "GET / HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

const hostLine = "Host: " + host

// hostile are requests that are refused, by the status.
var hostile = map[int]map[string]string{
	400: {
		"no Host":                        "GET / HTTP/1.1\r\n\r\n",
		"no Host in HTTP/1.0":            "GET / HTTP/1.0\r\n\r\n",
		"two Hosts":                      get(hostLine, "Host: evil.com"),
		"the same Host twice":            get(hostLine, hostLine),
		"CONNECT":                        "CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n",
		"CONNECT to the same":            "CONNECT api.example.com:80 HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"connect in lower case":          "connect / HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"TRACE":                          "TRACE / HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"HTTP/2 with prior knowledge":    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/2 in the line":             "GET / HTTP/2.0\r\n" + hostLine + "\r\n\r\n",
		"HTTP/3":                         "GET / HTTP/3\r\n" + hostLine + "\r\n\r\n",
		"HTTP/1.2":                       "GET / HTTP/1.2\r\n" + hostLine + "\r\n\r\n",
		"HTTP/0.9":                       "GET /\r\n",
		"lower case version":             "GET / http/1.1\r\n" + hostLine + "\r\n\r\n",
		"TLS":                            "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"an empty line first":            "\r\n" + get(hostLine),
		"a blank first":                  " " + get(hostLine),
		"two blanks":                     "GET  / HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"a blank at the end":             "GET / HTTP/1.1 \r\n" + hostLine + "\r\n\r\n",
		"a tab":                          "GET\t/\tHTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"garbage for a method":           "G{E}T / HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"a long method":                  strings.Repeat("A", 33) + " / HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"NUL in the target":              "GET /\x00 HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"CR in the target":               "GET /\rx HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"a fragment":                     "GET /#x HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"a target that is no path":       "GET index.html HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"authority-form":                 "GET evil.com:80 HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"half an escape":                 "GET /100% HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"an asterisk":                    "GET * HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"an at sign":                     "GET @evil.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"LF alone":                       "GET / HTTP/1.1\nHost: api.example.com\n\n",
		"LF alone in the headers":        "GET / HTTP/1.1\r\nHost: api.example.com\nX: y\r\n\r\n",
		"CR alone":                       "GET / HTTP/1.1\r\nX: y\rHost: evil.com\r\n" + hostLine + "\r\n\r\n",
		"CR CR LF":                       "GET / HTTP/1.1\r\r\n" + hostLine + "\r\n\r\n",
		"CR CR LF at the end":            "GET / HTTP/1.1\r\n" + hostLine + "\r\n\r\r\n",
		"a folded header":                get("X: a", " "+hostLine, hostLine),
		"a folded Host":                  get("Host:", " api.example.com"),
		"a folded first header":          get(" X: y", hostLine),
		"a blank before the colon":       get("Host : evil.com", hostLine),
		"a tab before the colon":         get(hostLine, "Transfer-Encoding\t: chunked"),
		"a header without a colon":       get(hostLine, "evil.com"),
		"a header without a name":        get(hostLine, ": evil.com"),
		"a name that is not ASCII":       get(hostLine, "H\u00f6st: evil.com"),
		"NUL in a header":                get(hostLine, "X: a\x00b"),
		"Host with an underscore":        "GET / HTTP/1.1\r\n" + hostLine + "\r\nContent_Length: 3\r\n\r\n",
		"two lengths":                    "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nabcde",
		"the same length twice":          "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"a list of lengths":              "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 1, 1\r\n\r\na",
		"a negative length":              "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: -1\r\n\r\n",
		"a length with a sign":           "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: +1\r\n\r\na",
		"a hexadecimal length":           "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 0x1\r\n\r\na",
		"an empty length":                "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length:\r\n\r\n",
		"a giant length":                 "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 18446744073709551617\r\n\r\na",
		"length and coding":              "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two codings":                    "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
		"a coding before chunked":        "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":                  "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"an unknown coding":              "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"identity":                       "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: identity\r\n\r\n",
		"a coding with a vertical tab":   "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"an empty coding":                "POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding:\r\n\r\n",
		"chunks in HTTP/1.0":             "POST / HTTP/1.0\r\n" + hostLine + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an unknown expectation":         "POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 1\r\nExpect: x\r\n\r\na",
		"an upgrade with a body":         "GET / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\na",
		"a malformed Connection":         get(hostLine, "Connection: a b"),
		"an absolute target without ...": "GET http:evil.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
	},
	421: {
		"another Host":                 get("Host: evil.com"),
		"an empty Host":                get("Host:"),
		"a Host in a path":             get("Host: evil.com/api.example.com"),
		"userinfo":                     get("Host: user@api.example.com"),
		"userinfo with our name":       get("Host: api.example.com@evil.com"),
		"a list":                       get("Host: api.example.com, evil.com"),
		"two names":                    get("Host: api.example.com evil.com"),
		"a name below":                 get("Host: x.api.example.com"),
		"a name above":                 get("Host: example.com"),
		"two final dots":               get("Host: api.example.com.."),
		"another port":                 get("Host: api.example.com:8080"),
		"an empty port":                get("Host: api.example.com:"),
		"a port with zeros":            get("Host: api.example.com:080"),
		"two ports":                    get("Host: api.example.com:80:80"),
		"percent":                      get("Host: api%2eexample.com"),
		"HTTP/1.0 of another":          "GET / HTTP/1.0\r\nHost: evil.com\r\n\r\n",
		"absolute of another":          "GET http://evil.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute, Host of another":    "GET http://api.example.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"absolute with userinfo":       "GET http://api.example.com@evil.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute with a backslash":    "GET http://evil.com\\@api.example.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute without a name":      "GET http:/// HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute of another scheme":   "GET https://api.example.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute of an unknown":       "GET x://evil.com/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute with another port":   "GET http://api.example.com:81/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"absolute with a port, Host -": "GET http://api.example.com:80/ HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
	},
	431: {
		"a long line":      "GET /" + strings.Repeat("a", maxLine) + " HTTP/1.1\r\n" + hostLine + "\r\n\r\n",
		"a long header":    get(hostLine, "X: "+strings.Repeat("a", maxLine)),
		"a long head":      get(hostLine + strings.Repeat("\r\nX: "+strings.Repeat("a", 4000), 40)),
		"too many headers": get(hostLine + strings.Repeat("\r\nX: a", maxFields)),
		"no end":           "GET /" + strings.Repeat("a", 2*maxLine),
	},
}

func TestForwardRefuses(t *testing.T) {
	g := start(t, serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("passed on: %v", r) }), ForwardOptions{})
	for status, requests := range hostile {
		for title, text := range requests {
			t.Run(title, func(t *testing.T) {
				answer := g.raw(t, text)
				if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", status)) || !strings.Contains(answer, "\r\nConnection: close\r\n") {
					t.Errorf("%q", answer)
				}
				var refused *Refused
				if err := g.end(t); !errors.As(err, &refused) || refused.Status != status {
					t.Errorf("Forward: %v", err)
				}
			})
		}
	}
	if n := g.dialed(); n != 0 {
		t.Errorf("the host was dialled %d times", n)
	}
}

// The Kelvin sign and the long s are K and S for those who fold as Unicode does.
func TestForwardComparesNamesAsASCII(t *testing.T) {
	o, err := newTarget(ForwardOptions{Host: "Kiosk.example.com", Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]string{
		"KIOSK.example.com": "kiosk.example.com", "kiosk.example.com.:8080": "kiosk.example.com:8080",
		"\u212aiosk.example.com": "", "kio\u017fk.example.com": "", "kiosk.example.com:80": "",
	} {
		if got, ok := o.authority(s); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", s, got, ok)
		}
	}
}

// Bodies are judged while they pass: what is wrong ends the request before its end.
func TestForwardRefusesBodies(t *testing.T) {
	var mu sync.Mutex
	var complete []string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			mu.Lock()
			complete = append(complete, string(body))
			mu.Unlock()
		}
	})
	g := start(t, server, ForwardOptions{})
	const next = "GET /next HTTP/1.1\r\n" + hostLine + "\r\n\r\n"
	tests := map[string]struct {
		status int
		body   string
	}{
		"no size":                  {400, "\r\n\r\n"},
		"a malformed size":         {400, "g\r\n"},
		"a size with a sign":       {400, "+5\r\nabcde\r\n0\r\n\r\n"},
		"a size with 0x":           {400, "0x5\r\nabcde\r\n0\r\n\r\n"},
		"a blank before":           {400, " 5\r\nabcde\r\n0\r\n\r\n"},
		"a blank behind":           {400, "5 \r\nabcde\r\n0\r\n\r\n"},
		"an underscore":            {400, "5_0\r\nabcde\r\n0\r\n\r\n"},
		"a giant size":             {400, "10000000000000005\r\nabcde\r\n0\r\n\r\n"},
		"LF alone":                 {400, "5\nabcde\n0\n\n"},
		"LF after the data":        {400, "5\r\nabcde\n0\r\n\r\n"},
		"CR in an extension":       {400, "5;a\rb\r\nabcde\r\n0\r\n\r\n"},
		"longer than its size":     {400, "5\r\nabcdef\r\n0\r\n\r\n"},
		"a longer one with a line": {400, "5\r\nabcdefgh\r\n0\r\n\r\n"},
		"a giant extension":        {431, "5;" + strings.Repeat("a", maxChunkLine) + "\r\nabcde\r\n0\r\n\r\n"},
		"many extensions":          {431, strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\na\r\n", 20) + "0\r\n\r\n"},
		"a malformed trailer":      {400, "1\r\na\r\n0\r\nx y: z\r\n\r\n"},
		"a folded trailer":         {400, "1\r\na\r\n0\r\na: b\r\n c\r\n\r\n"},
		"giant trailers":           {431, "1\r\na\r\n0\r\n" + strings.Repeat("a: "+strings.Repeat("b", 8000)+"\r\n", 20) + "\r\n"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			answer := g.raw(t, "POST / HTTP/1.1\r\n"+hostLine+"\r\nTransfer-Encoding: chunked\r\n\r\n"+test.body+next)
			if !strings.HasPrefix(answer, fmt.Sprintf("HTTP/1.1 %d ", test.status)) {
				t.Errorf("%q", answer)
			}
			if strings.Count(answer, "HTTP/1.1") != 1 {
				t.Errorf("more than one answer: %q", answer)
			}
			g.end(t)
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if len(complete) != 0 {
		t.Errorf("complete requests were passed on: %q", complete)
	}
}

// recorder is a server that keeps what it reads and answers each request.
type recorder struct {
	address string
	mu      sync.Mutex
	got     bytes.Buffer
}

func record(t testing.TB, answer string) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{address: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				r := bufio.NewReader(io.TeeReader(conn, rec))
				for {
					q, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, q.Body); err != nil {
						return
					}
					io.WriteString(conn, answer)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return rec
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.Write(p)
}

func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.got.Reset()
	return r.got.String()
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestForwardWritesAnew(t *testing.T) {
	rec := record(t, okAnswer)
	secret := map[string]string{"Authorization": "Bearer s3cret", "X-Api-Key": "k3y"}
	plain, opened := ForwardOptions{}, ForwardOptions{Host: host, Port: 443, TLS: true, Headers: secret, Redact: [][]byte{[]byte("s3cret")}}
	tests := map[string]struct {
		opts     ForwardOptions
		in, want string
	}{
		"as it is": {plain, "GET /a?b=c HTTP/1.1\r\nHost: api.example.com\r\nuser-agent: x\r\nX-B: 1\r\nx-b:  2 \r\n\r\n",
			"GET /a?b=c HTTP/1.1\r\nHost: api.example.com\r\nuser-agent: x\r\nX-B: 1\r\nx-b: 2\r\n\r\n"},
		"the name and the port": {plain, "GET / HTTP/1.1\r\nhost:API.Example.COM.:80\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com:80\r\n\r\n"},
		"absolute-form": {plain, "GET HTTP://Api.example.com?x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"GET /?x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"},
		"absolute-form of everything": {plain, "OPTIONS http://api.example.com HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"OPTIONS * HTTP/1.1\r\nHost: api.example.com\r\n\r\n"},
		"bytes beyond ASCII": {plain, "GET /\xc3\xbc\xa0x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
			"GET /%C3%BC%A0x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"},
		"HTTP/1.0": {plain, "GET / HTTP/1.0\r\nHost: api.example.com\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n"},
		"hop by hop": {plain, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n" +
			"Proxy-Authorization: x\r\nProxy-Connection: x\r\nTE: trailers, deflate\r\nX: y\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: y\r\nTE: trailers\r\nConnection: TE\r\n\r\n"},
		"Connection cannot take the length away": {plain,
			"POST / HTTP/1.1\r\nHost: api.example.com\r\nConnection: content-length, host\r\nContent-Length: 3\r\n\r\nabc",
			"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 3\r\n\r\nabc"},
		"upgrade to HTTP/2": {plain, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
			"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"},
		"upgrade to one of two": {plain, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"},
		"upgrade to WebSocket": {plain, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
		"chunks": {plain, "POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: Chunked\r\nTrailer: X-T\r\n\r\n" +
			"0003;a=b\r\nabc\r\n0;x\r\nX-T: 1\r\nHost: evil.com\r\nContent-Length: 5\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: api.example.com\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"},
		"Expect": {plain, "POST / HTTP/1.1\r\nHost: api.example.com\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\na",
			"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\n\r\na"},
		"no headers without TLS": {ForwardOptions{Host: host, Port: 80, Headers: secret},
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nauthorization: mine\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nauthorization: mine\r\n\r\n"},
		"headers": {opened, "GET https://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nauthorization: mine\r\nX_API_KEY: mine\r\n" +
			"Accept-Encoding: gzip\r\nSec-WebSocket-Extensions: permessage-deflate\r\nConnection: Authorization\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nAccept-Encoding: identity\r\nAuthorization: Bearer s3cret\r\nX-Api-Key: k3y\r\n\r\n"},
		"headers in trailers": {opened, "POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\nx-api-key: mine\r\nX_Api_Key: mine\r\nX-T: 1\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: api.example.com\r\nAccept-Encoding: identity\r\nAuthorization: Bearer s3cret\r\nX-Api-Key: k3y\r\n" +
				"Transfer-Encoding: chunked\r\n\r\n0\r\nX-T: 1\r\n\r\n"},
		"an address": {ForwardOptions{Host: "2001:DB8::1", Port: 8080}, "GET / HTTP/1.1\r\nHost: [2001:db8:0::1]:8080\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			g := start(t, rec.address, test.opts)
			conn, err := net.Dial("tcp", g.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			io.WriteString(conn, test.in)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || answer.StatusCode != 200 {
				t.Fatal(answer, err)
			}
			if got := rec.take(); got != test.want {
				t.Errorf("passed on:\n%q, not\n%q", got, test.want)
			}
		})
	}
}

func TestForwardOptions(t *testing.T) {
	const value = "s3cret"
	tests := map[string]ForwardOptions{
		"no host":          {},
		"a final dot":      {Host: "example.com."},
		"NUL":              {Host: "evil.com\x00.example.com"},
		"a port":           {Host: "example.com:80"},
		"CR in a value":    {Host: host, TLS: true, Headers: map[string]string{"X": value + "\r\nHost: evil.com"}},
		"CR in a name":     {Host: host, TLS: true, Headers: map[string]string{"X\r\nY": value}},
		"an empty name":    {Host: host, TLS: true, Headers: map[string]string{"": value}},
		"Host":             {Host: host, TLS: true, Headers: map[string]string{"hOST": value}},
		"a length":         {Host: host, TLS: true, Headers: map[string]string{"Content_Length": value}},
		"a coding":         {Host: host, TLS: true, Headers: map[string]string{"Transfer-Encoding": value}},
		"a name twice":     {Host: host, TLS: true, Headers: map[string]string{"X-A": value, "x-a": value}},
		"too much to hide": {Host: host, TLS: true, Redact: [][]byte{bytes.Repeat([]byte(value), maxRedacted)}},
	}
	for title, opts := range tests {
		client, server := net.Pipe()
		err := Forward(context.Background(), server, opts)
		if err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", title, err)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: the connection is not closed: %v", title, err)
		}
	}
}

// Whatever net/http's server reads as a request for another host is refused; what
// is passed on, it reads as the request that it is.
func TestForwardLikeNetHTTP(t *testing.T) {
	type seen struct{ host, method, target, body string }
	observe := func(t *testing.T) (address string, take func() []seen) {
		var mu sync.Mutex
		var all []seen
		address = serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, seen{r.Host, r.Method, r.RequestURI, string(body)})
		})
		return address, func() []seen { mu.Lock(); defer mu.Unlock(); defer func() { all = nil }(); return all }
	}
	server, direct := observe(t)
	behind, passed := observe(t)
	g := start(t, behind, ForwardOptions{})
	corpus := []string{
		get(hostLine), get("Host: api.example.com:80"),
		"POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 44\r\n\r\nGET /x HTTP/1.1\r\nHost: evil.com\r\n\r\n" + get(hostLine),
		"POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get("Host: evil.com"),
		get(hostLine) + get("Host: evil.com") + get(hostLine),
		"GET / HTTP/1.0\r\n" + hostLine + "\r\nConnection: keep-alive\r\n\r\n" + get(hostLine),
	}
	for _, requests := range hostile {
		for _, text := range requests {
			corpus = append(corpus, text, get(hostLine)+text, text+get(hostLine))
		}
	}
	// exchange sends text and its end, so that nothing waits for more.
	exchange := func(address, text string) []byte {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		go func() { io.WriteString(conn, text); conn.(*net.TCPConn).CloseWrite() }()
		answer, _ := io.ReadAll(conn)
		return answer
	}
	others := 0
	for _, text := range corpus {
		exchange(server, text)
		want := direct()
		answer := exchange(g.address, text)
		g.end(t)
		got := passed()
		if n := bytes.Count(answer, []byte("HTTP/1.1 200")); n != len(got) {
			t.Errorf("%.200q: %d requests, %d answers", text, len(got), n)
		}
		for i, s := range got {
			if s.host != host && s.host != host+":80" {
				t.Errorf("%.200q: passed on for %s", text, s.host)
			}
			if i >= len(want) || s.method != want[i].method || s.body != want[i].body || s.host != want[i].host {
				t.Errorf("%.200q: passed on as %q, directly %q", text, got, want)
			}
		}
		for _, s := range want {
			if s.host != host && s.host != host+":80" {
				others++
			}
		}
	}
	if others < 5 {
		t.Errorf("only %d requests of the corpus are for another host by net/http", others)
	}
}

func TestForwardBodies(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Trailer", "X-Sum")
			n, _ := io.Copy(w, r.Body)
			w.Header().Set("X-Sum", fmt.Sprint(n, r.Trailer.Get("X-In")))
		case "/early":
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "late")
		case "/length":
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "12345")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/unchanged":
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(http.StatusNotModified)
		}
	})
	g := start(t, server, ForwardOptions{})
	client := g.client(t)
	do := func(method, path string, body io.Reader, change ...func(*http.Request)) (*http.Response, string) {
		t.Helper()
		q, err := http.NewRequest(method, "http://"+host+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range change {
			c(q)
		}
		answer, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer, string(text)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if _, text := do("POST", "/echo", strings.NewReader(big)); text != big {
		t.Errorf("%d bytes of %d", len(text), len(big))
	}
	answer, text := do("POST", "/echo", io.MultiReader(strings.NewReader(big)), func(q *http.Request) {
		q.Trailer = http.Header{"X-In": {"!"}}
	})
	if want := fmt.Sprint(len(big), "!"); text != big || answer.Trailer.Get("X-Sum") != want {
		t.Errorf("%d bytes of %d, trailers %v", len(text), len(big), answer.Trailer)
	}
	if answer, text = do("HEAD", "/length", nil); answer.ContentLength != 5 || text != "" {
		t.Errorf("HEAD: %v", answer)
	}
	if answer, text = do("GET", "/length", nil); answer.ContentLength != 5 || text != "12345" {
		t.Errorf("GET: %v", answer)
	}
	do("GET", "/none", nil)
	do("GET", "/unchanged", nil)
	hints := 0
	do("GET", "/early", nil, func(q *http.Request) {
		*q = *q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code == 103 && h.Get("Link") == "</style.css>" {
					hints++
				}
				return nil
			},
		}))
	})
	if hints != 1 {
		t.Errorf("%d early hints", hints)
	}
	if _, text = do("POST", "/echo", strings.NewReader("waited"), func(q *http.Request) {
		q.Header.Set("Expect", "100-continue")
	}); text != "waited" {
		t.Errorf("Expect: %q", text)
	}
	if n := g.dialed(); n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
}

// Each side sees what the other one has sent before more is sent.
func TestForwardStreams(t *testing.T) {
	for _, hide := range [][][]byte{nil, {[]byte("s3cret-value-s3cret-value")}} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			buf := make([]byte, 100)
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			for {
				n, err := r.Body.Read(buf)
				w.Write(buf[:n])
				w.(http.Flusher).Flush()
				if err != nil {
					return
				}
			}
		})
		client := start(t, server, ForwardOptions{Redact: hide}).client(t)
		body, feed := io.Pipe()
		answer, err := client.Post("http://"+host+"/", "", body)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		for i := range 10 {
			// It ends with the beginning of the value, which must not wait for ever.
			text := fmt.Sprintf("message %d s3c", i)
			io.WriteString(feed, text)
			if _, err := io.ReadFull(answer.Body, buf[:len(text)]); err != nil || string(buf[:len(text)]) != text {
				t.Fatalf("%q, %v", buf[:len(text)], err)
			}
		}
		feed.Close()
		if rest, err := io.ReadAll(answer.Body); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		answer.Body.Close()
	}
}

// respond is a server that has its connections handled one by one.
func respond(t testing.TB, handle func(conn net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				handle(conn, bufio.NewReader(conn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().String()
}

const handshakeAnswer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n"

func TestForwardUpgrade(t *testing.T) {
	server := respond(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		io.WriteString(conn, handshakeAnswer+"hello s3cret!")
		got, _ := io.ReadAll(r) // up to the client's half-close
		fmt.Fprintf(conn, "%d bytes, %.5s", len(got), got)
	})
	g := start(t, server, ForwardOptions{Redact: [][]byte{[]byte("s3cret")}})
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	// What is sent with the request is not read as a request.
	io.WriteString(conn, get(hostLine, "Connection: Upgrade", "Upgrade: websocket")+"early")
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != 101 || answer.Header.Get("Upgrade") != "websocket" || answer.Header.Get("Sec-WebSocket-Accept") != "x" {
		t.Fatal(answer, err)
	}
	greeting := make([]byte, len("hello ******!"))
	if _, err := io.ReadFull(r, greeting); err != nil || string(greeting) != "hello ******!" {
		t.Fatalf("%q, %v", greeting, err)
	}
	conn.Write(make([]byte, 1<<20))
	conn.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(r); err != nil || string(rest) != fmt.Sprint(1<<20+5, " bytes, early") {
		t.Errorf("%q, %v", rest, err)
	}
	if err := g.end(t); err != nil {
		t.Error(err)
	}
}

// The server ends its direction first; what the client sends passes still.
func TestForwardUpgradeServerEndsFirst(t *testing.T) {
	got := make(chan string, 1)
	server := respond(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		io.WriteString(conn, handshakeAnswer+"bye")
		conn.(*net.TCPConn).CloseWrite()
		text, _ := io.ReadAll(r)
		got <- string(text)
	})
	g := start(t, server, ForwardOptions{})
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, get(hostLine, "Connection: Upgrade", "Upgrade: websocket"))
	if text, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(text), "\r\n\r\nbye") {
		t.Fatalf("%q, %v", text, err)
	}
	io.WriteString(conn, "more")
	conn.Close()
	if text := <-got; text != "more" {
		t.Errorf("%q", text)
	}
	if err := g.end(t); err != nil {
		t.Error(err)
	}
}

func TestForwardAnswers(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	tests := map[string]struct{ request, answer, want string }{
		"a length":      {get(hostLine), okAnswer, okAnswer},
		"LF alone":      {get(hostLine), "HTTP/1.1 200 OK\nX: y\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 2\r\n\r\nok"},
		"folded":        {get(hostLine), "HTTP/1.1 200 OK\r\nX: y\r\n  z\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nX: y z\r\nContent-Length: 0\r\n\r\n"},
		"no reason":     {get(hostLine), "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"},
		"up to the end": {get(hostLine), "HTTP/1.1 200 OK\r\n\r\n" + long, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + long},
		"HTTP/1.0":      {get(hostLine), "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		"chunks": {get(hostLine), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 ;x\r\nok\r\n0\r\nX-T: 1\r\nSet-Cookie: a\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"},
		"chunks for HTTP/1.0": {"GET / HTTP/1.0\r\n" + hostLine + "\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"},
		"kept in HTTP/1.0": {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n" + hostLine + "\r\n\r\n", okAnswer,
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"},
		"no hints in HTTP/1.0": {"GET / HTTP/1.0\r\n" + hostLine + "\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n" + okAnswer,
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		"continue unasked":      {get(hostLine), "HTTP/1.1 100 Continue\r\n\r\n" + okAnswer, okAnswer},
		"the same length twice": {get(hostLine), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", okAnswer},
		"length and chunks": {get(hostLine), "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
		"hop by hop": {get(hostLine), "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"two lengths":  {get(hostLine), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "502"},
		"a coding":     {get(hostLine), "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "502"},
		"garbage":      {get(hostLine), "SSH-2.0-x\r\n", "502"},
		"a bad header": {get(hostLine), "HTTP/1.1 200 OK\r\nX Y: z\r\n\r\n", "502"},
		"a giant head": {get(hostLine), "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+long[:8000]+"\r\n", 20) + "\r\n", "502"},
		"switches":     {get(hostLine), handshakeAnswer, "502"},
		"switches to another": {get(hostLine, "Connection: Upgrade", "Upgrade: websocket"),
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "502"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			server := respond(t, func(conn net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err == nil {
					io.WriteString(conn, test.answer)
				}
			})
			g := start(t, server, ForwardOptions{})
			got := g.raw(t, test.request)
			if test.want == "502" {
				if !strings.HasPrefix(got, "HTTP/1.1 502 ") {
					t.Errorf("%.300q", got)
				}
			} else if got != test.want {
				t.Errorf("%.300q, not %.300q", got, test.want)
			}
		})
	}
}

func TestForwardPipelines(t *testing.T) {
	rec := record(t, okAnswer)
	g := start(t, rec.address, ForwardOptions{})
	const n = 50
	text := strings.Repeat("POST / HTTP/1.1\r\n"+hostLine+"\r\nContent-Length: 3\r\n\r\nabc", n-1) + get(hostLine, "Connection: close")
	if answer := g.raw(t, text); strings.Count(answer, "HTTP/1.1 200 OK") != n {
		t.Errorf("%d answers", strings.Count(answer, "HTTP/1.1 200 OK"))
	}
	if err := g.end(t); err != nil || g.dialed() != 1 {
		t.Errorf("%v, %d connections", err, g.dialed())
	}
}

func TestForwardClientLeaves(t *testing.T) {
	left, came := make(chan bool, 1), make(chan bool, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		came <- true
		select {
		case <-r.Context().Done():
			left <- true
		case <-time.After(20 * time.Second):
			left <- false
		}
	})
	g := start(t, server, ForwardOptions{})
	for _, text := range []string{get(hostLine), get(hostLine, "Connection: close")} {
		conn, err := net.Dial("tcp", g.address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, text)
		<-came
		conn.Close()
		if !<-left {
			t.Error("the server does not learn that the client has left")
		}
		g.end(t)
	}
}

// A client that says that it has no more to send gets its answer.
func TestForwardHalfClose(t *testing.T) {
	rec := record(t, okAnswer)
	g := start(t, rec.address, ForwardOptions{})
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, get(hostLine))
	conn.(*net.TCPConn).CloseWrite()
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != okAnswer {
		t.Errorf("%q, %v", answer, err)
	}
	if err := g.end(t); err != nil {
		t.Error(err)
	}
}

func TestForwardServerEndsEarly(t *testing.T) {
	tests := map[string]struct {
		answer string
		want   error // of reading the answer's body; nil: there is no answer
	}{
		"without an answer":       {"", nil},
		"in the head":             {"HTTP/1.1 200 OK\r\nContent-", nil},
		"in a body with a length": {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", io.ErrUnexpectedEOF},
		"in a chunk":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n12345", io.ErrUnexpectedEOF},
		"between chunks":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", io.ErrUnexpectedEOF},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			server := respond(t, func(conn net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err == nil {
					io.WriteString(conn, test.answer)
				}
			})
			g := start(t, server, ForwardOptions{})
			answer, err := g.client(t).Get("http://" + host + "/")
			if test.want == nil {
				if err == nil {
					t.Errorf("an answer: %v", answer)
				}
			} else if err != nil {
				t.Error(err)
			} else {
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if string(body) != "12345" || !errors.Is(err, test.want) {
					t.Errorf("%q, %v", body, err)
				}
			}
			if err := g.end(t); err == nil {
				t.Error("Forward returns no error")
			}
		})
	}
}

// A server that keeps nothing waiting closes idle connections: so do we.
func TestForwardServerClosesIdle(t *testing.T) {
	server := respond(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			io.WriteString(conn, okAnswer)
		}
	})
	g := start(t, server, ForwardOptions{})
	client := g.client(t)
	for range 3 {
		answer, err := client.Get("http://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err := g.end(t); err != nil {
			t.Error(err)
		}
	}
}

// An answer that comes before the request has been sent reaches the client.
func TestForwardEarlyAnswer(t *testing.T) {
	server := respond(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
		conn.(*net.TCPConn).CloseWrite()
		time.Sleep(100 * time.Millisecond)
	})
	g := start(t, server, ForwardOptions{})
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, "POST / HTTP/1.1\r\n"+hostLine+"\r\nContent-Length: 1000000000\r\n\r\nabc")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != 413 {
		t.Fatal(answer, err)
	}
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "big" {
		t.Errorf("%q, %v", body, err)
	}
	conn.Close()
	g.end(t)
}

// What a server says that was not asked is no answer to the next request.
func TestForwardUnaskedAnswers(t *testing.T) {
	server := respond(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			io.WriteString(conn, okAnswer+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			http.ReadRequest(r)
		}
	})
	g := start(t, server, ForwardOptions{})
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, get(hostLine)+get(hostLine))
	if all, _ := io.ReadAll(conn); string(all) != okAnswer {
		t.Errorf("%q", all)
	}
}

// So it is when the next request has been passed on by then.
func TestForwardUnaskedAnswerIsNotKept(t *testing.T) {
	for text, again := range map[string]bool{okAnswer: true, okAnswer + "H": false} {
		client, server := pair(t)
		defer client.Close()
		defer server.Close()
		f := &forwarding{target: &target{}, client: &stream{Conn: client}, server: &stream{Conn: server}}
		f.client.active, f.server.active = &f.active, &f.active
		f.serverIn = bufio.NewReader(strings.NewReader(text))
		if x := (&exchange{request: &request{keep: true}, done: make(chan struct{})}); f.answer(x) != again || x.again != again || x.err != nil {
			t.Errorf("%q: %+v", text, x)
		}
	}
}

func TestForwardEndsWithContextAndIdle(t *testing.T) {
	why := errors.New("no longer allowed")
	never := respond(t, func(conn net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) })
	stuck := func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	for title, test := range map[string]struct {
		send string
		idle time.Duration
		dial func(context.Context) (net.Conn, error)
		want error
	}{
		"before a request":         {"", 0, nil, why},
		"in a request":             {"GET / HT", 0, nil, why},
		"in a body":                {"POST / HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 9\r\n\r\nabc", 0, nil, why},
		"in a dial":                {get(hostLine), 0, stuck, why},
		"before an answer":         {get(hostLine), 0, nil, why},
		"idle before a request":    {"", 50 * time.Millisecond, nil, ErrIdle},
		"idle in a dial":           {get(hostLine), 50 * time.Millisecond, stuck, ErrIdle},
		"idle before an answer":    {get(hostLine), 50 * time.Millisecond, nil, ErrIdle},
		"idle with unread answers": {strings.Repeat(get(hostLine), 1000), 50 * time.Millisecond, nil, ErrIdle},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			client, server := pair(t)
			defer client.Close()
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			if test.idle == 0 {
				time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
			}
			if test.dial == nil {
				test.dial = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", never) }
			}
			go io.WriteString(client, test.send)
			begun := time.Now()
			err := Forward(ctx, server, ForwardOptions{Host: host, Port: 80, Dial: test.dial, Idle: test.idle})
			if !errors.Is(err, test.want) || time.Since(begun) > 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
		})
	}
}

func TestForwardHostThatCannotBeReached(t *testing.T) {
	g := start(t, "", ForwardOptions{Host: host, Port: 80, Dial: func(context.Context) (net.Conn, error) {
		return nil, errors.New("no route s3cret")
	}})
	if answer := g.raw(t, get(hostLine)); !strings.HasPrefix(answer, "HTTP/1.1 502 ") || strings.Contains(answer, "s3cret") {
		t.Errorf("%q", answer)
	}
	var refused *Refused
	if err := g.end(t); !errors.As(err, &refused) || !strings.Contains(err.Error(), "no route") {
		t.Error(err)
	}
}

func TestForwardOptionsShowNoValues(t *testing.T) {
	opts := ForwardOptions{Host: host, Headers: map[string]string{"Authorization": "s3cret"}, Redact: [][]byte{[]byte("s3cret")}}
	text := fmt.Sprintf("%v %+v %#v %s %x", opts, &opts, opts, opts, opts)
	encoded, err := opts.MarshalText()
	if err != nil || strings.Contains(text+string(encoded), "s3cret") || strings.Contains(text, fmt.Sprintf("%x", "s3cret")) ||
		!strings.Contains(text, host) {
		t.Errorf("%s %s, %v", text, encoded, err)
	}
}

// What we pass on, net/http reads as requests for the host and nothing else, as
// many as were answered; and as it would have read the client's.
func FuzzForward(f *testing.F) {
	for _, requests := range hostile {
		for _, text := range requests {
			if len(text) < 1000 {
				f.Add(text)
			}
		}
	}
	f.Add("POST / HTTP/1.1\r\n" + hostLine + "\r\nTransfer-Encoding: chunked\r\n\r\n3;a\r\nabc\r\n0\r\nX: y\r\n\r\n" + get(hostLine))
	f.Add("POST http://api.example.com/x HTTP/1.1\r\n" + hostLine + "\r\nContent-Length: 2\r\nConnection: TE\r\nTE: trailers\r\n\r\nab" + get(hostLine))
	f.Fuzz(func(t *testing.T, text string) {
		o, err := newTarget(ForwardOptions{Host: host, Port: 80})
		if err != nil {
			t.Fatal(err)
		}
		// As run does, without connections.
		in := bufio.NewReaderSize(strings.NewReader(text), bufferSize)
		var out bytes.Buffer
		w := bufio.NewWriter(&out)
		passed := 0
		fw := &forwarding{target: o, clientIn: in}
		for {
			q, err := readRequest(in, o)
			if err != nil {
				break
			}
			begun := out.Len()
			q.write(w)
			if readErr, _ := fw.askBody(&exchange{request: q}, w); readErr != nil {
				w.Flush()
				out.Truncate(begun) // it is not complete, and the connection is cut
				break
			}
			w.Flush()
			passed++
			if !q.keep {
				break
			}
		}
		theirs := bufio.NewReader(strings.NewReader(text))
		sent := bufio.NewReader(&out)
		for i := range passed {
			got, body := readHTTP(t, sent)
			if got == nil {
				t.Fatalf("%q: request %d cannot be read", text, i)
			}
			if got.Host != host && got.Host != host+":80" {
				t.Fatalf("%q: passed on for %q", text, got.Host)
			}
			want, wantBody := readHTTP(t, theirs)
			if want == nil { // net/http does not know %-escapes of this kind, for example
				theirs = nil
				break
			}
			if got.Method != want.Method || body != wantBody || canonical(want.Host) != got.Host ||
				!reflect.DeepEqual(got.Trailer, want.Trailer) && len(got.Trailer) > len(want.Trailer) {
				t.Fatalf("%q: passed on as %v with %q, and was %v with %q", text, got, body, want, wantBody)
			}
		}
		if theirs != nil && sent.Buffered() == 0 {
			if rest, _ := io.ReadAll(sent); len(rest) > 0 {
				t.Fatalf("%q: %q was passed on besides %d requests", text, rest, passed)
			}
		}
	})
}

// canonical is a host as we write it.
func canonical(s string) string {
	name, port, _ := strings.Cut(strings.ToLower(s), ":")
	if port != "" {
		port = ":" + port
	}
	return strings.TrimSuffix(name, ".") + port
}

func readHTTP(t *testing.T, r *bufio.Reader) (*http.Request, string) {
	q, err := http.ReadRequest(r)
	if err != nil {
		return nil, ""
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, ""
	}
	return q, string(body)
}

func BenchmarkForward(b *testing.B) {
	chunk := make([]byte, 1<<20)
	server := serve(b, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(64<<20))
		for range 64 {
			w.Write(chunk)
		}
	})
	for title, opts := range map[string]ForwardOptions{
		"plain":  {},
		"redact": {Redact: [][]byte{[]byte("Bearer sk-0123456789"), []byte("sk-0123456789")}},
	} {
		g := start(b, server, opts)
		client := g.client(b)
		b.Run(title, func(b *testing.B) {
			b.SetBytes(64 << 20)
			for range b.N {
				answer, err := client.Get("http://" + host + "/")
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
	b.Run("direct", func(b *testing.B) {
		client := (&gateway{address: server}).client(b)
		b.SetBytes(64 << 20)
		for range b.N {
			answer, err := client.Get("http://" + host + "/")
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	})
}

func BenchmarkForwardRequests(b *testing.B) {
	server := serve(b, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	for title, address := range map[string]string{"direct": server, "forwarded": start(b, server, ForwardOptions{}).address} {
		client := (&gateway{address: address}).client(b)
		b.Run(title, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				answer, err := client.Get("http://" + host + "/")
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
}
