//go:build linux

package attacks

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby"
)

const (
	// outside is the address at which servers stand for the internet. The owner of the
	// machine lets it be reached.
	outside = "198.51.100.77"
	// marker is in everything that an attack sends and nobody may get.
	marker = "forbidden"
	// secret is what only a header rule knows.
	secret = "the-value-of-the-secret"
)

// world is what is outside of the sandboxes, and notes what comes.
type world struct {
	t          *testing.T
	resolver   string // a DNS server that lies
	roots      string // a file of certificates by which the servers outside are verified
	hostPort   int    // of the machine, which its owner named
	canaryPort int    // of every address of the machine, TCP and UDP; nothing may come
	own        []string
	rebound    atomic.Int32

	mu   sync.Mutex
	seen []string
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) < 1000 {
		w.seen = append(w.seen, fmt.Sprintf(format, args...))
	}
}

func (w *world) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// leaks is what came and must not have.
func (w *world) leaks() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var bad []string
	for _, s := range w.seen {
		if strings.Contains(strings.ToLower(s), marker) || strings.HasPrefix(s, "canary") {
			bad = append(bad, s)
		}
	}
	return bad
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	cert := w.certificates()
	w.resolve()
	// The port of the machine's that its owner named, and one that is nobody's.
	w.hostPort = w.listen("127.0.0.1:0", w.web("host", nil))
	w.canary()
	w.listen(outside+":80", w.web("http", nil))
	w.listen(outside+":8080", w.web("http", nil))
	w.listen(outside+":443", w.web("https", cert))
	w.listen(outside+":8443", w.web("https", cert))
	for _, port := range []string{":8081", ":8082", ":853", ":25"} {
		w.listen(outside+port, w.echo)
	}
	for _, port := range []string{":8081", ":443", ":80", ":4433"} {
		w.datagrams(outside + port)
	}
	return w
}

// policies are what attacks are tried under.
func (w *world) policies() map[string]cubby.Network {
	host := fmt.Sprintf("host.cubby.internal:%d", w.hostPort)
	names := []string{
		"good.test", "*.wild.test:8080", "rebind.test", "chain.test", "private.test", "loop.test", "meta.test", "mapped.test", "nat64.test", "poison.test",
		"giant.test", "own.test", "zero.test", "mixed.test", "circle.test", "short.test",
	}
	return map[string]cubby.Network{
		"closed": {},
		"open":   {Open: true},
		"list":   {Allow: append([]string{host, outside + ":8081"}, names...)},
		"all":    {Allow: []string{"*", "0.0.0.0/0"}},
		"deny":   {Open: true, Deny: []string{"denied.test", "*.denied.test", outside + ":8082"}},
		"secret": {
			Allow:   []string{"api.test", "good.test", outside + ":8443"},
			Headers: []cubby.SecretHeader{{Host: "api.test", Name: "Authorization", Value: "Bearer " + secret}},
		},
	}
}

func (w *world) listen(at string, serve func(net.Conn)) (port int) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				serve(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// echo repeats what comes, after a greeting.
func (w *world) echo(c net.Conn) {
	_, _ = io.WriteString(c, "hello\n")
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if n > 0 {
			w.note("bytes at %s: %q", c.LocalAddr(), b[:min(n, 1000)])
			_, _ = c.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// web answers HTTP requests with what it got of them, and notes it.
func (w *world) web(kind string, cert *tls.Certificate) func(net.Conn) {
	return func(c net.Conn) {
		name := ""
		raw := &noted{Conn: c}
		defer func() { w.note("%s %s at %s: %q", kind, name, c.LocalAddr(), raw.head.String()) }()
		var conn net.Conn = raw
		if cert != nil {
			s := tls.Server(c, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
				name = h.ServerName
				return cert, nil
			}})
			raw.Conn = s
		}
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
			if err != nil {
				return
			}
			switch req.URL.Path {
			case "/redirect":
				fmt.Fprintf(conn, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", req.URL.Query().Get("to"))
				continue
			case "/endless":
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				for {
					if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			}
			var answer bytes.Buffer
			fmt.Fprintf(&answer, "%s %s %s at %q, %d bytes", kind, req.Method, req.Host, name, len(body))
			if got := req.Header.Get("Authorization"); got != "" {
				fmt.Fprintf(&answer, ", Authorization: %s", got)
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", answer.Len(), answer.String())
			if req.Close {
				return
			}
		}
	}
}

// noted keeps the beginning of what is read.
type noted struct {
	net.Conn
	head bytes.Buffer
}

func (n *noted) Read(b []byte) (int, error) {
	got, err := n.Conn.Read(b)
	if n.head.Len() < 64<<10 {
		n.head.Write(b[:got])
	}
	return got, err
}

// datagrams repeats those that come.
func (w *world) datagrams(at string) {
	w.datagramsTo(at, func(b []byte) { w.note("datagram at %s: %q", at, b) })
}

func (w *world) datagramsTo(at string, note func([]byte)) {
	p, err := net.ListenPacket("udp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { p.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			note(b[:n])
			_, _ = p.WriteTo(b[:n], from)
		}
	}()
}

// canary listens at every address of the machine but the one outside.
func (w *world) canary() {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		w.t.Fatal(err)
	}
	at := ":0"
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP.String()
		if ip == outside {
			continue
		}
		w.own = append(w.own, ip)
		port := w.listen(net.JoinHostPort(ip, at[1:]), func(c net.Conn) { w.note("canary: a connection to %s", c.LocalAddr()) })
		at = fmt.Sprintf(":%d", port)
		w.canaryPort = port
		w.datagramsTo(net.JoinHostPort(ip, at[1:]), func(b []byte) { w.note("canary: a datagram to %s: %q", ip, b) })
	}
}

// certificates makes an authority and one certificate of it for every name.
func (w *world) certificates() *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{"api.test", "good.test", "other.test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.roots = filepath.Join(w.t.TempDir(), "roots.pem")
	if err := os.WriteFile(w.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// lies are what the DNS server says of names, as zone files write it. Names that are
// not here, such as good.test, are outside.
var lies = map[string][]string{
	"private.test.":         {"A 10.0.0.1"},
	"loop.test.":            {"A 127.0.0.1"},
	"own.test.":             {"A 192.168.7.7"},
	"public.test.":          {"A 93.184.216.34"},
	"zero.test.":            {"A 0.0.0.0"},
	"meta.test.":            {"A 169.254.169.254"},
	"mapped.test.":          {"AAAA ::ffff:127.0.0.1"},
	"nat64.test.":           {"AAAA 64:ff9b::7f00:1"},
	"mixed.test.":           {"A 127.0.0.1", "A 169.254.169.254", "A " + outside},
	"circle.test.":          {"CNAME circle.test."},
	"alias-of-denied.test.": {"CNAME denied.test."},
	"*.private.test.":       {"A 10.0.0.1"},
}

// resolve starts the DNS server that is the machine's resolver.
func (w *world) resolve() {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.resolver = udp.LocalAddr().String()
	tcp, err := net.Listen("tcp", w.resolver)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: udp}, {Listener: tcp}} {
		s.Handler = dns.HandlerFunc(w.lie)
		go func() {
			if err := s.ActivateAndServe(); err != nil && !errors.Is(err, net.ErrClosed) {
				w.t.Error(err)
			}
		}()
		w.t.Cleanup(func() { _ = s.Shutdown() })
	}
}

func (w *world) lie(to dns.ResponseWriter, q *dns.Msg) {
	asked := q.Question[0]
	name := strings.ToLower(asked.Name)
	w.note("question %s %s", name, dns.TypeToString[asked.Qtype])
	a := new(dns.Msg)
	a.SetReply(q)
	a.Compress = true
	say := func(owner, data string) {
		rr, err := dns.NewRR(owner + " 0 IN " + data)
		if err != nil {
			w.t.Error(err)
			return
		}
		if t := rr.Header().Rrtype; t == asked.Qtype || t == dns.TypeCNAME {
			a.Answer = append(a.Answer, rr)
		}
	}
	said, listed := lies[name]
	switch {
	case listed:
		for _, s := range said {
			say(asked.Name, s)
		}
	case name == "rebind.test.":
		// Public when it is checked, and then the machine itself.
		if w.rebound.Add(1)%2 == 1 {
			say(asked.Name, "A "+outside)
		} else {
			say(asked.Name, "A 127.0.0.1")
		}
	case name == "chain.test.":
		for i := range 60 {
			owner := fmt.Sprintf("c%d.test.", i)
			if i == 0 {
				owner = asked.Name
			}
			say(owner, fmt.Sprintf("CNAME c%d.test.", i+1))
		}
		say("c60.test.", "A 127.0.0.1")
	case name == "poison.test.":
		say("good.test.", "A 127.0.0.1")
		a.Extra = append(a.Extra, &dns.A{
			Hdr: dns.RR_Header{Name: "good.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 86400}, A: net.IPv4(127, 0, 0, 1),
		})
	case name == "giant.test.":
		for i := range 3000 {
			say(asked.Name, fmt.Sprintf("A 127.1.%d.%d", i/250, i%250))
			say(asked.Name, fmt.Sprintf("TXT %q", strings.Repeat("x", 200)))
		}
		for a.Len() > dns.MaxMsgSize {
			a.Answer = a.Answer[:len(a.Answer)*9/10]
		}
		if to.RemoteAddr().Network() == "udp" {
			a.Answer, a.Truncated = nil, true
		}
	case asked.Qtype == dns.TypeA:
		say(asked.Name, "A "+outside)
	case asked.Qtype == dns.TypeTXT:
		say(asked.Name, `TXT "text"`)
	case asked.Qtype == dns.TypeHTTPS:
		say(asked.Name, `HTTPS 1 . alpn="h3,h2" ipv4hint=10.0.0.1 ech="AEX+DQBBpQAgACBMQ6LmfVNcx9mKOqbnfAURzeDLyYhdvnxbTJnFZCSbEgAEAAEAAQASY2xvdWRmbGFyZS1lY2guY29tAAA="`)
	}
	_ = to.WriteMsg(a)
}
