//go:build linux

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// Addresses of the world's parts, all of them this machine's loopback. The ports are
// the real ones, for rules of E2B's clients know no others.
const (
	worldNet    = "127.77.0.0/16"
	worldDNS    = "127.77.0.53"
	worldAPI    = "127.77.0.2"
	worldOther  = "127.77.0.3"
	worldProxy  = "127.77.0.4"
	worldSecond = "127.77.0.5"
)

// Names of the world.
const (
	apiName   = "api.cubby-world.com"
	otherName = "other.cubby-world.com"
	proxyName = "proxy.cubby-world.com"
	deepName  = "a.b.cubby-world.com"
	apexName  = "cubby-world.com"
	evilName  = "evilcubby-world.com" // it only looks like one below the apex
)

// world is what sandboxes of a test can reach in place of the Internet: a name server,
// web servers with a certificate authority of their own, a proxy.
type world struct {
	server *server
	roots  string // file
	conf   string // file: the server's resolv.conf

	mu    sync.Mutex
	names map[string]string // addresses by name
	seen  []request
	asked []string // of the name server
	files http.Handler
}

// request is one that a web server of the world got.
type request struct {
	At     string // address and port that it came to
	TLS    bool
	Host   string
	Path   string
	Header http.Header
}

// newWorld starts a world and a server with further arguments whose sandboxes can reach it.
// It skips without the rights that ports 53, 80 and 443, and a resolv.conf of the
// server's own need.
func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	w := newEmptyWorld(t)
	w.start(t, os.Getenv("TMPDIR"), nil, args...)
	return w
}

// newEmptyWorld is a world without a server.
func newEmptyWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the test's own name server and web servers need ports below 1024: run it as root")
	}
	testenv.CheckLeaks(t)
	w := &world{names: map[string]string{
		apiName: worldAPI, otherName: worldOther, proxyName: worldProxy, deepName: worldAPI, apexName: worldOther, evilName: worldOther,
	}}
	w.listenDNS(t)
	certificate := w.authority(t, apiName, otherName, deepName, apexName, evilName)
	for _, at := range []string{worldAPI, worldOther} {
		for _, port := range []int{80, 443, 8080, 8443} {
			l, err := net.Listen("tcp", net.JoinHostPort(at, strconv.Itoa(port)))
			if err != nil {
				t.Skipf("the world's port cannot be had: %v", err)
			}
			srv := httptest.NewUnstartedServer(w)
			srv.Listener.Close()
			srv.Listener, srv.Config.ErrorLog = l, log.New(io.Discard, "", 0)
			if port == 443 || port == 8443 {
				srv.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
				srv.StartTLS()
			} else {
				srv.Start()
			}
			t.Cleanup(srv.Close)
		}
	}
	w.conf = filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(w.conf, []byte("nameserver "+worldDNS+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return w
}

// start starts a server with a folder, further variables and arguments, whose sandboxes
// can reach the world.
func (w *world) start(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	w.server = startBy(t, dir, w.by(), append([]string{"SSL_CERT_FILE=" + w.roots}, env...), append([]string{"--reach", worldNet}, args...)...)
}

// by is a command line before that of a server, for which the world's name server is the
// machine's.
func (w *world) by() []string {
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, w.conf}
}

// ServeHTTP tells what it was asked, as JSON and as it is, or serves files.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	at := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
	seen := request{at, r.TLS != nil, r.Host, r.URL.Path, r.Header.Clone()}
	w.mu.Lock()
	w.seen = append(w.seen, seen)
	files := w.files
	w.mu.Unlock()
	if files != nil && strings.HasPrefix(r.URL.Path, "/repo.git/") {
		files.ServeHTTP(rw, r)
		return
	}
	rw.Header().Set("X-Authorization-Was", r.Header.Get("Authorization"))
	_ = json.NewEncoder(rw).Encode(seen)
}

// requests are those that came since the last call.
func (w *world) requests() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

func (w *world) listenDNS(t *testing.T) {
	t.Helper()
	handler := dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		name := strings.TrimSuffix(strings.ToLower(q.Question[0].Name), ".")
		w.mu.Lock()
		w.asked = append(w.asked, name)
		at, known := w.names[name]
		w.mu.Unlock()
		switch {
		case !known:
			a.Rcode = dns.RcodeNameError
		case q.Question[0].Qtype == dns.TypeA:
			head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
			a.Answer = append(a.Answer, &dns.A{Hdr: head, A: net.ParseIP(at)})
		}
		_ = rw.WriteMsg(a)
	})
	packets, err := net.ListenPacket("udp", worldDNS+":53")
	if err != nil {
		t.Skipf("the world's name server cannot be started: %v", err)
	}
	listener, err := net.Listen("tcp", worldDNS+":53")
	if err != nil {
		packets.Close()
		t.Skipf("the world's name server cannot be started: %v", err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
}

// authority makes a certificate authority, whose certificate is in a file that the server
// is told of, and a certificate of it.
func (w *world) authority(t *testing.T, names ...string) tls.Certificate {
	t.Helper()
	make := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			by = key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the world's authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	root, by := make(ca, ca, nil)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, key := make(leaf, ca, by)
	w.roots = filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(w.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sandbox makes one with a network, as E2B's clients write it.
func (w *world) sandbox(t *testing.T, network map[string]any) box {
	t.Helper()
	var b box
	call(t, http.DefaultClient, "POST", w.server.URL+"/v2/sandboxes",
		map[string]any{"templateID": "base", "timeout": 600, "network": network}, "X-API-KEY", w.server.Key).decode(t, http.StatusCreated, &b)
	t.Cleanup(func() { kill(w.server, b) })
	return b
}

// run runs a command in a sandbox.
func (w *world) run(t *testing.T, b box, text string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := run(ctx, http.DefaultClient, w.server.URL, command{Text: text}, b.routed(portEnvd)...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// impostor accepts connections with a certificate that nobody signed, until the test
// ends. The result tells how many came, and fails the test if one sent a request.
func impostor(t *testing.T, at string) (came func() int) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("an impostor was sent %v", r.Header)
	}))
	srv.Listener.Close()
	srv.Listener, srv.Config.ErrorLog = l, log.New(io.Discard, "", 0)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return func() int { return int(n.Load()) }
}
