package web

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func authority(t testing.TB) (*Authority, *x509.CertPool) {
	t.Helper()
	a, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("the certificate is none")
	}
	return a, roots
}

// pair is both ends of a connection of TCP.
func pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	a, b := pair(t)
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	go func() {
		tls.Server(b, server).HandshakeContext(ctx)
		b.Close()
	}()
	conn := tls.Client(a, client)
	err := conn.HandshakeContext(ctx)
	return conn.ConnectionState(), err
}

func TestAuthority(t *testing.T) {
	a, roots := authority(t)
	block, _ := pem.Decode(a.Certificate())
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !certificate.IsCA || certificate.PermittedDNSDomains != nil || certificate.ExcludedDNSDomains != nil ||
		certificate.PublicKey.(*ecdsa.PublicKey).Curve != elliptic.P256() || time.Until(certificate.NotAfter) < 20*365*24*time.Hour {
		t.Errorf("%+v", certificate)
	}
	for _, name := range []string{"api.example.com", "_x.example.com", "203.0.113.7", "2001:db8::1", strings.Repeat("a.", 60) + "example.com"} {
		state, err := handshake(t, a.ServerConfig(name), ClientConfig(name, roots))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if state.NegotiatedProtocol != "http/1.1" || state.Version != tls.VersionTLS13 {
			t.Errorf("%s: %+v", name, state)
		}
	}
	refused := map[string]*tls.Config{
		"another name":     ClientConfig("other.example.com", roots),
		"HTTP/2 alone":     {ServerName: "api.example.com", RootCAs: roots, NextProtos: []string{"h2"}},
		"TLS 1.1":          {ServerName: "api.example.com", RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"no roots":         ClientConfig("api.example.com", nil),
		"another's roots":  ClientConfig("api.example.com", func() *x509.CertPool { _, roots := authority(t); return roots }()),
		"a name above our": ClientConfig("example.com", roots),
	}
	for title, config := range refused {
		if _, err := handshake(t, a.ServerConfig("api.example.com"), config); err == nil {
			t.Errorf("%s: not refused", title)
		}
	}
	if _, err := handshake(t, a.ServerConfig("api.example.com"), ClientConfig("API.example.com", roots)); err != nil {
		t.Errorf("upper case: %v", err)
	}
}

func TestAuthorityIsKept(t *testing.T) {
	a, roots := authority(t)
	again, err := ParseAuthority(a.PEM())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Certificate(), a.Certificate()) || !bytes.Equal(again.PEM(), a.PEM()) {
		t.Error("it has become another")
	}
	if _, err := handshake(t, again.ServerConfig("example.com"), ClientConfig("example.com", roots)); err != nil {
		t.Error(err)
	}
	other, _ := authority(t)
	key := func(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}) }
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	rsaDER, _ := x509.MarshalPKCS8PrivateKey(rsaKey)
	leaf, err := a.issue("example.com")
	if err != nil {
		t.Fatal(err)
	}
	leafDER, _ := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	for title, text := range map[string][]byte{
		"nothing":               nil,
		"garbage":               []byte("x"),
		"no key":                a.Certificate(),
		"no certificate":        key(a.keyDER),
		"two keys":              append(key(a.keyDER), a.PEM()...),
		"two certificates":      append(a.PEM(), other.Certificate()...),
		"another's certificate": append(key(a.keyDER), other.Certificate()...),
		"garbage behind":        append(a.PEM(), "x"...),
		"a broken key":          append(key(a.keyDER[:40]), a.Certificate()...),
		"a key of RSA":          append(key(rsaDER), a.Certificate()...),
		"a host's certificate":  append(key(leafDER), pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: leaf.Certificate[0]})...),
	} {
		_, err := ParseAuthority(text)
		if err == nil {
			t.Errorf("%s: no error", title)
			continue
		}
		if hasSecret(err.Error(), a) {
			t.Errorf("%s: the error shows the key: %v", title, err)
		}
	}
}

// hasSecret says whether text shows a's private key.
func hasSecret(text string, a *Authority) bool {
	block, _ := pem.Decode(a.PEM())
	d, err := a.key.Bytes()
	if err != nil {
		return true
	}
	for _, form := range []string{
		string(block.Bytes), string(d), fmt.Sprint(d), fmt.Sprintf("%x", d), fmt.Sprintf("%X", d), a.key.D.String(),
		strings.Split(string(a.PEM()), "\n")[1],
	} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

func TestAuthorityShowsNoKey(t *testing.T) {
	a, _ := authority(t)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "authority", a)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "authority", a)
	encoded, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %q %x %d %v", a, a, a, a, a, a, a, struct{ A *Authority }{a}) + log.String() + string(encoded)
	if hasSecret(text, a) || !strings.Contains(text, "web.Authority") {
		t.Error(text)
	}
}

func TestAuthorityLeavesAreBounded(t *testing.T) {
	a, _ := authority(t)
	first := a.ServerConfig("0.example.com")
	if a.ServerConfig("0.EXAMPLE.com") != first {
		t.Error("not kept")
	}
	for i := range 2 * maxLeaves {
		a.ServerConfig(fmt.Sprintf("%d.example.com", i))
		if i%100 == 0 && a.ServerConfig("0.example.com") != first {
			t.Errorf("what is used was dropped at %d", i)
		}
	}
	if len(a.leaves) != maxLeaves || a.recent.Len() != maxLeaves {
		t.Errorf("%d leaves, %d", len(a.leaves), a.recent.Len())
	}
	a.leaves["0.example.com"].Value.(*leaf).made = time.Now().Add(-leafRenew - time.Minute)
	if a.ServerConfig("0.example.com") == first {
		t.Error("an old certificate is not renewed")
	}
}

// What programs look at differs: Python since 3.13 is strict about extensions.
func TestAuthorityIsTrustedByPrograms(t *testing.T) {
	a, _ := authority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.ServerConfig("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(time.Minute))
				conn.Read(make([]byte, 4096))
				conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, a.Certificate(), 0o644); err != nil {
		t.Fatal(err)
	}
	url := "https://localhost:" + port + "/"
	for name, args := range map[string][]string{
		"curl": {"-sS", "--noproxy", "*", "--cacert", file, url},
		"python3": {"-c", `
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags |= ssl.VERIFY_X509_STRICT
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
print(opener.open(sys.argv[2]).read().decode(), end="")`, file, url},
		"node": {"-e", `
require("https").get(process.argv[2], {ca: require("fs").readFileSync(process.argv[1])}, r => r.pipe(process.stdout))`, file, url},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil || string(out) != "ok" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestDerivedAuthority: who trusts the authority of a seed trusts what another process
// makes of the same seed, and of no other.
func TestDerivedAuthority(t *testing.T) {
	derive := func(seed string) *Authority {
		a, err := DeriveAuthority([]byte(seed))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	before, now, other := derive("seed"), derive("seed"), derive("another")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(before.Certificate())
	for name, test := range map[string]struct {
		of      *Authority
		trusted bool
	}{"the same seed": {now, true}, "another": {other, false}} {
		leaf, err := test.of.issue("example.com")
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(leaf.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{DNSName: "example.com", Roots: roots}); (err == nil) != test.trusted {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again, err := ParseAuthority(now.PEM()); err != nil || !bytes.Equal(again.Certificate(), now.Certificate()) {
		t.Error(err)
	}
}
